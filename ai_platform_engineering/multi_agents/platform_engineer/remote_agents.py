"""Agents that run as A2A services: a small graph behind the same `task` call, so that events, pauses and errors are those of any agent."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol, TypedDict

from langchain_core.runnables import Runnable, RunnableConfig
from langgraph.config import get_stream_writer
from langgraph.graph import END, START, StateGraph
from langgraph.types import interrupt

from ai_platform_engineering.a2a.client import ClientConversation, OutgoingMessage, Unreachable
from ai_platform_engineering.a2a.codec import CALL_PART, NEW_QUESTION_KEY, TIMEOUT_KEY
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    InputRequested,
    Notice,
    Paused,
    RunStarted,
)
from ai_platform_engineering.core.forms import REJECT
from ai_platform_engineering.core.signals import (
    FlushRequested,
    NoticeEmitted,
    RemoteEventReceived,
    RemoteUsageReported,
)
from ai_platform_engineering.graph.interrupts import interrupt_for_requests
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import (
    Graph,
    LocalSubAgent,
    describe_agent,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import (
    DEADLINE,
    AgentFailed,
    Delegation,
    DelegationResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.runtime.checkpoints.fenced_saver import EPOCH_KEY
from ai_platform_engineering.utils.a2a_common.a2a_remote_agent_connect import A2ARemoteAgentConnectTool

_TO_CATCH_UP = 5.0
_TO_STOP = 3.0


class RemoteTasks(Protocol):
    """Where the task ids of delegations are recorded, so that after a crash a task is followed and not ordered twice."""

    async def find_remote_task(self, run_id: str, key: str) -> str | None: ...

    async def store_remote_task(
        self, run_id: str, epoch: int, key: str, agent: str, task_id: str
    ) -> None: ...


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent that runs elsewhere. `problem` says why it cannot be reached now, as far as that is known; `fallback` is the same agent
    in this process, for a service that cannot be reached before it has taken the work."""

    definition: AgentDefinition
    connection: A2ARemoteAgentConnectTool
    problem: Callable[[], str | None] = lambda: None
    record_contact: Callable[[str | None], None] = lambda problem: None
    fallback: LocalAgent | None = None


class _State(TypedDict, total=False):
    assignment: dict[str, Any]
    remembered: dict[str, Any]  # by the delegations before it
    task_id: str | None
    context_id: str | None
    seq: int  # of the last event that was seen of the task: an answer is told the whole task again
    asked: dict[str, Any] | None  # everything the task waits for, by its own request ids
    reply: dict[str, Any] | None  # what people have answered, by the task's own request ids
    replies: int
    unreachable: bool
    text: str
    memory: dict[str, Any]
    failed: str


