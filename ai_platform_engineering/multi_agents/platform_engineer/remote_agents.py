"""Remote agents: A2A services behind the `task` tool.

Each runs as a small graph of its own, so that events, pauses and errors are those of any sub-agent.
"""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from ai_platform_engineering.a2a.client import ClientConversation, OutgoingMessage, Unreachable
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.decisions import APPROVE, DECISION_KEY, REJECT
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Approval,
    Cancelled,
    Failed,
    InputRequested,
    JsonObject,
    Notice,
    Paused,
    RunStarted,
    Usage,
    ends_turn,
    is_terminal,
)
from ai_platform_engineering.core.named_targets import NamedTargets
from ai_platform_engineering.core.run_budget import RunUsage
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.signals import (
    FlushRequested,
    NoticeEmitted,
    RemoteEventReceived,
    RemoteUsageReported,
)
from ai_platform_engineering.core.untrusted_content import UntrustedContent, describe_sources, is_covered
from ai_platform_engineering.graph.interrupts import interrupt_for_requests
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    Graph,
    LocalSubAgent,
    describe_agent,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    AgentFailed,
    Delegation,
    DelegationResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.person_input import read_conversation_input
from ai_platform_engineering.multi_agents.platform_engineer.remote_messages import (
    build_answer_message,
    build_delegation_message,
    build_third_party_message,
)
from ai_platform_engineering.runtime.log.log_rows import PersonInput, RunRow
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool

_FLUSH_TIMEOUT = 5.0  # seconds
_CANCEL_TIMEOUT = 3.0  # seconds
_NOT_OURS = (
    "It is a third-party service that makes changes without asking. "
    "Text that nobody in this conversation wrote may have led to this: {sources}."
)


class RemoteTasks(Protocol):
    """Where the remote tasks of delegations are stored: after a crash one is followed, not started again."""

    async def find_remote_task(self, run_id: str, key: str) -> str | None: ...

    async def store_remote_task(
        self, run_id: str, epoch: int, key: str, agent: str, task_id: str
    ) -> None: ...

    async def get(self, run_id: str) -> RunRow | None: ...

    async def list_person_input(self, owner: str, context_id: str, limit: int) -> list[PersonInput]: ...


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent that runs as a service.

    `problem` returns why it cannot be reached now, as far as that is known; `record_contact` takes the
    problem of the last contact, or None; `fallback` is the same agent in this process, for a service that
    cannot be reached before it has accepted the task.
    """

    definition: AgentDefinition
    connection: A2ARemoteAgentConnectTool
    problem: Callable[[], str | None] = lambda: None
    record_contact: Callable[[str | None], None] = lambda problem: None
    fallback: LocalAgent | None = None


class _State(TypedDict, total=False):
    """The state of a remote agent's graph. The keys are stored in checkpoints: they cannot be renamed."""

    assignment: dict[str, Any]  # the delegation, without its memory
    remembered: dict[str, Any]  # the memory from earlier delegations
    task_id: str | None
    context_id: str | None
    # Of the last event that was seen of the task: after an answer the service sends the task from its start.
    seq: int
    asked: dict[str, Any] | None  # the requests that the task waits for, by the service's request ids
    reply: dict[str, Any] | None  # the answers of people, by the service's request ids
    replies: int
    unreachable: bool
    text: str
    memory: dict[str, Any]
    failed: str
    usage: dict[str, Any]  # what the agent has used of the run's budget


