"""The texts of a run while they are written: pieces in, deltas out, each message ended or discarded once."""

from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, RemoveMessage

from ai_platform_engineering.core.events import AnyEvent, TextDelta, TextDiscarded, TextEnded, TextRole
from ai_platform_engineering.graph.citations import RetrievedSources, ShownText
from ai_platform_engineering.graph.visible_text import JsonStringReader

Namespace = tuple[str, ...]

MODEL_NODE = "model"  # the node that asks the agent's model


@dataclass(slots=True)
class _Message:
    """A text that is being written; an agent writes one at a time."""

    raw_id: str  # as the model's client gave it
    message_id: str  # unique in the run
    slot: str | None
    step_id: str | None
    filter: ShownText
    pieces: list[str] = field(default_factory=list)
    length: int = 0

    def take(self, text: str) -> int:
        at, self.length = self.length, self.length + len(text)
        self.pieces.append(text)
        return at


@dataclass(slots=True)
class _Answer:
    """A structured answer that is being written; the index tells its call from the others of the same message."""

    message: _Message
    index: int | str | None
    content: JsonStringReader = field(default_factory=lambda: JsonStringReader("content"))


class TextStreams:
    """`by` says who speaks in a namespace, `step` to which step of the plan it belongs."""

    def __init__(
        self,
        by: Callable[[Namespace], dict[str, Any]],
        step: Callable[[Namespace], str | None],
        used_ids: Iterable[str],
        sources: RetrievedSources | None = None,
    ) -> None:
        self._by = by
        self._step = step
        self._used_ids = set(used_ids)
        self._sources = sources
        self._messages: dict[Namespace, _Message] = {}
        self._structured: dict[Namespace, _Answer] = {}
        self._slots: dict[Namespace, str] = {}  # the artifact that the next text of an agent replaces

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
            if piece.get("name") == answer_tool and ns not in self._structured:
                self._structured[ns] = _Answer(self._open(ns, f"{chunk.id}:answer"), piece.get("index"))
            answer = self._structured.get(ns)
            if (
                answer is not None
                and answer.index == piece.get("index")
                and piece.get("name") in (None, "", answer_tool)
            ):
                text = answer.content.feed(piece.get("args") or "")
                yield from self._delta(ns, answer.message, answer.message.filter.feed(text))

    def end(self, ns: Namespace, raw_id: str, text: str, role: TextRole) -> Iterator[AnyEvent]:
        """The message is in the graph's state: what of it was not streamed is said now, and its text ends."""
        yield from self._end(ns, self._messages.pop(ns, None), raw_id, text, role)

    def end_structured(self, ns: Namespace, raw_id: str, text: str) -> Iterator[AnyEvent]:
        answer = self._structured.pop(ns, None)
        yield from self._end(ns, answer.message if answer else None, raw_id, text, "answer")

    def is_answering(self, ns: Namespace) -> bool:
        return ns in self._structured

    def discard(self, ns: Namespace, reason: str) -> Iterator[AnyEvent]:
        """What the agent was saying is void; its next text takes the place."""
        answer = self._structured.pop(ns, None)
        for message in (self._messages.pop(ns, None), answer.message if answer else None):
            yield from self._void(ns, message, reason)

    def cut_off(self, segments: Collection[str]) -> Iterator[AnyEvent]:
        """Ends what is being written below these segments: nothing more comes of it."""
        for ns in [ns for ns in self._messages if any(segment in segments for segment in ns)]:
            message = self._messages.pop(ns)
            if message.length:
                yield TextEnded(message_id=message.message_id, role="delegated", **self._by(ns))

    def _end(
        self, ns: Namespace, message: _Message | None, raw_id: str, text: str, role: TextRole
    ) -> Iterator[AnyEvent]:
        if message is not None and not text.startswith("".join(message.pieces)):
            yield from self._void(
                ns, message, "corrected"
            )  # the stored message differs from what was streamed
            message = None
        if not text:
            return
        message = message or self._open(ns, raw_id)
        yield from self._delta(ns, message, text[message.length :])
        yield TextEnded(message_id=message.message_id, role=role, **self._by(ns))

    def _void(self, ns: Namespace, message: _Message | None, reason: str) -> Iterator[AnyEvent]:
        if message is not None and message.length:
            yield TextDiscarded(
                message_id=message.message_id, slot=message.slot, reason=reason, **self._by(ns)
            )
            self._slots[ns] = message.slot or message.message_id

    def _open(self, ns: Namespace, raw_id: str) -> _Message:
        message_id, count = raw_id, 1
        while message_id in self._used_ids:
            count += 1
            message_id = f"{raw_id}#{count}"
        self._used_ids.add(message_id)
        return _Message(
            raw_id,
            message_id,
            self._slots.pop(ns, None),
            self._step(ns),
            ShownText(None if ns else self._sources),
        )

    def _delta(self, ns: Namespace, message: _Message, text: str) -> Iterator[AnyEvent]:
        if text:
            ids: dict[str, Any] = {
                "message_id": message.message_id,
                "slot": message.slot,
                "step_id": message.step_id,
            }
            yield TextDelta(offset=message.take(text), text=text, **ids, **self._by(ns))


def new_messages(node: str, messages: Any) -> list[Any]:
    """The messages that an update adds, also when it writes the whole history anew."""
    if not isinstance(messages, list):
        return []
    if not any(isinstance(message, RemoveMessage) for message in messages):
        return messages
    if node != MODEL_NODE:
        return []  # a middleware that rewrites history says nothing new
    # `create_agent` does so when it answers calls that were no JSON; what the model said now comes last.
    said = [index for index, message in enumerate(messages) if isinstance(message, AIMessage)]
    if said:
        return messages[said[-1] :]
    return []
