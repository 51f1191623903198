"""Asks a person in the terminal for what a run asks: forms field by field, approvals with what would be called."""

import json
from collections.abc import Mapping
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.history import InMemoryHistory
from pydantic import JsonValue
from rich.console import Console

from ai_platform_engineering.core.events import Approval, Form, InputField
from ai_platform_engineering.core.forms import REJECT, check_form
from ai_platform_engineering.core.transcript import PendingInput
from ai_platform_engineering.terminal.key_bindings import newline_key_bindings
from ai_platform_engineering.terminal.request_text import (
    current_value,
    describe_field,
    format_value,
    render_request,
)
from ai_platform_engineering.terminal.screen import render_json, sanitize_line, sanitize_text

_DECLINE = "/decline"
_LETTERS = {
    "y": "approve",
    "yes": "approve",
    "a": "always",
    "e": "edit",
    "n": "reject",
    "no": "reject",
    "l": "later",
}
_YES, _NO = ("", "y", "yes"), ("n", "no")
_TRUTH = {"y": True, "n": False}

Values = dict[str, JsonValue]


class RequestPostponed(Exception):
    """The person leaves the request open."""


class AllRequestsPostponed(RequestPostponed):
    """By Ctrl-C or Ctrl-D: nothing else is to be asked now, either."""


class _Declined(Exception):
    """With the reason, if there is one."""


class RequestPrompter:
    """What was filled in is kept while the session lasts, so that a form that was left or sent back need not be filled in anew."""

    def __init__(self, console: Console) -> None:
        self._console = console
        # Not the history of questions, which is a file: what people fill in is nobody's business afterwards.
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), key_bindings=newline_key_bindings()
        )
        self._kept: dict[str, Values] = {}

    async def ask_for_answer(self, request: PendingInput, wrong: Mapping[str, str]) -> dict[str, Any]:
        """The answer to send. Raises Later."""
        self._say(render_request(request, commands=False))
        for sentence in wrong.values():
            self._say(sentence, "red")
        try:
            if isinstance(request.asked, Approval):
                return await self._decide(request.asked)
            return await self._fill_in(request.asked, self._kept.setdefault(request.request_id, {}))
        except _Declined as declined:
            reason = str(declined)
            return {"type": REJECT, **({"message": reason} if reason else {})}

    def move_draft(self, request_id: str, to: str) -> None:
        """The same form is asked under another id."""
        if request_id in self._kept:
            self._kept[to] = self._kept.pop(request_id)

    # --- forms --------------------------------------------------------------------------------------------------------

    async def _fill_in(self, form: Form, kept: Values) -> dict[str, Any]:
        self._say(
            "Enter takes what is in brackets; /decline REASON declines the form; Ctrl-C leaves it for later.",
            "dim",
        )
        while True:
            for field in form.fields:
                await self._field(field, kept)
            self._say(
                "\n".join(
                    [
                        "",
                        *(
                            f"{_label(field)}: {format_value(kept.get(field.field_name)) or '-'}"
                            for field in form.fields
                        ),
                    ]
                )
            )
            if await self._confirmed():
                return dict(kept)

    async def _field(self, field: InputField, kept: Values) -> None:
        """Asks until the value will do."""
        name, now = field.field_name, kept.get(field.field_name, current_value(field))
        self._explain(field)
        yes_or_no = " (y/n)" if field.field_type == "boolean" else ""
        if now is not None:
            shown = f" [{format_value(now)}]"
        elif field.required:
            shown = ""
        else:
            shown = " [skip]"
        while True:
            typed = await self._typed(f"{_label(field)}{yes_or_no}{shown}: ")
            good, wrong = check_form(Form(fields=(field,)), {name: _meant(field, typed) if typed else now})
            if not wrong:
                kept.pop(name, None)
                kept.update(good)
                return
            self._say(wrong[name], "red")

    def _explain(self, field: InputField) -> None:
        about = sanitize_text(field.field_description).strip() if field.field_description else ""
        choices = [
            f"  {number}. {sanitize_line(choice)}"
            for number, choice in enumerate(field.field_values or (), 1)
        ]
        rules = describe_field(
            field.model_copy(update={"field_values": None, "default_value": None, "value": None})
        )
        more = ", Esc-Enter makes a new line" if field.field_type == "textarea" else ""
        several = ", several with commas between them" if field.field_type == "multiselect" else ""
        self._say("\n".join([*([about] if about else []), f"({rules}{more}{several})", *choices]), "dim")

    async def _confirmed(self) -> bool:
        """False to go through it again."""
        while True:
            said = (await self._typed("Send? [Y/n/edit] ")).lower()
            if said in _YES:
                return True
            if said in _NO:
                raise RequestPostponed
            if said in ("e", "edit"):
                return False

    # --- approvals ----------------------------------------------------------------------------------------------------

    async def _decide(self, asked: Approval) -> dict[str, Any]:
        allowed = [*asked.allowed, *(["always"] if "approve" in asked.allowed else []), "later"]
        choices = ", ".join(
            f"{word} ({letter})" for letter, word in _LETTERS.items() if len(letter) == 1 and word in allowed
        )
        while True:
            word, _, rest = (await self._typed(f"{choices}: ")).partition(" ")
            match decision := _LETTERS.get(word.lower(), word.lower()):
                case _ if decision not in allowed:
                    continue
                case "approve":
                    return {"type": "approve"}
                case "always":
                    return {"type": "approve", "always": True}
                case "edit":
                    return {"type": "edit", "arguments": await self._edited(asked)}
                case "reject":
                    reason = rest.strip() or await self._typed("Reason [none]: ")
                    return {"type": REJECT, **({"message": reason} if reason else {})}
                case _:
                    raise RequestPostponed

    async def _edited(self, asked: Approval) -> dict[str, Any]:
        arguments: dict[str, Any] = asked.arguments
        while True:
            typed = await self._typed("Arguments: ", default=render_json(arguments))
            try:
                changed = json.loads(typed)
            except ValueError:
                changed = None
            if not isinstance(changed, dict):
                self._say("The arguments are a JSON object with a value for each name.", "red")
                continue
            arguments = changed
            self._say(render_json(arguments, indent=2))
            if await self._confirmed():
                return arguments

    # --- the terminal -------------------------------------------------------------------------------------------------

    async def _typed(self, prompt: str, default: str = "") -> str:
        try:
            typed = (await self._session.prompt_async(prompt, default=default)).strip()
        except (KeyboardInterrupt, EOFError):
            raise AllRequestsPostponed from None
        word, _, rest = typed.partition(" ")
        if word == _DECLINE:
            raise _Declined(rest.strip())
        return typed

    def _say(self, text: str, style: str = "") -> None:
        self._console.print(sanitize_text(text), style=style, markup=False, highlight=False, emoji=False)


def _label(field: InputField) -> str:
    return sanitize_line(field.field_label or field.field_name)


def _meant(field: InputField, typed: str) -> Any:
    """What was typed as a value: a number or any case of a choice is the choice."""
    match field.field_type:
        case "select":
            return _choice(field, typed)
        case "multiselect" if typed not in (field.field_values or ()):
            return [_choice(field, one.strip()) for one in typed.split(",") if one.strip()]
        case "multiselect":
            return [typed]
        case "boolean":
            return _TRUTH.get(typed.lower(), typed)
        case _:
            return typed


def _choice(field: InputField, typed: str) -> str:
    choices = field.field_values or ()
    if typed in choices:
        return typed
    if typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(choices):
        return choices[int(typed) - 1]
    alike = [choice for choice in choices if choice.casefold() == typed.casefold()]
    if len(alike) == 1:
        return alike[0]
    return typed
