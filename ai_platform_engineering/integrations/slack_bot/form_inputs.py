"""The inputs of a modal: a block for each field of a form, and the values that a person entered."""

import hashlib
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.core.display_text import is_hidden, reveal_line
from ai_platform_engineering.core.events import Form, InputField
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.integrations.slack_bot.blocks import Block, truncate

VALUE_ACTION = "value"  # the action id of every input
MAX_FIELDS = 90
MAX_OPTIONS = 100
MAX_INPUT = 3_000
MAX_HINT = 2_000
_MAX_LABEL = 2_000
_MAX_PLACEHOLDER = 150
_MAX_OPTION = 75
_MAX_BLOCK_ID = 255
_MAX_NUMBER = 50

_BRIEF_OPTIONS = 5  # in a list, of a form that would be too large otherwise; more are offered while typing


def unique_fields(form: Form) -> tuple[InputField, ...]:
    """The fields of a form, each name once: a name stands for one value."""
    fields: dict[str, InputField] = {}
    for field in form.fields:
        fields.setdefault(field.field_name, field)
    return tuple(fields.values())


def shows_whole(form: Form) -> bool:
    """Whether the inputs show all of the form: they cut no label, explanation, choice or given value."""
    fields = unique_fields(form)
    return len(fields) <= MAX_FIELDS and all(map(_shows_whole_field, fields))


def _shows_whole_field(field: InputField) -> bool:
    if len(reveal_line(field.field_label or field.field_name)) > _MAX_LABEL:
        return False
    if len(reveal_line(field.field_description or "")) > MAX_HINT:
        return False
    if any(len(reveal_line(choice)) > _MAX_OPTION for choice in field.field_values or ()):
        return False
    if field.field_type not in ("text", "textarea"):
        return True
    initial = str(_initial_value(field) or "")
    return len(initial) <= MAX_INPUT and not any(map(is_hidden, initial))


def block_id(field_name: str) -> str:
    """The id of a field's block: its name where Slack accepts it, else a hash."""
    if field_name.strip() and len(field_name) <= _MAX_BLOCK_ID:
        return field_name
    return f"field-{hashlib.sha256(field_name.encode()).hexdigest()[:20]}"


def plain_text(text: str, limit: int) -> Block:
    """Third-party text on one line; what cannot be seen in it is named."""
    return {"type": "plain_text", "text": truncate(reveal_line(text) or "-", limit)}


# --- blocks -------------------------------------------------------------------------------------------------


def input_block(
    block_id: str, label: str, element: Block, *, optional: bool = False, hint: str | None = None
) -> Block:
    block: Block = {
        "type": "input",
        "block_id": block_id,
        "label": plain_text(label, _MAX_LABEL),
        "element": element,
        "optional": optional,
    }
    if hint and hint.strip():
        block["hint"] = plain_text(hint, MAX_HINT)
    return block


def text_element(**options: Any) -> Block:
    """A text input of several lines."""
    return {"type": "plain_text_input", "action_id": VALUE_ACTION, "multiline": True, **options}


def field_block(field: InputField, *, brief: bool) -> Block:
    """The input block of a form's field; `brief` for a form that would be too large otherwise."""
    label = field.field_label or field.field_name
    optional = not field.required or field.field_type == "boolean"
    element = _build_element(field, brief=brief)
    hint = field.field_description
    return input_block(block_id(field.field_name), label, element, optional=optional, hint=hint)


def _build_element(field: InputField, *, brief: bool) -> Block:
    initial = _initial_value(field)
    if field.field_type == "boolean":
        return _build_checkbox(field, checked=initial is True)
    if field.field_type in ("select", "multiselect"):
        element = _build_select(field, initial, brief=brief)
    else:
        element = _build_text_input(field, initial)
    if field.placeholder:
        element["placeholder"] = plain_text(field.placeholder, _MAX_PLACEHOLDER)
    return element


def _initial_value(field: InputField) -> JsonValue:
    if field.value is None:
        return field.default_value
    return field.value


def _build_checkbox(field: InputField, *, checked: bool) -> Block:
    option = {"text": plain_text(field.field_label or field.field_name, _MAX_OPTION), "value": "true"}
    element: Block = {"type": "checkboxes", "action_id": VALUE_ACTION, "options": [option]}
    if checked:
        element["initial_options"] = [option]
    return element


