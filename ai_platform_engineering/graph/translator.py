"""LangGraph stream -> Event. The only code that sees LangGraph's shapes."""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, AIMessageChunk, ToolMessage

from ai_platform_engineering.core.errors import EmptyAnswer
from ai_platform_engineering.core.events import (
    SUPERVISOR,
    Answered,
    AnyEvent,
    Failed,
    InputRequested,
    Notice,
    Paused,
    ToolFinished,
    ToolProgress,
    ToolStarted,
    Usage,
)
from ai_platform_engineering.core.plan import PLAN_CHANGE_ADAPTER, Plan, PlanState, WriteSteps, change_plan
from ai_platform_engineering.core.signals import (
    ArgumentsEdited,
    FlushRequested,
    ModelRetried,
    NoticeEmitted,
    RemoteEventReceived,
    RemoteUsageReported,
    ToolProgressed,
)
from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL, USER_INPUT_TOOL
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.graph.citations import RetrievedSources
from ai_platform_engineering.graph.failures import failed_event
from ai_platform_engineering.graph.interrupts import interrupt_requests
from ai_platform_engineering.graph.message_stream import MODEL_NODE, Namespace, TextStreams, new_messages
from ai_platform_engineering.graph.remote_events import RemoteEvents, unknown_outcome
from ai_platform_engineering.graph.restored_state import Restored
from ai_platform_engineering.graph.tool_messages import called_name, outcome_fields
from ai_platform_engineering.graph.visible_text import visible_text

STREAM_MODES: Any = [
    "messages",
    "updates",
    "custom",
    "tools",
    "tasks",
]  # `tools` works, though LangGraph's type does not list it


@dataclass(slots=True)
class _Call:
    """A tool call of one namespace; `task_id` tells a repeated run of the same call from a new call with a reused id."""

    call_id: str
    tool: str
    delegates: bool
    arguments: Mapping[str, Any]
    task_id: str | None = None
    step_id: str | None = None
    started: bool = False
    finished: bool = False


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """What the translator must know of the graph: whose it is, the tool that carries a structured answer, and the knowledge tools."""

    answer_tool: str | None = None
    knowledge_tools: frozenset[str] = frozenset()
    agent: str = SUPERVISOR  # whose graph it is


