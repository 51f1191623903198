"""Forms as modals: a block per field, and the values of a submitted one in the types of the form."""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.core.events import Approval, Form, InputField
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.integrations.slack_bot.blocks import Block, escape_line, section, truncate

VALUE_ACTION = "value"  # the action id of every input
FORM_VIEW = "caipe_form"
EDIT_VIEW = "caipe_edit"
REJECT_VIEW = "caipe_reject"
REASON_VIEW = "caipe_reason"
MAX_FIELDS = 90
MAX_OPTIONS = 100
_TITLE = 24
_LABEL = 2_000
_HINT = 2_000
_PLACEHOLDER = 150
_OPTION = 75
_LONGEST_INPUT = 3_000
_LONGEST_ID = 255
_LONGEST_NUMBER = 50
_LARGEST = 240_000  # characters of a view; Slack takes 250 kB
_BRIEF = 150
_BRIEF_INPUT = 1_000
_BRIEF_OPTIONS = 5  # of a form that would be larger: its words, its values, its lists
_EDITED, _REASON = "arguments", "reason"
_MASK = "•••"
_SECRET = re.compile(
    r"password|passwd|passphrase|(?<![a-z])pass(?![a-z])|secret|token|api[-_]?key|private[-_]?key|credential|authorization|cookie",
    re.IGNORECASE,
)


def modal(view: str, title: str, submit: str, blocks: Sequence[Block], **metadata: str) -> Block:
    return {
        "type": "modal",
        "callback_id": view,
        "title": _text(title, _TITLE),
        "submit": _text(submit, _TITLE),
        "close": _text("Cancel", _TITLE),
        "private_metadata": json.dumps(metadata),
        "blocks": list(blocks),
    }


def unique_fields(form: Form) -> tuple[InputField, ...]:
    """A name stands for one value, so each is asked for once."""
    first: dict[str, InputField] = {}
    for field in form.fields:
        first.setdefault(field.field_name, field)
    return tuple(first.values())


def form_modal(form: Form, **metadata: str) -> Block | None:
    """None when the form is too large for Slack."""
    if len(unique_fields(form)) > MAX_FIELDS:
        return None
    made = (_form_modal(form, metadata, brief=brief) for brief in (False, True))
    return next((view for view in made if len(json.dumps(view)) <= _LARGEST), None)


def _form_modal(form: Form, metadata: Mapping[str, str], *, brief: bool) -> Block:
    about = "\n".join(
        escape_line(text) for text in (form.response, form.description) if text and text.strip()
    )
    blocks = [
        *([section(about)] if about else []),
        *(_input(field, brief=brief) for field in unique_fields(form)),
    ]
    return modal(
        FORM_VIEW,
        form.title or "A form",
        "Send",
        blocks or [section("There is nothing to fill in.")],
        **metadata,
    )


def notice_modal(text: str) -> Block:
    """For what belongs to no field."""
    said = escape_line(text) or "This could not be taken."
    return {
        "type": "modal",
        "title": _text("Not taken", _TITLE),
        "close": _text("Close", _TITLE),
        "blocks": [section(said)],
    }


def edit_modal(asked: Approval, **metadata: str) -> Block | None:
    """None when the arguments are too long for a field."""
    arguments = json.dumps(mask_secrets(asked.arguments), indent=2, ensure_ascii=False)
    if len(arguments) > _LONGEST_INPUT:
        return None
    field = {
        "type": "plain_text_input",
        "action_id": VALUE_ACTION,
        "multiline": True,
        "initial_value": arguments,
    }
    blocks = [
        section(f"`{escape_line(asked.tool)}` runs with these arguments when you send them."),
        _block(_EDITED, "Arguments (JSON)", field),
    ]
    return modal(EDIT_VIEW, "Edit and run", "Run", blocks, **metadata)


def reject_modal(what: str, **metadata: str) -> Block:
    field = {"type": "plain_text_input", "action_id": VALUE_ACTION, "multiline": True, "max_length": 1_000}
    why = _block(_REASON, "Why? (optional)", field, optional=True)
    return modal(REJECT_VIEW, "Reject", "Reject", [section(escape_line(what)), why], **metadata)


