"""Runs the cases of an evaluation, several attempts at once if wanted, and collects the result."""

import asyncio
import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib.metadata import version

from ai_platform_engineering.cli.evaluation_attempt import run_attempt
from ai_platform_engineering.cli.evaluation_servers import EvaluationServers, OwnServers, RunningServers
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.demo.estate.estate import build_estate
from ai_platform_engineering.demo.evaluation.case_files import CaseFile, fill_cases
from ai_platform_engineering.demo.evaluation.case_format import EvaluationCase
from ai_platform_engineering.demo.evaluation.estate_facts import collect_facts
from ai_platform_engineering.demo.evaluation.prices import PriceTable
from ai_platform_engineering.demo.evaluation.results import (
    AttemptFailure,
    AttemptResult,
    CaseResult,
    EvaluationResult,
    EvaluationSettings,
)

ShowAttempt = Callable[[str, int, AttemptResult], None]


@dataclass(frozen=True, slots=True)
class EvaluationPlan:
    """What is tried: each case once for each seed, filled with the facts of that seed's estate."""

    names: tuple[str, ...]
    seeds: tuple[int, ...]
    cases: Mapping[int, Mapping[str, EvaluationCase]]  # by seed and name

    @classmethod
    def create(cls, files: Sequence[CaseFile], seeds: Sequence[int]) -> "EvaluationPlan":
        """Raises InvalidCases."""
        cases: dict[int, dict[str, EvaluationCase]] = {}
        for seed in dict.fromkeys(seeds):
            cases[seed] = fill_cases(files, collect_facts(build_estate(seed)))
        return cls(tuple(file.name for file in files), tuple(seeds), cases)


class EvaluationRunner:
    """Tries cases on servers; as many attempts as the settings allow work at once."""

    def __init__(
        self,
        servers: EvaluationServers,
        settings: EvaluationSettings,
        prices: PriceTable | None,
        show_attempt: ShowAttempt,
    ) -> None:
        self._servers = servers
        self._settings = settings
        self._prices = prices
        self._show_attempt = show_attempt
        self._slots = asyncio.Semaphore(settings.concurrency)
        self._started_at = datetime.now(UTC)
        self._attempts: dict[str, dict[int, AttemptResult]] = {}  # by case and number

    async def run(self, plan: EvaluationPlan) -> None:
        """All attempts at all cases that can be tried here; `collect` has what they gave, also so far."""
        names = [name for name in plan.names if self._find_problem(name, plan) is None]
        numbered_seeds = enumerate(plan.seeds, 1)
        tries = [
            self._try_case(name, number, seed, plan)
            for name, (number, seed) in itertools.product(names, numbered_seeds)
        ]
        await asyncio.gather(*tries)

    def collect(self, plan: EvaluationPlan) -> EvaluationResult:
        """The result of the attempts that have ended; cases without any are skipped ones."""
        return EvaluationResult(
            version=version("ai-platform-engineering"),
            started_at=self._started_at.isoformat(timespec="seconds"),
            settings=self._settings,
            cases=tuple(self._collect_case(name, plan) for name in plan.names),
        )

    def _collect_case(self, name: str, plan: EvaluationPlan) -> CaseResult:
        title = plan.cases[plan.seeds[0]][name].title
        attempts = self._attempts.get(name, {})
        if not attempts:
            reason = self._find_problem(name, plan) or "interrupted"
            return CaseResult(name=name, title=title, skipped=reason)
        in_order = tuple(attempts[number] for number in sorted(attempts))
        return CaseResult(name=name, title=title, attempts=in_order)

    def _find_problem(self, name: str, plan: EvaluationPlan) -> str | None:
        case = plan.cases[plan.seeds[0]][name]
        return self._servers.find_problem(tuple(case.agents), needs_state=case.needs_state)

    async def _try_case(self, name: str, number: int, seed: int, plan: EvaluationPlan) -> None:
        async with self._slots:
            try:
                async with self._servers.open(seed) as server:
                    case = plan.cases[seed][name]
                    result = await run_attempt(case, server, seed=seed, timeout=self._settings.timeout)
            except (CaipeError, OSError) as error:
                failure = AttemptFailure(text=f"could not be tried: {error}")
                result = AttemptResult(seed=seed, end="error", failures=(failure,))
        result = result.model_copy(update={"cost": self._find_cost(result)})
        self._attempts.setdefault(name, {})[number] = result
        self._show_attempt(name, number, result)

    def _find_cost(self, result: AttemptResult) -> float | None:
        """None unless the price of every model call is known."""
        price = self._prices.models.get(self._settings.model) if self._prices is not None else None
        is_counted = result.usage.model_calls is not None and not result.used_fallback
        if price is None or not is_counted or self._settings.agent_models:
            return None
        return price.cost_of(result.usage)


async def open_servers(
    url: str | None, token: str | None, seed: int, repeat: int
) -> tuple[OwnServers | RunningServers, tuple[int, ...]]:
    """The servers of an evaluation, and the seed of each attempt. Raises CaipeError."""
    if url is None:
        return OwnServers(), tuple(range(seed, seed + repeat))
    servers = await RunningServers.connect(url, token)
    return servers, (seed if servers.seed is None else servers.seed,) * repeat


def build_settings(
    servers: OwnServers | RunningServers,
    seeds: Sequence[int],
    *,
    concurrency: int,
    timeout: float,
    prices: PriceTable | None,
) -> EvaluationSettings:
    """What the figures depend on, for the result."""
    is_own = isinstance(servers, OwnServers)
    return EvaluationSettings(
        **servers.describe(),
        repeat=len(seeds),
        seed=seeds[0],
        # Attempts on a running server share its estate.
        concurrency=concurrency if is_own else 1,
        timeout=timeout,
        currency=prices.currency if prices is not None else None,
    )
