"""The messages that show requests in a thread: a form or an approval with its buttons."""

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.transcript import PendingInput, Transcript
from ai_platform_engineering.integrations.slack_bot.blocks import (
    Block,
    actions,
    button,
    context,
    escape_line,
    section,
    truncate,
)
from ai_platform_engineering.integrations.slack_bot.form_inputs import fits_modal
from ai_platform_engineering.integrations.slack_bot.modals import describe_form
from ai_platform_engineering.integrations.slack_bot.secret_masks import mask_secrets

FILL_ACTION = "caipe_fill"
DECLINE_ACTION = "caipe_decline"
DROP_ACTION = "caipe_drop"
APPROVE_ACTION = "caipe_approve"
ALWAYS_ACTION = "caipe_always"
EDIT_ACTION = "caipe_edit"
REJECT_ACTION = "caipe_reject_it"
_MAX_ARGUMENTS = 2_800
_MAX_HEADLINE = 300


def build_request_message(request: PendingInput, turn_id: str) -> tuple[str, list[Block]]:
    """The notification and the blocks of a request."""
    blocks = [*summary_blocks(request), *_hint_blocks(request.asked)]
    expires_at = request.asked.expires_at
    if expires_at:
        blocks.append(context(f"Until {format_date(expires_at.timestamp())}"))
    buttons = _build_buttons(request.asked, f"{turn_id} {request.request_id}")
    if buttons:
        blocks.append(actions(*buttons))
    return truncate(_describe_request(request), _MAX_HEADLINE), blocks


def build_waiting_message(transcript: Transcript, turn_id: str) -> tuple[str, list[Block]]:
    """The notification and the blocks that say what was no answer, with a button to drop the request."""
    text = escape_line(transcript.waiting_for) or "I still wait for an answer."
    blocks = [section(text)]
    if transcript.held is not None:
        blocks.append(actions(button("Drop it and start anew", DROP_ACTION, turn_id)))
    return truncate(text, _MAX_HEADLINE), blocks


def summary_blocks(request: PendingInput) -> list[Block]:
    """What the request is about: it stays when the request is resolved."""
    if isinstance(request.asked, Approval):
        return _approval_blocks(request.asked, request.agent)
    title = escape_line(request.asked.title or "") or "I need a few details"
    return [section(f":memo: *{title}*\n{describe_form(request.asked)}".strip())]


def _approval_blocks(approval: Approval, agent: str) -> list[Block]:
    agent_name = escape_line(title_case(agent))
    blocks = [section(f":lock: *{agent_name}* wants to run `{escape_line(approval.tool)}`")]
    if approval.arguments:
        arguments = truncate(_format_arguments(approval.arguments), _MAX_ARGUMENTS)
        blocks.append(section(f"```\n{arguments}\n```"))
    if approval.reason.strip():
        blocks.append(context(escape_line(approval.reason)))
    return blocks


def _describe_request(request: PendingInput) -> str:
    agent = escape_line(title_case(request.agent))
    if isinstance(request.asked, Approval):
        return f"{agent} wants to run {escape_line(request.asked.tool)}"
    return f"{agent} asks: {escape_line(request.asked.describe())}"


def _hint_blocks(form_or_approval: Form | Approval) -> list[Block]:
    """How a form is answered, while it is open."""
    if isinstance(form_or_approval, Approval):
        return []
    if form_or_approval.takes_text:
        return [context("You can also answer with a message in this thread.")]
    blocks = []
    labels = ", ".join(
        escape_line(field.field_label or field.field_name) for field in form_or_approval.fields
    )
    if labels:
        blocks.append(context(f"Asks for: {labels}"))
    if not fits_modal(form_or_approval):
        too_large = "It has more fields than a form can show here. Decline it, and ask for less at a time."
        blocks.append(context(too_large))
    return blocks


def _build_buttons(form_or_approval: Form | Approval, value: str) -> list[Block]:
    if isinstance(form_or_approval, Form):
        return _form_buttons(form_or_approval, value)
    buttons = _approval_buttons(form_or_approval, value)
    offered = []
    for decision in dict.fromkeys(form_or_approval.allowed):
        offered += buttons[decision]
    return offered


def _form_buttons(form: Form, value: str) -> list[Block]:
    confirm = _build_confirm("Decline", "The run goes on without these details.", "Decline")
    buttons = [button("Decline", DECLINE_ACTION, value, confirm=confirm)]
    if fits_modal(form):
        buttons.insert(0, button("Fill in", FILL_ACTION, value, style="primary"))
    return buttons


def _approval_buttons(approval: Approval, value: str) -> Mapping[str, list[Block]]:
    """The buttons of each decision."""
    confirm = _build_confirm("Approve", f"Run {approval.tool} with these arguments?", "Approve")
    always_text = f"Run {approval.tool} without asking in this thread, whatever its arguments?"
    confirm_always = _build_confirm("Always approve", always_text, "Always")
    return {
        "approve": [
            button("Approve", APPROVE_ACTION, value, style="primary", confirm=confirm),
            button("Always here", ALWAYS_ACTION, value, confirm=confirm_always),
        ],
        "edit": [button("Edit", EDIT_ACTION, value)],
        "reject": [button("Reject", REJECT_ACTION, value, style="danger")],
    }


def _build_confirm(title: str, text: str, confirm: str) -> Block:
    """The dialog that Slack shows before a button counts as clicked."""
    return {
        "title": {"type": "plain_text", "text": truncate(title, 100)},
        "text": {"type": "plain_text", "text": truncate(text, 300)},
        "confirm": {"type": "plain_text", "text": truncate(confirm, 30)},
        "deny": {"type": "plain_text", "text": "Back"},
    }


def _format_arguments(arguments: Mapping[str, Any]) -> str:
    text = json.dumps(mask_secrets(arguments), indent=2, ensure_ascii=False)
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;").replace("```", "'''")


def format_date(seconds: float) -> str:
    """A time that Slack shows in the reader's time zone."""
    seconds = int(seconds)
    fallback = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    return f"<!date^{seconds}^{{date_short_pretty}} {{time}}|{fallback}>"