class RemoteSubAgent:
    """Sends the assignment, forwards what happens, asks people what the agent asks, and returns its answer."""

    def __init__(
        self,
        agent: RemoteAgent,
        *,
        recursion_limit: int,
        orders: RemoteTasks | None = None,
        fallback: LocalSubAgent | None = None,
        offline: Callable[[], bool] = lambda: False,
    ) -> None:
        """`offline`: the supervisor itself has no language model, and has said so already."""
        self._agent = agent
        self._orders = orders
        self._fallback = fallback
        self._offline = offline
        self._limit = recursion_limit
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
        return describe_agent(
            self._agent.definition,
            f"It cannot be reached now: {self.problem}" if self.problem else None,
            self.tools,
        )

    @property
    def runnable(self) -> Runnable[Any, Any]:
        if self._graph is None:
            graph = StateGraph(_State)
            graph.add_node("call", self._call)
            graph.add_node("ask", self._ask)
            graph.add_node("instead", self._instead)
            graph.add_edge(START, "call")
            graph.add_conditional_edges("call", self._next, ["ask", "instead", END])
            graph.add_edge("ask", "call")
            graph.add_edge("instead", END)
            self._graph = graph.compile(name=self.name)
        return self._graph

    async def run_delegation(self, assignment: Delegation, config: RunnableConfig) -> DelegationResult:
        kept = {"remote": assignment.memory.get("remote") or {}}
        if self._fallback is not None:
            kept["local"] = assignment.memory.get("local") or {}
        given = {"assignment": assignment.to_state(), "remembered": kept}
        own: RunnableConfig = {
            "recursion_limit": self._limit,
            "configurable": {DEADLINE: assignment.deadline},
        }
        after = await self.runnable.ainvoke(given, own)
        if problem := after.get("failed"):
            raise AgentFailed(problem)
        return DelegationResult(after["text"], {**assignment.memory, **after["memory"]})

    async def cancel_task(self, task_id: str) -> None:
        """Asks the service to stop a task; one that is gone, or cannot be reached, is left alone."""
        with contextlib.suppress(CaipeError, TimeoutError):
            async with asyncio.timeout(_TO_STOP):
                await self._agent.connection.cancel(task_id)

    def _next(self, state: _State) -> str:
        if state.get("asked") and not state.get("reply"):
            return "ask"
        if state.get("unreachable"):
            return "instead"
        return END

    async def _call(self, state: _State, config: RunnableConfig) -> dict[str, Any]:
        assignment = _assignment(state, config)
        talk = ClientConversation(
            state.get("context_id") or assignment.context_id, state.get("task_id"), seq=state.get("seq", 0)
        )
        asked: list[InputRequested] = []
        ended: AnyEvent | None = None
        try:
            async for event in self._events(state, assignment, talk):
                if isinstance(event, InputRequested):
                    asked.append(event)
                elif isinstance(event, Answered | Failed | Cancelled | Paused):
                    ended = event
                else:
                    self._forward(event)
        except Unreachable as error:
            self._agent.record_contact(str(error))
            if self._fallback is None or error.accepted is not False or state.get("task_id"):
                raise
            self._say_fallback()
            return {"unreachable": True}
        self._agent.record_contact(None)
        await _caught_up()
        followed = {"task_id": talk.task_id, "context_id": talk.context_id, "seq": talk.seq}
        return {**followed, **self._outcome(state, talk, ended, asked)}

    async def _events(
        self, state: _State, assignment: Delegation, talk: ClientConversation
    ) -> AsyncIterator[AnyEvent]:
        """What happens in the agent, its task recorded before it is followed."""
        connection = self._agent.connection
        await connection.connect()
        before = None
        if self._orders is not None and assignment.run_id:
            before = await self._orders.find_remote_task(assignment.run_id, assignment.key)
            talk.on_task_id = (
                None
                if before
                else partial(
                    self._orders.store_remote_task,
                    assignment.run_id,
                    assignment.epoch,
                    assignment.key,
                    self.name,
                )
            )
        if before and not state.get("reply") and not connection.sends_numbered_events:
            events = connection.follow(
                before, talk
            )  # it does not know a message that it has seen: never sent twice
        else:
            events = connection.send(self._order(state, assignment), talk)
        async for event in events:
            yield event

    def _order(self, state: _State, assignment: Delegation) -> OutgoingMessage:
        metadata: dict[str, Any] = {TIMEOUT_KEY: assignment.remaining_seconds()}
        if reply := state.get("reply"):
            message_id = str(uuid.uuid5(uuid.UUID(assignment.message_id), str(state.get("replies", 0))))
            text, data = (
                ("", {"resume": reply})
                if self._agent.connection.sends_numbered_events
                else (_all_in_words(reply), None)
            )
            return OutgoingMessage(
                message_id, text, data, state.get("context_id"), state.get("task_id"), metadata
            )
        # A stranger gives its conversations names of its own; it is asked to go on under the one it gave.
        context_id = (
            assignment.context_id
            if self._agent.connection.sends_numbered_events
            else state["remembered"]["remote"].get("context_id")
        )
        call = (
            {CALL_PART: dict(assignment.call)}
            if assignment.call and self._agent.connection.sends_numbered_events
            else None
        )
        held = {"tools": list(assignment.tools)} if assignment.tools is not None else None
        if held is not None and not self._agent.connection.sends_numbered_events:
            raise AgentFailed(
                "It is no service of ours and cannot be held to single tools, as the skill in use wants it."
            )
        return OutgoingMessage(
            assignment.message_id,
            assignment.text,
            call,
            context_id,
            metadata={**metadata, NEW_QUESTION_KEY: True},
            scope=held,
        )

    def _outcome(
        self, state: _State, talk: ClientConversation, ended: AnyEvent | None, asked: list[InputRequested]
    ) -> dict[str, Any]:
        write = get_stream_writer()
        pending = {
            **(state.get("asked") or {}),
            **{one.request_id: one.asked.model_dump(mode="json") for one in asked},
        }
        if isinstance(ended, Answered | Failed | Cancelled) and ended.usage:
            write(RemoteUsageReported(ended.usage))
        match ended:
            case Answered() if ended.text.strip():
                return {
                    "asked": None,
                    "text": ended.text,
                    "memory": {"remote": {"context_id": talk.context_id}},
                }
            case Paused() if waiting := [one for one in ended.requests if one in pending]:
                return {"asked": {one: pending[one] for one in waiting}, "reply": None}
            case Failed():
                return {"asked": None, "failed": ended.message}
            case Cancelled():
                return {"asked": None, "failed": "It was stopped."}
            case _:
                return {"asked": None, "failed": "It ended without an answer."}

    def _ask(self, state: _State) -> dict[str, Any]:
        # A node of its own: a resume runs only this again, never the call. After a restart nobody knows yet whose the service is.
        answers: dict[str, Any] = interrupt(
            interrupt_for_requests(state["assignment"]["key"], state["asked"] or {})
        )
        return {"reply": answers, "replies": state.get("replies", 0) + 1}

    async def _instead(self, state: _State, config: RunnableConfig) -> dict[str, Any]:
        assert self._fallback is not None
        result = await self._fallback.run_delegation(
            Delegation(**state["assignment"], memory=state["remembered"]), config
        )
        return {"text": result.text, "memory": {"local": result.memory["local"]}}

    def _forward(self, event: AnyEvent) -> None:
        if isinstance(event, RunStarted) or (
            isinstance(event, Notice) and event.code == "offline_model" and self._offline()
        ):
            return
        get_stream_writer()(RemoteEventReceived(event))

    def _say_fallback(self) -> None:
        title = self._agent.definition.title or self.name
        get_stream_writer()(
            NoticeEmitted(
                "fallback",
                f"The service of {title} cannot be reached; the agent runs in this process instead.",
            )
        )


