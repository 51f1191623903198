"""The conversation as the model gets it: what is asked now, what was asked before, and what was done about it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from ai_platform_engineering.core.summary_prompt import SUMMARY_HEADING, SUMMARY_REQUEST


@dataclass(frozen=True, slots=True)
class TurnCall:
    """A call of this turn and its result."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    result: str | None = None  # none while it is open
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ChatHistory:
    question: str = ""
    before: tuple[str, ...] = ()  # earlier questions, nearest first
    done: tuple[TurnCall, ...] = ()
    wants_summary: bool = False

    def calls(self, *names: str) -> list[TurnCall]:
        return [one for one in self.done if one.name in names]

    def work(self, *but: str) -> list[TurnCall]:
        return [one for one in self.done if one.name not in but]


def read_conversation(messages: Sequence[BaseMessage]) -> ChatHistory:
    questions = [index for index, message in enumerate(messages) if isinstance(message, HumanMessage)]
    if not questions:
        return ChatHistory()
    last = questions[-1]
    texts = [str(messages[index].text) for index in questions]
    before = tuple(text for text in reversed(texts[:-1]) if not text.startswith(SUMMARY_HEADING))
    return ChatHistory(
        texts[-1], before, tuple(_done(messages[last + 1 :])), texts[-1].startswith(SUMMARY_REQUEST)
    )


def _done(turn: Sequence[BaseMessage]) -> list[TurnCall]:
    results = {message.tool_call_id: message for message in turn if isinstance(message, ToolMessage)}
    calls = [call for message in turn if isinstance(message, AIMessage) for call in message.tool_calls]
    return [
        _one(call["id"] or "", call["name"], call["args"], results.get(call["id"] or "")) for call in calls
    ]


def _one(call_id: str, name: str, arguments: Mapping[str, Any], message: ToolMessage | None) -> TurnCall:
    if message is None:
        return TurnCall(call_id, name, arguments)
    return TurnCall(call_id, name, arguments, str(message.text), message.status == "error")
