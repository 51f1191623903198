"""Requests of runs as text for a terminal, with the commands that answer them.

People decide on it: nothing is cut, and characters that cannot be seen are named.
"""

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.display_text import reveal, reveal_json, reveal_line
from ai_platform_engineering.core.events import Approval, Form, InputField
from ai_platform_engineering.core.transcript import PendingInput


def render_request(request: PendingInput, *, commands: bool = True) -> str:
    """The whole request: headline, contents, and the commands that answer it."""
    lines = [render_headline(request)]
    if isinstance(request.asked, Approval):
        lines.extend(_render_approval(request.asked))
    else:
        lines.extend(_render_form(request.asked))
    if commands:
        lines.extend(render_commands(request))
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
        yield f"  caipe answer {' '.join([request_id, *values])}"
        yield f'  caipe reject {request_id} --reason "…"'
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
        yield f"  caipe allowances {context} --remove {tool}"


def describe_field(field: InputField) -> str:
    """What a field takes, in a few words."""
    return reveal_line(", ".join(_field_rules(field)))


def _field_rules(field: InputField) -> Iterator[str]:
    value = current_value(field)
    yield field.field_type
    if not field.required and value is None:
        yield "optional"
    if field.field_values:
        count = "some" if field.field_type == "multiselect" else "one"
        yield f"{count} of {', '.join(field.field_values)}"
    if field.minimum is not None:
        yield f"at least {field.minimum:g}"
    if field.maximum is not None:
        yield f"at most {field.maximum:g}"
    if field.min_length:
        yield f"at least {field.min_length} characters"
    if field.max_length is not None:
        yield f"at most {field.max_length} characters"
    if field.pattern:
        yield f"of the form {field.pattern}"
    if value is not None:
        yield f"otherwise {format_value(value)}"
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


def _render_form(form: Form) -> Iterator[str]:
    for text in (form.description, form.response):
        if text and text.strip():
            yield f"  {reveal(text).strip()}"
    for field in form.fields:
        line = describe_field(field)
        if field.field_label and field.field_label != field.field_name:
            line = f"{reveal_line(field.field_label)}: {line}"
        if field.field_description:
            line = f"{line}. {reveal_line(field.field_description)}"
        yield f"  - {reveal_line(field.field_name)}: {line}"


def _render_placeholder(field: InputField) -> str:
    """`name=…`, in brackets where the field can be left out."""
    value = f"{reveal_line(field.field_name)}=…"
    if field.required and current_value(field) is None:
        return value
    return f"[{value}]"


def _decision_commands(request_id: str, approval: Approval) -> Iterator[tuple[str, str]]:
    yield "approve", f"  caipe approve {request_id}"
    yield "approve", f"  caipe approve {request_id} --always   (in this conversation, whatever its arguments)"
    if approval.arguments:
        argument = reveal_line(next(iter(approval.arguments)))
        yield "edit", f"  caipe approve {request_id} --set {argument}=…"
    yield "reject", f'  caipe reject {request_id} --reason "…"'


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
