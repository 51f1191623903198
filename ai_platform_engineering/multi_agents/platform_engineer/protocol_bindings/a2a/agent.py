"""AIPlatformEngineerA2ABinding: runs the graph for one turn, and yields its events."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Durability

from ai_platform_engineering.a2a.message_parts import read_metadata, render_prompt
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent, InputResolved, Notice
from ai_platform_engineering.core.plan import PlanState
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.graph.failures import failed_event
from ai_platform_engineering.graph.replay import Replay
from ai_platform_engineering.graph.stored_graph import StoredGraph
from ai_platform_engineering.graph.translator import STREAM_MODES, Translator
from ai_platform_engineering.mcp_client.server_state import describe_start
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.crash_recovery import (
    build_resume_command,
    collect_sources,
    find_open_interrupts,
    read_stored_graphs,
    read_stored_messages,
    read_stored_plan,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import RESET_PLAN
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
    ServingAgent,
)
from ai_platform_engineering.multi_agents.platform_engineer.reported_outcomes import read_outcome_notes
from ai_platform_engineering.runtime.log.log_rows import PendingRequest, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.answers import find_resolution
from ai_platform_engineering.runtime.runs.turn import Turn
from ai_platform_engineering.skills_middleware.mas_registry import MultiAgentSystem, set_mas_instance

_RECOVERY = "The server was restarted; the run continues where it left off."
_LOST = (
    "The server was restarted and the state of this run is lost. It had called {tools} before, so it is not "
    "begun again by itself: find out what was done, then ask for the rest."
)


@dataclass(frozen=True, slots=True)
class _GraphStart:
    """How the graph goes on in a turn.

    `graph_input` is the question or the command to resume, None to go on from the checkpoint. `values` is the
    stored state of the root graph, `plan` the plan in it, with what was written after it. `stored_graphs` are
    all graphs of a run that is taken over, and `resolutions` are answers of people that no reader has seen
    yet.
    """

    graph_input: Any
    values: Mapping[str, Any] = field(default_factory=dict)
    plan: PlanState = field(default_factory=PlanState)
    stored_graphs: Sequence[StoredGraph] = ()
    resolutions: Sequence[AnyEvent] = ()


class AIPlatformEngineerA2ABinding:
    """Runs the graph for a turn; its events end with exactly one terminal event or a pause."""

    def __init__(
        self, agent: ReloadableAgent[ServingAgent] | ServingAgent, run_log: RunLog | None = None
    ) -> None:
        """`run_log`: where requests, remote tasks and the state of interrupted runs are found."""
        if not isinstance(agent, ReloadableAgent):
            agent = ReloadableAgent(AgentDeployment(agent))
        self._agent = agent
        self._log = run_log
        serving_agent = agent.deployment.agent
        if isinstance(serving_agent, MultiAgentSystem):  # the one agent of a service has no skills
            set_mas_instance(serving_agent)

    async def stream(self, turn: Turn, transcript: Transcript) -> AsyncIterator[AnyEvent]:
        """The events of the turn; `transcript` is what the run's readers have seen before it."""
        async with self._agent.use() as agent:
            async for event in self._run_graph(agent, turn, transcript):
                yield event

    async def _run_graph(
        self, agent: ServingAgent, turn: Turn, transcript: Transcript
    ) -> AsyncIterator[AnyEvent]:
        if turn.resumes or turn.takes_over:
            await agent.wait_until_ready()
        for server in await agent.list_starting_servers():
            yield Notice(code="info", text=describe_start(server), agent=agent.graph_info.agent)
        try:
            graph = await agent.graph(turn.row.principal)
        except CaipeError as error:
            yield failed_event(error, turn.trace_id)
            return
        config = _build_config(agent, turn)
        if agent.offline and not turn.resumes and await _is_new_conversation(graph, config):
            yield _offline_notice(agent.offline_notice)
        start = await self._prepare(graph, config, turn)
        graph_info = agent.graph_info
        messages: Sequence[AnyMessage] = start.values.get("messages") or ()
        if not messages and graph_info.knowledge_tools:
            # Those of the conversation, and a question that has retrieved nothing yet.
            messages = [*await _read_messages(graph, config), HumanMessage("")]
        translator = Translator(
            run_id=turn.row.run_id,
            trace_id=turn.trace_id,
            info=graph_info,
            plan=start.plan,
            response=start.values.get("structured_response"),
            transcript=fold(start.resolutions, transcript),
            sources=collect_sources(messages, graph_info.knowledge_tools),
            is_takeover=turn.takes_over,
        )
        if turn.takes_over:
            for event in Replay(translator, start.stored_graphs).events():
                yield event
        for event in start.resolutions:
            yield event
        if turn.takes_over:
            yield Notice(code="recovery", text=_RECOVERY)
        durability: Durability | None = None
        if graph.checkpointer:
            durability = "sync"
        items: AsyncIterator[Any] = graph.astream(
            start.graph_input,
            config,
            stream_mode=STREAM_MODES,
            subgraphs=True,
            version="v2",
            durability=durability,
        )
        async for event in translator.events(items):
            yield event

    async def _prepare(self, graph: Graph, config: RunnableConfig, turn: Turn) -> _GraphStart:
        """The input of the graph for a question, for answers of people, or for a run that is taken over."""
        question = {"messages": await self._build_messages(turn), "plan": RESET_PLAN}
        if not turn.takes_over and not turn.resumes:
            return _GraphStart(question)
        # Read once: an answer that arrives meanwhile is neither reported nor passed to the graph now.
        requests: list[PendingRequest] = []
        if self._log is not None:
            requests = await self._log.requests(turn.row.run_id)
        if turn.takes_over:
            return await self._take_over(graph, config, turn, question, requests)
        state = await graph.aget_state(config)
        command = build_resume_command(turn.row.run_id, state.interrupts, requests)
        plan = await _read_plan(graph, config)
        return _GraphStart(command, state.values, plan, resolutions=_resolution_events(requests))

    async def _build_messages(self, turn: Turn) -> list[HumanMessage]:
        """The question, after notes about the outcomes of earlier calls that people reported."""
        messages: list[HumanMessage] = []
        if self._log is not None and not turn.resumes:
            messages += await read_outcome_notes(self._log, turn.row)
        question = HumanMessage(
            render_prompt(turn.parts),
            id=f"{turn.row.run_id}:user",
            additional_kwargs=read_metadata(turn.parts),
        )
        return [*messages, question]

    async def _take_over(
        self,
        graph: Graph,
        config: RunnableConfig,
        turn: Turn,
        question: Any,
        requests: Sequence[PendingRequest],
    ) -> _GraphStart:
        """Goes on from what was stored of the run, or begins again when nothing was. Raises CaipeError."""
        run_id = turn.row.run_id
        resolutions = _resolution_events(requests)
        if self._log is None or not isinstance(graph.checkpointer, BaseCheckpointSaver):
            return _GraphStart(question, resolutions=resolutions)
        namespaces = [marker.ns for marker in await self._log.markers(run_id)]
        graphs = await read_stored_graphs(graph.checkpointer, config, run_id, namespaces)
        if not graphs:
            await _check_nothing_called(self._log, run_id)
            # The run begins again; its question has the same id as before.
            return _GraphStart(question, resolutions=resolutions)
        state = await graph.aget_state(config)
        interrupts = await find_open_interrupts(graph.checkpointer, config, state.interrupts, namespaces)
        command = build_resume_command(run_id, interrupts, requests)
        plan = await _read_plan(graph, config)
        return _GraphStart(command, state.values, plan, graphs, resolutions)

    async def cancel_remote_tasks(self, row: RunRow) -> None:
        """Cancels the tasks of remote agents for a run that was cancelled while it waited for people."""
        remote_tasks: list[tuple[str, str]] = []
        if self._log is not None:
            remote_tasks = await self._log.list_remote_tasks(row.run_id)
        async with self._agent.use() as agent:
            await asyncio.gather(*(agent.cancel_remote_task(name, task_id) for name, task_id in remote_tasks))


