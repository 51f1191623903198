"""The budget of a run, over all its agents: model calls, tool calls and tokens, and what of it is used."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

# What an agent keeps for itself when it delegates: a last model call, and one more if that calls tools.
RESERVED_MODEL_CALLS = 2

_MODEL_CALLS = "model_calls"
_TOOL_CALLS = "tool_calls"
_TOKENS = "tokens"


@dataclass(frozen=True, slots=True)
class RunUsage:
    """What an agent and those that it delegated to have used."""

    model_calls: int = 0
    tool_calls: int = 0
    tokens: int = 0

    @classmethod
    def from_data(cls, data: Any) -> "RunUsage":
        """The usage in the form in which messages carry it; nothing for what is not understood."""
        if not isinstance(data, Mapping):
            return cls()
        return cls(*(_read_count(data.get(key)) or 0 for key in (_MODEL_CALLS, _TOOL_CALLS, _TOKENS)))

    def to_data(self) -> dict[str, int]:
        return {_MODEL_CALLS: self.model_calls, _TOOL_CALLS: self.tool_calls, _TOKENS: self.tokens}

    def plus(self, other: "RunUsage") -> "RunUsage":
        return RunUsage(
            self.model_calls + other.model_calls,
            self.tool_calls + other.tool_calls,
            self.tokens + other.tokens,
        )

    def with_one_model_call(self) -> "RunUsage":
        """The same with one model call at least: a call that fails leaves nothing that could be counted."""
        return replace(self, model_calls=max(1, self.model_calls))


@dataclass(frozen=True, slots=True)
class RunBudget:
    """What an agent and those that it delegates to may use. `tokens` is None where there is no limit."""

    model_calls: int
    tool_calls: int
    tokens: int | None = None

    @classmethod
    def from_data(cls, data: Any) -> "RunBudget | None":
        """The budget in the form in which messages carry it; None for what is not understood."""
        if not isinstance(data, Mapping):
            return None
        model_calls = _read_count(data.get(_MODEL_CALLS))
        tool_calls = _read_count(data.get(_TOOL_CALLS))
        if model_calls is None or tool_calls is None:
            return None
        return cls(model_calls, tool_calls, _read_count(data.get(_TOKENS)))

    def to_data(self) -> dict[str, int]:
        data = {_MODEL_CALLS: self.model_calls, _TOOL_CALLS: self.tool_calls}
        if self.tokens is not None:
            data[_TOKENS] = self.tokens
        return data

    def bounded_by(self, other: "RunBudget | None") -> "RunBudget":
        """The smaller of two budgets, in each of its parts."""
        if other is None:
            return self
        return RunBudget(
            min(self.model_calls, other.model_calls),
            min(self.tool_calls, other.tool_calls),
            min((tokens for tokens in (self.tokens, other.tokens) if tokens is not None), default=None),
        )

    def minus(self, usage: RunUsage) -> "RunBudget":
        """What remains after a usage; nothing is below zero."""
        tokens = None
        if self.tokens is not None:
            tokens = max(0, self.tokens - usage.tokens)
        return RunBudget(
            max(0, self.model_calls - usage.model_calls), max(0, self.tool_calls - usage.tool_calls), tokens
        )

    def share(self, index: int, count: int) -> "RunBudget":
        """The part of the one with this index among several that use the budget at the same time.

        Fixed when they start, so that it is the same after a restart and in another process.
        """
        tokens = None
        if self.tokens is not None:
            tokens = _divide(self.tokens, index, count)
        return RunBudget(
            _divide(self.model_calls, index, count), _divide(self.tool_calls, index, count), tokens
        )


def _divide(amount: int, index: int, count: int) -> int:
    """The part of one among `count`; the first ones get the rest of the division."""
    part, rest = divmod(amount, count)
    return part + (1 if index < rest else 0)


def _read_count(value: Any) -> int | None:
    """A count as another process may have sent it: numbers in A2A data are floats."""
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**63:
        return None
    return int(value)
