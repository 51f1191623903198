"""The report of `caipe eval`: a row for each case, what failed, and the comparison with an earlier result."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import click

from ai_platform_engineering.terminal.durations import format_seconds
from ai_platform_engineering.terminal.screen import print_table, sanitize_line

_MAX_FAILURES = 5  # of one case
_MAX_FAILURE_CHARS = 300


@dataclass(frozen=True, slots=True)
class EvaluationRow:
    """A case that was tried. Calls, tokens and cost are those of an attempt, on average; None is unknown."""

    name: str
    passed: int
    attempts: int
    interval: tuple[float, float]
    model_calls: float | None
    tool_calls: float | None
    input_tokens: float
    cached_tokens: float
    output_tokens: float
    cost: float | None
    median_seconds: float
    max_seconds: float
    failures: Mapping[str, int]  # how often each came


@dataclass(frozen=True, slots=True)
class EvaluationSummary:
    """All attempts together; `total_cost` is None where a price is unknown."""

    model: str
    passed: int
    attempts: int
    interval: tuple[float, float]
    total_cost: float | None
    currency: str | None
    seconds: float
    skipped: Mapping[str, str]  # reasons by case


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    """A case before and after; `verdict` says whether it got better or worse."""

    name: str
    before: tuple[int, int]  # passed, attempts
    after: tuple[int, int]
    verdict: str
    p_value: float
    is_significant: bool


def print_attempt(name: str, number: int, attempts: int, failures: Sequence[str], seconds: float) -> None:
    """One line on stderr as soon as an attempt has ended."""
    outcome = "passed" if not failures else f"failed: {_shorten('; '.join(failures))}"
    click.echo(f"{name} {number}/{attempts}: {outcome} ({format_seconds(seconds)})", err=True)


def print_evaluation(rows: Sequence[EvaluationRow], summary: EvaluationSummary) -> None:
    """Prints the table on stdout, then what failed and what was skipped, and the total last."""
    columns = ["case", "passed", "95 % interval", "model calls", "tool calls", "tokens in", "cached", "out"]
    has_costs = any(row.cost is not None for row in rows)
    if has_costs:
        columns.append(f"cost {summary.currency}")
    columns += ["p50", "max"]
    if rows:
        cells = [_evaluation_cells(row, with_cost=has_costs) for row in rows]
        print_table(columns, cells, right_aligned=columns[1:], folded=("case",))
    _print_failures(rows)
    for name, reason in summary.skipped.items():
        click.echo(f"\nskipped {sanitize_line(name)}: {sanitize_line(reason)}")
    click.echo(f"\n{_describe_total(summary)}")


def print_comparison(
    rows: Sequence[ComparisonRow],
    *,
    difference: float,
    p_value: float,
    only_before: Sequence[str],
    only_after: Sequence[str],
    differing_settings: Sequence[str],
) -> None:
    """Prints what got better or worse, and whether that may be chance."""
    click.echo()
    columns = ["case", "before", "after", "change", "p", ""]
    changed = [row for row in rows if row.verdict != "same"]
    if changed:
        cells = [_comparison_cells(row) for row in changed]
        print_table(columns, cells, right_aligned=("before", "after", "p"), folded=("case",))
    same_count = len(rows) - len(changed)
    click.echo(
        f"{len(changed)} of {len(rows)} cases changed, {same_count} did not: {100 * difference:+.1f} points "
        f"on average, p = {p_value:.3f} (paired randomisation test; of a case: Fisher's exact test)"
    )
    for label, names in (("only before", only_before), ("only now", only_after)):
        if names:
            click.echo(f"{label}: {', '.join(map(sanitize_line, names))}")
    if differing_settings:
        click.echo(f"settings that differ: {'; '.join(map(sanitize_line, differing_settings))}")


def _evaluation_cells(row: EvaluationRow, *, with_cost: bool) -> list[str]:
    cells = [
        row.name,
        f"{row.passed}/{row.attempts}",
        _format_interval(row.interval),
        _format_calls(row.model_calls),
        _format_calls(row.tool_calls),
        f"{row.input_tokens:.0f}",
        f"{row.cached_tokens:.0f}",
        f"{row.output_tokens:.0f}",
    ]
    if with_cost:
        cells.append("" if row.cost is None else f"{row.cost:.4f}")
    return [*cells, format_seconds(row.median_seconds), format_seconds(row.max_seconds)]


def _comparison_cells(row: ComparisonRow) -> list[str]:
    hint = "" if row.is_significant else "may be chance"
    before = f"{row.before[0]}/{row.before[1]}"
    after = f"{row.after[0]}/{row.after[1]}"
    return [row.name, before, after, row.verdict, f"{row.p_value:.3f}", hint]


def _print_failures(rows: Sequence[EvaluationRow]) -> None:
    for row in rows:
        if not row.failures:
            continue
        click.echo(f"\n{sanitize_line(row.name)}")
        for text, count in list(row.failures.items())[:_MAX_FAILURES]:
            click.echo(f"  {count} of {row.attempts}: {_shorten(text)}")
        hidden_count = len(row.failures) - _MAX_FAILURES
        if hidden_count > 0:
            click.echo(f"  and {hidden_count} more")


def _describe_total(summary: EvaluationSummary) -> str:
    parts = [f"{summary.model}: {summary.passed} of {summary.attempts} attempts passed"]
    if summary.attempts:
        rate = 100 * summary.passed / summary.attempts
        parts[0] += f", {rate:.0f} % (95 % interval {_format_interval(summary.interval)})"
    if summary.skipped:
        parts.append(f"{len(summary.skipped)} cases skipped")
    if summary.total_cost is not None:
        parts.append(f"{summary.total_cost:.4f} {summary.currency} in all")
    parts.append(f"{format_seconds(summary.seconds)} of answering")
    return sanitize_line("; ".join(parts))


def _format_interval(interval: tuple[float, float]) -> str:
    low, high = interval
    return f"{100 * low:.0f}–{100 * high:.0f} %"


def _format_calls(calls: float | None) -> str:
    return "" if calls is None else f"{calls:.1f}"


def _shorten(text: str) -> str:
    line = sanitize_line(text)
    return line if len(line) <= _MAX_FAILURE_CHARS else f"{line[:_MAX_FAILURE_CHARS]}…"
