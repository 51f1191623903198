"""AIPlatformEngineerA2ABinding: input or resume -> events."""

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver
from langgraph.types import Command, Durability

from ai_platform_engineering.a2a.message_parts import read_metadata, render_prompt
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent, InputResolved, Notice
from ai_platform_engineering.core.plan import PlanState
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.graph.failures import failed_event
from ai_platform_engineering.graph.replay import Replay
from ai_platform_engineering.graph.stored_graph import StoredGraph
from ai_platform_engineering.graph.translator import STREAM_MODES, Translator
from ai_platform_engineering.models.offline_model import OFFLINE_NOTICE
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.crash_recovery import (
    answers_to,
    open_interrupts,
    retrieved,
    stored_graphs,
)
from ai_platform_engineering.multi_agents.platform_engineer.delegation import DEADLINE
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import RESET_PLAN
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import (
    AgentDeployment,
    ReloadableAgent,
    ServingAgent,
)
from ai_platform_engineering.multi_agents.platform_engineer.reported_outcomes import told
from ai_platform_engineering.runtime.checkpoints.fenced_saver import (
    EPOCH_KEY,
    OWNER_KEY,
    PRINCIPAL_KEY,
    RUN_ID_KEY,
)
from ai_platform_engineering.runtime.log.run_log import PendingRequest, RunLog, RunRow
from ai_platform_engineering.runtime.runs.answers import find_resolution
from ai_platform_engineering.runtime.runs.turn import Turn
from ai_platform_engineering.skills_middleware.mas_registry import MultiAgentSystem, set_mas_instance

_RECOVERY = "The server was restarted; the run goes on where it was."
_LOST = (
    "The server was restarted and the state of this run is lost. It had called {tools} before, so it is not begun again by itself: find "
    "out what was done, then ask for the rest."
)


