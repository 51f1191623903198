"""AIPlatformEngineerA2ABinding: input or resume -> events."""

import json
from collections.abc import AsyncIterator, Mapping
from typing import Any

from langchain_core.messages import HumanMessage
from langchain_core.runnables import RunnableConfig
from langgraph.types import Command, Durability

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent, InputResolved, Notice, Paused
from ai_platform_engineering.core.plan import PlanState
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.multi_agents.platform_engineer.agent_graphs import Graph
from ai_platform_engineering.multi_agents.platform_engineer.current import Crew, Current, Driven
from ai_platform_engineering.multi_agents.platform_engineer.delegation import DEADLINE
from ai_platform_engineering.multi_agents.platform_engineer.plan import RESET
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.answers import read_answers, resolution_of
from ai_platform_engineering.runtime.runs import Turn
from ai_platform_engineering.utils.a2a_common.parts import question
from ai_platform_engineering.utils.failures import failed
from ai_platform_engineering.utils.interrupts import request_id_of
from ai_platform_engineering.utils.offline_model import OFFLINE_NOTICE
from ai_platform_engineering.utils.translate import MODES, Translator


class AIPlatformEngineerA2ABinding:
    """Runs the graph for a turn; what it yields ends with exactly one terminal event or a pause."""

    def __init__(self, answers: Current[Driven] | Driven) -> None:
        self._current = answers if isinstance(answers, Current) else Current(Crew(answers))

    async def stream(self, turn: Turn, seen: Transcript) -> AsyncIterator[AnyEvent]:
        """The events of the turn, after what has been seen of the run."""
        async with self._current.use() as driven:
            async for event in self._events(driven, turn, seen):
                yield event

    async def _events(self, driven: Driven, turn: Turn, seen: Transcript) -> AsyncIterator[AnyEvent]:
        try:
            graph = await driven.graph()
        except CaipeError as error:
            yield failed(error, turn.trace_id)
            return
        config = self._config(driven, turn)
        if driven.offline and not turn.resumes and await self._is_new(graph, config):
            yield Notice(code="offline_model", text=OFFLINE_NOTICE)
        given: Any = {"messages": [HumanMessage(question(turn.parts), id=f"{turn.row.run_id}:user")], "plan": RESET}
        kept: Mapping[str, Any] = {}
        if turn.resumes:
            given, kept, resolved = await self._resume(graph, config, turn, seen)
            for event in resolved:
                yield event
            if given is None:
                return
            for event in resolved:
                seen = seen.apply(event)
        translator = Translator(
            run_id=turn.row.run_id,
            trace_id=turn.trace_id,
            shape=driven.shape,
            plan=PlanState.model_validate(kept.get("plan") or {}),
            response=kept.get("structured_response"),
            seen=seen,
        )
        durability: Durability | None = "sync" if graph.checkpointer else None  # nothing is stored without one
        items: AsyncIterator[Any] = graph.astream(given, config, stream_mode=MODES, subgraphs=True, version="v2", durability=durability)
        async for event in translator.events(items):
            yield event

    async def _resume(
        self, graph: Graph, config: RunnableConfig, turn: Turn, seen: Transcript
    ) -> tuple[Command[Any] | None, Mapping[str, Any], list[AnyEvent]]:
        """The command that continues the graph, what the graph kept, and the events that say so; no command when nothing was answered."""
        state = await graph.aget_state(config)
        answers = read_answers(turn.parts, seen.requests)
        if not answers:
            text = f"I still need your input: {seen.waiting_for} Answer the request, or cancel the task."
            return None, {}, [Paused(text=text, requests=tuple(request.request_id for request in seen.requests))]
        by_request = {request_id_of(turn.row.run_id, interrupt.id): interrupt.id for interrupt in state.interrupts}
        values = {by_request[request_id]: value for request_id, value in answers.items() if request_id in by_request}
        resolved: list[AnyEvent] = [
            InputResolved(request_id=request_id, resolution=resolution_of(value), by=turn.principal, value=value)
            for request_id, value in answers.items()
        ]
        return Command(resume=values), state.values, resolved

    async def _is_new(self, graph: Graph, config: RunnableConfig) -> bool:
        """Whether the conversation has no question yet."""
        return not graph.checkpointer or not (await graph.aget_state(config)).values.get("messages")

    def _config(self, driven: Driven, turn: Turn) -> RunnableConfig:
        # The owner is part of the thread: a context id is free text and may be sent by anybody.
        thread = json.dumps([turn.row.owner, turn.row.context_id])
        return {
            "configurable": {"thread_id": thread, DEADLINE: turn.deadline},
            "metadata": {"query_id": turn.row.run_id, "epoch": turn.row.epoch},
            "recursion_limit": driven.recursion_limit,
        }