class RemoteSubAgent:
    """Sends the delegation, forwards the agent's events, asks people its requests, and returns its answer."""

    def __init__(
        self,
        agent: RemoteAgent,
        *,
        recursion_limit: int,
        remote_tasks: RemoteTasks | None = None,
        fallback: LocalSubAgent | None = None,
        offline: Callable[[], bool] = lambda: False,
        ask_on_untrusted: bool = True,
    ) -> None:
        """`offline`: the supervisor itself has no language model, and its own notice says so already.

        `ask_on_untrusted`: a third-party agent gets a delegation that follows untrusted text from a person's
        hands only, since it cannot be made to ask by itself.
        """
        self._agent = agent
        self._remote_tasks = remote_tasks
        self._fallback = fallback
        self._offline = offline
        self._ask_on_untrusted = ask_on_untrusted
        self._recursion_limit = recursion_limit
        self._graph: Graph | None = None

    @property
    def name(self) -> str:
        return self._agent.definition.name

    @property
    def tools(self) -> tuple[str, ...]:
        return self._agent.connection.tools

    @property
    def problem(self) -> str | None:
        return self._agent.problem()

    @property
    def description(self) -> str:
        problem = f"It cannot be reached now: {self.problem}" if self.problem else None
        return describe_agent(self._agent.definition, problem, self.tools, self._agent.connection.skills)

    @property
    def runnable(self) -> Runnable[Any, Any]:
        if self._graph is None:
            # The names of the nodes are stored in checkpoints: they cannot be renamed.
            graph = StateGraph(_State)
            graph.add_node("call", self._call_service)
            graph.add_node("ask", self._ask_people)
            graph.add_node("instead", self._run_fallback)
            graph.add_edge(START, "call")
            graph.add_conditional_edges("call", _choose_next_node, ["ask", "instead", END])
            graph.add_edge("ask", "call")
            graph.add_edge("instead", END)
            self._graph = graph.compile(name=self.name)
        return self._graph

    async def run_delegation(self, delegation: Delegation, config: RunnableConfig) -> DelegationResult:
        memory = {"remote": delegation.memory.get("remote") or {}}
        if self._fallback is not None:
            memory["local"] = delegation.memory.get("local") or {}
        graph_config: RunnableConfig = {
            "recursion_limit": self._recursion_limit,
            "configurable": delegation.time_limits().to_configurable(),
        }
        state = await self.runnable.ainvoke(
            {"assignment": delegation.to_state(), "remembered": memory}, graph_config
        )
        delegation.progress.usage = RunUsage.from_data(state.get("usage"))
        failure = state.get("failed")
        if failure:
            raise AgentFailed(failure)
        return DelegationResult(state["text"], {**delegation.memory, **state["memory"]})

    async def cancel_task(self, task_id: str) -> None:
        """Asks the service to cancel a task; one that is gone, or cannot be reached, is left alone."""
        with contextlib.suppress(CaipeError, TimeoutError):
            async with asyncio.timeout(_CANCEL_TIMEOUT):
                await self._agent.connection.cancel(task_id)

    async def _call_service(self, state: _State, config: RunnableConfig) -> dict[str, Any]:
        """Sends the delegation or an answer, and follows the task to its end or its next pause."""
        delegation = _read_delegation(state, config)
        conversation = ClientConversation(
            state.get("context_id") or delegation.context_id, state.get("task_id"), seq=state.get("seq", 0)
        )
        requests: list[InputRequested] = []
        last_event: AnyEvent | None = None
        try:
            async with contextlib.aclosing(self._follow_task(state, delegation, conversation)) as events:
                async for event in events:
                    if isinstance(event, InputRequested):
                        requests.append(event)
                    elif ends_turn(event):
                        last_event = event
                    else:
                        self._forward_event(event)
        except Unreachable as error:
            self._agent.record_contact(str(error))
            may_have_started = error.accepted is not False or state.get("task_id")
            if self._fallback is None or may_have_started:
                raise
            self._emit_fallback_notice()
            return {"unreachable": True}
        self._agent.record_contact(None)
        await _flush_events()
        if last_event is not None and is_terminal(last_event) and last_event.usage:
            get_stream_writer()(RemoteUsageReported(last_event.usage))
        return {
            "task_id": conversation.task_id,
            "context_id": conversation.context_id,
            "seq": conversation.seq,
            "usage": _read_usage(last_event).to_data(),
            **_read_outcome(state, conversation, last_event, requests),
        }

    async def _follow_task(
        self, state: _State, delegation: Delegation, conversation: ClientConversation
    ) -> AsyncGenerator[AnyEvent]:
        """The events of the task. The task's id is stored before the first one."""
        connection = self._agent.connection
        await connection.connect()
        stored_task_id = None
        if self._remote_tasks is not None and delegation.run_id:
            stored_task_id = await self._remote_tasks.find_remote_task(delegation.run_id, delegation.key)
            if not stored_task_id:
                conversation.on_task_id = partial(
                    self._remote_tasks.store_remote_task,
                    delegation.run_id,
                    delegation.epoch,
                    delegation.key,
                    self.name,
                )
        if stored_task_id and not state.get("reply") and not connection.sends_numbered_events:
            # A third-party agent does not recognise a message that it has seen: it is never sent twice.
            events = connection.follow(stored_task_id, conversation)
        else:
            if self._needs_approval(state, delegation):
                _ask_to_send(self.name, delegation)
            person = await read_conversation_input(self._remote_tasks, delegation.run_id)
            events = connection.send(self._build_message(state, delegation, person.named), conversation)
        async with contextlib.aclosing(events):
            async for event in events:
                yield event

    def _needs_approval(self, state: _State, delegation: Delegation) -> bool:
        """Whether a person decides first: the agent is not ours, and the text may not be people's."""
        content = UntrustedContent.from_data(delegation.untrusted)
        if not self._ask_on_untrusted or content is None or state.get("reply"):
            return False
        if self._agent.connection.sends_numbered_events:
            return False  # it asks by itself, before each change
        return bool(content.results) or not is_covered(delegation.text, content.words)

    def _build_message(self, state: _State, delegation: Delegation, named: NamedTargets) -> OutgoingMessage:
        """The next message to the service: the answers of people when there are any, else the delegation."""
        is_third_party = not self._agent.connection.sends_numbered_events
        answers = state.get("reply")
        if answers:
            return build_answer_message(
                delegation,
                answers,
                number=state.get("replies", 0),
                context_id=state.get("context_id"),
                task_id=state.get("task_id"),
                as_text=is_third_party,
            )
        if is_third_party:
            return build_third_party_message(delegation, state["remembered"]["remote"].get("context_id"))
        return build_delegation_message(delegation, named)

    def _ask_people(self, state: _State) -> dict[str, Any]:
        """Interrupts the graph with the service's requests.

        A node of its own: a resume runs only this one again, never the call. After a restart it is not known
        yet whether the service is ours.
        """
        requests = interrupt_for_requests(state["assignment"]["key"], state["asked"] or {})
        answers: dict[str, Any] = interrupt(requests)
        return {"reply": answers, "replies": state.get("replies", 0) + 1}

    async def _run_fallback(self, state: _State, config: RunnableConfig) -> dict[str, Any]:
        """Runs the delegation in this process, for a service that cannot be reached."""
        assert self._fallback is not None
        delegation = Delegation(**state["assignment"], memory=state["remembered"])
        result = await self._fallback.run_delegation(delegation, config)
        usage = delegation.progress.usage.to_data()
        return {"text": result.text, "memory": {"local": result.memory["local"]}, "usage": usage}

    def _forward_event(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted):
            return
        if isinstance(event, Notice) and event.code == "offline_model" and self._offline():
            return
        get_stream_writer()(RemoteEventReceived(event))

    def _emit_fallback_notice(self) -> None:
        title = self._agent.definition.title or self.name
        text = f"The service of {title} cannot be reached; the agent runs in-process instead."
        get_stream_writer()(NoticeEmitted("fallback", text))


