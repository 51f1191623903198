"""Results of an evaluation as the rows that are drawn in a terminal."""

from collections import Counter
from collections.abc import Sequence
from statistics import fmean

from ai_platform_engineering.demo.evaluation.comparison import EvaluationComparison
from ai_platform_engineering.demo.evaluation.results import AttemptResult, CaseResult, EvaluationResult
from ai_platform_engineering.terminal.evaluation_view import (
    ComparisonRow,
    EvaluationRow,
    EvaluationSummary,
    print_comparison,
    print_evaluation,
)


def print_result(result: EvaluationResult) -> None:
    rows = [_build_row(case) for case in result.cases if case.attempts]
    summary = EvaluationSummary(
        model=result.settings.model,
        passed=result.passed,
        attempts=len(result.attempts),
        interval=result.interval,
        total_cost=result.total_cost,
        currency=result.settings.currency,
        seconds=sum(attempt.seconds for attempt in result.attempts),
        skipped={case.name: case.skipped for case in result.cases if case.skipped is not None},
    )
    print_evaluation(rows, summary)


def print_compared(comparison: EvaluationComparison) -> None:
    rows = [
        ComparisonRow(
            name=case.name,
            before=(case.before.passed, len(case.before.attempts)),
            after=(case.after.passed, len(case.after.attempts)),
            verdict=case.direction,
            p_value=case.p_value,
            is_significant=case.is_significant,
        )
        for case in comparison.cases
    ]
    print_comparison(
        rows,
        difference=comparison.difference,
        p_value=comparison.p_value,
        only_before=comparison.only_before,
        only_after=comparison.only_after,
        differing_settings=comparison.differing_settings,
    )


def _build_row(case: CaseResult) -> EvaluationRow:
    attempts = case.attempts
    return EvaluationRow(
        name=case.name,
        passed=case.passed,
        attempts=len(attempts),
        interval=case.interval,
        model_calls=_mean_calls([attempt.usage.model_calls for attempt in attempts]),
        tool_calls=_mean_calls([attempt.usage.tool_calls for attempt in attempts]),
        input_tokens=fmean(attempt.usage.input_tokens for attempt in attempts),
        cached_tokens=_mean_cached(attempts),
        output_tokens=fmean(attempt.usage.output_tokens for attempt in attempts),
        cost=case.cost,
        median_seconds=case.median_seconds,
        max_seconds=case.max_seconds,
        failures=_count_failures(attempts),
    )


def _count_failures(attempts: Sequence[AttemptResult]) -> dict[str, int]:
    """How often each check failed, most often first. Values differ by seed: the first text stands for all."""
    counts = Counter[int | str]()
    texts: dict[int | str, str] = {}
    for attempt in attempts:
        for failure in attempt.failures:
            key = failure.text if failure.check is None else failure.check
            counts[key] += 1
            label = failure.text if failure.check is None else f"check {failure.check}: {failure.text}"
            texts.setdefault(key, label)
    return {texts[key]: count for key, count in counts.most_common()}


def _mean_calls(counts: Sequence[int | None]) -> float | None:
    """None when one is not known."""
    known_counts = [count for count in counts if count is not None]
    return fmean(known_counts) if len(known_counts) == len(counts) else None


def _mean_cached(attempts: Sequence[AttemptResult]) -> float:
    return fmean(attempt.usage.cache_read_tokens or 0 for attempt in attempts)
