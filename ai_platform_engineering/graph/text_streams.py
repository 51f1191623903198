"""The texts of a run while they are written: chunks in, deltas out, each message ended or discarded once."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, RemoveMessage

from ai_platform_engineering.core.events import AnyEvent, TextDelta, TextDiscarded, TextEnded, TextRole
from ai_platform_engineering.graph.citations import CitedTextFilter, RetrievedSources
from ai_platform_engineering.graph.emitted_run import EmittedRun
from ai_platform_engineering.graph.visible_text import JsonStringReader

Namespace = tuple[str, ...]

MODEL_NODE = "model"  # the node that asks the agent's model


@dataclass(frozen=True, slots=True)
class Origin:
    """Who an event is about: the agent, and the delegation inside which it works."""

    agent: str
    parent_call: str | None = None


@dataclass(slots=True)
class _OpenMessage:
    """A message that is being written; an agent writes one at a time."""

    raw_id: str  # as the model's client gave it
    message_id: str  # unique in the run
    slot: str | None
    step_id: str | None
    filter: CitedTextFilter
    pieces: list[str] = field(default_factory=list)
    length: int = 0
    is_ended: bool = False  # the log holds it to its end

    def append(self, text: str) -> int:
        """Adds a piece and returns its offset."""
        offset = self.length
        self.length += len(text)
        self.pieces.append(text)
        return offset


@dataclass(frozen=True, slots=True)
class EndedText:
    """A whole message of the supervisor, with the ids under which it was streamed."""

    message_id: str
    slot: str | None
    text: str


@dataclass(slots=True)
class _StructuredAnswer:
    """A structured answer that is being written; the index tells its call from the others of the same
    message."""

    message: _OpenMessage
    index: int | str | None
    content: JsonStringReader = field(default_factory=lambda: JsonStringReader("content"))


class TextStreams:
    """The open messages of a run, one for each namespace."""

    def __init__(
        self,
        origin: Callable[[Namespace], Origin],
        step: Callable[[Namespace], str | None],
        emitted: EmittedRun,
        used_ids: Iterable[str],
        sources: RetrievedSources | None = None,
    ) -> None:
        """`origin` and `step` say which agent writes in a namespace and to which plan step that belongs."""
        self._origin = origin
        self._step = step
        self._emitted = emitted
        self._used_ids = set(used_ids)
        self._sources = sources
        self._messages: dict[Namespace, _OpenMessage] = {}
        self._structured: dict[Namespace, _StructuredAnswer] = {}
        self._slots: dict[Namespace, str] = {}  # the artifact that the next text of an agent replaces
        self.last_ended: EndedText | None = None  # the supervisor's last message

    def chunk(self, ns: Namespace, chunk: AIMessageChunk) -> Iterator[AnyEvent]:
        """A piece of the agent's message."""
        text = chunk.text
        if not text:
            return
        message = self._messages.get(ns)
        if message is not None and chunk.id and message.raw_id != chunk.id:
            yield from self.discard(ns, "superseded")  # another attempt began without a word
            message = None
        if message is None:
            message = self._messages[ns] = self._open(ns, chunk.id or "message")
        yield from self._delta(ns, message, message.filter.feed(text))

    def structured_chunk(self, ns: Namespace, chunk: AIMessageChunk, answer_tool: str) -> Iterator[AnyEvent]:
        """A piece of the call that carries a structured answer: its `content` streams like any other text."""
        for piece in chunk.tool_call_chunks:
            name = piece.get("name")
            if name == answer_tool and ns not in self._structured:
                self._structured[ns] = _StructuredAnswer(
                    self._open(ns, f"{chunk.id}:answer"), piece.get("index")
                )
            answer = self._structured.get(ns)
            if answer is None or answer.index != piece.get("index"):
                continue
            if name in (None, "", answer_tool):
                text = answer.content.feed(piece.get("args") or "")
                yield from self._delta(ns, answer.message, answer.message.filter.feed(text))

    def end(self, ns: Namespace, raw_id: str, text: str, role: TextRole) -> Iterator[AnyEvent]:
        """The message is in the graph's state: emits what of it was not streamed, and its end."""
        yield from self._end(ns, self._messages.pop(ns, None), raw_id, text, role)

    def end_structured(self, ns: Namespace, raw_id: str, text: str) -> Iterator[AnyEvent]:
        answer = self._structured.pop(ns, None)
        message = None
        if answer is not None:
            message = answer.message
        yield from self._end(ns, message, raw_id, text, "answer")

    def has_structured(self, ns: Namespace) -> bool:
        return ns in self._structured

    def discard(self, ns: Namespace, reason: str) -> Iterator[AnyEvent]:
        """Voids what the agent was writing; its next text takes the place."""
        message = self._messages.pop(ns, None)
        if message is not None:
            yield from self._void(ns, message, reason)
        answer = self._structured.pop(ns, None)
        if answer is not None:
            yield from self._void(ns, answer.message, reason)

    def cut_off(self, segments: Collection[str]) -> Iterator[AnyEvent]:
        """Ends what is being written below these namespace segments: nothing more comes of it."""
        below = [ns for ns in self._messages if not set(ns).isdisjoint(segments)]
        for ns in below:
            message = self._messages.pop(ns)
            if message.length:
                yield self._ended(ns, message, "delegated")

    def reserve(self, message_ids: Collection[str]) -> None:
        """Keeps these ids from being given to new messages."""
        self._used_ids.update(message_ids)

    def _end(
        self, ns: Namespace, message: _OpenMessage | None, raw_id: str, text: str, role: TextRole
    ) -> Iterator[AnyEvent]:
        if message is None and text:
            message = self._open(ns, raw_id)
        if message is not None and message.is_ended:
            self._remember(ns, message, text)
            return
        if message is None:
            return
        is_corrected = not text.startswith("".join(message.pieces))
        if is_corrected:
            yield from self._void(
                ns, message, "corrected"
            )  # the stored message differs from what was streamed
        if not text:
            return
        if is_corrected:
            message = self._open(ns, raw_id)
        yield from self._delta(ns, message, text[message.length :])
        self._remember(ns, message, text)
        yield self._ended(ns, message, role)

    def _remember(self, ns: Namespace, message: _OpenMessage, text: str) -> None:
        if not ns:
            self.last_ended = EndedText(message.message_id, message.slot, text)

    def _void(self, ns: Namespace, message: _OpenMessage, reason: str) -> Iterator[AnyEvent]:
        if not message.length:
            return
        origin = self._origin(ns)
        yield TextDiscarded(
            message_id=message.message_id,
            slot=message.slot,
            reason=reason,
            agent=origin.agent,
            parent_call=origin.parent_call,
        )
        self._slots[ns] = message.slot or message.message_id

    def _open(self, ns: Namespace, raw_id: str) -> _OpenMessage:
        """A message with an id that is unique in the run; one that the log holds in part goes on there."""
        message_id = self._next_id(raw_id)
        text_filter = CitedTextFilter(None if ns else self._sources)
        message = _OpenMessage(raw_id, message_id, self._slots.pop(ns, None), self._step(ns), text_filter)
        span = self._emitted.span(message_id)
        if span is not None:
            message.append(span.text)
            message.slot = span.slot
            message.is_ended = span.role is not None
        return message

    def _next_id(self, raw_id: str) -> str:
        message_id = raw_id
        count = 1
        while message_id in self._used_ids:
            count += 1
            message_id = f"{raw_id}#{count}"
        self._used_ids.add(message_id)
        return message_id

    def _delta(self, ns: Namespace, message: _OpenMessage, text: str) -> Iterator[AnyEvent]:
        if not text:
            return
        origin = self._origin(ns)
        yield TextDelta(
            message_id=message.message_id,
            offset=message.append(text),
            text=text,
            step_id=message.step_id,
            slot=message.slot,
            agent=origin.agent,
            parent_call=origin.parent_call,
        )

    def _ended(self, ns: Namespace, message: _OpenMessage, role: TextRole) -> TextEnded:
        origin = self._origin(ns)
        return TextEnded(
            message_id=message.message_id,
            role=role,
            slot=message.slot,
            agent=origin.agent,
            parent_call=origin.parent_call,
        )


def new_messages(node: str, messages: Any) -> list[Any]:
    """The messages that an update adds, also when it writes the whole history anew."""
    if not isinstance(messages, list):
        return []
    if not any(isinstance(message, RemoveMessage) for message in messages):
        return messages
    if node != MODEL_NODE:
        return []  # a middleware that rewrites history adds nothing
    # `create_agent` does so when it answers calls that were no JSON; the model's new message comes last.
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], AIMessage):
            return messages[index:]
    return []
