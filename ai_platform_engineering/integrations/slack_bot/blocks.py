"""Blocks of Slack's Block Kit: sections, buttons, and what is below the last message of a turn."""

from collections.abc import Mapping, Sequence
from typing import Any

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.core.events import Citation, number_sources
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.integrations.slack_bot.stream_text import escape

Block = dict[str, Any]
Chunk = dict[str, Any]

MAX_SECTION_TEXT = 3_000
_MAX_MESSAGE_TEXT = 13_000  # characters in the blocks of a message
_MAX_NOTIFICATION = 300
_MAX_BUTTON_TEXT = 75
_MAX_BUTTON_VALUE = 2_000
_MAX_SOURCES = 20
_MAX_SOURCE_TITLE = 150
_MAX_SOURCE_URL = 1_000

STOP_ACTION = "caipe_stop"
RETRY_ACTION = "caipe_retry"
FEEDBACK_ACTION = "caipe_feedback"


# --- texts --------------------------------------------------------------------------------------------------


def escape_line(text: str) -> str:
    """Third-party text on one line, escaped so that it mentions nobody and reorders nothing."""
    return escape(remove_controls(one_line(text)), at_line_start=False)


def one_line(text: str) -> str:
    return " ".join(text.split())


def notification_text(escaped: str) -> str:
    """A text of the bot, cut for a notification."""
    return truncate(one_line(escaped), _MAX_NOTIFICATION)


def truncate(text: str, limit: int) -> str:
    """Cuts a text, never through an escaped character such as `&amp;`."""
    if len(text) <= limit:
        return text
    short = text[: limit - 1]
    ampersand = short.rfind("&")
    is_cut_through = ampersand >= 0 and ";" not in short[ampersand:] and limit - ampersand < 8
    if is_cut_through:
        short = short[:ampersand]
    return f"{short}…"


# --- blocks -------------------------------------------------------------------------------------------------


def section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": truncate(text, MAX_SECTION_TEXT)}}


def context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": truncate(text, MAX_SECTION_TEXT)}]}


def plain_context(text: str) -> Block:
    """A small line of text that is shown as it is: nothing in it is formatted, linked or mentioned."""
    element = {"type": "plain_text", "text": truncate(text, MAX_SECTION_TEXT), "emoji": False}
    return {"type": "context", "elements": [element]}


def rich_line(*elements: Block) -> Block:
    """A line of styled texts, each of which is shown as it is."""
    return {"type": "rich_text", "elements": [{"type": "rich_text_section", "elements": list(elements)}]}


def styled(text: str, *styles: str) -> Block:
    element: Block = {"type": "text", "text": text}
    if styles:
        element["style"] = dict.fromkeys(styles, True)
    return element


def preformatted(text: str) -> Block:
    """A block of code that is shown as it is, whatever it holds."""
    code = {"type": "rich_text_preformatted", "elements": [styled(text)]}
    return {"type": "rich_text", "elements": [code]}


def markdown(text: str) -> Block:
    return {"type": "markdown", "text": text}


def button(
    text: str, action_id: str, value: str, *, style: str = "", confirm: Mapping[str, Any] | None = None
) -> Block:
    label = {"type": "plain_text", "text": truncate(text, _MAX_BUTTON_TEXT), "emoji": True}
    element: Block = {
        "type": "button",
        "text": label,
        "action_id": action_id,
        "value": value[:_MAX_BUTTON_VALUE],
    }
    if style:
        element["style"] = style
    if confirm:
        element["confirm"] = dict(confirm)
    return element


def actions(*elements: Block) -> Block:
    return {"type": "actions", "elements": list(elements)}


def fits_one_message(blocks: Sequence[Block]) -> bool:
    """Whether the texts of the blocks fit into one message."""
    return sum(map(_count_characters, blocks)) <= _MAX_MESSAGE_TEXT


def _count_characters(value: Any) -> int:
    if isinstance(value, list):
        return sum(map(_count_characters, value))
    if not isinstance(value, Mapping):
        return 0
    count = 0
    for name, item in value.items():
        if name == "text" and isinstance(item, str):
            count += len(item)
        else:
            count += _count_characters(item)
    return count


def build_confirm(title: str, text: str, confirm: str) -> Block:
    """The dialog that Slack shows before a button counts as clicked."""
    return {
        "title": {"type": "plain_text", "text": truncate(title, 100)},
        "text": {"type": "plain_text", "text": truncate(text, 300)},
        "confirm": {"type": "plain_text", "text": truncate(confirm, 30)},
        "deny": {"type": "plain_text", "text": "Back"},
    }


def stop_button(turn_id: str) -> Block:
    return actions(button("Stop", STOP_ACTION, turn_id, style="danger"))


# --- below the last message ---------------------------------------------------------------------------------


def ending_blocks(transcript: Transcript, turn_id: str, task_id: str | None) -> list[Block]:
    """The blocks below the last message of a turn: sources and feedback, an error, or that it was stopped."""
    match transcript.state:
        case "completed":
            blocks = source_blocks(transcript.citations)
            if task_id:
                blocks.append(feedback_block(task_id))
            return blocks
        case "failed":
            retry_turn_id = None
            if transcript.retryable:
                retry_turn_id = turn_id
            return error_blocks(
                transcript.error or "There was no answer.", retry_turn_id, transcript.trace_id
            )
        case "canceled":
            return [context("Stopped.")]
        case _:
            return []


def source_blocks(citations: Sequence[Citation]) -> list[Block]:
    """The sources of an answer by their numbers, as links where they have a URL."""
    if not citations:
        return []
    lines = ["*Sources*"]
    for number, citation in number_sources(citations)[:_MAX_SOURCES]:
        lines.append(f"[{number}] {_format_source(citation)}")
    while len("\n".join(lines)) > MAX_SECTION_TEXT - 40:
        lines.pop()
    missing = len(citations) + 1 - len(lines)
    if missing:
        lines.append(f"and {missing} more")
    return [section("\n".join(lines))]


def _format_source(citation: Citation) -> str:
    url = citation.url or ""
    title = escape_line(citation.title) or escape_line(url or citation.document_id or "") or "a document"
    title = truncate(title, _MAX_SOURCE_TITLE).replace("|", "¦")
    if not _is_linkable(url):
        return title
    return f"<{url.replace('&', '&amp;')}|{title}>"


def _is_linkable(url: str) -> bool:
    if not url.startswith(("http://", "https://")) or len(url) > _MAX_SOURCE_URL:
        return False
    return not any(character in "<>|" or character.isspace() for character in url)


def feedback_block(task_id: str) -> Block:
    feedback_buttons = {
        "type": "feedback_buttons",
        "action_id": FEEDBACK_ACTION,
        "positive_button": _feedback_button("Good answer", f"up {task_id}"),
        "negative_button": _feedback_button("Bad answer", f"down {task_id}"),
    }
    return {"type": "context_actions", "elements": [feedback_buttons]}


def _feedback_button(text: str, value: str) -> Block:
    return {"text": {"type": "plain_text", "text": text}, "value": value, "accessibility_label": text}


def error_blocks(sentence: str, turn_id: str | None, trace_id: str | None) -> list[Block]:
    """What went wrong, a button to try again when `turn_id` is given, and the id of the trace."""
    blocks = [section(f":warning: {escape_line(sentence)}")]
    if turn_id:
        blocks.append(actions(button("Try again", RETRY_ACTION, turn_id)))
    if trace_id:
        blocks.append(context(f"Trace {escape_line(trace_id)}"))
    return blocks
