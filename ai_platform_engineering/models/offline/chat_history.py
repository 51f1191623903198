"""The chat history: the current question, earlier questions, and the calls of this turn."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from langchain_core.messages import AIMessage, BaseMessage, HumanMessage, ToolMessage

from ai_platform_engineering.core.message_metadata import ToolResultNote
from ai_platform_engineering.core.summary_prompt import SUMMARY_HEADING, SUMMARY_REQUEST


@dataclass(frozen=True, slots=True)
class TurnCall:
    """A tool call of this turn and its result."""

    call_id: str
    name: str
    arguments: Mapping[str, Any]
    result: str | None = None  # None while it is open
    failed: bool = False


@dataclass(frozen=True, slots=True)
class ChatHistory:
    """The current question with what came before it and after it."""

    question: str = ""
    earlier_questions: tuple[str, ...] = ()  # nearest first
    turn_calls: tuple[TurnCall, ...] = ()
    wants_summary: bool = False

    def find_calls(self, *names: str) -> list[TurnCall]:
        """The calls of these tools."""
        return [call for call in self.turn_calls if call.name in names]

    def find_other_calls(self, *names: str) -> list[TurnCall]:
        """The calls of all tools but these."""
        return [call for call in self.turn_calls if call.name not in names]


def read_chat_history(messages: Sequence[BaseMessage]) -> ChatHistory:
    questions = list[str]()
    question_index = 0
    for index, message in enumerate(messages):
        if isinstance(message, HumanMessage):
            questions.append(str(message.text))
            question_index = index
    if not questions:
        return ChatHistory()
    question = questions.pop()
    earlier_questions = [text for text in reversed(questions) if not text.startswith(SUMMARY_HEADING)]
    return ChatHistory(
        question=question,
        earlier_questions=tuple(earlier_questions),
        turn_calls=tuple(read_calls(messages[question_index + 1 :])),
        wants_summary=question.startswith(SUMMARY_REQUEST),
    )


def read_calls(turn_messages: Sequence[BaseMessage]) -> Iterator[TurnCall]:
    """The tool calls in messages, each with its result."""
    results = dict[str, ToolMessage]()
    for message in turn_messages:
        if isinstance(message, ToolMessage):
            results[message.tool_call_id] = message
    for message in turn_messages:
        if isinstance(message, AIMessage):
            for call in message.tool_calls:
                call_id = call["id"] or ""
                yield _join_result(call_id, call["name"], call["args"], results.get(call_id))


def _join_result(
    call_id: str, name: str, arguments: Mapping[str, Any], result: ToolMessage | None
) -> TurnCall:
    if result is None:
        return TurnCall(call_id, name, arguments)
    text = ToolResultNote.of(result).plain_text or str(result.text)  # without what only a model is told
    return TurnCall(call_id, name, arguments, text, result.status == "error")
