"""Repeated calls in the messages of a question: the same work again, almost the same, or one that only fails.

A delegation is the same when its agent and its text are, whatever was answered: no two answers of a model are
alike. Any other call is the same only with the same result, since what it looks at may change.
"""

import hashlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import AIMessage, AnyMessage, ToolMessage
from langgraph.types import Command

from ai_platform_engineering.core.message_metadata import (
    RepeatedCallNote,
    ToolResultNote,
    WorkflowStepNote,
    find_direct_call,
)
from ai_platform_engineering.core.tool_traits import ToolTraits, traits_of
from ai_platform_engineering.graph.tool_messages import called_name, plain_result
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import (
    current_turn,
    find_last_model_message,
)

_UNKNOWN_TOOL = "?"  # all tools that do not exist count as one

_SPACE = re.compile(r"(?:\\[nrt]|\s)+")
_NO_WORD = re.compile(r"\W+")
_NUMBER = re.compile(r"\d+")

_WARNING = (
    "\n\n[{what} for the {count}. time. Repeating it will not change anything: do something else, or answer "
    "from what you have. To watch for a change, call wait first.]"
)


@dataclass(frozen=True, slots=True)
class _Limit:
    """How often something may happen before the model is warned, and before it loses its tools."""

    warn: int
    stop: int


_SAME = _Limit(3, 6)
_SAME_DELEGATION = _Limit(3, 5)  # each one costs a whole agent's work
_SIMILAR = _Limit(10, 20)  # a list of things that are numbered looks the same
_FAILED = _Limit(3, 6)


@dataclass(frozen=True, slots=True)
class Repetition:
    """Something that happened again: how often, and in words for the model and for people."""

    count: int
    limit: _Limit
    warning: str
    reason: str

    @property
    def must_stop(self) -> bool:
        return self.count >= self.limit.stop

    @property
    def text(self) -> str:
        """What is appended to the result; empty while there is nothing to warn about."""
        if self.count < self.limit.warn:
            return ""
        return _WARNING.format(what=self.warning, count=self.count)


@dataclass(frozen=True, slots=True)
class GuardedCall:
    """A call whose repetitions count. `source` is its tool, or the agent that it delegates to."""

    tool: str
    source: str
    arguments: str  # normalised
    call_id: str | None
    delegates: bool
    plans: bool
    may_poll: bool

    @classmethod
    def of(cls, request: ToolCallRequest) -> "GuardedCall | None":
        """The call of a request; None for one that asks a person or waits, and for a workflow's."""
        call = request.tool_call
        traits = ToolTraits.from_name(call["name"])
        if traits.asks_person or traits.waits:
            return None
        message = find_last_model_message(request.state["messages"])
        if message is not None and _is_workflow_call(message, call["id"]):
            return None
        source = called_name(call["name"], call["args"])
        return cls(
            tool=call["name"],
            source=source if request.tool is not None else _UNKNOWN_TOOL,
            arguments=_normalize_arguments(call["name"], call["args"]),
            call_id=call["id"],
            delegates=traits.delegates,
            plans=traits.plans,
            may_poll=request.tool is not None and traits_of(request.tool).may_poll,
        )

    def fingerprint(self, result: str) -> str:
        if self.delegates or self.plans:
            result = ""
        return _hash(self.tool, self.arguments, result)

    def similar_fingerprint(self, result: str) -> str:
        """As the fingerprint, without the numbers in the arguments; a counter in results may be progress."""
        if self.delegates or self.plans:
            result = ""
        return _hash(self.tool, _NUMBER.sub("#", self.arguments), result)


class CallHistory:
    """The calls of the current question since the last wait, after which anything may have changed."""

    def __init__(self, messages: Sequence[AnyMessage]) -> None:
        turn = current_turn(messages)
        self._parallel_calls: list[Mapping[str, Any]] = []
        last_message = find_last_model_message(turn)
        if last_message is not None:
            self._parallel_calls = [dict(call) for call in last_message.tool_calls]
        notes = (RepeatedCallNote.of(message) for message in _since_last_wait(turn))
        self._notes = [note for note in notes if note is not None]

    def find_refusal(self, call: GuardedCall) -> Repetition | None:
        """Why a call is not made: one message has too many of the same, or the agent got the same work."""
        earlier_calls = self._count_parallel(call)
        if call.delegates:
            earlier_calls += self._count_same(call.fingerprint(""))
        limit = _SAME_DELEGATION if call.delegates else _SAME
        if call.may_poll or earlier_calls < limit.stop:
            return None
        return _same(call, earlier_calls + 1, limit)

    def judge(self, call: GuardedCall, result: ToolMessage) -> ToolMessage:
        """The result with a note about the call, and with a warning when it repeats another."""
        fingerprint = call.fingerprint(result.text)
        similar_fingerprint = call.similar_fingerprint(result.text)
        same_count = 1 + self._count_same(fingerprint) + self._count_parallel(call)
        similar_count = 1 + sum(note.similar_fingerprint == similar_fingerprint for note in self._notes)
        has_failed = result.status == "error"
        repetitions: list[Repetition] = []
        if not call.may_poll:
            limit = _SAME_DELEGATION if call.delegates else _SAME
            repetitions.append(_same(call, same_count, limit))
            repetitions.append(_similar(call, similar_count))
        if has_failed:
            repetitions.append(_failed(call, 1 + self._count_failures(call.source)))
        reasons = [repetition.reason for repetition in repetitions if repetition.must_stop]
        note = RepeatedCallNote(
            fingerprint,
            same_count,
            similar_fingerprint,
            call.source,
            failed=has_failed,
            reason=reasons[0] if reasons else "",
        )
        warnings = [repetition.text for repetition in repetitions if repetition.text]
        return _annotate(result, note, warnings[0] if warnings else "")

    def _count_same(self, fingerprint: str) -> int:
        return sum(note.fingerprint == fingerprint for note in self._notes)

    def _count_parallel(self, call: GuardedCall) -> int:
        """How many calls before this one in its message are the same; their results are not known yet."""
        count = 0
        for other in self._parallel_calls:
            if other["id"] == call.call_id:
                return count
            is_same_tool = other["name"] == call.tool
            if is_same_tool and _normalize_arguments(other["name"], other["args"]) == call.arguments:
                count += 1
        return 0

    def _count_failures(self, source: str) -> int:
        """How often a tool or agent has failed since it last did not."""
        count = 0
        for note in reversed(self._notes):
            if note.source != source:
                continue
            if not note.failed:
                return count
            count += 1
        return count


