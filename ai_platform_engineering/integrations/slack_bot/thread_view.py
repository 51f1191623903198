"""What a thread shows of a run: its text, and task cards for the plan's steps and for tool calls."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Literal

from ai_platform_engineering.a2a.notification_text import title_case
from ai_platform_engineering.core.events import SUPERVISOR, PlanStep, StepStatus
from ai_platform_engineering.core.transcript import ToolCallView, Transcript
from ai_platform_engineering.integrations.slack_bot.blocks import Block, Chunk, escape_line, section, truncate
from ai_platform_engineering.integrations.slack_bot.stream_text import RAG_TOOL_NAMES, render_text

CardStatus = Literal["pending", "in_progress", "complete", "error"]

MAX_CARD_TEXT = 256  # characters of each text of a card
_MAX_CARD_ID = 200
_MAX_DETAILS_IN_LINE = 160
_MAX_REASON = 100
_MAX_PROGRESS_TEXT = 1_500
_CARD_STATUS: Mapping[StepStatus, CardStatus] = {
    "pending": "pending",
    "in_progress": "in_progress",
    "completed": "complete",
    "failed": "error",
    "skipped": "complete",
}
_MARKS: Mapping[CardStatus, str] = {"pending": "⏳", "in_progress": "🔄", "complete": "✅", "error": "❌"}
_SEPARATOR = " · "
_WAITING = "waits for an answer"


@dataclass(frozen=True, slots=True)
class TaskCard:
    """A step of the plan, a tool call outside of every step, or a notice."""

    card_id: str
    title: str
    status: CardStatus
    details: str = ""
    output: str = ""

    @property
    def is_open(self) -> bool:
        return self.status in ("pending", "in_progress")

    @property
    def is_waiting(self) -> bool:
        """Whether a person has to answer before the step goes on."""
        return self.is_open and self.output == _WAITING

    def complete(self, output: str) -> "TaskCard":
        return replace(self, status="complete", output=output)

    def wait(self) -> "TaskCard":
        return replace(self, status="pending", output=_WAITING)

    def to_chunk(self) -> Chunk:
        """The card as a chunk of a stream; empty texts are left out."""
        texts = {"title": self.title, "details": self.details, "output": self.output}
        chunk: Chunk = {"type": "task_update", "id": self.card_id, "status": self.status}
        for name, text in texts.items():
            if text:
                chunk[name] = truncate(text, MAX_CARD_TEXT)
        return chunk

    def to_line(self) -> str:
        """The card as a line of text, for messages that are posted: only streams have cards."""
        line = f"{_MARKS[self.status]} {truncate(self.title, MAX_CARD_TEXT)}"
        if self.details:
            line += f" — {truncate(self.details, _MAX_DETAILS_IN_LINE)}"
        if self.output and (self.is_waiting or self.status == "error"):
            line += f" — {truncate(self.output, _MAX_DETAILS_IN_LINE)}"
        return line


@dataclass(frozen=True, slots=True)
class ThreadView:
    """All that a thread shows of a turn at one moment."""

    text: str = ""
    title: str = ""
    cards: tuple[TaskCard, ...] = ()


def build_waiting_view(view: ThreadView) -> ThreadView:
    """The view of a run that waits for a person: steps that have not begun are not shown."""
    cards = []
    for card in view.cards:
        if card.status == "in_progress":
            cards.append(card.wait())
        elif card.status != "pending":
            cards.append(card)
    return replace(view, cards=tuple(cards))


def build_view(transcript: Transcript, status_card: TaskCard | None = None) -> ThreadView:
    """The view of a run; `status_card` is for what only the bot knows, such as a supervisor that is away."""
    title = ""
    if transcript.plan is not None and transcript.plan.steps:
        title = transcript.plan.title.strip() or "Plan"
    cards = [*_step_cards(transcript), *_call_cards(transcript), *_notice_cards(transcript)]
    if status_card is not None:
        cards.append(status_card)
    cards = list(_make_valid(cards))
    if transcript.state in ("failed", "canceled"):
        cards = _close_cards(cards, "error")
    elif transcript.state == "completed":
        cards = _close_cards(cards, "complete")
    return ThreadView(render_text(transcript), truncate(escape_line(title), MAX_CARD_TEXT), tuple(cards))


def _close_cards(cards: Iterable[TaskCard], status: CardStatus) -> list[TaskCard]:
    closed = []
    for card in cards:
        if card.is_open:
            card = replace(card, status=status)
        closed.append(card)
    return closed


def _make_valid(cards: Iterable[TaskCard]) -> Iterator[TaskCard]:
    """Gives each card a title and an id of its own: Slack would take two cards of the same id for one."""
    used = set[str]()
    for card in cards:
        short_id = card.card_id
        if not 0 < len(short_id) <= _MAX_CARD_ID:
            short_id = hashlib.sha256(card.card_id.encode()).hexdigest()
        card_id = short_id
        number = 1
        while card_id in used:
            number += 1
            card_id = f"{short_id} {number}"
        used.add(card_id)
        yield replace(card, card_id=card_id, title=card.title or "…")


# --- steps of the plan --------------------------------------------------------------------------------------


def _step_cards(transcript: Transcript) -> Iterator[TaskCard]:
    if transcript.plan is None:
        return
    for step in transcript.plan.steps:
        yield TaskCard(
            step.step_id,
            _format_title(step.agent, step.title),
            _CARD_STATUS[step.status],
            _describe_step_tools(transcript, step),
            _describe_step_outcome(transcript, step),
        )


def _format_title(agent: str, title: str) -> str:
    if agent not in ("", SUPERVISOR):
        title = f"[{title_case(agent)}] {title}"
    return escape_line(title)


def _describe_step_tools(transcript: Transcript, step: PlanStep) -> str:
    """The tools that were called in the step, by the supervisor or by the agents it delegated to."""
    delegations = set()
    for call in transcript.calls:
        if call.delegates and call.step_id == step.step_id:
            delegations.add(call.call_id)
    tool_calls = []
    for call in transcript.calls:
        own_call = call.step_id == step.step_id and not call.delegates
        if own_call or call.parent_call in delegations:
            tool_calls.append(call)
    return _describe_tools(tool_calls)


def _describe_tools(calls: Sequence[ToolCallView]) -> str:
    """The names of tools in one line; the last ones where there are many."""
    names: list[str] = []
    for call in reversed(calls):
        names.insert(0, _describe_tool(call))
        if len(_SEPARATOR.join(names)) > MAX_CARD_TEXT:
            names[0] = "…"
            break
    return _SEPARATOR.join(names)


def _describe_tool(call: ToolCallView) -> str:
    name = escape_line(f"{title_case(call.agent)}: {title_case(call.tool)}")
    if call.outcome not in (None, "ok"):
        reason = truncate(_describe_outcome(call), _MAX_REASON)
        return f"❌ {name}: {reason}" if reason else f"❌ {name}"
    if call.progress and call.outcome is None:
        return f"{name} ({escape_line(call.progress)})"
    return name


def _describe_step_outcome(transcript: Transcript, step: PlanStep) -> str:
    if step.status == "skipped":
        return "skipped"
    ended_calls = []
    for call in transcript.calls:
        if call.delegates and call.step_id == step.step_id and call.outcome is not None:
            ended_calls.append(call)
    if step.status == "failed":
        # One of several may have failed: the card says what is wrong, not what went well.
        ended_calls = [call for call in ended_calls if call.outcome != "ok"] or ended_calls
    if not ended_calls:
        return ""
    return _describe_outcome(ended_calls[-1])


def _describe_outcome(call: ToolCallView) -> str:
    if call.outcome == "unknown":
        return "Whether it took effect is not known."
    return escape_line(call.error or call.result or "")


# --- calls and notices --------------------------------------------------------------------------------------


def _call_cards(transcript: Transcript) -> Iterator[TaskCard]:
    """Cards for the calls outside of every step."""
    step_ids = set()
    if transcript.plan is not None:
        step_ids = {step.step_id for step in transcript.plan.steps}
    for call in transcript.calls:
        if call.parent_call is not None or call.step_id in step_ids:
            continue
        inner_calls = [inner for inner in transcript.calls if inner.parent_call == call.call_id]
        yield TaskCard(
            call.call_id,
            _call_title(call),
            _call_status(call),
            _describe_tools(inner_calls) or escape_line(call.progress),
            _describe_outcome(call),
        )


def _call_status(call: ToolCallView) -> CardStatus:
    match call.outcome:
        case None:
            return "in_progress"
        case "ok":
            return "complete"
        case _:
            return "error"


def _call_title(call: ToolCallView) -> str:
    if call.delegates:
        description = call.arguments.get("description")
        if isinstance(description, str) and description.strip():
            return _format_title(call.tool, description)
        return _format_title(call.tool, "is asked")
    if call.knowledge and call.tool in RAG_TOOL_NAMES:
        return f"[Knowledge base] {title_case(call.tool)}"
    return _format_title(call.agent, title_case(call.tool))


def _notice_cards(transcript: Transcript) -> Iterator[TaskCard]:
    for number, notice in enumerate(transcript.notices):
        yield TaskCard(f"notice-{number}", escape_line(notice.text), "complete")


# --- cards as text ------------------------------------------------------------------------------------------


def progress_blocks(view: ThreadView) -> list[Block]:
    """The title and the cards as a block, for posted messages; the first cards give way to the last."""
    lines = [card.to_line() for card in view.cards]
    first_card = 0
    if view.title:
        lines.insert(0, f"*{view.title}*")
        first_card = 1
    if not lines:
        return []
    while len("\n".join(lines)) > _MAX_PROGRESS_TEXT and len(lines) > 2:
        lines.pop(first_card)
    return [section("\n".join(lines))]
