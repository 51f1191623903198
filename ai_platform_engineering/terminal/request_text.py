"""Requests of runs as text for a terminal, with the commands that answer them.

People decide on it: nothing is cut, and characters that cannot be seen are named.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.display_text import reveal, reveal_json, reveal_line
from ai_platform_engineering.core.events import Approval, FieldType, Form, InputField
from ai_platform_engineering.core.pattern_words import describe_pattern
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.core.transcript import PendingInput

_TYPE_WORDS: dict[FieldType, str] = {
    "boolean": "yes or no",
    "integer": "a whole number",
    "number": "a number",
    "date": "a date such as 2026-01-31",
    "url": "a URL such as https://example.com",
    "email": "an email address",
}


def render_request(request: PendingInput) -> str:
    """The whole request: headline, contents, and the commands that answer it."""
    lines = [render_introduction(request)]
    if isinstance(request.asked, Form):
        lines.extend(map(_render_field, request.asked.fields))
    lines.extend(render_commands(request))
    return "\n".join(lines)


def render_introduction(request: PendingInput) -> str:
    """The request without the fields of its form, for where they are asked for one by one."""
    lines = [render_headline(request)]
    if isinstance(request.asked, Approval):
        lines.extend(_render_approval(request.asked))
    else:
        lines.extend(_render_form_texts(request.asked))
    return "\n".join(lines)


def render_headline(request: PendingInput) -> str:
    """Which agent wants what, and until when."""
    agent = notification_text.title_case(reveal_line(request.agent))
    if isinstance(request.asked, Approval):
        purpose = f"wants to run {reveal_line(request.asked.tool)}"
    else:
        purpose = f"asks: {reveal_line(request.asked.describe())}"
    return f"{agent} {purpose}{_render_expiry(request.asked.expires_at)}"


def render_commands(request: PendingInput) -> Iterator[str]:
    """The commands that answer the request."""
    request_id = request.request_id
    if isinstance(request.asked, Form):
        values = map(_render_placeholder, request.asked.fields)
        yield f"  {command_name()} answer {' '.join([request_id, *values])}"
        yield f'  {command_name()} reject {request_id} --reason "…"'
        return
    for decision, line in _decision_commands(request_id, request.asked):
        if decision in request.asked.allowed:
            yield line


def render_allowances(context_id: str, rows: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """The tools that need no approval in a conversation, and the commands that end it."""
    context = reveal_line(context_id)
    for row in rows:
        tool = reveal_line(row["tool"])
        allowed_by = f", allowed by {reveal_line(row['by'])}" if row["by"] else ""
        yield f"{tool} runs without asking in {context}{allowed_by}."
        yield f"  {command_name()} allowances {context} --remove {tool}"


def describe_field(field: InputField) -> str:
    """What a field takes, in a few words; empty for any text."""
    return reveal_line(", ".join([*_type_words(field), *_limit_words(field), *_default_words(field)]))


def describe_limits(field: InputField) -> str:
    """The same for a prompt, which shows choices and default itself."""
    words = list(_limit_words(field))
    if field.field_type != "boolean" and not field.field_values:
        words = [*_type_words(field), *words]
    return reveal_line(", ".join(words))


def _type_words(field: InputField) -> Iterator[str]:
    if field.field_values:
        count = "any" if field.field_type == "multiselect" else "one"
        yield f"{count} of {', '.join(field.field_values)}"
    elif field.field_type in _TYPE_WORDS:
        yield _TYPE_WORDS[field.field_type]


def _limit_words(field: InputField) -> Iterator[str]:
    if field.minimum is not None and field.maximum is not None:
        yield f"from {field.minimum:g} to {field.maximum:g}"
    elif field.minimum is not None:
        yield f"at least {field.minimum:g}"
    elif field.maximum is not None:
        yield f"at most {field.maximum:g}"
    yield from _length_words(field)
    # The description is in the words of whoever made the form: the pattern would say the same again.
    if field.pattern and not field.field_description:
        words = describe_pattern(field.pattern)
        if words:
            yield words
        elif not field.placeholder:
            yield f"matching the pattern {field.pattern}"


def _length_words(field: InputField) -> Iterator[str]:
    least = field.min_length or 0
    if least > 1 and field.max_length is not None:
        yield f"{least} to {field.max_length} characters"
    elif least > 1:
        yield f"at least {least} characters"
    elif field.max_length is not None:
        yield f"at most {field.max_length} characters"


def _default_words(field: InputField) -> Iterator[str]:
    value = current_value(field)
    if value is not None:
        yield f"default {format_value(value)}"
    elif not field.required:
        yield "optional"
    if field.placeholder:
        yield f"for example {field.placeholder}"


def current_value(field: InputField) -> JsonValue:
    """The value that counts when nobody enters another."""
    if field.value is None:
        return field.default_value
    return field.value


def format_value(value: JsonValue) -> str:
    """A value of a form as a person writes it."""
    if value is None:
        return ""
    if value is True:
        return "yes"
    if value is False:
        return "no"
    if isinstance(value, list):
        return ", ".join(map(format_value, value))
    return reveal_line(str(value))


def _render_approval(approval: Approval) -> Iterator[str]:
    for line in reveal_json(approval.arguments, indent=2).splitlines():
        yield f"  {line}"
    if approval.reason:
        yield f"  {reveal_line(approval.reason)}"


def _render_form_texts(form: Form) -> Iterator[str]:
    """The texts of the form that its headline does not have."""
    headline = form.describe()
    for text in (form.description, form.response):
        if text and text.strip() and text.strip().rstrip(".:!") != headline:
            yield f"  {reveal(text).strip()}"


def _render_field(field: InputField) -> str:
    parts: list[str] = []
    if field.field_label and field.field_label != field.field_name:
        parts.append(reveal_line(field.field_label))
    if field.field_description:
        parts.append(reveal_line(field.field_description).rstrip("."))
    rules = describe_field(field)
    if rules:
        parts.append(rules)
    return f"  - {reveal_line(field.field_name)}: {'; '.join(parts) or 'text'}"


def _render_placeholder(field: InputField) -> str:
    """`name=…`, in brackets where the field can be left out."""
    value = f"{reveal_line(field.field_name)}=…"
    if field.required and current_value(field) is None:
        return value
    return f"[{value}]"


def _decision_commands(request_id: str, approval: Approval) -> Iterator[tuple[str, str]]:
    yield "approve", f"  {command_name()} approve {request_id}"
    yield (
        "approve",
        f"  {command_name()} approve {request_id} --always   (for this conversation, with any arguments)",
    )
    if approval.arguments:
        argument = reveal_line(next(iter(approval.arguments)))
        yield "edit", f"  {command_name()} approve {request_id} --set {argument}=…"
    yield "reject", f'  {command_name()} reject {request_id} --reason "…"'


def _render_expiry(expires_at: datetime | None) -> str:
    if expires_at is None:
        return ""
    remaining = expires_at - datetime.now(UTC)
    if remaining > timedelta():
        return f" (expires in {_format_duration(remaining)})"
    return " (has expired)"


def _format_duration(duration: timedelta) -> str:
    minutes = int(duration.total_seconds() // 60)
    if minutes < 1:
        return "less than a minute"
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min"