async def _read_plan(graph: Graph, config: RunnableConfig) -> PlanState:
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        return PlanState()
    return await read_stored_plan(graph.checkpointer, config)


async def _check_nothing_called(log: RunLog, run_id: str) -> None:
    """Raises CaipeError when a run whose state is lost has called tools with effects."""
    tools = [entry.tool for entry in await log.journal(run_id) if entry.state != "withdrawn"]
    if tools:
        raise CaipeError(_LOST.format(tools=", ".join(dict.fromkeys(tools))))


async def _is_new_conversation(graph: Graph, config: RunnableConfig) -> bool:
    """Whether the conversation has no question yet."""
    if not graph.checkpointer:
        return True
    state = await graph.aget_state(config)
    return not state.values.get("messages")


async def _read_messages(graph: Graph, config: RunnableConfig) -> Sequence[AnyMessage]:
    if not isinstance(graph.checkpointer, BaseCheckpointSaver):
        return ()
    return await read_stored_messages(graph.checkpointer, config)


def _offline_notice(text: str) -> Notice:
    """Clients have shorter words for the embedded router; the notice of another one is shown as it is."""
    if text == OFFLINE_NOTICE:
        return Notice(code="offline_model", text=text)
    return Notice(code="info", text=text)


def _build_config(agent: ServingAgent, turn: Turn) -> RunnableConfig:
    context = RunContext(
        run_id=turn.row.run_id,
        epoch=turn.row.epoch,
        owner=turn.row.owner,
        principal=turn.row.principal,
        deadline=turn.deadline,
        tools_until=turn.tools_until,
        thread_id=turn.row.thread_id,
    )
    return {
        "configurable": context.to_configurable(),
        "metadata": context.to_metadata(),
        "recursion_limit": agent.recursion_limit,
    }


def _resolution_events(requests: Sequence[PendingRequest]) -> list[AnyEvent]:
    """An event for each answer that has not been reported to readers yet."""
    events: list[AnyEvent] = []
    for request in requests:
        if request.status == "claimed":
            events.append(
                InputResolved(
                    request_id=request.request_id,
                    resolution=find_resolution(request.event.asked, request.answer),
                    by=request.by,
                    value=request.answer,
                    agent=request.event.agent,
                )
            )
    return events
