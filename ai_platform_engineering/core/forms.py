"""Checks the values of a form: converts each to its field's type, or says in a sentence what is wrong."""

import hashlib
import math
import re
from collections.abc import Callable, Mapping
from datetime import date
from typing import Any
from urllib.parse import urlsplit

from pydantic import JsonValue

from ai_platform_engineering.core.decisions import CANCEL, DECISION_KEY, REJECT
from ai_platform_engineering.core.events import FieldType, Form, InputField
from ai_platform_engineering.core.pattern_words import describe_mismatch
from ai_platform_engineering.core.storable_text import clean_text
from ai_platform_engineering.core.text_patterns import UnsupportedPattern, matches

_LONGEST = 10_000  # characters of a text without a limit of its own
_LONGEST_EMAIL = 320
_EMAIL = re.compile(r"[^@\s]+@[^@\s]+\.[^@\s]+")
_BOOLEANS = {
    "true": True,
    "yes": True,
    "on": True,
    "1": True,
    "false": False,
    "no": False,
    "off": False,
    "0": False,
}


class _InvalidValue(Exception):
    """The value does not fit; the text ends a sentence that begins with the field's label."""


def check_form(form: Form, values: Mapping[str, Any]) -> tuple[dict[str, JsonValue], dict[str, str]]:
    """The valid values by field, and the errors by field; the values count only when there are no errors."""
    valid: dict[str, JsonValue] = {}
    errors: dict[str, str] = {}
    field_names: set[str] = set()
    for field in form.fields:
        field_names.add(field.field_name)
        try:
            value = _read_value(field, values.get(field.field_name))
        except _InvalidValue as error:
            errors[field.field_name] = f"{field.field_label or field.field_name} {error}."
        else:
            if value is not None:
                valid[field.field_name] = value
    for name in values.keys() - field_names:
        choices = ", ".join(sorted(field_names)) or "none"
        errors[str(name)] = f"There is no field {name}; the fields are {choices}."
    return valid, errors


def next_request_id(request_id: str) -> str:
    """The id of the next request at the same place: an answer to the first never reaches the second."""
    return hashlib.sha256(request_id.encode()).hexdigest()[:20]


def is_declined(form: Form, values: Mapping[str, Any]) -> bool:
    """The person does not want to fill in the form, or dismisses it."""
    return values.get(DECISION_KEY) in (REJECT, CANCEL) and all(
        field.field_name != DECISION_KEY for field in form.fields
    )


def _read_value(field: InputField, value: Any) -> JsonValue:
    if value is None or value == "" or value == []:
        if field.default_value is not None:
            return field.default_value
        if field.required:
            raise _InvalidValue("is required")
        return None
    return _READERS[field.field_type](field, value)


def _read_text(field: InputField, value: Any) -> JsonValue:
    if not isinstance(value, str | int | float) or isinstance(value, bool):
        raise _InvalidValue("must be a text")
    text = clean_text(str(value))
    longest = field.max_length
    if longest is None:
        longest = _LONGEST
    if field.min_length is not None and len(text) < field.min_length:
        raise _InvalidValue(f"must have at least {field.min_length} characters")
    if len(text) > longest:
        raise _InvalidValue(f"must have at most {longest} characters")
    if field.pattern and not _matches(field.pattern, text):
        raise _InvalidValue(_explain_mismatch(field, field.pattern))
    return text


def _explain_mismatch(field: InputField, pattern: str) -> str:
    """What the text must look like: in words, by the field's example or description, else the pattern."""
    words = describe_mismatch(pattern)
    if words:
        return words
    if field.placeholder:
        return f"must look like {field.placeholder}"
    if field.field_description:
        return f"does not fit: {field.field_description.strip().rstrip('.')}"
    return f"must match the pattern {pattern}"


def _matches(pattern: str, text: str) -> bool:
    try:
        return matches(pattern, text)
    except UnsupportedPattern:
        return True  # of a remote agent's form: whoever asked wrote it wrong, not whoever answers


def _read_choice(field: InputField, value: Any) -> JsonValue:
    choices = field.field_values or ()
    if str(value) not in choices:
        raise _InvalidValue(f"must be one of {', '.join(choices)}")
    return str(value)


def _read_choices(field: InputField, value: Any) -> JsonValue:
    choices = value
    if isinstance(value, str):
        choices = [part.strip() for part in value.split(",") if part.strip()]
    if not isinstance(choices, list):
        raise _InvalidValue("must be a list")
    return [_read_choice(field, choice) for choice in choices]


def _read_boolean(field: InputField, value: Any) -> JsonValue:
    if isinstance(value, bool):
        return value
    boolean = _BOOLEANS.get(str(value).strip().lower())
    if boolean is None:
        raise _InvalidValue("must be yes or no")
    return boolean


def _read_number(field: InputField, value: Any) -> JsonValue:
    integer = field.field_type == "integer"
    number = _to_float(value)
    if integer and not number.is_integer():
        raise _InvalidValue("must be a whole number")
    if not math.isfinite(number):
        raise _InvalidValue("must be a number")
    if field.minimum is not None and number < field.minimum:
        raise _InvalidValue(f"must be at least {field.minimum:g}")
    if field.maximum is not None and number > field.maximum:
        raise _InvalidValue(f"must be at most {field.maximum:g}")
    if not integer:
        return number
    if isinstance(value, int | str) and _is_integer(value):
        return int(value)  # a float has no room for every digit of a large number
    return int(number)


def _to_float(value: Any) -> float:
    if isinstance(value, bool):
        return math.nan
    try:
        return float(value)
    except (TypeError, ValueError, OverflowError):
        return math.nan


def _is_integer(value: int | str) -> bool:
    return isinstance(value, int) or value.strip().lstrip("+-").isdigit()


def _read_date(field: InputField, value: Any) -> JsonValue:
    try:
        return date.fromisoformat(str(value).strip()).isoformat()
    except ValueError:
        raise _InvalidValue("must be a date such as 2026-01-31") from None


def _read_url(field: InputField, value: Any) -> JsonValue:
    text = str(_read_text(field, value)).strip()
    try:
        parts = urlsplit(text)
    except ValueError:
        raise _InvalidValue("must be a URL such as https://example.com") from None
    if parts.scheme not in ("http", "https") or not parts.hostname or re.search(r"\s", text):
        raise _InvalidValue("must be a URL such as https://example.com")
    return text


def _read_email(field: InputField, value: Any) -> JsonValue:
    text = str(_read_text(field, value)).strip()
    if len(text) > _LONGEST_EMAIL or not _EMAIL.fullmatch(text):
        raise _InvalidValue("must be a mail address")
    return text


_READERS: Mapping[FieldType, Callable[[InputField, Any], JsonValue]] = {
    "text": _read_text,
    "textarea": _read_text,
    "select": _read_choice,
    "multiselect": _read_choices,
    "boolean": _read_boolean,
    "integer": _read_number,
    "number": _read_number,
    "date": _read_date,
    "url": _read_url,
    "email": _read_email,
}