class Translator:
    """Turns one run's stream into events; ends with exactly one terminal event or a pause."""

    def __init__(
        self,
        *,
        run_id: str,
        trace_id: str,
        shape: GraphInfo | None = None,
        plan: PlanState | None = None,
        response: Any = None,
        seen: Transcript | None = None,
        restored: Restored | None = None,
        sources: RetrievedSources | None = None,
    ) -> None:
        """`plan` and `response` are what the graph kept over a pause, `seen` is what was told of the run before it, `restored`
        is what it had stored when its process died, and `sources` what it had retrieved."""
        self._run_id = run_id
        self._trace_id = trace_id
        self._shape = shape or GraphInfo()
        seen = seen or Transcript()
        self._plan, self._shown_plan = plan or PlanState(), seen.plan or Plan()
        self._old_calls = {call.call_id: call for call in seen.calls}
        self._call_ids = set(self._old_calls)
        self._sources = sources or RetrievedSources()
        self._texts = TextStreams(
            self._by, self._step, {*seen.discarded, *(span.message_id for span in seen.spans)}, self._sources
        )
        self._asked = {request.request_id for request in seen.requests}
        self._resolved = {event.request_id for event in seen.resolved}
        self._delegations: dict[
            str, tuple[_Call, str]
        ] = {}  # namespace segment -> the call, the agent it calls
        self._calls: dict[tuple[Namespace, str], _Call] = {}
        said = [span for span in seen.spans if span.parent_call is None and span.text]
        self._said = [span.text for span in said]
        self._answer = said[-1].text if said and said[-1].role == "answer" else ""
        # A response of an earlier question is still in the graph's state.
        self._response: Any = response if self._answer and self._content(response) == self._answer else None
        self._restored = restored
        if restored is not None:
            self._said, self._answer = list(restored.said), restored.answer
            self._response = response if self._answer and self._content(response) == self._answer else None
        self._remote = RemoteEvents(seen)
        self._waiting: dict[str, str] = {}  # request id -> what it asks for
        self._used = restored.used if restored else Usage()

    async def events(self, items: AsyncIterator[Any]) -> AsyncIterator[AnyEvent]:
        """The events of the stream; an exception of the graph becomes the run's failure."""
        for event in self._restored_plan():
            yield event
        try:
            async for item in items:
                for event in self._translate(tuple(item["ns"]), item["type"], item["data"]):
                    yield event
        except Exception as error:  # noqa: BLE001 - whatever ended the graph, the run ends with words for a person
            yield self._with_usage(failed_event(error, self._trace_id))
            return
        yield self._ending()

    def _translate(self, ns: Namespace, mode: str, data: Any) -> Iterator[AnyEvent]:
        if mode in ("tasks", "messages", "tools") and self._is_inside_a_tool(ns):
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
                    yield from self._on_replay(ns, update)
            case "updates":
                for node, update in data.items():
                    yield from self._on_update(ns, node, update)
            case "custom":
                yield from self._on_signal(ns, data)
            case _:
                pass

    # --- who ---------------------------------------------------------------------------------------------------------

    def _delegation(self, ns: Namespace) -> tuple[_Call, str] | None:
        return next(
            (self._delegations[segment] for segment in reversed(ns) if segment in self._delegations), None
        )

    def _is_inside_a_tool(self, ns: Namespace) -> bool:
        """A tool may run an agent of its own: only what that asks of people concerns anybody else."""
        return any(segment.startswith("tools:") and segment not in self._delegations for segment in ns)

    def _by(self, ns: Namespace) -> dict[str, Any]:
        found = self._delegation(ns)
        if found:
            return {"agent": found[1], "parent_call": found[0].call_id}
        return {"agent": self._shape.agent, "parent_call": None}

    def _step(self, ns: Namespace) -> str | None:
        found = self._delegation(ns)
        if found:
            return found[0].step_id
        return self._plan.plan.current_step()

    # --- tool calls --------------------------------------------------------------------------------------------------

    def _on_task(self, ns: Namespace, task: Mapping[str, Any]) -> None:
        """A task of the node `tools` runs one call; whatever it starts has the segment `tools:<task id>`."""
        if task.get("name") != "tools" or "input" not in task:
            return
        given = task["input"]
        if isinstance(given, list):
            calls = given
        elif isinstance(given, Mapping):
            calls = [given.get("tool_call")]
        else:
            calls = []
        for raw in calls:
            if not raw or self._is_silent(raw["name"]):
                continue
            call = self._calls.get((ns, raw["id"]))
            if call is None or call.task_id != task["id"]:
                call = self._register(ns, raw["id"], raw["name"], raw["args"], task["id"])
            if call.delegates:
                self._delegations[f"tools:{task['id']}"] = call, call.tool

    def _register(
        self, ns: Namespace, raw_id: str, name: str, arguments: Mapping[str, Any], task_id: str | None = None
    ) -> _Call:
        """A call with an id that is unique in the run: inner ids are prefixed with the delegation's, reused ones are counted."""
        delegates = name == DELEGATION_TOOL
        parent = self._by(ns)["parent_call"]
        base = f"{parent}/{raw_id}" if parent else raw_id
        if (again := self._run_again(ns, raw_id, base, name, arguments, task_id)) is not None:
            return again
        call_id, count = self._resumable(base) or base, 1
        while call_id in self._call_ids and not self._resumes(call_id):
            count += 1
            call_id = f"{base}#{count}"
        call = _Call(
            call_id,
            called_name(name, arguments),
            delegates,
            arguments,
            task_id,
            started=self._resumes(call_id),
        )
        if (old := self._old_calls.pop(call_id, None)) is not None:
            call.step_id = old.step_id
            if delegates and not ns and call.started:
                self._run_step(call.step_id)
        self._call_ids.add(call_id)
        self._calls[ns, raw_id] = call
        return call

    def _run_again(
        self,
        ns: Namespace,
        raw_id: str,
        base: str,
        name: str,
        arguments: Mapping[str, Any],
        task_id: str | None,
    ) -> _Call | None:
        """A call that was told before a crash and is not in the stored state: the graph makes it again, and nobody is told twice."""
        if self._restored is None or (ns, raw_id) in self._calls:
            return None
        before = self._restored.ended[ns, raw_id]
        old = self._old_calls.pop(f"{base}#{before + 1}" if before else base, None)
        if old is None:
            return None
        call = _Call(
            old.call_id,
            old.tool,
            name == DELEGATION_TOOL,
            arguments,
            task_id,
            old.step_id,
            True,
            old.outcome is not None,
        )
        if call.delegates and not ns and not call.finished:
            self._run_step(call.step_id)
        self._calls[ns, raw_id] = call
        return call

    def _resumable(self, base: str) -> str | None:
        """The call with this id that was begun before a pause, under whatever count."""
        for call_id in filter(self._resumes, self._old_calls):
            name, _, count = call_id.rpartition("#")
            if call_id == base or (name == base and count.isdigit()):
                return call_id
        return None

    def _resumes(self, call_id: str) -> bool:
        """The call was begun before a pause and has not ended."""
        return call_id in self._old_calls and self._old_calls[call_id].outcome is None

    def _on_tool_started(self, ns: Namespace, data: Mapping[str, Any]) -> Iterator[AnyEvent]:
        name, raw_id = data["tool_name"], data["tool_call_id"]
        if self._is_silent(name):
            return
        call = self._calls.get((ns, raw_id)) or self._register(ns, raw_id, name, data.get("input") or {})
        yield from self._start(ns, call)

    def _start(self, ns: Namespace, call: _Call) -> Iterator[AnyEvent]:
        if call.started:
            return
        call.started = True
        call.step_id = self._step_of(ns, call)
        yield ToolStarted(
            call_id=call.call_id,
            tool=call.tool,
            delegates=call.delegates,
            knowledge=self._is_knowledge(ns, call),
            arguments=dict(call.arguments),
            step_id=call.step_id,
            **self._by(ns),
        )
        if call.delegates and not ns:
            self._run_step(call.step_id)
            yield from self._show_plan()

    def _finish(self, ns: Namespace, message: ToolMessage) -> Iterator[AnyEvent]:
        name = message.name or ""
        if self._is_silent(name):
            return
        call = self._calls.get((ns, message.tool_call_id))
        if call is None:
            if not name:
                return
            call = self._register(ns, message.tool_call_id, name, {})
        if call.finished:
            return
        yield from self._start(ns, call)  # a call that was answered in its stead has not been seen to start
        if call.delegates:
            yield from self._close_inside(call)
        call.finished = True
        self._sources.add_result(message.text, knowledge=self._is_knowledge(ns, call))
        yield ToolFinished(
            call_id=call.call_id,
            tool=call.tool,
            delegates=call.delegates,
            knowledge=self._is_knowledge(ns, call),
            step_id=call.step_id or (self._step_of(ns, call) if call.delegates else None),
            **outcome_fields(message, delegates=call.delegates),
            **self._by(ns),
        )

    def _close_inside(self, delegation: _Call) -> Iterator[AnyEvent]:
        """Ends what an agent left open: it was cut off by its time limit, or its service is gone."""
        yield from self._remote.close(delegation.call_id)
        for (ns, _), call in reversed(self._calls.items()):
            if call.started and not call.finished and call.call_id.startswith(f"{delegation.call_id}/"):
                call.finished = True
                begun: dict[str, Any] = {
                    "call_id": call.call_id,
                    "tool": call.tool,
                    "delegates": call.delegates,
                    "step_id": call.step_id,
                }
                yield unknown_outcome(ToolStarted(**begun, **self._by(ns)))
        segments = [segment for segment, (call, _) in self._delegations.items() if call is delegation]
        yield from self._texts.cut_off(segments)

    def _step_of(self, ns: Namespace, call: _Call) -> str | None:
        if ns or not call.delegates:
            return self._step(ns)
        return self._plan.plan.find_step(call.tool, call.arguments.get("step_id"))

    def _is_silent(self, name: str) -> bool:
        return name in (PLANNING_TOOL, USER_INPUT_TOOL, self._shape.answer_tool)

    def _is_knowledge(self, ns: Namespace, call: _Call) -> bool:
        return not ns and not call.delegates and call.tool in self._shape.knowledge_tools

    # --- text --------------------------------------------------------------------------------------------------------

    def _on_chunk(self, ns: Namespace, chunk: Any, meta: Mapping[str, Any]) -> Iterator[AnyEvent]:
        # A tool or a middleware may call a model of its own: only what the agent's model node says is the agent's text.
        if (
            not isinstance(chunk, AIMessageChunk)
            or meta.get("langgraph_node") != MODEL_NODE
            or meta.get("lc_source")
        ):
            return
        yield from self._texts.chunk(ns, chunk)
        if self._shape.answer_tool and not ns:
            yield from self._texts.structured_chunk(ns, chunk, self._shape.answer_tool)

    def _settle(self, ns: Namespace, message: AIMessage) -> Iterator[AnyEvent]:
        self._used = self._used.plus(message.usage_metadata or {})
        text = visible_text(message.text) if ns else self._sources.number_citations(message.text)
        final = not ns and not message.tool_calls and not message.invalid_tool_calls
        yield from self._texts.end(
            ns, message.id or "message", text, "delegated" if ns else "answer" if final else "narration"
        )
        if not ns:
            self._said += [text] if text else []
            self._answer = text if final else ""

    # --- updates -----------------------------------------------------------------------------------------------------

    def _on_update(self, ns: Namespace, node: str, update: Any) -> Iterator[AnyEvent]:
        if node == "__interrupt__":
            for interrupt in update:
                yield from self._ask(ns, interrupt)
            return
        if self._is_inside_a_tool(ns):
            return
        for part in update if isinstance(update, list) else [update]:
            if isinstance(part, Mapping):
                yield from self._on_state(ns, node, part)

    def _on_state(self, ns: Namespace, node: str, update: Mapping[str, Any]) -> Iterator[AnyEvent]:
        for message in new_messages(node, update.get("messages")):
            if isinstance(message, AIMessage):
                yield from self._settle(ns, message)
            elif isinstance(message, ToolMessage):
                yield from self._finish(ns, message)
        if ns:
            return
        yield from self._on_structured(ns, update)
        for change in update.get("plan") or ():
            yield from self._on_plan(change)

    def _on_replay(self, ns: Namespace, update: Any) -> Iterator[AnyEvent]:
        """What a task had done before a pause: the graph tells it again, people have seen it unless the process died in between."""
        for part in update if isinstance(update, list) else [update]:
            if not isinstance(part, Mapping) or self._is_inside_a_tool(ns):
                continue
            for message in part.get("messages") or ():
                call = (
                    self._calls.get((ns, message.tool_call_id)) if isinstance(message, ToolMessage) else None
                )
                if call is not None and call.started:
                    yield from self._finish(ns, message)
            if not ns:
                for change in part.get("plan") or ():
                    self._change_plan(change)

    def _on_structured(self, ns: Namespace, update: Mapping[str, Any]) -> Iterator[AnyEvent]:
        response = update.get("structured_response")
        if response is None:
            if self._texts.is_answering(ns) and update.get("messages"):
                yield from self._texts.discard(
                    ns, "invalid"
                )  # the call did not fit the schema; the model is asked again
            return
        self._response = response
        text = self._content(response)
        yield from self._texts.end_structured(ns, f"{self._trace_id}:answer", text)
        self._answer = text

    # --- plan --------------------------------------------------------------------------------------------------------

    def _on_plan(self, raw: Mapping[str, Any]) -> Iterator[AnyEvent]:
        self._change_plan(raw)
        yield from self._show_plan()

    def _change_plan(self, raw: Mapping[str, Any]) -> None:
        change = PLAN_CHANGE_ADAPTER.validate_python(raw)
        self._plan = change_plan(self._plan, change)
        if isinstance(change, WriteSteps):
            self._adopt_running()

    def _adopt_running(self) -> None:
        """A model may write the plan and delegate in the same breath: what runs already belongs to its step."""
        for (ns, _), call in self._calls.items():
            if not ns and call.delegates and call.started and not call.finished:
                call.step_id = call.step_id or self._step_of(ns, call)
                self._run_step(call.step_id)

    def _run_step(self, step_id: str | None) -> None:
        self._plan = self._plan.model_copy(
            update={"plan": self._plan.plan.with_status(step_id, "in_progress")}
        )

    def _restored_plan(self) -> Iterator[AnyEvent]:
        """The plan as it was stored, when more had happened to it than was told."""
        if self._restored is not None:
            running = [step.step_id for step in self._shown_plan.steps if step.status == "in_progress"]
            for step in self._plan.plan.steps:
                if step.status == "pending" and step.step_id in running:
                    self._run_step(step.step_id)
            yield from self._show_plan()

    def _show_plan(self) -> Iterator[AnyEvent]:
        if self._plan.plan != self._shown_plan:
            self._shown_plan = self._plan.plan
            yield self._plan.plan.to_event()

    # --- the rest ----------------------------------------------------------------------------------------------------

    def _on_signal(self, ns: Namespace, signal: Any) -> Iterator[AnyEvent]:
        match signal:
            case ModelRetried(reason=reason):
                yield from self._texts.discard(ns, reason)
            case NoticeEmitted(code=code, text=text):
                yield Notice(code=code, text=text, **self._by(ns))
            case ToolProgressed():
                call = self._calls.get((ns, signal.call_id))
                if call is not None:
                    told: dict[str, Any] = {"text": signal.text, "done": signal.done, "total": signal.total}
                    yield ToolProgress(call_id=call.call_id, tool=call.tool, **told, **self._by(ns))
            case ArgumentsEdited():
                if (call := self._calls.get((ns, signal.call_id))) is not None:
                    call.arguments = signal.arguments
            case RemoteEventReceived(event=event):
                if (found := self._delegation(ns)) is not None:
                    call, agent = found
                    yield from self._remote.forward(
                        event, call_id=call.call_id, agent=agent, step_id=call.step_id
                    )
            case RemoteUsageReported(usage=usage):
                self._used = self._used.plus(usage.model_dump())
            case FlushRequested(stored=stored):
                stored.set()  # the stream is read on only when the event before has been taken
            case _:
                pass  # a tool of somebody else may write to the stream what it likes

    def _ask(self, ns: Namespace, interrupt: Any) -> Iterator[AnyEvent]:
        for question in interrupt_requests(self._run_id, interrupt):
            request_id = question.request_id(self._resolved)
            if (
                request_id not in self._waiting and request_id not in self._asked
            ):  # told once per level: the child's, then the root's
                yield InputRequested(request_id=request_id, asked=question.asked, **self._by(ns))
            self._waiting[request_id] = question.asked.describe()

    def _ending(self) -> AnyEvent:
        if self._waiting:
            return Paused(
                text=f"I need your input to go on: {'; '.join(self._waiting.values())}.",
                requests=tuple(self._waiting),
            )
        text = self._answer or "\n\n".join(self._said)
        if not text.strip():
            return self._with_usage(failed_event(EmptyAnswer(), self._trace_id))
        data = self._response.model_dump(mode="json") if self._response is not None else None
        cited = self._sources.citations_in(text, data)
        if data is not None:
            data |= {"content": text, "citations": [one.model_dump(mode="json") for one in cited]}
        return Answered(text=text, trace_id=self._trace_id, data=data, citations=cited, usage=self._used)

    def _content(self, response: Any) -> str:
        """The text of a structured answer."""
        return self._sources.number_citations(str(getattr(response, "content", "")))

    def _with_usage(self, event: Failed) -> Failed:
        return event.model_copy(update={"usage": self._used})
