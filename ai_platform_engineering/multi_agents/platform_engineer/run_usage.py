"""What a question has used of the run's budget, counted in the messages of the graph's state.

Tokens that a prompt cache had count like others: the budget bounds the work, not its price.

The counts survive a pause and a restart, since the messages do. The result of a delegation carries what its
agent has used.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

from langchain_core.messages import AIMessage, AnyMessage, BaseMessage, ToolMessage

from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.core.message_metadata import (
    WorkflowStepNote,
    read_budget,
    read_model_calls,
    read_unreported_tokens,
    read_usage,
)
from ai_platform_engineering.core.run_budget import RunBudget, RunUsage
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn, find_question


def count_usage(turn: Sequence[BaseMessage]) -> RunUsage:
    """What the messages after a question have used, with the agents behind their delegations."""
    usage = RunUsage()
    for message in turn:
        if isinstance(message, AIMessage):
            usage = usage.plus(_read_model_usage(message))
        elif isinstance(message, ToolMessage):
            usage = usage.plus(RunUsage(tool_calls=1)).plus(read_usage(message))
    return usage


def find_budget(messages: Sequence[AnyMessage], limits: LimitSettings) -> RunBudget:
    """The budget of the current question: that of its delegation, within the settings of this process."""
    budget = RunBudget(limits.run_model_calls, limits.run_tool_calls, limits.run_tokens)
    question = find_question(messages)
    if question is None:
        return budget
    return budget.bounded_by(read_budget(question))


def find_remaining_budget(messages: Sequence[AnyMessage], limits: LimitSettings) -> RunBudget:
    return find_budget(messages, limits).minus(count_usage(current_turn(messages)))


def _read_model_usage(message: AIMessage) -> RunUsage:
    if WorkflowStepNote.of(message).step is not None:
        return RunUsage()  # a workflow wrote it, no model
    tokens = read_unreported_tokens(message)
    if message.usage_metadata is not None:
        tokens += message.usage_metadata["input_tokens"] + message.usage_metadata["output_tokens"]
    return RunUsage(model_calls=read_model_calls(message), tokens=tokens)


# --- calls that leave no message ----------------------------------------------------------------------------


@dataclass(slots=True)
class ModelCallCount:
    """The calls of a model that were made for one message, with those that were made again, and their tokens.

    `most`: how many calls there may be. `most_tokens`: that remain for them; None where there is no limit."""

    most: int
    most_tokens: int | None = None
    calls_made: int = 0
    usage: Usage = field(default_factory=Usage)

    @property
    def tokens(self) -> int:
        return self.usage.input_tokens + self.usage.output_tokens


_COUNT: ContextVar[ModelCallCount | None] = ContextVar("model calls for one message", default=None)


@contextmanager
def counting_model_calls(most: int, most_tokens: int | None) -> Iterator[ModelCallCount]:
    """Counts the calls of models that are made inside, of which there may be so many."""
    count = ModelCallCount(most, most_tokens)
    token = _COUNT.set(count)
    try:
        yield count
    finally:
        _COUNT.reset(token)


def count_model_call() -> None:
    count = _COUNT.get()
    if count is not None:
        count.calls_made += 1


def count_model_usage(usage: Mapping[str, Any]) -> None:
    """Adds the tokens of a call, in the form of a message's `usage_metadata`."""
    count = _COUNT.get()
    if count is not None:
        count.usage = count.usage.plus(usage)


def is_token_limited() -> bool:
    """Whether tokens are limited, so that a call without reported ones must be estimated."""
    count = _COUNT.get()
    return count is not None and count.most_tokens is not None


def may_call_model() -> bool:
    """Whether the run's budget allows one more call for the same message."""
    count = _COUNT.get()
    return count is None or count.calls_made < count.most


def may_retry_model() -> bool:
    """Whether a call that failed may be made again: attempts that broke off may have used up the tokens."""
    count = _COUNT.get()
    if count is None or count.most_tokens is None or not count.tokens:
        return may_call_model()
    return may_call_model() and count.tokens < count.most_tokens


def subtract_reported(usage: Usage, messages: Sequence[BaseMessage]) -> Usage:
    """The part of a usage that the messages themselves do not report."""
    reported = Usage()
    for message in messages:
        if isinstance(message, AIMessage):
            reported = reported.plus(message.usage_metadata or {})
    return Usage(
        input_tokens=max(0, usage.input_tokens - reported.input_tokens),
        output_tokens=max(0, usage.output_tokens - reported.output_tokens),
        cache_read_tokens=_subtract(usage.cache_read_tokens, reported.cache_read_tokens),
        cache_creation_tokens=_subtract(usage.cache_creation_tokens, reported.cache_creation_tokens),
    )


def _subtract(count: int | None, reported: int | None) -> int | None:
    return max(0, (count or 0) - (reported or 0)) or None