def find_reason_to_stop(turn: Sequence[AnyMessage]) -> str | None:
    """Why the model may not use tools any more, in words for people; None while it may."""
    for message in turn:
        note = RepeatedCallNote.of(message)
        if note is not None and note.reason:
            return note.reason
    return None


def find_result(result: ToolMessage | Command[Any], call_id: str | None) -> ToolMessage | None:
    """The message with the result of a call, which a tool may return inside a command."""
    if isinstance(result, ToolMessage):
        return result
    for message in _command_messages(result):
        if isinstance(message, ToolMessage) and message.tool_call_id == call_id:
            return message
    return None


def replace_result(result: ToolMessage | Command[Any], message: ToolMessage) -> ToolMessage | Command[Any]:
    """The result with another message for the same call."""
    if isinstance(result, ToolMessage):
        return message
    messages = list(_command_messages(result))
    for index, other in enumerate(messages):
        if isinstance(other, ToolMessage) and other.tool_call_id == message.tool_call_id:
            messages[index] = message
    return replace(result, update={**(result.update or {}), "messages": messages})


def _command_messages(command: Command[Any]) -> Sequence[Any]:
    if not isinstance(command.update, Mapping):
        return ()
    return command.update.get("messages") or ()


def _annotate(result: ToolMessage, note: RepeatedCallNote, warning: str) -> ToolMessage:
    metadata = {**result.additional_kwargs, **note.to_metadata()}
    if not warning:
        return result.model_copy(update={"additional_kwargs": metadata})
    metadata |= ToolResultNote(plain_text=plain_result(result)).to_metadata()
    content = result.text + warning
    return result.model_copy(update={"content": content, "additional_kwargs": metadata})


def _same(call: GuardedCall, count: int, limit: _Limit) -> Repetition:
    if call.delegates:
        reason = f"{call.source} got the same work {limit.stop} times"
        return Repetition(count, limit, "This is the same work for the same agent", reason)
    if call.plans:
        reason = f"the same plan was written {limit.stop} times"
        return Repetition(count, limit, "This is the same plan", reason)
    reason = f"{call.tool} gave the same result {limit.stop} times"
    return Repetition(count, limit, "This is the same call with the same result", reason)


def _similar(call: GuardedCall, count: int) -> Repetition:
    if call.delegates:
        reason = f"{call.source} got almost the same work {_SIMILAR.stop} times"
        return Repetition(count, _SIMILAR, "This is almost the same work for the same agent", reason)
    reason = f"{call.tool} gave the same result to almost the same call {_SIMILAR.stop} times"
    return Repetition(count, _SIMILAR, "This is almost the same call with the same result", reason)


def _failed(call: GuardedCall, count: int) -> Repetition:
    if call.source == _UNKNOWN_TOOL:
        reason = f"tools that do not exist were called {_FAILED.stop} times in a row"
        return Repetition(count, _FAILED, "A tool was called that does not exist", reason)
    reason = f"{call.source} failed {_FAILED.stop} times in a row"
    return Repetition(count, _FAILED, f"{call.source} has failed", reason)


def _is_workflow_call(message: AIMessage, call_id: str | None) -> bool:
    """Whether a workflow made the call: its steps are finite, and may well be alike."""
    return WorkflowStepNote.of(message).step is not None or find_direct_call(message, call_id) is not None


def _normalize_arguments(tool: str, arguments: Mapping[str, Any]) -> str:
    """The arguments without differences that do not matter: case and spaces, for agents also punctuation."""
    if ToolTraits.from_name(tool).delegates:
        text = f"{called_name(tool, arguments)} {arguments.get('description')}"
        return _NO_WORD.sub(" ", text.lower()).strip()
    text = json.dumps(arguments, sort_keys=True, default=str, ensure_ascii=False).lower()
    return _SPACE.sub(" ", text).replace('" ', '"').replace(' "', '"')


def _hash(*parts: str) -> str:
    return hashlib.sha256(json.dumps(parts).encode(errors="replace")).hexdigest()[:16]


def _since_last_wait(turn: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    for index in range(len(turn) - 1, -1, -1):
        message = turn[index]
        if isinstance(message, ToolMessage) and ToolTraits.from_name(message.name or "").waits:
            return turn[index + 1 :]
    return turn