def _assignment(state: _State, config: RunnableConfig) -> Delegation:
    """The assignment with the deadline of this turn, as the time that a person took for an answer is not the agent's, and with the
    epoch of this process, which may have taken over from the one that wrote it."""
    written = Delegation(**state["assignment"])
    deadline = (config.get("configurable") or {}).get(DEADLINE, written.deadline)
    return replace(
        written, deadline=deadline, epoch=(config.get("metadata") or {}).get(EPOCH_KEY, written.epoch)
    )


async def _caught_up() -> None:
    """What the agent told is stored before its answer is: after a crash nobody would tell it again. Without a reader nobody waits long."""
    stored = asyncio.Event()
    get_stream_writer()(FlushRequested(stored))
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_TO_CATCH_UP):
            await stored.wait()


def _all_in_words(answers: Mapping[str, Any]) -> str:
    return "\n\n".join(_in_words(answer) for answer in answers.values())


def _in_words(answer: Any) -> str:
    """An answer for an agent that asked in plain words."""
    if isinstance(answer, dict) and answer.get("type") == REJECT:
        return f"No. {answer.get('message') or ''}".strip()
    if isinstance(answer, dict):
        values = list(answer.values())
        if len(values) == 1:
            return str(values[0])
        return "\n".join(f"{name}: {value}" for name, value in answer.items())
    return str(answer)
