"""Reads answers out of plain text, in the exact forms that `core/request_text.py` explains to people.

A decision is one of these forms or none: it is never guessed from a sentence."""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.decisions import (
    APPROVE,
    ARGUMENTS_KEY,
    DECISION_KEY,
    EDIT,
    MESSAGE_KEY,
    REJECT,
)
from ai_platform_engineering.core.events import Approval, Form, InputRequested
from ai_platform_engineering.core.request_text import ANSWER_WORD, Requests

Answer = tuple[str, Any]  # a request id, and the value that was sent for it

_COMMAND = re.compile(
    rf"\s*({APPROVE}|{REJECT}|{EDIT}|{ANSWER_WORD})\b[ \t]*(?:#?(\d{{1,6}})\b)?[ \t]*[:,]?[ \t]*(.*)\Z",
    re.IGNORECASE | re.DOTALL,
)
_END_MARKS = " \t\r\n.!\"'"


def match_text(
    text: str,
    pending: Sequence[InputRequested],
    numbered: Requests,
    unmatched: list[str],
    *,
    text_decisions: bool,
) -> Iterator[Answer]:
    """The answers in a text. `numbered`: all requests of the run by number, also those that are closed."""
    if not text:
        return
    command = _COMMAND.match(text)
    if command is not None and command[2] is not None and _needs_number(command[2], pending, numbered):
        request = numbered.get(int(command[2]))
        if request is None or request not in pending:
            unmatched.append(f"Request {command[2]} takes no answer.")
            return
        value = _read_command(command[1].lower(), command[3], request, text_decisions=text_decisions)
        if value is None:
            unmatched.append(f"Your answer to request {command[2]} was not understood.")
            return
        yield request.request_id, value
        return
    yield from _match_unnumbered(text, command, pending, text_decisions=text_decisions)


def _needs_number(number: str, pending: Sequence[InputRequested], numbered: Requests) -> bool:
    """Whether the number in a text names a request: with one open request, only its own does."""
    if len(pending) != 1:
        return True
    return numbered.get(int(number)) == pending[0]


def _match_unnumbered(
    text: str, command: re.Match[str] | None, pending: Sequence[InputRequested], *, text_decisions: bool
) -> Iterator[Answer]:
    """A text without a number: for the only request, the only form, or the only one that takes any text."""
    text_requests = [request for request in pending if request.asked.takes_text]
    if len(text_requests) == 1 and isinstance(text_requests[0].asked, Form):
        [text_field] = text_requests[0].asked.fields
        yield text_requests[0].request_id, {text_field.field_name: text}
        return
    if len(pending) == 1:
        [request] = pending
        word, rest = (command[1].lower(), text[command.end(1) :]) if command else ("", text)
        value = _read_command(word, rest, request, text_decisions=text_decisions)
        if value is not None:
            yield request.request_id, value
        return
    forms = [request for request in pending if isinstance(request.asked, Form)]
    if len(forms) == 1:
        values = _read_form_lines(text, forms[0].asked)
        if values:
            yield forms[0].request_id, values


def _read_command(word: str, rest: str, request: InputRequested, *, text_decisions: bool) -> Any:
    """The answer that a word and the text behind it give to a request; None when they give none.

    Without a word, the text is lines `name: value`."""
    match request.asked:
        case Form() as form:
            return _read_form_answer(word, rest, form)
        case Approval() as approval:
            if not text_decisions:
                return None
            return _read_decision(word, rest, approval)


def _read_form_answer(word: str, rest: str, form: Form) -> Any:
    if word == REJECT:
        return {DECISION_KEY: REJECT, MESSAGE_KEY: rest.strip()}
    if word not in ("", ANSWER_WORD):
        return None
    if form.takes_text:
        [text_field] = form.fields
        return {text_field.field_name: rest.strip()}
    return _read_form_lines(rest, form) or None


def _read_form_lines(text: str, form: Any) -> dict[str, str]:
    if not isinstance(form, Form):
        return {}
    return _read_lines(text, {field.field_name for field in form.fields})


def _read_decision(word: str, rest: str, approval: Approval) -> dict[str, Any] | None:
    match word:
        case "approve":
            if rest.strip(_END_MARKS):
                return None  # "approve it, but" is no approval of what was shown
            return {DECISION_KEY: APPROVE}
        case "reject":
            return {DECISION_KEY: REJECT, MESSAGE_KEY: rest.strip(" \t\r\n:,")}
        case "edit" | "":
            changes = _read_changes(rest, approval)
            if not changes:
                return None
            return {DECISION_KEY: EDIT, ARGUMENTS_KEY: {**approval.arguments, **changes}}
        case _:
            return None


def _read_changes(text: str, approval: Approval) -> dict[str, Any]:
    """Lines `name: value` with the arguments to change; a value that was no text is read as JSON."""
    schema = approval.arguments_schema or {}
    properties = schema.get("properties")
    names = {*approval.arguments}
    if isinstance(properties, Mapping):
        names |= {*properties}
    changes: dict[str, Any] = {}
    for name, value in _read_lines(text, names).items():
        changes[name] = _read_argument(value, _is_text(name, approval, properties))
    return changes


def _is_text(name: str, approval: Approval, properties: Any) -> bool:
    if isinstance(properties, Mapping):
        schema = properties.get(name)
        if isinstance(schema, Mapping) and "type" in schema:
            return bool(schema["type"] == "string")
    return isinstance(approval.arguments.get(name, ""), str)


def _read_argument(value: str, is_text: bool) -> Any:
    if is_text:
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return value  # the check against the tool's schema says what is wrong


def _read_lines(text: str, names: set[str]) -> dict[str, str]:
    """Lines `name: value`; none when any line is something else."""
    values: dict[str, str] = {}
    for line in text.splitlines():
        if not line.strip():
            continue
        name, colon, value = line.partition(":")
        if not colon or name.strip() not in names:
            return {}
        values[name.strip()] = value.strip()
    return values
