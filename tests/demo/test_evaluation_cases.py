"""The shipped cases: they hold for any seed, a right answer passes, and wrong ones do not."""

import functools
from dataclasses import replace

import pytest

from ai_platform_engineering.demo.estate.estate import Estate, build_estate
from ai_platform_engineering.demo.estate.estate_state import TICKETS, EstateState
from ai_platform_engineering.demo.evaluation.case_checks import (
    AttemptRecord,
    find_failures,
    find_text_failures,
)
from ai_platform_engineering.demo.evaluation.case_files import SHIPPED_CASES, fill_cases, read_case_files
from ai_platform_engineering.demo.evaluation.case_format import EvaluationCase
from ai_platform_engineering.demo.evaluation.estate_facts import collect_facts
from ai_platform_engineering.demo.stand_ins import STAND_INS
from tests.demo.test_estate import Clock

NAMES = sorted(path.stem for path in SHIPPED_CASES.glob("*.yaml"))
SEEDS = (1, 2, 3, 20, 77, 1234)
EVASIONS = (
    "Everything is healthy, there is nothing to do.",
    "Done.",
    "Yes.",
    "I looked at all systems and everything has been fixed.",
    "checkout fails because of payments.",
)


def create_estate(seed: int, clock: Clock) -> Estate:
    estate = build_estate(seed, clock)
    for stand_in in STAND_INS:
        if stand_in.name != "kubernetes":  # it stores nothing of its own
            stand_in.create_app(estate)
    return estate


@functools.cache
def load_cases(seed: int) -> dict[str, EvaluationCase]:
    estate = build_estate(seed, Clock())
    return fill_cases(read_case_files(SHIPPED_CASES), collect_facts(estate))


def make_perfect_record(case: EvaluationCase, seed: int) -> AttemptRecord:
    """What a faultless attempt leaves behind: right answers, the agents that are expected, the change."""
    clock = Clock()
    estate = create_estate(seed, clock)
    before = EstateState.of(estate)
    agents: set[str] = set()
    tickets: dict[str, dict[str, str]] = {}
    for check in case.checks:
        agents |= {*(check.calls_agents or ()), *(check.calls_any_agent or ())[:1]}
        if check.service is not None and check.service.version != before.services[check.service.name].version:
            service = estate.company.find_service(check.service.name)
            assert service is not None
            estate.roll_back(service, "admin")
            clock.advance(60)
        if check.ticket is not None:
            summary = " ".join(check.ticket.contains)
            tickets["NEW-1"] = {
                "project": str(check.ticket.project),
                "summary": summary,
                "description": "",
                "status": "To Do",
            }
    after = EstateState.of(estate)
    records = {**after.records, TICKETS: {**after.records[TICKETS], **tickets}}
    answers = tuple(_right_answer(case, turn) for turn in range(1, len(case.questions) + 1))
    return AttemptRecord(
        answers,
        frozenset(agents),
        before=before,
        after=after.model_copy(update={"records": records}),
    )


def _right_answer(case: EvaluationCase, turn: int) -> str:
    if turn == len(case.questions):
        assert case.examples is not None
        return case.examples.right[0]
    return " ".join(text for check in case.checks if check.turn == turn for text in check.contains or ())


def test_there_are_twenty_of_all_kinds() -> None:
    cases = load_cases(1).values()
    tags = {tag for case in cases for tag in case.tags}
    assert len(cases) == 20
    assert {"single-agent", "multi-agent", "misleading", "unanswerable", "change", "refused"} <= tags
    assert {agent for case in cases for agent in case.agents} >= {"argocd", "github", "jira", "confluence"}


@pytest.mark.parametrize("seed", SEEDS)
def test_every_fact_resolves_and_the_examples_are_judged_rightly(seed: int) -> None:
    for case in load_cases(seed).values():
        assert case.examples is not None
        assert len(case.examples.wrong) >= 2
        texts = (*case.questions, *case.examples.right, *case.examples.wrong)
        assert not any("{" in text for text in texts)


@pytest.mark.parametrize("name", NAMES)
def test_a_faultless_attempt_passes_and_changes_to_it_fail(name: str) -> None:
    for seed in SEEDS[:3]:
        case = load_cases(seed)[name]
        perfect = make_perfect_record(case, seed)

        assert find_failures(case, perfect) == []
        assert find_failures(case, replace(perfect, answers=()))
        assert perfect.before is not None
        if any(check.unchanged for check in case.checks):
            services = dict(perfect.before.services)
            services["cart"] = services["cart"].model_copy(update={"replicas": 0})
            changed = perfect.before.model_copy(update={"services": services})
            assert [failure.text for failure in find_failures(case, replace(perfect, after=changed))] == [
                "changed service cart"
            ]
        elif case.needs_state:
            assert find_failures(case, replace(perfect, after=perfect.before))
        if any(check.calls_agents or check.calls_any_agent for check in case.checks):
            assert find_failures(case, replace(perfect, agents=frozenset()))


@pytest.mark.parametrize("name", NAMES)
def test_no_case_accepts_every_answer(name: str) -> None:
    case = load_cases(1)[name]
    other_cases = [other for other_name, other in load_cases(1).items() if other_name != name]
    foreign_answers = [other.examples.right[0] for other in other_cases if other.examples is not None]
    accepted = [answer for answer in foreign_answers if not find_text_failures(case, answer)]

    assert [evasion for evasion in EVASIONS if not find_text_failures(case, evasion)] == []
    assert find_text_failures(case, case.questions[-1]), "the question itself is no answer"
    assert len(accepted) <= 3, accepted  # some questions have the same cause as their answer


def test_the_right_answer_for_another_company_is_wrong() -> None:
    mine = load_cases(1)
    other = load_cases(2)
    judged = ("checkout-cause", "checkout-versions", "crash-log", "missing-in-manifest", "payments-suspected")
    for name in judged:
        examples = other[name].examples
        assert examples is not None
        assert find_text_failures(mine[name], examples.right[0])
