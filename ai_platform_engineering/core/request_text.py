"""Requests in plain text: what a form or an approval asks, and how a text answers it.

For clients that show text alone. `runtime/runs/text_answers.py` reads the answers that are described here."""

from collections.abc import Mapping, Sequence

from ai_platform_engineering.core.decisions import APPROVE, EDIT, REJECT
from ai_platform_engineering.core.display_text import reveal, reveal_json, reveal_line
from ai_platform_engineering.core.events import (
    FREE_TEXT_FIELD,
    Approval,
    Form,
    InputField,
    InputRequested,
)
from ai_platform_engineering.core.sentences import end_sentence

ANSWER_WORD = "answer"  # before the number of a form

Requests = Mapping[int, InputRequested]  # by number: the first request of a run is 1, and keeps its number


def number_requests(requests: Sequence[InputRequested]) -> dict[int, InputRequested]:
    """All requests of a run by number, in the order in which they were made."""
    return dict(enumerate(requests, 1))


def describe_requests(pending: Requests, *, takes_decisions: bool = True) -> str:
    """What is asked, and how to answer by text. `takes_decisions`: texts may decide on approvals."""
    blocks: list[str] = []
    needs_number = len(pending) > 1
    for number, request in pending.items():
        suffix = f" {number}" if needs_number else ""
        lines = [*_describe(request), *_explain_answer(request, suffix, takes_decisions)]
        if needs_number:
            lines[0] = f"{number}. {lines[0]}"
        blocks.append("\n".join(lines))
    return "\n\n".join(blocks)


def _describe(request: InputRequested) -> list[str]:
    match request.asked:
        case Form() as form:
            return _describe_form(form)
        case Approval() as approval:
            return _describe_approval(request.agent, approval)


def _describe_form(form: Form) -> list[str]:
    texts = (form.title, form.description, form.response)
    lines = [reveal(text.strip()) for text in dict.fromkeys(texts) if text and text.strip()]
    if not lines:
        lines = ["A form:"]
    if form.fields == (FREE_TEXT_FIELD,):
        return lines  # the question says it all
    return [*lines, *(_describe_field(field) for field in form.fields)]


def _describe_field(field: InputField) -> str:
    traits: list[str] = []
    if field.field_type != "text":
        traits.append(field.field_type)
    traits.append("required" if field.required and field.default_value is None else "optional")
    line = f"- {reveal_line(field.field_name)} ({', '.join(traits)})"
    details: list[str] = []
    if field.field_label and field.field_label != field.field_name:
        details.append(end_sentence(reveal_line(field.field_label)))
    if field.field_description:
        details.append(end_sentence(reveal_line(field.field_description)))
    if field.field_values:
        details.append(f"One of: {', '.join(map(reveal_line, field.field_values))}.")
    if field.default_value is not None:
        details.append(f"Default: {_show(field.default_value)}.")
    if field.pattern:
        details.append(f"Form: {reveal_line(field.pattern)}.")
    if not details:
        return line
    return f"{line}: {' '.join(details)}"


def _show(value: object) -> str:
    if isinstance(value, str):
        return reveal_line(value)
    return reveal_json(value)


def _describe_approval(agent: str, approval: Approval) -> list[str]:
    lines = [f"{reveal_line(agent)} wants to call {reveal_line(approval.tool)}."]
    if approval.reason:
        lines.append(f"Why: {end_sentence(reveal_line(approval.reason))}")
    if not approval.arguments:
        lines.append("It has no arguments.")
    else:
        lines.append("Arguments:")
    lines += [f"- {reveal_line(name)}: {reveal_json(value)}" for name, value in approval.arguments.items()]
    return lines


def _explain_answer(request: InputRequested, suffix: str, takes_decisions: bool) -> list[str]:
    """`suffix` is the number with a space before it, or empty when only one request is open."""
    match request.asked:
        case Form() as form:
            return [_explain_form_answer(form, suffix)]
        case Approval() as approval:
            if not takes_decisions:
                return ["A decision is taken as data alone."]
            return [_explain_decision(approval, suffix)]


def _explain_form_answer(form: Form, suffix: str) -> str:
    if form.takes_text:
        if not suffix:
            return "Answer with a text."
        return f'Answer with "{ANSWER_WORD}{suffix}" and your text.'
    example = "name"
    if form.fields:
        example = reveal_line(form.fields[0].field_name)
    start = f'"{ANSWER_WORD}{suffix}" and ' if suffix else ""
    return (
        f'Answer with {start}a line for each field, such as "{example}: value", '
        f'or with "{REJECT}{suffix} <reason>".'
    )


def _explain_decision(approval: Approval, suffix: str) -> str:
    choices: list[str] = []
    if APPROVE in approval.allowed:
        choices.append(f'"{APPROVE}{suffix}"')
    if REJECT in approval.allowed:
        choices.append(f'"{REJECT}{suffix} <reason>"')
    if EDIT in approval.allowed:
        start = f'"{EDIT}{suffix}" and ' if suffix else ""
        choices.append(f'{start}a line "name: value" for each argument to change')
    return f"Answer with {', or '.join(choices)}."
