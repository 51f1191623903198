"""What a run asks of people, in lines to read, and the commands that answer it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.events import Approval, Form, InputField
from ai_platform_engineering.core.transcript import PendingInput
from ai_platform_engineering.terminal.screen import render_json, sanitize_line, sanitize_text

_LONGEST_WORD = 40  # of a default in a list of fields


def render_request(request: PendingInput, *, commands: bool = True) -> str:
    """The whole request, fit for a terminal."""
    lines = [render_headline(request), *_what(request.asked), *(render_commands(request) if commands else ())]
    return "\n".join(lines)


def render_headline(request: PendingInput) -> str:
    """Who wants what, and until when."""
    agent, asked = notification_text.title_case(sanitize_line(request.agent)), request.asked
    what = (
        f"wants to run {sanitize_line(asked.tool)}"
        if isinstance(asked, Approval)
        else f"asks: {sanitize_line(asked.describe())}"
    )
    return f"{agent} {what}{_until(asked.expires_at)}"


def render_commands(request: PendingInput) -> Iterator[str]:
    """The commands that answer the request."""
    named, asked = request.request_id, request.asked
    if isinstance(asked, Form):
        values = [_shown_value(field) for field in asked.fields]
        yield f"  caipe answer {' '.join([named, *values])}"
        yield f'  caipe reject {named} --reason "…"'
        return
    yield from (line for decision, line in _decisions(named, asked) if decision in asked.allowed)


def describe_field(field: InputField) -> str:
    """What a field takes, in a few words."""
    least, most = field.minimum, field.maximum
    said = [
        field.field_type,
        "" if field.required or current_value(field) is not None else "optional",
        f"{'some' if field.field_type == 'multiselect' else 'one'} of {', '.join(field.field_values)}"
        if field.field_values
        else "",
        f"at least {least:g}" if least is not None else "",
        f"at most {most:g}" if most is not None else "",
        f"at least {field.min_length} characters" if field.min_length else "",
        f"at most {field.max_length} characters" if field.max_length is not None else "",
        f"of the form {field.pattern}" if field.pattern else "",
        f"otherwise {format_value(current_value(field))[:_LONGEST_WORD]}"
        if current_value(field) is not None
        else "",
        f"for example {field.placeholder}" if field.placeholder else "",
    ]
    return sanitize_line(", ".join(part for part in said if part))


def current_value(field: InputField) -> JsonValue:
    """What counts when nobody says anything else."""
    if field.value is None:
        return field.default_value
    return field.value


def format_value(value: JsonValue) -> str:
    """A value of a form as a person writes it."""
    if isinstance(value, bool):
        if value:
            return "yes"
        return "no"
    if isinstance(value, list):
        return ", ".join(map(format_value, value))
    if value is None:
        return ""
    return sanitize_line(str(value))


def _what(asked: Form | Approval) -> Iterator[str]:
    if isinstance(asked, Approval):
        yield from (f"  {line}" for line in render_json(asked.arguments, indent=2).splitlines())
        yield from [f"  {sanitize_line(asked.reason)}"] if asked.reason else []
        return
    yield from (
        f"  {sanitize_text(text).strip()}"
        for text in (asked.description, asked.response)
        if text and text.strip()
    )
    for field in asked.fields:
        label = (
            f"{sanitize_line(field.field_label)}: "
            if field.field_label and field.field_label != field.field_name
            else ""
        )
        more = f". {sanitize_line(field.field_description)}" if field.field_description else ""
        yield f"  - {sanitize_line(field.field_name)}: {label}{describe_field(field)}{more}"


def _shown_value(field: InputField) -> str:
    value = f"{sanitize_line(field.field_name)}=…"
    if field.required and current_value(field) is None:
        return value
    return f"[{value}]"


def _decisions(named: str, asked: Approval) -> Iterator[tuple[str, str]]:
    yield "approve", f"  caipe approve {named}"
    yield "approve", f"  caipe approve {named} --always   (in this conversation, whatever its arguments)"
    if asked.arguments:
        yield "edit", f"  caipe approve {named} --set {sanitize_line(next(iter(asked.arguments)))}=…"
    yield "reject", f'  caipe reject {named} --reason "…"'


def _until(expires_at: datetime | None) -> str:
    if expires_at is None:
        return ""
    left = expires_at - datetime.now(UTC)
    if left > timedelta():
        return f" (expires in {_span(left)})"
    return " (has expired)"


def _span(left: timedelta) -> str:
    minutes = int(left.total_seconds() // 60)
    if minutes < 1:
        return "less than a minute"
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days} d {hours} h"
    if hours:
        return f"{hours} h {minutes % 60} min"
    return f"{minutes} min"
