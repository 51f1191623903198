"""The messages that show requests in a thread: a form or an approval with its buttons."""

from dataclasses import dataclass
from datetime import UTC, datetime

from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.core.display_text import reveal_line
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.transcript import PendingInput, Transcript
from ai_platform_engineering.integrations.slack_bot.approval_messages import (
    CallDisplay,
    CallNotShown,
    approval_blocks,
    approval_buttons,
    display_blocks,
    fits_message,
)
from ai_platform_engineering.integrations.slack_bot.blocks import (
    Block,
    actions,
    build_confirm,
    button,
    context,
    escape_line,
    section,
    truncate,
)
from ai_platform_engineering.integrations.slack_bot.modals import describe_form, form_modal

FILL_ACTION = "caipe_fill"
DECLINE_ACTION = "caipe_decline"
DROP_ACTION = "caipe_drop"
_MAX_HEADLINE = 300
_TOO_LONG = "it is too long for a message"
_TOO_LARGE = (
    "This form cannot be shown here in full: it has too many fields, or texts that are too long. "
    "Decline it, and ask for less at a time."
)


@dataclass(frozen=True, slots=True)
class RequestButton:
    """The value of a request's button: turn, request, and the digest of the call that was shown."""

    turn_id: str
    request_id: str
    digest: str = ""

    def to_value(self) -> str:
        return " ".join((self.turn_id, self.request_id, self.digest)).rstrip()

    @classmethod
    def from_value(cls, value: str) -> "RequestButton":
        turn_id, _, rest = value.partition(" ")
        request_id, _, digest = rest.partition(" ")
        return cls(turn_id, request_id, digest)


def build_request_message(
    request: PendingInput, turn_id: str, display: CallDisplay = None, owner: str = ""
) -> tuple[str, list[Block]]:
    """The notification and the blocks of a request.

    `display` says where a call is that is too long for a message, `owner` whose conversation it is.
    """
    form_or_approval = request.asked
    blocks = summary_blocks(request)
    if isinstance(form_or_approval, Approval):
        if display is None and not fits_message(request, form_or_approval):
            display = CallNotShown(_TOO_LONG)
        blocks += display_blocks(request, form_or_approval, display, owner)
        value = RequestButton(turn_id, request.request_id, form_or_approval.digest).to_value()
        buttons = approval_buttons(form_or_approval, value, display)
    else:
        blocks += _hint_blocks(form_or_approval)
        buttons = _form_buttons(form_or_approval, RequestButton(turn_id, request.request_id).to_value())
    if form_or_approval.expires_at:
        blocks.append(context(f"Until {format_date(form_or_approval.expires_at.timestamp())}"))
    if buttons:
        blocks.append(actions(*buttons))
    return truncate(_describe_request(request), _MAX_HEADLINE), blocks


def build_waiting_message(transcript: Transcript, turn_id: str) -> tuple[str, list[Block]]:
    """The notification and the blocks that say what was no answer, with a button to drop the request."""
    text = escape_line(transcript.waiting_for) or "I am still waiting for an answer."
    blocks = [section(text)]
    if transcript.held is not None:
        blocks.append(actions(button("Drop it and start over", DROP_ACTION, turn_id)))
    return truncate(text, _MAX_HEADLINE), blocks


def summary_blocks(request: PendingInput) -> list[Block]:
    """What the request is about: it stays when the request is resolved."""
    if isinstance(request.asked, Approval):
        return approval_blocks(request, request.asked)
    title = truncate(escape_line(reveal_line(request.asked.title or "")), _MAX_HEADLINE)
    title = title or "I need a few details"
    return [section(f":memo: *{title}*\n{describe_form(request.asked)}".strip())]


def _describe_request(request: PendingInput) -> str:
    agent = escape_line(title_case(reveal_line(request.agent)))
    if isinstance(request.asked, Approval):
        return f"{agent} wants to run {escape_line(reveal_line(request.asked.tool))}"
    return f"{agent} asks: {escape_line(reveal_line(request.asked.describe()))}"


def _hint_blocks(form: Form) -> list[Block]:
    """How a form is answered, while it is open."""
    if form_modal(form) is None:
        return [context(_TOO_LARGE)]
    if form.takes_text:
        return [context("You can also answer with a message in this thread.")]
    labels = ", ".join(
        escape_line(reveal_line(field.field_label or field.field_name)) for field in form.fields
    )
    if labels:
        return [context(f"Asks for: {labels}")]
    return []


def _form_buttons(form: Form, value: str) -> list[Block]:
    confirm = build_confirm("Decline", "The run continues without these details.", "Decline")
    buttons = [button("Decline", DECLINE_ACTION, value, confirm=confirm)]
    if form_modal(form) is not None:
        buttons.insert(0, button("Fill in", FILL_ACTION, value, style="primary"))
    return buttons


def format_date(seconds: float) -> str:
    """A time that Slack shows in the reader's time zone."""
    seconds = int(seconds)
    fallback = f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M} UTC"
    return f"<!date^{seconds}^{{date_short_pretty}} {{time}}|{fallback}>"
