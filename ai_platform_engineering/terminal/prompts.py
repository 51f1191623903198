"""Prompts for the requests of a run: forms field by field, approvals with the call that would be made."""

import json
from collections.abc import Mapping
from typing import Any

from prompt_toolkit import PromptSession
from prompt_toolkit.history import InMemoryHistory
from pydantic import JsonValue
from rich.console import Console

from ai_platform_engineering.core.decisions import answer_approve, answer_edit, answer_reject
from ai_platform_engineering.core.display_text import reveal, reveal_json, reveal_line
from ai_platform_engineering.core.events import Approval, Form, InputField
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.transcript import PendingInput
from ai_platform_engineering.terminal.key_bindings import newline_key_bindings
from ai_platform_engineering.terminal.prompt_output import prompt_output
from ai_platform_engineering.terminal.question_prompt import COMMANDS
from ai_platform_engineering.terminal.request_text import (
    current_value,
    describe_limits,
    format_value,
    render_introduction,
)
from ai_platform_engineering.terminal.screen import print_plain

_DECLINE_COMMAND = "/decline"
_DECISION_PROMPT = "Decision: "
_DECISIONS = {
    "y": "approve",
    "yes": "approve",
    "a": "always",
    "e": "edit",
    "n": "reject",
    "no": "reject",
    "l": "later",
}
_YES_WORDS = ("", "y", "yes")
_NO_WORDS = ("n", "no")
_EDIT_WORDS = ("e", "edit")
_BOOLEANS = {"y": True, "n": False}

FormValues = dict[str, JsonValue]


class RequestPostponed(Exception):
    """The person leaves the request open."""


class AllRequestsPostponed(RequestPostponed):
    """The person left with Ctrl-C or Ctrl-D: the other requests are not to be asked now, either."""


class _Declined(Exception):
    """The person declines the form, with a reason if there is one."""


