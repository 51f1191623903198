"""How a run looks in Slack: cards for the plan and what runs, and the blocks below a message."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.core.events import SUPERVISOR, Citation, PlanStep, StepStatus
from ai_platform_engineering.core.transcript import ToolCallView, Transcript
from ai_platform_engineering.integrations.slack_bot.stream_text import RAG_TOOL_NAMES, escape, render_text

CardStatus = Literal["pending", "in_progress", "complete", "error"]
Block = dict[str, Any]
Chunk = dict[str, Any]

MAX_CARD_TEXT = 256  # characters of each text of a card
MAX_SECTION_TEXT = 3_000
_MOST_TEXT = 13_000  # characters in the blocks of a message
_LONGEST_ID, _PREVIEW = 200, 300
_LONGEST_BUTTON, _LONGEST_VALUE = 75, 2_000
_MOST_SOURCES = 20
_LONGEST_SOURCE = 150
_LONGEST_ADDRESS = 1_000
_STATES: Mapping[StepStatus, CardStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "complete",
    "failed": "error",
    "skipped": "complete",
}
_MARKS: Mapping[CardStatus, str] = {"pending": "⏳", "in_progress": "🔄", "complete": "✅", "error": "❌"}
_SEPARATOR = " · "

STOP_ACTION = "caipe_stop"
RETRY_ACTION = "caipe_retry"
FEEDBACK_ACTION = "caipe_feedback"


@dataclass(frozen=True, slots=True)
class TaskCard:
    """A step of the plan, or something that runs beside it."""

    card_id: str
    title: str
    status: CardStatus
    details: str = ""
    output: str = ""

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "in_progress")

    def to_chunk(self) -> Chunk:
        texts = {"title": self.title, "details": self.details, "output": self.output}
        return {
            "type": "task_update",
            "id": self.card_id,
            "status": self.status,
            **{name: truncate(text, MAX_CARD_TEXT) for name, text in texts.items() if text},
        }

    def to_line(self) -> str:
        """The card where there are no cards."""
        more = f" — {truncate(self.details, 120)}" if self.details else ""
        return f"{_MARKS[self.status]} {truncate(self.title, MAX_CARD_TEXT)}{more}"


@dataclass(frozen=True, slots=True)
class ThreadView:
    """All that a turn shows at a moment."""

    text: str = ""
    title: str = ""
    cards: tuple[TaskCard, ...] = ()


def build_view(seen: Transcript, waiting: TaskCard | None = None) -> ThreadView:
    """What the thread shows of a run; `waiting` is for what only the bot knows."""
    title = seen.plan.title or "Plan" if seen.plan is not None and seen.plan.steps else ""
    cards = tuple(
        _drawable(
            [*_steps(seen), *_beside(seen), *_notices(seen), *([waiting] if waiting is not None else [])]
        )
    )
    if seen.state in ("failed", "canceled"):
        cards = tuple(replace(card, status="error") if card.is_open else card for card in cards)
    elif seen.state == "completed":
        cards = tuple(replace(card, status="complete") if card.is_open else card for card in cards)
    return ThreadView(render_text(seen), truncate(escape_line(title), MAX_CARD_TEXT), cards)


def _drawable(cards: Iterable[TaskCard]) -> Iterator[TaskCard]:
    """Each with words, and with an id that no other has: Slack would take two of the same id for one."""
    used = set[str]()
    for card in cards:
        known = (
            card.card_id
            if 0 < len(card.card_id) <= _LONGEST_ID
            else hashlib.sha256(card.card_id.encode()).hexdigest()
        )
        card_id, number = known, 1
        while card_id in used:
            number += 1
            card_id = f"{known} {number}"
        used.add(card_id)
        yield replace(card, card_id=card_id, title=card.title or "…")


def _steps(seen: Transcript) -> Iterator[TaskCard]:
    for step in seen.plan.steps if seen.plan is not None else ():
        yield TaskCard(
            step.step_id,
            _tagged(step.agent, step.title),
            _STATES[step.status],
            _tools_of(seen, step),
            _outcome_of(seen, step),
        )


def _tagged(agent: str, title: str) -> str:
    return escape_line(title if agent in ("", SUPERVISOR) else f"[{title_case(agent)}] {title}")


def _tools_of(seen: Transcript, step: PlanStep) -> str:
    """The tools that were called in the step, the last ones where there are many."""
    delegations = {call.call_id for call in seen.calls if call.delegates and call.step_id == step.step_id}
    inside = [
        call
        for call in seen.calls
        if call.parent_call in delegations or (call.step_id == step.step_id and not call.delegates)
    ]
    return _tool_words(inside)


def _tool_words(calls: Sequence[ToolCallView]) -> str:
    words: list[str] = []
    for call in reversed(calls):
        mark = "" if call.outcome in (None, "ok") else "❌ "
        still = f" ({call.progress})" if call.progress and call.outcome is None else ""
        words.insert(0, f"{mark}{title_case(call.agent)}: {title_case(call.tool)}{still}")
        if len(_SEPARATOR.join(words)) > MAX_CARD_TEXT:
            words[0] = "…"
            break
    return escape_line(_SEPARATOR.join(words))


def _outcome_of(seen: Transcript, step: PlanStep) -> str:
    if step.status == "skipped":
        return "skipped"
    done = [
        call
        for call in seen.calls
        if call.delegates and call.step_id == step.step_id and call.outcome is not None
    ]
    if done:
        return _result(done[-1])
    return ""


def _result(call: ToolCallView) -> str:
    if call.outcome == "unknown":
        return "Whether it took effect is not known."
    return escape_line(call.error or call.result or "")


def _beside(seen: Transcript) -> Iterator[TaskCard]:
    """What is called outside of every step."""
    steps = {step.step_id for step in seen.plan.steps} if seen.plan is not None else set()
    for call in seen.calls:
        if call.parent_call is not None or call.step_id in steps:
            continue
        status: CardStatus = (
            "in_progress" if call.outcome is None else "complete" if call.outcome == "ok" else "error"
        )
        inside = [inner for inner in seen.calls if inner.parent_call == call.call_id]
        yield TaskCard(
            call.call_id,
            _called(call),
            status,
            _tool_words(inside) or escape_line(call.progress),
            _result(call),
        )


def _called(call: ToolCallView) -> str:
    if call.delegates:
        asked = call.arguments.get("description")
        return _tagged(call.tool, asked if isinstance(asked, str) and asked.strip() else "is asked")
    if call.knowledge and call.tool in RAG_TOOL_NAMES:
        return f"[Knowledge base] {title_case(call.tool)}"
    return _tagged(call.agent, title_case(call.tool))


def _notices(seen: Transcript) -> Iterator[TaskCard]:
    for number, notice in enumerate(seen.notices):
        yield TaskCard(f"notice-{number}", escape_line(notice.text), "complete")


def escape_line(text: str) -> str:
    """One line of foreign text that mentions nobody."""
    return escape(one_line(text), at_line_start=False)


def one_line(text: str) -> str:
    return " ".join(text.split())


def notification_text(escaped: str) -> str:
    """A text of the bot for a notification."""
    return truncate(one_line(escaped), _PREVIEW)


def truncate(text: str, longest: int) -> str:
    """Never through an escaped character."""
    if len(text) <= longest:
        return text
    short = text[: longest - 1]
    broken = short.rfind("&")
    return (
        short[:broken] if broken >= 0 and ";" not in short[broken:] and longest - broken < 8 else short
    ) + "…"


# --- blocks -----------------------------------------------------------------------------------------------------------


def section(text: str) -> Block:
    return {"type": "section", "text": {"type": "mrkdwn", "text": truncate(text, MAX_SECTION_TEXT)}}


def context(text: str) -> Block:
    return {"type": "context", "elements": [{"type": "mrkdwn", "text": truncate(text, MAX_SECTION_TEXT)}]}


def markdown(text: str) -> Block:
    return {"type": "markdown", "text": text}


def button(
    text: str, action_id: str, value: str, *, style: str = "", confirm: Mapping[str, Any] | None = None
) -> Block:
    label = {"type": "plain_text", "text": truncate(text, _LONGEST_BUTTON), "emoji": True}
    made: Block = {"type": "button", "text": label, "action_id": action_id, "value": value[:_LONGEST_VALUE]}
    return {**made, **({"style": style} if style else {}), **({"confirm": dict(confirm)} if confirm else {})}


def actions(*elements: Block, block_id: str | None = None) -> Block:
    return {"type": "actions", "elements": list(elements), **({"block_id": block_id} if block_id else {})}


def fits_one_message(blocks: Sequence[Block]) -> bool:
    """Whether one message takes so much text."""
    return sum(map(_size, blocks)) <= _MOST_TEXT


def _size(part: Any) -> int:
    if isinstance(part, Mapping):
        return sum(
            len(item) if name == "text" and isinstance(item, str) else _size(item)
            for name, item in part.items()
        )
    if isinstance(part, list):
        return sum(map(_size, part))
    return 0


def progress_blocks(view: ThreadView) -> list[Block]:
    """The plan and what runs as a block, for messages that have no cards. The first steps give way to the last."""
    lines = [f"*{view.title}*"] if view.title else []
    lines += [card.to_line() for card in view.cards]
    if not lines:
        return []
    while len("\n".join(lines)) > 1_500 and len(lines) > 2:
        lines.pop(1 if view.title else 0)
    return [section("\n".join(lines))]


def stop_button(turn_id: str) -> Block:
    return actions(button("Stop", STOP_ACTION, turn_id, style="danger"))


def source_blocks(citations: Sequence[Citation]) -> list[Block]:
    """The sources of an answer by their numbers, as links where they have an address."""
    lines = [
        "*Sources*",
        *(f"[{number}] {_link(one)}" for number, one in enumerate(citations[:_MOST_SOURCES], 1)),
    ]
    while len("\n".join(lines)) > MAX_SECTION_TEXT - 40:
        lines.pop()
    if left := len(citations) + 1 - len(lines):
        lines.append(f"and {left} more")
    if citations:
        return [section("\n".join(lines))]
    return []


def _link(one: Citation) -> str:
    address, title = (
        one.url or "",
        escape_line(one.title) or escape_line(one.url or one.document_id or "") or "a document",
    )
    title = truncate(title, _LONGEST_SOURCE).replace("|", "¦")
    usable = address.startswith(("http://", "https://")) and not any(
        mark in "<>|" or mark.isspace() for mark in address
    )
    if not usable or len(address) > _LONGEST_ADDRESS:
        return title
    return f"<{address.replace('&', '&amp;')}|{title}>"


def feedback_block(task_id: str) -> Block:
    def choice(text: str, value: str) -> Block:
        return {
            "text": {"type": "plain_text", "text": text},
            "value": f"{value} {task_id}",
            "accessibility_label": text,
        }

    buttons = {
        "positive_button": choice("Good answer", "up"),
        "negative_button": choice("Bad answer", "down"),
    }
    return {
        "type": "context_actions",
        "elements": [{"type": "feedback_buttons", "action_id": FEEDBACK_ACTION, **buttons}],
    }


def error_blocks(sentence: str, turn_id: str | None, trace_id: str | None) -> list[Block]:
    """What went wrong, what can be done, and under which id to look for it. `turn_id` when it may be tried again."""
    return [
        section(f":warning: {escape_line(sentence)}"),
        *([actions(button("Try again", RETRY_ACTION, turn_id))] if turn_id else []),
        *([context(f"Trace {escape_line(trace_id)}")] if trace_id else []),
    ]


def ending_blocks(seen: Transcript, turn_id: str, task_id: str | None) -> list[Block]:
    """The blocks below the last message of a turn."""
    match seen.state:
        case "completed":
            return [*source_blocks(seen.citations), *([feedback_block(task_id)] if task_id else [])]
        case "failed":
            return error_blocks(
                seen.error or "There was no answer.", turn_id if seen.retryable else None, seen.trace_id
            )
        case "canceled":
            return [context("Stopped.")]
        case _:
            return []
