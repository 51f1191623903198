"""Slack's modals: a form, the arguments of a tool call to edit, a reason to reject, and feedback."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.display_text import reveal_json, reveal_line
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.integrations.slack_bot.blocks import (
    MAX_SECTION_TEXT,
    Block,
    escape_line,
    section,
    truncate,
)
from ai_platform_engineering.integrations.slack_bot.form_inputs import (
    MAX_HINT,
    MAX_INPUT,
    block_id,
    field_block,
    input_block,
    plain_text,
    read_input,
    shows_whole,
    text_element,
    unique_fields,
)
from ai_platform_engineering.integrations.slack_bot.secret_masks import mask_secrets

FORM_VIEW = "caipe_form"
EDIT_VIEW = "caipe_edit"
REJECT_VIEW = "caipe_reject"
REASON_VIEW = "caipe_reason"
_MAX_TITLE = 24
_MAX_VIEW_SIZE = 240_000  # characters; Slack accepts 250 kB
_MAX_ABOUT = MAX_SECTION_TEXT - 400  # in the thread the title stands before it
_ARGUMENTS_BLOCK = "arguments"
_REASON_BLOCK = "reason"


def modal(callback_id: str, title: str, submit: str, blocks: Sequence[Block], **metadata: str) -> Block:
    """A view with a submit button; `metadata` comes back when it is submitted."""
    return {
        "type": "modal",
        "callback_id": callback_id,
        "title": plain_text(title, _MAX_TITLE),
        "submit": plain_text(submit, _MAX_TITLE),
        "close": plain_text("Cancel", _MAX_TITLE),
        "private_metadata": json.dumps(metadata),
        "blocks": list(blocks),
    }


def form_modal(form: Form, **metadata: str) -> Block | None:
    """The modal of a form; None when Slack would not show all of it."""
    if len(describe_form(form)) > _MAX_ABOUT or not shows_whole(form):
        return None
    for brief in (False, True):
        view = _build_form_modal(form, metadata, brief=brief)
        if len(json.dumps(view)) <= _MAX_VIEW_SIZE:
            return view
    return None


def _build_form_modal(form: Form, metadata: Mapping[str, str], *, brief: bool) -> Block:
    blocks = []
    about = describe_form(form)
    if about:
        blocks.append(section(about))
    for field in unique_fields(form):
        blocks.append(field_block(field, brief=brief))
    if not blocks:
        blocks.append(section("There is nothing to fill in."))
    return modal(FORM_VIEW, form.title or "A form", "Send", blocks, **metadata)


def describe_form(form: Form) -> str:
    """The texts of a form above its fields, escaped, a line each."""
    texts = [text for text in (form.response, form.description) if text]
    return "\n".join(escape_line(reveal_line(text)) for text in texts if text.strip())


def notice_modal(text: str) -> Block:
    """A modal with an error that belongs to no field."""
    return {
        "type": "modal",
        "title": plain_text("Not taken", _MAX_TITLE),
        "close": plain_text("Close", _MAX_TITLE),
        "blocks": [section(escape_line(text) or "This was not accepted.")],
    }


def edit_modal(approval: Approval, **metadata: str) -> Block | None:
    """The modal to edit the arguments of a tool call; None when they are too long for an input."""
    arguments = reveal_json(mask_secrets(approval.arguments), indent=2)
    if len(arguments) > MAX_INPUT:
        return None
    blocks = [
        section(f"`{escape_line(reveal_line(approval.tool))}` runs with these arguments when you send them."),
        input_block(_ARGUMENTS_BLOCK, "Arguments (JSON)", text_element(initial_value=arguments)),
    ]
    return modal(EDIT_VIEW, "Edit and run", "Run", blocks, **metadata)


def reject_modal(description: str, **metadata: str) -> Block:
    element = text_element(max_length=1_000)
    reason = input_block(_REASON_BLOCK, "Why? (optional)", element, optional=True)
    return modal(
        REJECT_VIEW, "Reject", "Reject", [section(escape_line(reveal_line(description))), reason], **metadata
    )


def reason_modal(**metadata: str) -> Block:
    element = text_element(max_length=2_000)
    reason = input_block(_REASON_BLOCK, "What would have been better?", element, optional=True)
    return modal(REASON_VIEW, "What was wrong?", "Send", [reason], **metadata)


def place_errors(view: Mapping[str, Any], errors: Mapping[str, str]) -> dict[str, str]:
    """Errors by field as errors by block; those of no field go to the first one. Empty when there is none."""
    inputs = [str(block["block_id"]) for block in view["blocks"] if block.get("type") == "input"]
    if not inputs:
        return {}
    placed: dict[str, str] = {}
    for field_name, text in errors.items():
        target = block_id(field_name)
        if target not in inputs:
            target = inputs[0]
        if target in placed:
            text = f"{placed[target]} {text}"
        placed[target] = text
    return {target: truncate(text, MAX_HINT) for target, text in placed.items()}


def read_reason(view: Mapping[str, Any]) -> str:
    return str(read_input(view, _REASON_BLOCK).get("value") or "").strip()


def read_arguments(view: Mapping[str, Any]) -> tuple[dict[str, Any] | None, dict[str, str]]:
    """The edited arguments, or errors by block."""
    try:
        arguments = json.loads(str(read_input(view, _ARGUMENTS_BLOCK).get("value") or ""))
    except (ValueError, RecursionError) as error:
        return None, {_ARGUMENTS_BLOCK: f"This is not JSON: {error}."[:150]}
    if not isinstance(arguments, dict):
        return None, {_ARGUMENTS_BLOCK: "The arguments are a JSON object with a value for each name."}
    return arguments, {}
