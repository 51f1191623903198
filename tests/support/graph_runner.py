"""A conversation with the supervisor's graph below the server: questions in, events out."""

import contextlib
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.language_models import BaseChatModel
from langchain_core.messages import AIMessage
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver

from ai_platform_engineering.core.events import AnyEvent, RunStarted, TextPart, ends_turn
from ai_platform_engineering.core.plan import Plan, PlanState
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.graph.visible_text import visible_text
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.local_agents import LocalAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import (
    AIPlatformEngineerA2ABinding,
)
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn
from ai_platform_engineering.runtime.log.log_rows import AnswerMessage, NewRun, RunRow
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.runs.turn import Turn as RunTurn
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Script
from tests.support.harness import FAST


@dataclass
class GraphConversation:
    """The supervisor's graph with a model, and the events of each question put to it."""

    model: BaseChatModel
    agents: Sequence[LocalAgent] = ()
    tools: Sequence[BaseTool] = ()
    env: dict[str, str] = field(default_factory=dict)
    events: list[AnyEvent] = field(default_factory=list)  # of the current run

    def __post_init__(self) -> None:
        settings = Settings.from_variables({**FAST, **self.env})
        self._saver = InMemorySaver()
        self._supervisor = PlatformEngineerDeepAgent(
            settings, agents=self.agents, tools=self.tools, model=self.model, checkpointer=self._saver
        )
        self._log = MemoryLog()
        self._binding = AIPlatformEngineerA2ABinding(self._supervisor, self._log)
        self._context = str(uuid.uuid4())
        self.run_id = ""

    async def ask(self, text: str = "Which?") -> list[AnyEvent]:
        """A new question on the same thread; its events."""
        _, parts = await self._begin(text)
        return await self._turn(parts)

    async def answer(self, values: dict[str, Any], *, taken: bool = True) -> list[AnyEvent]:
        """Sends answers by request id; the events that follow. Not `taken`: no such request is open."""
        claimed = await self._log.claim_requests(
            AnswerMessage(self.run_id, str(uuid.uuid4()), "", len(self.events)), values, "me"
        )
        assert set(claimed) == (set(values) if taken else set())
        return await self._turn((), resumes=True)

    async def break_off(self, count: int, stored: int, text: str = "Which?") -> None:
        """A question whose process dies after so many events; the log holds fewer of them, or all."""
        row, parts = await self._begin(text)
        stream = self._binding.stream(RunTurn(row, parts, "me"), self.transcript)
        new: list[AnyEvent] = []
        async with contextlib.aclosing(stream):
            async for event in stream:
                new.append(event)
                if len(new) == count:
                    break
        self.events += new[:stored]
        await self._log.append(self.run_id, row.epoch, new[:stored])

    async def take_over(self) -> list[AnyEvent]:
        """The next process goes on with the run; its events."""
        return await self._turn((), takes_over=True)

    async def stored_plan(self) -> Plan:
        """The plan in the graph's state."""
        [thread] = self._saver.storage
        graph = await self._supervisor.graph()
        state = await graph.aget_state({"configurable": {"thread_id": thread}})
        return PlanState.model_validate(state.values["plan"]).plan

    @property
    def transcript(self) -> Transcript:
        return fold(self.events)

    async def stored_texts(self) -> list[str]:
        """The texts of the current question that the graph keeps and the model will see again."""
        texts = [visible_text(message.text) for message in await self._messages()]
        return [text for text in texts if text]

    async def called_names(self) -> list[str]:
        """What the supervisor's model called for the current question: tools, and agents by their name."""
        names: list[str] = []
        for message in await self._messages():
            for call in message.tool_calls:
                names.append(str(call["args"].get("subagent_type") or call["name"]))
        return names

    async def _messages(self) -> list[AIMessage]:
        [thread] = self._saver.storage
        graph = await self._supervisor.graph()
        state = await graph.aget_state({"configurable": {"thread_id": thread}})
        turn = current_turn(state.values["messages"])
        return [message for message in turn if isinstance(message, AIMessage)]

    async def _begin(self, text: str) -> tuple[RunRow, tuple[TextPart, ...]]:
        self.run_id = str(uuid.uuid4())
        parts = (TextPart(text=text),)
        started = RunStarted(message_id=str(uuid.uuid4()), parts=parts)
        self.events = [started]
        row, _ = await self._log.create(
            NewRun(self.run_id, self._context, "me", started.message_id, "", started, lasting_id=True)
        )
        return row, parts

    async def _turn(self, parts: Any, *, resumes: bool = False, takes_over: bool = False) -> list[AnyEvent]:
        row = await self._log.get(self.run_id)
        assert row is not None
        turn = RunTurn(row, parts, "me", resumes=resumes, takes_over=takes_over)
        new = [event async for event in self._binding.stream(turn, self.transcript)]
        assert [ends_turn(event) for event in new] == [False] * (len(new) - 1) + [True], (
            "one end, and it is the last"
        )
        await self._log.append(self.run_id, row.epoch, new)
        self.events += new
        return new


def scripted_model(*turns: Any, streaming: bool = True) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*turns), streaming=streaming)