def _build_text_input(field: InputField, initial: JsonValue) -> Block:
    initial_text = _format_initial(field, initial)
    element: Block = {"action_id": VALUE_ACTION, **_element_type(field.field_type)}
    if initial_text and field.field_type == "date":
        element["initial_date"] = initial_text
    elif initial_text:
        element["initial_value"] = initial_text
    return element


def _element_type(field_type: str) -> Block:
    match field_type:
        case "date":
            return {"type": "datepicker"}
        case "integer" | "number":
            return {"type": "number_input", "is_decimal_allowed": field_type == "number"}
        case "url" | "email":
            return {"type": f"{field_type}_text_input"}
        case "textarea":
            return {"type": "plain_text_input", "multiline": True}
        case _:
            return {"type": "plain_text_input"}


def _format_initial(field: InputField, initial: JsonValue) -> str:
    """The initial value as text, or "": Slack opens no modal with a value that the input would not accept."""
    max_length = MAX_INPUT
    if isinstance(initial, bool | list | dict) or initial is None:
        return ""
    if field.field_type in ("text", "textarea"):
        text = str(initial)
    else:
        bare_field = InputField(field_name="value", field_type=field.field_type)
        values, _ = check_form(Form(fields=(bare_field,)), {"value": initial})
        value = values.get("value")
        if isinstance(value, int | float):
            text = f"{Decimal(str(value)):f}"
            max_length = _MAX_NUMBER
        elif isinstance(value, str):
            text = value
        else:
            return ""
    if len(text) > max_length:
        return ""
    return text


def _build_select(field: InputField, initial: JsonValue, *, brief: bool) -> Block:
    choices = list(field.field_values or ())
    max_options = MAX_OPTIONS
    if brief:
        max_options = _BRIEF_OPTIONS
    element: Block = {"action_id": VALUE_ACTION}
    if len(choices) > max_options:
        element["type"] = "external_select"
        element["min_query_length"] = 1
    else:
        element["type"] = "static_select"
        options = [_build_option(number, text) for number, text in enumerate(choices)]
        element["options"] = options or [_build_option(0, "-")]
    initial_options = _find_initial_options(choices, initial)
    if field.field_type == "multiselect":
        element["type"] = f"multi_{element['type']}"
        if initial_options:
            element["initial_options"] = initial_options
    elif initial_options:
        element["initial_option"] = initial_options[0]
    return element


def _find_initial_options(choices: list[str], initial: JsonValue) -> list[Block]:
    if not isinstance(initial, list):
        initial = [initial]
    texts = dict.fromkeys(str(value) for value in initial if value is not None)
    return [_build_option(choices.index(text), text) for text in texts if text in choices]


def _build_option(number: int, text: str) -> Block:
    """An option with its number as the value: a choice may be longer than Slack allows for a value."""
    return {"text": plain_text(text or "-", _MAX_OPTION), "value": str(number)}


def find_options(form: Form, field_block_id: str, typed: str) -> list[Block]:
    """The options of a field that has too many for a list, filtered by what somebody types."""
    options: list[Block] = []
    for field in unique_fields(form):
        if block_id(field.field_name) != field_block_id:
            continue
        for number, text in enumerate(field.field_values or ()):
            if typed.strip().casefold() in text.casefold():
                options.append(_build_option(number, text))
        break
    return options[:MAX_OPTIONS]


# --- values -------------------------------------------------------------------------------------------------


def read_input(view: Mapping[str, Any], block_id: str) -> Mapping[str, Any]:
    """The state of an input in a submitted view."""
    state: Mapping[str, Any] = view["state"]["values"].get(block_id, {}).get(VALUE_ACTION) or {}
    return state


def read_values(form: Form, view: Mapping[str, Any]) -> dict[str, JsonValue]:
    """The values that were entered, by field; the server checks them."""
    values = {}
    for field in unique_fields(form):
        state = read_input(view, block_id(field.field_name))
        values[field.field_name] = _parse_value(field, state)
    return values


def _parse_value(field: InputField, state: Mapping[str, Any]) -> JsonValue:
    match field.field_type:
        case "select":
            return _parse_choice(field, state.get("selected_option"))
        case "multiselect":
            return [_parse_choice(field, option) for option in state.get("selected_options") or ()]
        case "boolean":
            return bool(state.get("selected_options"))
        case "date":
            return state.get("selected_date")
        case _:
            return state.get("value")


def _parse_choice(field: InputField, option: Mapping[str, Any] | None) -> JsonValue:
    choices = field.field_values or ()
    number = str((option or {}).get("value") or "")
    if number.isdigit() and int(number) < len(choices):
        return choices[int(number)]
    return None
