"""The message of an approval: the whole call, or the name of the file that holds it, and the buttons.

What a channel cannot see in whole it cannot approve: then there is no button for it, and the message says why
and where it can be decided.
"""

from dataclasses import dataclass

from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.core.display_text import reveal_json, reveal_line
from ai_platform_engineering.core.events import Approval
from ai_platform_engineering.core.transcript import PendingInput
from ai_platform_engineering.integrations.slack_bot.blocks import (
    Block,
    build_confirm,
    button,
    plain_context,
    preformatted,
    rich_line,
    styled,
)
from ai_platform_engineering.integrations.slack_bot.modals import edit_modal
from ai_platform_engineering.integrations.slack_bot.secret_masks import mask_secrets

APPROVE_ACTION = "caipe_approve"
ALWAYS_ACTION = "caipe_always"
EDIT_ACTION = "caipe_edit"
REJECT_ACTION = "caipe_reject_it"

_MAX_ARGUMENTS = 9_000  # characters in one message; longer ones are attached
_MAX_CODE_BLOCK = 2_900
_MAX_NAME = 200  # of an agent and of a tool
_MAX_REASON = 1_500


@dataclass(frozen=True, slots=True)
class CallFile:
    """A file in the thread that holds a whole call."""

    name: str


@dataclass(frozen=True, slots=True)
class CallNotShown:
    """Why the thread does not show a whole call, as the end of a sentence."""

    reason: str


CallDisplay = CallFile | CallNotShown | None  # None: the message itself shows the call


def fits_message(request: PendingInput, approval: Approval) -> bool:
    """Whether a message shows the whole call."""
    if len(reveal_line(request.agent)) > _MAX_NAME or len(reveal_line(approval.tool)) > _MAX_NAME:
        return False
    if len(reveal_line(approval.reason)) > _MAX_REASON:
        return False
    return len(render_arguments(approval)) <= _MAX_ARGUMENTS


def render_arguments(approval: Approval) -> str:
    return reveal_json(mask_secrets(approval.arguments), indent=2)


def render_call(request: PendingInput, approval: Approval) -> str:
    """The whole call as the text of a file."""
    call = {
        "agent": request.agent,
        "tool": approval.tool,
        "reason": approval.reason,
        "arguments": mask_secrets(approval.arguments),
    }
    return reveal_json(call, indent=2) + "\n"


def approval_blocks(request: PendingInput, approval: Approval) -> list[Block]:
    """What the call is: it stays when the request is resolved."""
    agent_name = _shorten(title_case(reveal_line(request.agent)))
    blocks = [
        rich_line(
            {"type": "emoji", "name": "lock"},
            styled(f" {agent_name}", "bold"),
            styled(" wants to run "),
            styled(_shorten(reveal_line(approval.tool)) or "a tool", "code"),
        )
    ]
    if not fits_message(request, approval):
        return blocks
    if approval.arguments:
        blocks += [preformatted(piece) for piece in _split_lines(render_arguments(approval))]
    reason = reveal_line(approval.reason)
    if reason:
        blocks.append(plain_context(reason))
    return blocks


def display_blocks(
    request: PendingInput, approval: Approval, display: CallDisplay, owner: str
) -> list[Block]:
    """Where the rest of a long call is, and what cannot be done with it here."""
    match display:
        case CallFile(name=name):
            size = len(render_call(request, approval))
            return [
                plain_context(
                    f"The call is too long for a message: all of it, {size:,} characters, is in the file "
                    f"{name} above. Read it before you decide. It cannot be edited here."
                )
            ]
        case CallNotShown(reason=reason):
            commands = (
                f"caipe pending --owner {owner}, then caipe approve {request.request_id} --owner {owner}"
            )
            return [
                plain_context(
                    f"It cannot be approved here: {reason}. Reject it and ask for less at a time, "
                    f"or review all of it and decide in a terminal: {commands}"
                )
            ]
        case None if approval.arguments and not _can_edit(approval):
            return [plain_context("The arguments are too long to be edited here.")]
        case None:
            return []


def approval_buttons(approval: Approval, value: str, display: CallDisplay) -> list[Block]:
    """The buttons of the allowed decisions; only a rejection for a call that the thread does not show."""
    buttons: list[Block] = []
    for decision in dict.fromkeys(approval.allowed):
        match decision:
            case "approve" if not isinstance(display, CallNotShown):
                buttons += _approve_buttons(approval, value, display)
            case "edit" if display is None and _can_edit(approval):
                buttons.append(button("Edit", EDIT_ACTION, value))
            case "reject":
                buttons.append(button("Reject", REJECT_ACTION, value, style="danger"))
            case _:
                pass
    return buttons


def _approve_buttons(approval: Approval, value: str, display: CallDisplay) -> list[Block]:
    tool = _shorten(reveal_line(approval.tool))
    arguments = "these arguments"
    if isinstance(display, CallFile):
        arguments = f"the arguments in {display.name}"
    confirm = build_confirm("Approve", f"Run {tool} with {arguments}?", "Approve")
    always_text = f"Run {tool} without approval in this thread, whatever its arguments?"
    confirm_always = build_confirm("Always approve", always_text, "Always")
    return [
        button("Approve", APPROVE_ACTION, value, style="primary", confirm=confirm),
        button("Always here", ALWAYS_ACTION, value, confirm=confirm_always),
    ]


def _can_edit(approval: Approval) -> bool:
    return edit_modal(approval) is not None


def _shorten(name: str) -> str:
    """A name within the room that a line has; a longer one is in the file with the whole call."""
    if len(name) <= _MAX_NAME:
        return name
    return f"{name[:_MAX_NAME]}…"


def _split_lines(text: str) -> list[str]:
    """The text in pieces that fit a code block, cut at the ends of lines where there are any."""
    pieces: list[str] = []
    while len(text) > _MAX_CODE_BLOCK:
        cut = text.rfind("\n", 0, _MAX_CODE_BLOCK)
        if cut <= 0:
            pieces.append(text[:_MAX_CODE_BLOCK])
            text = text[_MAX_CODE_BLOCK:]
        else:
            pieces.append(text[:cut])
            text = text[cut + 1 :]
    return [*pieces, text]