class RequestPrompter:
    """Asks a person for answers to requests.

    Drafts are kept while the session lasts, so that a form that was left or sent back
    need not be filled in anew.
    """

    def __init__(self, console: Console) -> None:
        self._console = console
        # Not the history of questions, which is a file: what people fill in may be confidential.
        self._session: PromptSession[str] = PromptSession(
            history=InMemoryHistory(), key_bindings=newline_key_bindings(), output=prompt_output()
        )
        self._drafts: dict[str, FormValues] = {}

    async def ask_for_answer(self, request: PendingInput, problems: Mapping[str, str]) -> dict[str, Any]:
        """The answer to send; problems are those of an earlier answer, by field. Raises RequestPostponed."""
        self._print(render_introduction(request))
        for problem in problems.values():
            self._print(problem, "red")
        try:
            if isinstance(request.asked, Approval):
                return await self._ask_for_decision(request.asked)
            return await self._fill_in(request.asked, self._drafts.setdefault(request.request_id, {}))
        except _Declined as declined:
            return answer_reject(str(declined))

    def move_draft(self, request_id: str, new_request_id: str) -> None:
        """Keeps the draft of a form that is asked again under another id."""
        if request_id in self._drafts:
            self._drafts[new_request_id] = self._drafts.pop(request_id)

    # --- forms ----------------------------------------------------------------------------------------

    async def _fill_in(self, form: Form, draft: FormValues) -> dict[str, Any]:
        self._print(
            "Enter accepts the value in brackets; /decline REASON declines the form; Ctrl-C leaves it open.",
            "dim",
        )
        while True:
            for field in form.fields:
                await self._ask_for_field(field, draft)
            summary = [""]
            for field in form.fields:
                summary.append(f"{_label(field)}: {format_value(draft.get(field.field_name)) or '-'}")
            self._print("\n".join(summary))
            if await self._confirm():
                return dict(draft)

    async def _ask_for_field(self, field: InputField, draft: FormValues) -> None:
        """Asks until the value is valid, and puts it into the draft."""
        name = field.field_name
        default = draft.get(name, current_value(field))
        self._explain_field(field)
        prompt = _field_prompt(field, default)
        while True:
            typed = await self._prompt(prompt)
            value = _parse_value(field, typed) if typed else default
            valid_values, problems = check_form(Form(fields=(field,)), {name: value})
            if not problems:
                draft.pop(name, None)
                draft.update(valid_values)
                return
            self._print(problems[name], "red")

    def _explain_field(self, field: InputField) -> None:
        """Says what the prompt does not: description, limits, choices and example."""
        lines: list[str] = []
        description = reveal(field.field_description or "").strip()
        if description:
            lines.append(description)
        limits = list(filter(None, [describe_limits(field)]))
        if field.placeholder:
            limits.append(f"for example {reveal_line(field.placeholder)}")
        if field.field_type == "textarea":
            limits.append("Esc-Enter makes a new line")
        if field.field_type == "multiselect":
            limits.append("separate several with commas")
        if limits:
            lines.append(f"({', '.join(limits)})")
        for number, choice in enumerate(field.field_values or (), 1):
            lines.append(f"  {number}. {reveal_line(choice)}")
        if lines:
            self._print("\n".join(lines), "dim")

    async def _confirm(self) -> bool:
        """True to send, False to edit again. Raises RequestPostponed."""
        while True:
            word = (await self._prompt("Send? [Y/n/edit] ")).lower()
            if word in _YES_WORDS:
                return True
            if word in _NO_WORDS:
                raise RequestPostponed
            if word in _EDIT_WORDS:
                return False

    # --- approvals ------------------------------------------------------------------------------------

    async def _ask_for_decision(self, approval: Approval) -> dict[str, Any]:
        allowed = [*approval.allowed, "later"]
        if "approve" in approval.allowed:
            allowed.append("always")
        choices: list[str] = []
        for letter, decision in _DECISIONS.items():
            if len(letter) == 1 and decision in allowed:
                choices.append(f"{decision} ({letter})")
        self._print(", ".join(choices))
        while True:
            word, _, rest = (await self._prompt(_DECISION_PROMPT)).partition(" ")
            decision = _DECISIONS.get(word.lower(), word.lower())
            if decision in allowed:
                return await self._carry_out(decision, rest.strip(), approval)
            self._print(f"Choose one of: {', '.join(choices)}. To ask something else, leave it for later.")

    async def _carry_out(self, decision: str, reason: str, approval: Approval) -> dict[str, Any]:
        match decision:
            case "approve":
                return answer_approve(approval.digest)
            case "always":
                return answer_approve(approval.digest, always=True)
            case "edit":
                return answer_edit(await self._edit_arguments(approval), approval.digest)
            case "reject":
                return answer_reject(reason or await self._prompt("Reason [none]: "))
            case _:
                raise RequestPostponed

    async def _edit_arguments(self, approval: Approval) -> dict[str, Any]:
        arguments: dict[str, Any] = approval.arguments
        while True:
            typed = await self._prompt("Arguments: ", default=reveal_json(arguments))
            try:
                parsed = json.loads(typed)
            except (ValueError, RecursionError):
                parsed = None
            if not isinstance(parsed, dict):
                self._print("Write the arguments as a JSON object.", "red")
                continue
            arguments = parsed
            self._print(reveal_json(arguments, indent=2))
            if await self._confirm():
                return arguments

    # --- the terminal ---------------------------------------------------------------------------------

    async def _prompt(self, prompt: str, default: str = "") -> str:
        """Reads an input. Raises AllRequestsPostponed, and _Declined for `/decline`."""
        while True:
            try:
                typed = (await self._session.prompt_async(prompt, default=default)).strip()
            except (KeyboardInterrupt, EOFError):
                raise AllRequestsPostponed from None
            word, _, rest = typed.partition(" ")
            if word == _DECLINE_COMMAND:
                raise _Declined(rest.strip())
            if typed not in COMMANDS:
                return typed
            self._print(f"{typed} works at the prompt of the chat. Ctrl-C leaves this open.", "yellow")

    def _print(self, text: str, style: str = "") -> None:
        print_plain(self._console, text, style)


def _label(field: InputField) -> str:
    return reveal_line(field.field_label or field.field_name)


def _field_prompt(field: InputField, default: JsonValue) -> str:
    choices = " (y/n)" if field.field_type == "boolean" else ""
    if default is not None:
        hint = f" [{format_value(default)}]"
    elif field.required:
        hint = ""
    else:
        hint = " [skip]"
    return f"{_label(field)}{choices}{hint}: "


def _parse_value(field: InputField, typed: str) -> Any:
    """The value of a typed text: the number of a choice, or its text in any case, is the choice."""
    match field.field_type:
        case "select":
            return _parse_choice(field, typed)
        case "multiselect" if typed not in (field.field_values or ()):
            return [_parse_choice(field, part.strip()) for part in typed.split(",") if part.strip()]
        case "multiselect":
            return [typed]
        case "boolean":
            return _BOOLEANS.get(typed.lower(), typed)
        case _:
            return typed


def _parse_choice(field: InputField, typed: str) -> str:
    choices = field.field_values or ()
    if typed in choices:
        return typed
    if typed.isascii() and typed.isdigit() and 0 < int(typed) <= len(choices):
        return choices[int(typed) - 1]
    matches = [choice for choice in choices if choice.casefold() == typed.casefold()]
    if len(matches) == 1:
        return matches[0]
    return typed
