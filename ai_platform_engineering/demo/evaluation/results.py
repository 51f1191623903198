"""The result of an evaluation: what is stored as JSON and compared with a later one."""

import math
from collections.abc import Sequence
from pathlib import Path
from statistics import median
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.demo.evaluation.statistics import wilson_interval

FORMAT_VERSION = 1
MAX_RESULT_BYTES = 50_000_000
MAX_ANSWER_CHARS = 4_000
AttemptEnd = Literal["completed", "failed", "canceled", "input-required", "timeout", "error"]
Seconds = Annotated[float, Field(ge=0)]


class _ResultModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


class AttemptFailure(_ResultModel):
    """Why an attempt did not pass; `check` is the number of a check, None when there was nothing to check."""

    text: str
    check: int | None = None


class AttemptResult(_ResultModel):
    """One attempt at a case; `failures` is empty when it passed."""

    seed: int
    end: AttemptEnd
    failures: tuple[AttemptFailure, ...] = ()
    seconds: Seconds = 0.0
    usage: Usage = Usage()
    cost: float | None = None
    used_fallback: bool = False  # of another model, at another price
    agents: tuple[str, ...] = ()
    tools: tuple[str, ...] = ()
    answers: tuple[str, ...] = ()

    @property
    def passed(self) -> bool:
        return not self.failures


class CaseResult(_ResultModel):
    """The attempts at one case; a skipped case has none, and the reason."""

    name: str
    title: str = ""
    attempts: tuple[AttemptResult, ...] = ()
    skipped: str | None = None

    @property
    def passed(self) -> int:
        return sum(attempt.passed for attempt in self.attempts)

    @property
    def rate(self) -> float:
        return self.passed / len(self.attempts) if self.attempts else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.passed, len(self.attempts))

    @property
    def median_seconds(self) -> float:
        return median(attempt.seconds for attempt in self.attempts)

    @property
    def max_seconds(self) -> float:
        return max(attempt.seconds for attempt in self.attempts)

    @property
    def cost(self) -> float | None:
        """Of an attempt, on average; None when that of one is not known."""
        return mean_cost(self.attempts)


class EvaluationSettings(_ResultModel):
    """What the figures depend on; nothing of it is a secret."""

    model: str
    repeat: int
    seed: int
    concurrency: int
    timeout: Seconds
    temperature: float | None = None
    fallback_models: tuple[str, ...] = ()
    agent_models: dict[str, str] = {}
    prompt_cache: str = ""
    server: str | None = None
    currency: str | None = None


class EvaluationResult(_ResultModel):
    format: int = FORMAT_VERSION
    version: str
    started_at: str
    settings: EvaluationSettings
    cases: tuple[CaseResult, ...]

    @property
    def attempts(self) -> tuple[AttemptResult, ...]:
        return tuple(attempt for case in self.cases for attempt in case.attempts)

    @property
    def passed(self) -> int:
        return sum(attempt.passed for attempt in self.attempts)

    @property
    def rate(self) -> float:
        attempts = self.attempts
        return self.passed / len(attempts) if attempts else 0.0

    @property
    def interval(self) -> tuple[float, float]:
        return wilson_interval(self.passed, len(self.attempts))

    @property
    def total_cost(self) -> float | None:
        costs = [attempt.cost for attempt in self.attempts]
        if not costs or None in costs:
            return None
        return math.fsum(cost for cost in costs if cost is not None)

    def save(self, path: Path) -> None:
        """Raises OSError."""
        path.write_text(self.model_dump_json(indent=2, exclude_none=True) + "\n", encoding="utf-8")


def mean_cost(attempts: Sequence[AttemptResult]) -> float | None:
    costs = [attempt.cost for attempt in attempts]
    if not costs or None in costs:
        return None
    return math.fsum(cost for cost in costs if cost is not None) / len(costs)


def load_result(path: Path) -> EvaluationResult:
    """The result of an earlier evaluation. Raises ConfigurationError."""
    try:
        if path.stat().st_size > MAX_RESULT_BYTES:
            raise ConfigurationError(f"{path} is larger than {MAX_RESULT_BYTES} bytes.")
        result = EvaluationResult.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path} cannot be read: {error.strerror}.") from None
    except ValidationError:
        raise ConfigurationError(f"{path} is no result of `caipe eval --output`.") from None
    if result.format > FORMAT_VERSION:
        raise ConfigurationError(f"{path} was written by a later version: format {result.format}.")
    return result