def reason_modal(**metadata: str) -> Block:
    field = {"type": "plain_text_input", "action_id": VALUE_ACTION, "multiline": True, "max_length": 2_000}
    why = _block(_REASON, "What should have been different?", field, optional=True)
    return modal(REASON_VIEW, "What was wrong?", "Send", [why], **metadata)


def place_errors(view: Mapping[str, Any], wrong: Mapping[str, str]) -> dict[str, str]:
    """What is wrong by block: at its field, else at the first one. Nothing where there is no field."""
    inputs = [str(block["block_id"]) for block in view["blocks"] if block.get("type") == "input"]
    found: dict[str, str] = {}
    for name, text in wrong.items() if inputs else ():
        place = block_id(name) if block_id(name) in inputs else inputs[0]
        found[place] = f"{found[place]} {text}" if place in found else text
    return {place: truncate(text, _HINT) for place, text in found.items()}


def read_reason(view: Mapping[str, Any]) -> str:
    return str(_given(view, _REASON).get("value") or "").strip()


def read_arguments(view: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The edited arguments, or what is wrong by block."""
    try:
        read = json.loads(str(_given(view, _EDITED).get("value") or ""))
    except ValueError as error:
        return None, {_EDITED: f"This is not JSON: {error}."[:150]}
    if not isinstance(read, dict):
        return None, {_EDITED: "The arguments are a JSON object with a value for each name."}
    return read, {}


def mask_secrets(value: Any) -> Any:
    """Arguments as people may see them: what goes by the name of a secret is hidden."""
    if isinstance(value, Mapping):
        return {
            name: _MASK if _is_secret(str(name), item) else mask_secrets(item) for name, item in value.items()
        }
    if isinstance(value, list):
        return [mask_secrets(item) for item in value]
    return value


def _is_secret(name: str, value: Any) -> bool:
    return _SECRET.search(name) is not None and value not in (None, "") and not isinstance(value, bool)


def restore_secrets(given: Any, kept: Any) -> Any:
    """Edited arguments with what was hidden put back where it was."""
    if given == _MASK:
        if kept is None:
            return given
        return kept
    if isinstance(given, Mapping):
        return {
            name: restore_secrets(item, kept.get(name) if isinstance(kept, Mapping) else None)
            for name, item in given.items()
        }
    if isinstance(given, list) and isinstance(kept, list) and len(given) == len(kept):
        return [restore_secrets(item, other) for item, other in zip(given, kept, strict=True)]
    return given


def read_values(form: Form, view: Mapping[str, Any]) -> dict[str, JsonValue]:
    """What was filled in, by field; what is right of it is decided by the server."""
    return {
        field.field_name: _value(field, _given(view, block_id(field.field_name)))
        for field in unique_fields(form)
    }


def find_options(form: Form, block: str, typed: str) -> list[Block]:
    """The choices of a field that has too many for a list, as somebody types."""
    field = next((one for one in unique_fields(form) if block_id(one.field_name) == block), None)
    if field is None:
        return []
    wanted = typed.strip().casefold()
    found = [choice for choice in enumerate(field.field_values or ()) if wanted in choice[1].casefold()]
    return [_option(number, text) for number, text in found[:MAX_OPTIONS]]


# --- fields -----------------------------------------------------------------------------------------------------------


def block_id(field_name: str) -> str:
    """The field's name, where Slack takes it."""
    if field_name.strip() and len(field_name) <= _LONGEST_ID:
        return field_name
    return f"field-{hashlib.sha256(field_name.encode()).hexdigest()[:20]}"


def _input(field: InputField, *, brief: bool) -> Block:
    label, hint = field.field_label or field.field_name, field.field_description
    if brief:
        label, hint = truncate(label, _BRIEF), truncate(hint or "", _BRIEF)
    optional = not field.required or field.field_type == "boolean"
    return _block(
        block_id(field.field_name), label, _element(field, brief=brief), optional=optional, hint=hint
    )


def _block(
    block_id: str, label: str, element: Block, *, optional: bool = False, hint: str | None = None
) -> Block:
    made: Block = {
        "type": "input",
        "block_id": block_id,
        "label": _text(label, _LABEL),
        "element": element,
        "optional": optional,
    }
    return {**made, **({"hint": _text(hint, _HINT)} if hint and hint.strip() else {})}


def _element(field: InputField, *, brief: bool) -> Block:
    standing = field.default_value if field.value is None else field.value
    initial = _initial(field, standing, _BRIEF_INPUT if brief else _LONGEST_INPUT)
    holder = {"placeholder": _text(field.placeholder, _PLACEHOLDER)} if field.placeholder else {}
    match field.field_type:
        case "select" | "multiselect":
            return {"action_id": VALUE_ACTION, **holder, **_choices(field, standing, brief=brief)}
        case "boolean":
            option = {"text": _text(field.field_label or field.field_name, _OPTION), "value": "true"}
            chosen = {"initial_options": [option]} if standing is True else {}
            return {"type": "checkboxes", "action_id": VALUE_ACTION, "options": [option], **chosen}
        case "date":
            return {
                "type": "datepicker",
                "action_id": VALUE_ACTION,
                **holder,
                **({"initial_date": initial} if initial else {}),
            }
        case kind:
            return {
                "action_id": VALUE_ACTION,
                **holder,
                **_typed(kind),
                **({"initial_value": initial} if initial else {}),
            }


def _initial(field: InputField, standing: JsonValue, longest: int) -> str:
    """What stands in the field at first. Slack opens no form with a value that its kind of field would not take."""
    if isinstance(standing, bool | list | dict) or standing is None:
        return ""
    if field.field_type in ("text", "textarea"):
        if len(str(standing)) <= longest:
            return str(standing)
        return ""
    plainly = InputField(field_name="one", field_type=field.field_type)
    good, _ = check_form(Form(fields=(plainly,)), {"one": standing})
    value = good.get("one")
    if isinstance(value, int | float):
        written = f"{Decimal(str(value)):f}"
        if len(written) <= _LONGEST_NUMBER:
            return written
        return ""
    if isinstance(value, str) and len(value) <= longest:
        return value
    return ""


def _typed(kind: str) -> Block:
    match kind:
        case "integer" | "number":
            return {"type": "number_input", "is_decimal_allowed": kind == "number"}
        case "url" | "email":
            return {"type": f"{kind}_text_input"}
        case _:
            return {"type": "plain_text_input", **({"multiline": True} if kind == "textarea" else {})}


def _choices(field: InputField, standing: JsonValue, *, brief: bool) -> Block:
    several, known = field.field_type == "multiselect", list(field.field_values or ())
    chosen = dict.fromkeys(
        str(one) for one in (standing if isinstance(standing, list) else [standing]) if one is not None
    )
    initial = [_option(known.index(one), one) for one in chosen if one in known]
    begins: Block = (
        {} if not initial else {"initial_options": initial} if several else {"initial_option": initial[0]}
    )
    if len(known) > (_BRIEF_OPTIONS if brief else MAX_OPTIONS):
        return {
            "type": "multi_external_select" if several else "external_select",
            "min_query_length": 1,
            **begins,
        }
    listed = [_option(number, text) for number, text in enumerate(known)]
    return {
        "type": "multi_static_select" if several else "static_select",
        "options": listed or [_option(0, "-")],
        **begins,
    }


def _option(number: int, text: str) -> Block:
    """By its number: a choice may be longer than Slack takes for a value."""
    return {"text": _text(text or "-", _OPTION), "value": str(number)}


def _given(view: Mapping[str, Any], block_id: str) -> Mapping[str, Any]:
    found: Mapping[str, Any] = view["state"]["values"].get(block_id, {}).get(VALUE_ACTION) or {}
    return found


def _value(field: InputField, given: Mapping[str, Any]) -> JsonValue:
    match field.field_type:
        case "select":
            return _choice(field, given.get("selected_option"))
        case "multiselect":
            return [_choice(field, one) for one in given.get("selected_options") or ()]
        case "boolean":
            return bool(given.get("selected_options"))
        case "date":
            return given.get("selected_date")
        case _:
            return given.get("value")


def _choice(field: InputField, option: Mapping[str, Any] | None) -> JsonValue:
    known, number = field.field_values or (), str((option or {}).get("value") or "")
    if number.isdigit() and int(number) < len(known):
        return known[int(number)]
    return None


def _text(text: str, longest: int) -> Block:
    return {"type": "plain_text", "text": truncate(" ".join(text.split()) or "-", longest)}