def _ask_to_send(agent: str, delegation: Delegation) -> None:
    """Interrupts the graph until a person has approved the delegation. Raises AgentFailed."""
    content = UntrustedContent.from_data(delegation.untrusted) or UntrustedContent()
    reason = _NOT_OURS.format(sources=describe_sources(content.results or content.definitions))
    arguments: JsonObject = {"description": delegation.text}
    approval = Approval(tool=agent, arguments=arguments, reason=reason, allowed=(APPROVE, REJECT))
    answer: Mapping[str, Any] = interrupt(approval.model_dump(mode="json"))
    if answer.get(DECISION_KEY) != APPROVE:
        raise AgentFailed("A person rejected this delegation. Nothing was sent.")


def _choose_next_node(state: _State) -> str:
    if state.get("asked") and not state.get("reply"):
        return "ask"
    if state.get("unreachable"):
        return "instead"
    return END


def _read_outcome(
    state: _State,
    conversation: ClientConversation,
    last_event: AnyEvent | None,
    requests: list[InputRequested],
) -> dict[str, Any]:
    """The update of the graph's state for the event that ended the task or its turn."""
    pending = dict(state.get("asked") or {})
    for request in requests:
        pending[request.request_id] = request.asked.model_dump(mode="json")
    match last_event:
        case Answered() if last_event.text.strip():
            memory = {"remote": {"context_id": conversation.context_id}}
            return {"asked": None, "text": last_event.text, "memory": memory}
        case Paused() if any(request_id in pending for request_id in last_event.requests):
            open_requests = {
                request_id: pending[request_id] for request_id in last_event.requests if request_id in pending
            }
            return {"asked": open_requests, "reply": None}
        case Failed():
            return {"asked": None, "failed": last_event.message}
        case Cancelled():
            return {"asked": None, "failed": "It was stopped."}
        case _:
            return {"asked": None, "failed": "It ended without an answer."}


def _read_usage(last_event: AnyEvent | None) -> RunUsage:
    """What the agent says it has used."""
    if last_event is None or not is_terminal(last_event):
        return RunUsage()
    usage = last_event.usage or Usage()
    return RunUsage(
        model_calls=usage.model_calls or 0,
        tool_calls=usage.tool_calls or 0,
        tokens=usage.input_tokens + usage.output_tokens,
    )


def _read_delegation(state: _State, config: RunnableConfig) -> Delegation:
    """The delegation from the state, with the deadline of this turn and the epoch of this process.

    The time that a person took for an answer does not count, and this process may have taken over from the
    one that stored the delegation.
    """
    delegation = Delegation(**state["assignment"])
    run = RunContext.from_config(config)
    return replace(
        delegation,
        deadline=run.deadline or delegation.deadline,
        epoch=run.epoch or delegation.epoch,
    )


async def _flush_events() -> None:
    """Waits until the agent's events are stored, before its answer is: after a crash they are not sent again.

    Without a reader of the stream the wait ends after a timeout.
    """
    flushed = asyncio.Event()
    get_stream_writer()(FlushRequested(flushed))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_FLUSH_TIMEOUT):
            await flushed.wait()
