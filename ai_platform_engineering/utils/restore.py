"""After a crash: what the graph's stored state and the run's log do not agree on, told so that they do. The state decides."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolMessage

from ai_platform_engineering.core.events import SUPERVISOR, AnyEvent, TextDelta, TextDiscarded, TextEnded, TextRole, Usage
from ai_platform_engineering.core.transcript import Span, Transcript
from ai_platform_engineering.utils.translate_texts import Namespace
from ai_platform_engineering.utils.visible_text import visible


@dataclass(frozen=True, slots=True)
class RestoredGraph:
    """What is stored of one graph of the run: its namespace, the delegation that it works on, and its messages of this turn."""

    ns: Namespace
    call_id: str | None
    messages: tuple[AnyMessage, ...]


@dataclass(slots=True)
class Restored:
    """What the state holds of the run; the translator goes on from it."""

    graphs: Sequence[RestoredGraph] = ()
    agent: str = SUPERVISOR
    answer_tool: str | None = None
    answer_text: str | None = None  # of a structured answer that the state holds; it may be an earlier question's
    said: list[str] = field(default_factory=list)
    answer: str = ""
    used: Usage = field(default_factory=Usage)
    ended: Counter[tuple[Namespace, str]] = field(default_factory=Counter)  # how often a call of this id has its result

    def texts(self, seen: Transcript) -> Iterator[AnyEvent]:
        """Texts that the state has and the log lacks are said; texts that the log has and the state lacks are taken back."""
        spans = {span.message_id: span for span in seen.spans}
        kept: set[str] = set()
        for graph in self.graphs:
            for message in graph.messages:
                if isinstance(message, AIMessage):
                    kept |= {str(message.id), f"{message.id}:answer"}
                    yield from self._text(graph, message, spans, seen)
                elif isinstance(message, ToolMessage):
                    self.ended[graph.ns, message.tool_call_id] += 1
        yield from _taken_back(seen, kept)

    def _text(self, graph: RestoredGraph, message: AIMessage, spans: Mapping[str, Span], seen: Transcript) -> Iterator[AnyEvent]:
        text, final = visible(message.text), not message.tool_calls and not message.invalid_tool_calls
        role: TextRole = "delegated" if graph.call_id else "answer" if final else "narration"
        self.used = self.used.plus(message.usage_metadata or {})
        if not graph.call_id:
            self.said += [text] if text else []
            self.answer = text if final else ""
        by, step = self._by(graph, seen)
        yield from _said(spans.get(str(message.id)), str(message.id), text, role, by, step)
        gives = any(call["name"] == self.answer_tool for call in message.tool_calls) and message is _last_ai(graph.messages)
        if self.answer_text and not graph.call_id and gives:
            self.answer = self.answer_text
            yield from _said(spans.get(f"{message.id}:answer"), f"{message.id}:answer", self.answer_text, "answer", by, step)

    def _by(self, graph: RestoredGraph, seen: Transcript) -> tuple[dict[str, Any], str | None]:
        call = next((call for call in seen.calls if call.call_id == graph.call_id), None)
        if call is None:
            return {"agent": self.agent, "parent_call": graph.call_id}, None
        return {"agent": call.tool, "parent_call": call.call_id}, call.step_id


def _said(span: Span | None, message_id: str, text: str, role: TextRole, by: Mapping[str, Any], step_id: str | None) -> Iterator[AnyEvent]:
    """The rest of a text, and its end, as far as they were not told."""
    if not text or (span is not None and span.role is not None):
        return
    have = span.text if span else ""
    if not text.startswith(have):
        yield TextDiscarded(message_id=message_id, reason="corrected", **by)
        message_id, have = f"{message_id}#2", ""
    if text != have:
        yield TextDelta(message_id=message_id, offset=len(have), text=text[len(have) :], step_id=step_id, **by)
    yield TextEnded(message_id=message_id, role=role, **by)


def _taken_back(seen: Transcript, kept: set[str]) -> Iterator[AnyEvent]:
    finished = {call.call_id for call in seen.calls if call.outcome is not None}
    for span in seen.spans:
        raw = span.message_id.partition("#")[0]
        from_elsewhere = span.parent_call is not None and span.message_id.startswith(f"{span.parent_call}/")
        if raw in kept or from_elsewhere or span.parent_call in finished:
            continue  # a remote agent's text is followed on; what a delegation said that is over stays
        yield TextDiscarded(message_id=span.message_id, reason="crash", agent=span.agent, parent_call=span.parent_call)


def _last_ai(messages: Sequence[AnyMessage]) -> AnyMessage | None:
    return next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
