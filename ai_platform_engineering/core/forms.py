"""What people answer, checked against what they were asked: values in the field's type, and a sentence for each field that is wrong."""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from pydantic import JsonValue

from ai_platform_engineering.core.events import FieldType, Form, InputField, clean_text

REJECT = "reject"

_LONGEST = 10_000  # characters of a text without a limit of its own
_LONGEST_MATCHED = 1_000  # a pattern is somebody else's program: it is not run over more
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_WORDS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class _Wrong(Exception):
    """The value does not fit; the text ends a sentence that begins with the field's label."""


def check_form(form: Form, values: Mapping[str, Any]) -> tuple[dict[str, JsonValue], dict[str, str]]:
    """The values by field, and what is wrong by field; only one of them is of use."""
    good: dict[str, JsonValue] = {}
    wrong: dict[str, str] = {}
    for field in form.fields:
        try:
            value = _value(field, values.get(field.field_name))
        except _Wrong as error:
            wrong[field.field_name] = f"{field.field_label or field.field_name} {error}."
        else:
            if value is not None:
                good[field.field_name] = value
    known = {field.field_name for field in form.fields}
    for name in values.keys() - known:
        wrong[str(name)] = f"There is no field {name}; the fields are {', '.join(sorted(known)) or 'none'}."
    return good, wrong


def next_request_id(request_id: str) -> str:
    """The id under which the same place asks next: an answer to the first question never reaches the second."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:20]


def is_declined(form: Form, values: Mapping[str, Any]) -> bool:
    """The person does not want to fill in the form."""
    return values.get("type") == REJECT and all(field.field_name != "type" for field in form.fields)


def _value(field: InputField, given: Any) -> JsonValue:
    if given is None or given == "" or given == []:
        if field.default_value is not None:
            return field.default_value
        if field.required:
            raise _Wrong("is required")
        return None
    return _READERS[field.field_type](field, given)


def _text(field: InputField, given: Any) -> JsonValue:
    if not isinstance(given, str | int | float) or isinstance(given, bool):
        raise _Wrong("must be a text")
    text = clean_text(str(given))
    longest = _LONGEST if field.max_length is None else field.max_length
    if field.min_length is not None and len(text) < field.min_length:
        raise _Wrong(f"must have at least {field.min_length} characters")
    if len(text) > longest:
        raise _Wrong(f"must have at most {longest} characters")
    if field.pattern and not _matches(field.pattern, text):
        raise _Wrong(f"must have the form {field.pattern}")
    return text


def _matches(pattern: str, text: str) -> bool:
    try:
        return len(text) <= _LONGEST_MATCHED and re.fullmatch(pattern, text) is not None
    except re.error:
        return True  # whoever asked wrote it wrong, not whoever answers


def _one_of(field: InputField, given: Any) -> JsonValue:
    choices = field.field_values or ()
    if str(given) not in choices:
        raise _Wrong(f"must be one of {', '.join(choices)}")
    return str(given)


def _some_of(field: InputField, given: Any) -> JsonValue:
    chosen = [part.strip() for part in given.split(",") if part.strip()] if isinstance(given, str) else given
    if not isinstance(chosen, list):
        raise _Wrong("must be a list")
    return [_one_of(field, one) for one in chosen]


def _boolean(field: InputField, given: Any) -> JsonValue:
    if isinstance(given, bool):
        return given
    said = _WORDS.get(str(given).strip().lower())
    if said is None:
        raise _Wrong("must be yes or no")
    return said


def _number(field: InputField, given: Any) -> JsonValue:
    whole = field.field_type == "integer"
    try:
        number = float(given) if not isinstance(given, bool) else math.nan
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number) or (whole and not number.is_integer()):
        raise _Wrong("must be a whole number" if whole else "must be a number")
    if field.minimum is not None and number < field.minimum:
        raise _Wrong(f"must be at least {field.minimum:g}")
    if field.maximum is not None and number > field.maximum:
        raise _Wrong(f"must be at most {field.maximum:g}")
    if whole and isinstance(given, int | str) and _is_int(given):
        return int(given)
    if whole:
        return int(number)
    return number


def _is_int(given: int | str) -> bool:
    return isinstance(given, int) or given.strip().lstrip("+-").isdigit()


def _date(field: InputField, given: Any) -> JsonValue:
    try:
        return date.fromisoformat(str(given).strip()).isoformat()
    except ValueError:
        raise _Wrong("must be a date such as 2026-01-31") from None


def _url(field: InputField, given: Any) -> JsonValue:
    text = str(_text(field, given)).strip()
    try:
        parts = urlsplit(text)
    except ValueError:
        raise _Wrong("must be an address such as https://example.com") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", text):
        raise _Wrong("must be an address such as https://example.com")
    return text


def _email(field: InputField, given: Any) -> JsonValue:
    text = str(_text(field, given)).strip()
    if not _EMAIL.fullmatch(text):
        raise _Wrong("must be a mail address")
    return text


_READERS: Mapping[FieldType, Callable[[InputField, Any], JsonValue]] = {
    "text": _text,
    "textarea": _text,
    "select": _one_of,
    "multiselect": _some_of,
    "boolean": _boolean,
    "integer": _number,
    "number": _number,
    "date": _date,
    "url": _url,
    "email": _email,
}
