"""After a crash: what the graph's stored state and the run's log do not agree on, told so that they do. The state decides."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, ToolCall, ToolMessage

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    AnyEvent,
    TextDelta,
    TextDiscarded,
    TextEnded,
    TextRole,
    ToolFinished,
    ToolStarted,
    Usage,
)
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL, USER_INPUT_TOOL
from ai_platform_engineering.core.transcript import Span, Transcript
from ai_platform_engineering.graph.citations import RetrievedSources
from ai_platform_engineering.graph.message_stream import Namespace
from ai_platform_engineering.graph.tool_messages import called_name, outcome_fields
from ai_platform_engineering.graph.visible_text import visible_text


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """What is stored of one graph of the run: its namespace, the delegation that it works on, and its messages of this turn."""

    ns: Namespace
    call_id: str | None
    messages: tuple[AnyMessage, ...]


@dataclass(slots=True)
class Restored:
    """What the state holds of the run; the translator goes on from it."""

    graphs: Sequence[StoredGraph] = ()
    agent: str = SUPERVISOR
    answer_tool: str | None = None
    answer_text: str | None = (
        None  # of a structured answer that the state holds; it may be an earlier question's
    )
    knowledge_tools: frozenset[str] = frozenset()
    sources: RetrievedSources = field(default_factory=RetrievedSources)
    said: list[str] = field(default_factory=list)
    answer: str = ""
    used: Usage = field(default_factory=Usage)
    ended: Counter[tuple[Namespace, str]] = field(
        default_factory=Counter
    )  # how often a call of this id has its result
    _seen: Transcript = field(default_factory=Transcript)
    _untold: list[StoredGraph] = field(default_factory=list)
    _made: dict[str, tuple[StoredGraph, ToolCall]] = field(default_factory=dict)

    def events(self, seen: Transcript) -> Iterator[AnyEvent]:
        """What the state has and the log lacks is said; texts that the log has and the state lacks are taken back."""
        self._seen = seen
        self._untold = list(self.graphs)
        self._made = {}
        kept: set[str] = set()
        while self._untold:
            for event in self._graph(self._untold.pop(0), kept):
                self._seen = self._seen.apply(event)
                yield event
        yield from _taken_back(seen, kept)

    def _graph(self, graph: StoredGraph, kept: set[str]) -> Iterator[AnyEvent]:
        """The texts and calls of a graph, in order; what happened inside a delegation comes before its end."""
        if graph.call_id:
            yield from self._started(graph.call_id)
        spans = {span.message_id: span for span in self._seen.spans}
        for message in graph.messages:
            if isinstance(message, AIMessage):
                kept |= {str(message.id), f"{message.id}:answer"}
                self._made |= {
                    _call_id(graph, call["id"] or ""): (graph, call) for call in message.tool_calls
                }
                yield from self._text(graph, message, spans, self._seen)
            elif isinstance(message, ToolMessage):
                self.ended[graph.ns, message.tool_call_id] += 1
                yield from self._call(graph, message, kept)

    def _call(self, graph: StoredGraph, message: ToolMessage, kept: set[str]) -> Iterator[AnyEvent]:
        """The start and the end of a call that has its result, as far as they were not told."""
        base, times = _call_id(graph, message.tool_call_id), self.ended[graph.ns, message.tool_call_id]
        call_id = base if times == 1 else f"{base}#{times}"
        yield from self._started(call_id, base)
        for inside in [one for one in self._untold if one.call_id == call_id]:
            self._untold.remove(inside)
            yield from self._graph(inside, kept)
        call = next((call for call in self._seen.calls if call.call_id == call_id), None)
        if call is None or call.outcome is not None:
            return
        yield ToolFinished(
            call_id=call_id,
            tool=call.tool,
            agent=call.agent,
            parent_call=call.parent_call,
            delegates=call.delegates,
            knowledge=call.knowledge,
            step_id=call.step_id,
            **outcome_fields(message, delegates=call.delegates),
        )

    def _started(self, call_id: str, base: str | None = None) -> Iterator[AnyEvent]:
        graph, made = self._made.get(base or call_id, (None, None))
        if (
            graph is None
            or made is None
            or made["name"] in (PLANNING_TOOL, USER_INPUT_TOOL, self.answer_tool)
        ):
            return
        if any(call.call_id == call_id for call in self._seen.calls):
            return
        (by, step) = self._by(graph, self._seen)
        delegates = made["name"] == DELEGATION_TOOL
        plan = self._seen.plan
        tool, arguments = called_name(made["name"], made["args"]), made["args"]
        if plan is not None and not graph.call_id:
            step = plan.find_step(tool, arguments.get("step_id")) if delegates else plan.current_step()
        knowledge = not graph.call_id and made["name"] in self.knowledge_tools
        yield ToolStarted(
            call_id=call_id,
            tool=tool,
            delegates=delegates,
            knowledge=knowledge,
            arguments=arguments,
            step_id=step,
            **by,
        )

    def _text(
        self, graph: StoredGraph, message: AIMessage, spans: Mapping[str, Span], seen: Transcript
    ) -> Iterator[AnyEvent]:
        text = visible_text(message.text) if graph.call_id else self.sources.number_citations(message.text)
        final = not message.tool_calls and not message.invalid_tool_calls
        role: TextRole = "delegated" if graph.call_id else "answer" if final else "narration"
        self.used = self.used.plus(message.usage_metadata or {})
        if not graph.call_id:
            self.said += [text] if text else []
            self.answer = text if final else ""
        by, step = self._by(graph, seen)
        yield from _said(spans.get(str(message.id)), str(message.id), text, role, by, step)
        gives = any(call["name"] == self.answer_tool for call in message.tool_calls) and message is _last_ai(
            graph.messages
        )
        if self.answer_text and not graph.call_id and gives:
            self.answer = self.answer_text
            yield from _said(
                spans.get(f"{message.id}:answer"),
                f"{message.id}:answer",
                self.answer_text,
                "answer",
                by,
                step,
            )

    def _by(self, graph: StoredGraph, seen: Transcript) -> tuple[dict[str, Any], str | None]:
        call = next((call for call in seen.calls if call.call_id == graph.call_id), None)
        if call is None:
            return {"agent": self.agent, "parent_call": graph.call_id}, None
        return {"agent": call.tool, "parent_call": call.call_id}, call.step_id


def _call_id(graph: StoredGraph, raw_id: str) -> str:
    if graph.call_id:
        return f"{graph.call_id}/{raw_id}"
    return raw_id


def _said(
    span: Span | None, message_id: str, text: str, role: TextRole, by: Mapping[str, Any], step_id: str | None
) -> Iterator[AnyEvent]:
    """The rest of a text, and its end, as far as they were not told."""
    if not text or (span is not None and span.role is not None):
        return
    have = span.text if span else ""
    if not text.startswith(have):
        yield TextDiscarded(message_id=message_id, reason="corrected", **by)
        message_id, have = f"{message_id}#2", ""
    if text != have:
        yield TextDelta(
            message_id=message_id, offset=len(have), text=text[len(have) :], step_id=step_id, **by
        )
    yield TextEnded(message_id=message_id, role=role, **by)


def _taken_back(seen: Transcript, kept: set[str]) -> Iterator[AnyEvent]:
    finished = {call.call_id for call in seen.calls if call.outcome is not None}
    for span in seen.spans:
        raw = span.message_id.partition("#")[0]
        from_elsewhere = span.parent_call is not None and span.message_id.startswith(f"{span.parent_call}/")
        if raw in kept or from_elsewhere or span.parent_call in finished:
            continue  # a remote agent's text is followed on; what a delegation said that is over stays
        yield TextDiscarded(
            message_id=span.message_id, reason="crash", agent=span.agent, parent_call=span.parent_call
        )


def _last_ai(messages: Sequence[AnyMessage]) -> AnyMessage | None:
    return next((message for message in reversed(messages) if isinstance(message, AIMessage)), None)