class AIPlatformEngineerA2ABinding:
    """Runs the graph for a turn; what it yields ends with exactly one terminal event or a pause."""

    def __init__(
        self, answers: ReloadableAgent[ServingAgent] | ServingAgent, run_log: RunLog | None = None
    ) -> None:
        """`run_log` knows where the state of a run is whose process died."""
        self._current = (
            answers if isinstance(answers, ReloadableAgent) else ReloadableAgent(AgentDeployment(answers))
        )
        self._log = run_log
        answering = self._current.deployment.agent
        if isinstance(answering, MultiAgentSystem):  # the one agent of a service has no skills
            set_mas_instance(answering)

    async def stream(self, turn: Turn, seen: Transcript) -> AsyncIterator[AnyEvent]:
        """The events of the turn, after what has been seen of the run."""
        async with self._current.use() as driven:
            async for event in self._events(driven, turn, seen):
                yield event

    async def _events(self, driven: ServingAgent, turn: Turn, seen: Transcript) -> AsyncIterator[AnyEvent]:
        if turn.resumes or turn.takes_over:
            await driven.wait_until_ready()
        try:
            graph = await driven.graph()
        except CaipeError as error:
            yield failed_event(error, turn.trace_id)
            return
        config = self._config(driven, turn)
        if driven.offline and not turn.resumes and await self._is_new(graph, config):
            yield Notice(code="offline_model", text=OFFLINE_NOTICE)
        given: Any = {"messages": await self._asked(turn), "plan": RESET_PLAN}
        kept: Mapping[str, Any] = {}
        graphs: list[StoredGraph] | None = None
        claimed: list[AnyEvent] = []
        # Read once: an answer that comes in between is both told and given to the graph the next time, or neither now.
        requests = await self._log.requests(turn.row.run_id) if self._log is not None else []
        if turn.takes_over:
            given, kept, graphs = await self._take_over(driven, graph, config, turn, given, requests)
            claimed = _claimed(requests)
        elif turn.resumes:
            claimed = _claimed(requests)
            given, kept = await self._resume(graph, config, turn, requests)
        translator = Translator(
            run_id=turn.row.run_id,
            trace_id=turn.trace_id,
            info=driven.shape,
            plan=PlanState.model_validate(kept.get("plan") or {}),
            response=kept.get("structured_response"),
            transcript=fold(claimed, seen),
            sources=retrieved(kept.get("messages") or (), driven.shape.knowledge_tools),
            is_takeover=turn.takes_over,
        )
        if graphs is not None:
            for event in Replay(translator, graphs).events():
                yield event
        for event in claimed:
            yield event
        if graphs is not None:
            yield Notice(code="recovery", text=_RECOVERY)
        durability: Durability | None = (
            "sync" if graph.checkpointer else None
        )  # nothing is stored without one
        items: AsyncIterator[Any] = graph.astream(
            given, config, stream_mode=STREAM_MODES, subgraphs=True, version="v2", durability=durability
        )
        async for event in translator.events(items):
            yield event

    async def _asked(self, turn: Turn) -> list[HumanMessage]:
        """The question, after what people have said about earlier calls."""
        notes = await told(self._log, turn.row) if self._log is not None and not turn.resumes else []
        return [
            *notes,
            HumanMessage(
                render_prompt(turn.parts),
                id=f"{turn.row.run_id}:user",
                additional_kwargs=read_metadata(turn.parts),
            ),
        ]

    async def _take_over(
        self,
        driven: ServingAgent,
        graph: Graph,
        config: RunnableConfig,
        turn: Turn,
        question: Any,
        requests: Sequence[PendingRequest],
    ) -> tuple[Any, Mapping[str, Any], list[StoredGraph]]:
        """What the graph must be given to go on, what it kept, and what it had stored of the run."""
        run_id = turn.row.run_id
        if self._log is None or not isinstance(graph.checkpointer, BaseCheckpointSaver):
            return question, {}, []
        namespaces = [marker.ns for marker in await self._log.markers(run_id)]
        graphs = await stored_graphs(graph.checkpointer, config, run_id, namespaces)
        if not graphs:
            await self._check_untouched(run_id)
            return question, {}, []  # nothing was stored: it begins again, and the message is the same one
        state = await graph.aget_state(config)
        asked = await open_interrupts(graph.checkpointer, config, state.interrupts, namespaces)
        return answers_to(run_id, asked, requests), state.values, graphs

    async def _check_untouched(self, run_id: str) -> None:
        """A run whose state is lost begins again only when it has changed nothing yet. Raises CaipeError."""
        made = (
            [entry.tool for entry in await self._log.journal(run_id) if entry.state != "withdrawn"]
            if self._log
            else []
        )
        if made:
            raise CaipeError(_LOST.format(tools=", ".join(dict.fromkeys(made))))

    async def _resume(
        self, graph: Graph, config: RunnableConfig, turn: Turn, requests: Sequence[PendingRequest]
    ) -> tuple[Command[Any] | None, Mapping[str, Any]]:
        """The command that continues the graph with what people have said, and what the graph kept."""
        state = await graph.aget_state(config)
        return answers_to(turn.row.run_id, state.interrupts, requests), state.values

    async def abandon(self, row: RunRow) -> None:
        """Stops what agents elsewhere still keep for a run that waited and was cancelled."""
        orders = await self._log.list_remote_tasks(row.run_id) if self._log is not None else []
        async with self._current.use() as driven:
            await asyncio.gather(*(driven.cancel_remote_task(agent, task_id) for agent, task_id in orders))

    async def _is_new(self, graph: Graph, config: RunnableConfig) -> bool:
        """Whether the conversation has no question yet."""
        return not graph.checkpointer or not (await graph.aget_state(config)).values.get("messages")

    def _config(self, driven: ServingAgent, turn: Turn) -> RunnableConfig:
        return {
            "configurable": {"thread_id": turn.row.thread_id, DEADLINE: turn.deadline},
            "metadata": {
                RUN_ID_KEY: turn.row.run_id,
                EPOCH_KEY: turn.row.epoch,
                OWNER_KEY: turn.row.owner,
                PRINCIPAL_KEY: turn.row.principal,
            },
            "recursion_limit": driven.recursion_limit,
        }


def _claimed(requests: Sequence[PendingRequest]) -> list[AnyEvent]:
    """The answers that nobody has been told of yet."""
    return [_resolved(request) for request in requests if request.status == "claimed"]


def _resolved(request: PendingRequest) -> InputResolved:
    resolution = find_resolution(request.event.asked, request.answer)
    return InputResolved(
        request_id=request.request_id,
        resolution=resolution,
        by=request.by,
        value=request.answer,
        agent=request.event.agent,
    )
