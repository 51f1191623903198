"""Two evaluations side by side: what got better or worse, and whether that may be chance."""

from dataclasses import dataclass
from typing import Literal

from ai_platform_engineering.demo.evaluation.results import CaseResult, EvaluationResult
from ai_platform_engineering.demo.evaluation.statistics import fisher_p_value
from ai_platform_engineering.knowledge_bases.search.significance import compute_p_value

SIGNIFICANT = 0.05

Direction = Literal["better", "worse", "same"]


@dataclass(frozen=True, slots=True)
class CaseComparison:
    """A case in both evaluations; `p_value` is that of Fisher's exact test."""

    before: CaseResult
    after: CaseResult
    p_value: float

    @property
    def name(self) -> str:
        return self.after.name

    @property
    def difference(self) -> float:
        return self.after.rate - self.before.rate

    @property
    def direction(self) -> Direction:
        if self.difference > 0:
            return "better"
        if self.difference < 0:
            return "worse"
        return "same"

    @property
    def is_significant(self) -> bool:
        return self.p_value < SIGNIFICANT


@dataclass(frozen=True, slots=True)
class EvaluationComparison:
    """`p_value` is that of a paired randomisation test over the cases that both have.

    `differing_settings` are what else than the model's answers may explain a difference."""

    cases: tuple[CaseComparison, ...]
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]
    difference: float
    p_value: float
    differing_settings: tuple[str, ...]


def compare_results(before: EvaluationResult, after: EvaluationResult) -> EvaluationComparison:
    cases_before = {case.name: case for case in before.cases if case.attempts}
    cases_after = {case.name: case for case in after.cases if case.attempts}
    cases: list[CaseComparison] = []
    for name, case in cases_after.items():
        if name in cases_before:
            cases.append(_compare_case(cases_before[name], case))
    difference = 0.0
    p_value = 1.0
    if cases:
        difference = sum(case.difference for case in cases) / len(cases)
        p_value = compute_p_value([case.before.rate for case in cases], [case.after.rate for case in cases])
    return EvaluationComparison(
        cases=tuple(cases),
        only_before=tuple(sorted(cases_before.keys() - cases_after.keys())),
        only_after=tuple(sorted(cases_after.keys() - cases_before.keys())),
        difference=difference,
        p_value=p_value,
        differing_settings=_list_differences(before, after),
    )


def _compare_case(before: CaseResult, after: CaseResult) -> CaseComparison:
    p_value = fisher_p_value(before.passed, len(before.attempts), after.passed, len(after.attempts))
    return CaseComparison(before, after, p_value)


def _list_differences(before: EvaluationResult, after: EvaluationResult) -> tuple[str, ...]:
    differences: list[str] = []
    if before.version != after.version:
        differences.append(f"version {before.version} → {after.version}")
    old = before.settings.model_dump()
    new = after.settings.model_dump()
    for name in new:
        if name not in ("server", "currency", "concurrency") and old[name] != new[name]:
            differences.append(f"{name} {_describe(old[name])} → {_describe(new[name])}")
    return tuple(differences)


def _describe(value: object) -> str:
    return "none" if value in (None, (), {}, "") else str(value)
