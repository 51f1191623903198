"""LangGraph stream -> events. The only code that sees LangGraph's shapes."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage

from ai_platform_engineering.core.events import (
    SUPERVISOR,
    AnyEvent,
    InputRequested,
    Notice,
    Paused,
    TextRole,
    ToolFinished,
    ToolProgress,
    ToolStarted,
)
from ai_platform_engineering.core.plan import PlanState
from ai_platform_engineering.core.sentences import end_sentence
from ai_platform_engineering.core.signals import (
    ArgumentsEdited,
    DroppedUsageCounted,
    FlushRequested,
    ModelRetried,
    NoticeEmitted,
    RemoteEventReceived,
    RemoteUsageReported,
    RunUsageCounted,
    ToolProgressed,
)
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.graph.citations import RetrievedSources, remove_marks
from ai_platform_engineering.graph.emitted_run import EmittedRun
from ai_platform_engineering.graph.interrupts import interrupt_requests
from ai_platform_engineering.graph.plan_tracker import PlanTracker
from ai_platform_engineering.graph.remote_events import RemoteEvents, unknown_outcome
from ai_platform_engineering.graph.run_answer import RunAnswer
from ai_platform_engineering.graph.text_streams import (
    MODEL_NODE,
    EndedText,
    Namespace,
    Origin,
    TextStreams,
    new_messages,
)
from ai_platform_engineering.graph.tool_calls import ToolCalls, TrackedCall, calls_of_task, is_tool_task
from ai_platform_engineering.graph.tool_messages import read_result

# `tools` works, though LangGraph's type does not list it.
STREAM_MODES: Any = ["messages", "updates", "custom", "tools", "tasks"]


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """What the translator must know of a graph."""

    answer_tool: str | None = None  # the tool that carries a structured answer
    knowledge_tools: frozenset[str] = frozenset()
    agent: str = SUPERVISOR  # whose graph it is


class Translator:
    """Turns one turn's stream into events; ends with exactly one terminal event or a pause."""

    def __init__(
        self,
        *,
        run_id: str,
        trace_id: str,
        info: GraphInfo | None = None,
        plan: PlanState | None = None,
        response: Any = None,
        transcript: Transcript | None = None,
        sources: RetrievedSources | None = None,
        is_takeover: bool = False,
    ) -> None:
        """`plan`, `response` and `sources` are what the graph's state holds, `transcript` what the log holds
        of the run. The plan includes what finished tasks wrote after the last checkpoint.

        After a crash the stored messages are translated again (`Replay`), so ids are given from the
        beginning; after a pause they go on behind those of the log.
        """
        self._run_id = run_id
        self._trace_id = trace_id
        self._info = info or GraphInfo()
        self.emitted = EmittedRun(transcript or Transcript())
        self._plan = PlanTracker(plan or PlanState(), self.emitted.plan, is_takeover=is_takeover)
        self.calls = ToolCalls(self.emitted, self._plan.claim_step, is_takeover=is_takeover)
        self._sources = sources or RetrievedSources()
        self._is_takeover = is_takeover
        self._answer = RunAnswer(trace_id, self._sources, response)
        self._waiting: dict[str, str] = {}  # request id -> what it asks for
        if is_takeover:
            used_message_ids: Iterable[str] = self.emitted.transcript.discarded
        else:
            used_message_ids = self.emitted.message_ids()
        self.texts = TextStreams(self._origin, self._step, self.emitted, used_message_ids, self._sources)
        if not is_takeover:
            self._read_emitted_texts()
        self._remote = RemoteEvents(self.emitted)

    async def events(self, items: AsyncIterator[Any]) -> AsyncIterator[AnyEvent]:
        """The events of the stream; an exception of the graph becomes the run's failure."""
        if self._is_takeover:
            for update in self._plan.release(self.emitted.delegations()):
                yield update
        self._answer.restore_response()
        try:
            async for item in items:
                for event in self._translate(tuple(item["ns"]), item["type"], item["data"]):
                    unseen = self.emitted.unseen(event)
                    if unseen is not None:
                        yield unseen
        except Exception as error:  # noqa: BLE001 - whatever ended the graph, the run ends with words for a person
            yield self._answer.failed_event(error)
            return
        yield self._ending()

    def _translate(self, ns: Namespace, mode: str, data: Any) -> Iterator[AnyEvent]:
        if mode in ("tasks", "messages", "tools") and self.calls.is_inside_tool(ns):
            return
        match mode:
            case "tasks":
                self._on_task(ns, data)
            case "messages":
                yield from self._on_chunk(ns, *data)
            case "tools":
                if data["event"] == "tool-started":
                    yield from self._on_tool_started(ns, data)
            case "updates" if (data.get("__metadata__") or {}).get("cached"):
                for update in data.values():
                    yield from self._on_cached_update(ns, update)
            case "updates":
                for node, update in data.items():
                    yield from self._on_update(ns, node, update)
            case "custom":
                yield from self._on_signal(ns, data)
            case _:
                pass

    # --- agents and steps -----------------------------------------------------------------------------------

    def _origin(self, ns: Namespace) -> Origin:
        delegation = self.calls.delegation(ns)
        if delegation is None:
            return Origin(self._info.agent)
        return Origin(delegation.tool, delegation.call_id)

    def _step(self, ns: Namespace) -> str | None:
        delegation = self.calls.delegation(ns)
        if delegation is None:
            return self._plan.own_step()
        return delegation.step_id

    # --- tool calls -----------------------------------------------------------------------------------------

    def _on_task(self, ns: Namespace, task: Mapping[str, Any]) -> None:
        if not is_tool_task(task):
            return
        for raw_call in calls_of_task(task):
            if not self.is_silent(raw_call["name"]):
                self._resume_step(ns, self.calls.register_task(ns, task["id"], raw_call))

    def register(self, ns: Namespace, raw_id: str, name: str, arguments: Mapping[str, Any]) -> TrackedCall:
        call = self.calls.register(ns, raw_id, name, arguments)
        self._resume_step(ns, call)
        return call

    def _resume_step(self, ns: Namespace, call: TrackedCall) -> None:
        """A delegation that was begun before a pause or a crash: its step is still in progress."""
        if call.delegates and not ns and call.is_open:
            self._plan.begin(call)

    def _on_tool_started(self, ns: Namespace, data: Mapping[str, Any]) -> Iterator[AnyEvent]:
        name = data["tool_name"]
        raw_id = data["tool_call_id"]
        if self.is_silent(name):
            return
        call = self.calls.get(ns, raw_id) or self.register(ns, raw_id, name, data.get("input") or {})
        yield from self.start(ns, call)

    def start(self, ns: Namespace, call: TrackedCall) -> Iterator[AnyEvent]:
        if call.started:
            return
        call.started = True
        if ns or not call.delegates:
            call.step_id = self._step(ns)
        yield self._started(ns, call)
        if call.delegates and not ns:
            self._plan.begin(call)
            yield from self._plan.update()

    def _started(self, ns: Namespace, call: TrackedCall) -> ToolStarted:
        origin = self._origin(ns)
        return ToolStarted(
            call_id=call.call_id,
            tool=call.tool,
            delegates=call.delegates,
            knowledge=self._is_knowledge(ns, call),
            arguments=dict(call.arguments),
            step_id=call.step_id,
            agent=origin.agent,
            parent_call=origin.parent_call,
        )

    def finish(self, ns: Namespace, message: ToolMessage) -> Iterator[AnyEvent]:
        name = message.name or ""
        if self.is_silent(name):
            return
        call = self.calls.get(ns, message.tool_call_id)
        if call is None:
            if not name:
                return
            call = self.register(ns, message.tool_call_id, name, {})
        self._sources.add_result(message.text, knowledge=self._is_knowledge(ns, call))
        if call.finished:
            return
        yield from self.start(ns, call)  # a call that a middleware answered was not seen to start
        if call.delegates:
            yield from self._close_inside(call)
        call.finished = True
        yield self._finished(ns, call, message)

    def _finished(self, ns: Namespace, call: TrackedCall, message: ToolMessage) -> ToolFinished:
        result = read_result(message, delegates=call.delegates)
        origin = self._origin(ns)
        return ToolFinished(
            call_id=call.call_id,
            tool=call.tool,
            delegates=call.delegates,
            knowledge=self._is_knowledge(ns, call),
            outcome=result.outcome,
            error=result.error,
            result=result.result,
            step_id=call.step_id,
            agent=origin.agent,
            parent_call=origin.parent_call,
        )

    def _close_inside(self, delegation: TrackedCall) -> Iterator[AnyEvent]:
        """Ends what an agent left open: it was cut off by its time limit, or its service is gone."""
        yield from self._remote.close(delegation.call_id)
        for ns, call in self.calls.open_inside(delegation):
            call.finished = True
            yield unknown_outcome(self._started(ns, call))
        yield from self.texts.cut_off(self.calls.segments(delegation))

    def is_silent(self, name: str) -> bool:
        return ToolTraits.from_name(name).is_silent or name == self._info.answer_tool

    def _is_knowledge(self, ns: Namespace, call: TrackedCall) -> bool:
        return not ns and not call.delegates and call.tool in self._info.knowledge_tools

    # --- text -----------------------------------------------------------------------------------------------

    def _on_chunk(self, ns: Namespace, chunk: Any, meta: Mapping[str, Any]) -> Iterator[AnyEvent]:
        # A tool or a middleware may call a model of its own: only the agent's model node writes the agent's
        # text.
        if not isinstance(chunk, AIMessageChunk) or meta.get("langgraph_node") != MODEL_NODE:
            return
        if meta.get("lc_source"):
            return
        yield from self.texts.chunk(ns, chunk)
        if self._info.answer_tool and not ns:
            yield from self.texts.structured_chunk(ns, chunk, self._info.answer_tool)

    def end_message(self, ns: Namespace, message: AIMessage) -> Iterator[AnyEvent]:
        """A message of the agent's model is in the graph's state."""
        self._answer.add_usage(message.usage_metadata or {})
        is_final = not message.tool_calls and not message.invalid_tool_calls
        if ns:
            text = remove_marks(message.text)
        else:
            text = self._sources.number_citations(message.text)
            self._answer.add_text(text, is_final=is_final)
        yield from self.texts.end(ns, message.id or "message", text, _role(ns, is_final=is_final))

    def _read_emitted_texts(self) -> None:
        for span in self.emitted.transcript.spans:
            if span.parent_call is None and span.text:
                self._answer.add_text(span.text, is_final=span.role == "answer")
                self.texts.last_ended = EndedText(span.message_id, span.slot, span.text)

    # --- updates --------------------------------------------------------------------------------------------

    def _on_update(self, ns: Namespace, node: str, update: Any) -> Iterator[AnyEvent]:
        if node == "__interrupt__":
            for interrupt in update:
                yield from self._request_input(ns, interrupt)
            return
        if self.calls.is_inside_tool(ns):
            return
        for part in _parts(update):
            yield from self._on_state(ns, node, part)

    def _on_state(self, ns: Namespace, node: str, update: Mapping[str, Any]) -> Iterator[AnyEvent]:
        for message in new_messages(node, update.get("messages")):
            if isinstance(message, AIMessage):
                yield from self.end_message(ns, message)
            elif isinstance(message, ToolMessage):
                yield from self.finish(ns, message)
        if ns:
            return
        yield from self._on_structured(ns, update)
        for change in update.get("plan") or ():
            yield from self._plan.change(change)

    def _on_cached_update(self, ns: Namespace, update: Any) -> Iterator[AnyEvent]:
        """What a task had done before a pause; LangGraph repeats it.

        It is new only where a process died in between. Its changes of the plan are in the stored plan.
        """
        if self.calls.is_inside_tool(ns):
            return
        for part in _parts(update):
            for message in part.get("messages") or ():
                if not isinstance(message, ToolMessage):
                    continue
                call = self.calls.get(ns, message.tool_call_id)
                if call is not None and call.started:
                    yield from self.finish(ns, message)

    def _on_structured(self, ns: Namespace, update: Mapping[str, Any]) -> Iterator[AnyEvent]:
        response = update.get("structured_response")
        if response is None:
            if self.texts.has_structured(ns) and update.get("messages"):
                # The call did not fit the schema; the model is asked again.
                yield from self.texts.discard(ns, "invalid")
            return
        text = self._answer.set_response(response)
        yield from self.texts.end_structured(ns, f"{self._trace_id}:answer", text)

    def end_stored_answer(self, message: AIMessage) -> Iterator[AnyEvent]:
        """The structured answer that the state holds, when the message is the call that carries it."""
        is_answer = any(raw_call["name"] == self._info.answer_tool for raw_call in message.tool_calls)
        text = self._answer.stored_text()
        if is_answer and text:
            self._answer.set_text(text)
            yield from self.texts.end_structured((), f"{message.id}:answer", text)

    # --- signals and requests -------------------------------------------------------------------------------

    def _on_signal(self, ns: Namespace, signal: Any) -> Iterator[AnyEvent]:
        origin = self._origin(ns)
        match signal:
            case ModelRetried(reason=reason):
                yield from self.texts.discard(ns, reason)
            case NoticeEmitted():
                yield self._notice(ns, signal, origin)
            case ToolProgressed():
                yield from self._on_progress(ns, signal, origin)
            case ArgumentsEdited():
                call = self.calls.get(ns, signal.call_id)
                if call is not None:
                    call.arguments = signal.arguments
            case RemoteEventReceived(event=event):
                delegation = self.calls.delegation(ns)
                if delegation is not None:
                    yield from self._remote.forward(event, delegation)
            case RemoteUsageReported(usage=usage) | DroppedUsageCounted(usage=usage):
                self._answer.add_usage(usage.model_dump())
            case RunUsageCounted(usage=run_usage):
                if not ns:  # the supervisor's includes that of its agents
                    self._answer.set_call_counts(run_usage)
            case FlushRequested(stored=stored):
                stored.set()  # the stream is read on only when the event before has been taken
            case _:
                pass  # a third-party tool may write anything to the stream

    def _notice(self, ns: Namespace, signal: NoticeEmitted, origin: Origin) -> Notice:
        if signal.delegation_call is not None:
            delegation = self.calls.find_delegation(ns, signal.delegation_call)
            if delegation is not None:
                origin = Origin(delegation.tool, delegation.call_id)
        return Notice(code=signal.code, text=signal.text, agent=origin.agent, parent_call=origin.parent_call)

    def _on_progress(self, ns: Namespace, signal: ToolProgressed, origin: Origin) -> Iterator[AnyEvent]:
        call = self.calls.get(ns, signal.call_id)
        if call is None:
            return
        yield ToolProgress(
            call_id=call.call_id,
            tool=call.tool,
            text=signal.text,
            done=signal.done,
            total=signal.total,
            agent=origin.agent,
            parent_call=origin.parent_call,
        )

    def _request_input(self, ns: Namespace, interrupt: Any) -> Iterator[AnyEvent]:
        """A request for each thing that the interrupt asks; LangGraph repeats an interrupt on every level of
        graphs."""
        pending = {request.request_id for request in self.emitted.transcript.requests}
        resolved = {event.request_id for event in self.emitted.transcript.resolved}
        origin = self._origin(ns)
        for request in interrupt_requests(self._run_id, interrupt):
            request_id = request.request_id(resolved)
            if request_id not in self._waiting and request_id not in pending:
                yield InputRequested(
                    request_id=request_id,
                    asked=request.asked,
                    agent=origin.agent,
                    parent_call=origin.parent_call,
                )
            self._waiting[request_id] = request.asked.describe()

    # --- the end --------------------------------------------------------------------------------------------

    def _ending(self) -> AnyEvent:
        if self._waiting:
            subjects = end_sentence("; ".join(self._waiting.values()))
            return Paused(text=f"I need your input to go on: {subjects}", requests=tuple(self._waiting))
        return self._answer.last_event(self.texts.last_ended)


def _role(ns: Namespace, *, is_final: bool) -> TextRole:
    if ns:
        return "delegated"
    if is_final:
        return "answer"
    return "narration"


def _parts(update: Any) -> Iterator[Mapping[str, Any]]:
    """The state updates of a node: one, or a list of them."""
    if not isinstance(update, list):
        update = [update]
    for part in update:
        if isinstance(part, Mapping):
            yield part
