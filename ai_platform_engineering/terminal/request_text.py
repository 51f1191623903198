"""What a run asks of people, in lines to read, and the commands that answer it."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from pydantic import JsonValue

from ai_platform_engineering.a2a import notification_text
from ai_platform_engineering.core.events import Approval, Form, InputField
from ai_platform_engineering.core.transcript import Request
from ai_platform_engineering.terminal.screen import one_line, printable, shown_json

_LONGEST_WORD = 40  # of a default in a list of fields


def request_text(request: Request, *, commands: bool = True) -> str:
    """The whole request, fit for a terminal."""
    lines = [headline(request), *_what(request.asked), *(command_lines(request) if commands else ())]
    return "\n".join(lines)


def headline(request: Request) -> str:
    """Who wants what, and until when."""
    agent, asked = notification_text.title_form(one_line(request.agent)), request.asked
    what = f"wants to run {one_line(asked.tool)}" if isinstance(asked, Approval) else f"asks: {one_line(asked.in_words())}"
    return f"{agent} {what}{_until(asked.expires_at)}"


def command_lines(request: Request) -> Iterator[str]:
    """The commands that answer the request."""
    named, asked = request.request_id, request.asked
    if isinstance(asked, Form):
        values = [_shown_value(field) for field in asked.fields]
        yield f"  caipe answer {' '.join([named, *values])}"
        yield f'  caipe reject {named} --reason "…"'
        return
    yield from (line for decision, line in _decisions(named, asked) if decision in asked.allowed)


def field_words(field: InputField) -> str:
    """What a field takes, in a few words."""
    least, most = field.minimum, field.maximum
    said = [
        field.field_type,
        "" if field.required or standing(field) is not None else "optional",
        f"{'some' if field.field_type == 'multiselect' else 'one'} of {', '.join(field.field_values)}" if field.field_values else "",
        f"at least {least:g}" if least is not None else "",
        f"at most {most:g}" if most is not None else "",
        f"at least {field.min_length} characters" if field.min_length else "",
        f"at most {field.max_length} characters" if field.max_length is not None else "",
        f"of the form {field.pattern}" if field.pattern else "",
        f"otherwise {value_words(standing(field))[:_LONGEST_WORD]}" if standing(field) is not None else "",
        f"for example {field.placeholder}" if field.placeholder else "",
    ]
    return one_line(", ".join(part for part in said if part))


def standing(field: InputField) -> JsonValue:
    """What counts when nobody says anything else."""
    return field.default_value if field.value is None else field.value


def value_words(value: JsonValue) -> str:
    """A value of a form as a person writes it."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(map(value_words, value))
    return "" if value is None else one_line(str(value))


def _what(asked: Form | Approval) -> Iterator[str]:
    if isinstance(asked, Approval):
        yield from (f"  {line}" for line in shown_json(asked.arguments, indent=2).splitlines())
        yield from [f"  {one_line(asked.reason)}"] if asked.reason else []
        return
    yield from (f"  {printable(text).strip()}" for text in (asked.description, asked.response) if text and text.strip())
    for field in asked.fields:
        label = f"{one_line(field.field_label)}: " if field.field_label and field.field_label != field.field_name else ""
        more = f". {one_line(field.field_description)}" if field.field_description else ""
        yield f"  - {one_line(field.field_name)}: {label}{field_words(field)}{more}"


def _shown_value(field: InputField) -> str:
    value = f"{one_line(field.field_name)}=…"
    return value if field.required and standing(field) is None else f"[{value}]"


def _decisions(named: str, asked: Approval) -> Iterator[tuple[str, str]]:
    yield "approve", f"  caipe approve {named}"
    yield "approve", f"  caipe approve {named} --always   (in this conversation, whatever its arguments)"
    if asked.arguments:
        yield "edit", f"  caipe approve {named} --set {one_line(next(iter(asked.arguments)))}=…"
    yield "reject", f'  caipe reject {named} --reason "…"'


def _until(expires_at: datetime | None) -> str:
    if expires_at is None:
        return ""
    left = expires_at - datetime.now(UTC)
    return f" (expires in {_span(left)})" if left > timedelta() else " (has expired)"


def _span(left: timedelta) -> str:
    minutes = int(left.total_seconds() // 60)
    if minutes < 1:
        return "less than a minute"
    days, hours = divmod(minutes // 60, 24)
    if days:
        return f"{days} d {hours} h"
    return f"{hours} h {minutes % 60} min" if hours else f"{minutes} min"
