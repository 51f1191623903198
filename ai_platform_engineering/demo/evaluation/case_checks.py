"""Whether what an attempt left behind passes the checks of its case."""

from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase

from ai_platform_engineering.demo.estate.estate_state import TICKETS, EstateState
from ai_platform_engineering.demo.evaluation import answer_text
from ai_platform_engineering.demo.evaluation.case_format import (
    CaseCheck,
    EvaluationCase,
    ServiceCheck,
    TicketCheck,
)


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What an attempt left behind: an answer for each question, who was called, and the estate around it.

    `agents` are those that were delegated to, `tools` the names of all tools that were called.
    """

    answers: tuple[str, ...]
    agents: frozenset[str] = frozenset()
    tools: frozenset[str] = frozenset()
    before: EstateState | None = None
    after: EstateState | None = None


@dataclass(frozen=True, slots=True)
class CheckFailure:
    """A check that was not passed, by its number in the case, and why."""

    check: int
    text: str


def find_failures(case: EvaluationCase, record: AttemptRecord) -> list[CheckFailure]:
    """The checks that the attempt does not pass."""
    failures: list[CheckFailure] = []
    for number, check in enumerate(case.checks, 1):
        text = _find_failure(check, record)
        if text is not None and check.expected is not None:
            text = f"expected: {check.expected}"
        if text is not None:
            failures.append(CheckFailure(number, text))
    return failures


def find_text_failures(case: EvaluationCase, answer: str) -> list[str]:
    """Why an answer to the last question does not pass the checks of its text."""
    record = AttemptRecord((*("",) * len(case.follow_ups), answer))
    about_answer = [check for check in case.checks if check.is_about_text and _is_last(check, case)]
    return [failure for check in about_answer if (failure := _find_failure(check, record))]


def _is_last(check: CaseCheck, case: EvaluationCase) -> bool:
    return check.turn in (None, len(case.questions))


def _find_failure(check: CaseCheck, record: AttemptRecord) -> str | None:
    if check.is_about_text:
        return _find_text_failure(check, _select_answer(check, record))
    if check.is_about_state:
        return _find_state_failure(check, record)
    return _find_call_failure(check, record)


def _select_answer(check: CaseCheck, record: AttemptRecord) -> str:
    index = len(record.answers) - 1 if check.turn is None else check.turn - 1
    return record.answers[index] if 0 <= index < len(record.answers) else ""


def _find_text_failure(check: CaseCheck, answer: str) -> str | None:
    if not answer.strip():
        return "there is no answer"
    if check.contains is not None:
        missing = [text for text in check.contains if not answer_text.names(answer, text)]
        return f"does not name {_quote(missing)}" if missing else None
    if check.contains_any is not None:
        if any(answer_text.names(answer, text) for text in check.contains_any):
            return None
        return f"names none of {_quote(check.contains_any)}"
    if check.not_contains is not None:
        named = [text for text in check.not_contains if answer_text.names(answer, text)]
        return f"names {_quote(named)}" if named else None
    if check.not_blamed is not None:
        blamed = [text for text in check.not_blamed if answer_text.blames(answer, text)]
        return f"blames {_quote(blamed)}" if blamed else None
    if check.says_unknown:
        return None if answer_text.says_unknown(answer) else "does not say that it cannot be answered"
    return _find_pattern_failure(check, answer)


def _find_pattern_failure(check: CaseCheck, answer: str) -> str | None:
    if check.matches is not None and not answer_text.finds_pattern(answer, check.matches):
        return f"does not match {check.matches}"
    if check.not_matches is not None and answer_text.finds_pattern(answer, check.not_matches):
        return f"matches {check.not_matches}"
    return None


def _find_call_failure(check: CaseCheck, record: AttemptRecord) -> str | None:
    missing_agents = set(check.calls_agents or ()) - record.agents
    missing_tools = [tool for tool in check.calls_tools or () if not _is_called(tool, record.tools)]
    called_tools = [tool for tool in check.calls_no_tool or () if _is_called(tool, record.tools)]
    called_agents = set(check.calls_no_agent or ()) & record.agents
    if missing_agents:
        return f"did not call the agent {_quote(sorted(missing_agents))}"
    if check.calls_any_agent is not None and record.agents.isdisjoint(check.calls_any_agent):
        return f"called none of the agents {_quote(check.calls_any_agent)}"
    if called_agents:
        return f"called the agent {_quote(sorted(called_agents))}"
    if missing_tools:
        return f"did not call the tool {_quote(missing_tools)}"
    if called_tools:
        return f"called the tool {_quote(called_tools)}"
    return None


def _is_called(pattern: str, tools: Iterable[str]) -> bool:
    return any(fnmatchcase(tool, pattern) for tool in tools)


def _find_state_failure(check: CaseCheck, record: AttemptRecord) -> str | None:
    if record.before is None or record.after is None:
        return "the state of the estate is not known"
    if check.unchanged:
        changes = record.before.describe_changes(record.after)
        return f"changed {', '.join(changes)}" if changes else None
    if check.service is not None:
        return _find_service_failure(check.service, record.after)
    if check.ticket is not None:
        return _find_ticket_failure(check.ticket, record.before, record.after)
    return None


def _find_service_failure(check: ServiceCheck, state: EstateState) -> str | None:
    service = state.services.get(check.name)
    if service is None:
        return f"there is no service {check.name}"
    if check.health is not None and service.health != check.health:
        return f"{check.name} is {service.health.value}, not {check.health.value}"
    if check.version is not None and service.version != check.version:
        return f"{check.name} runs {service.version}, not {check.version}"
    if check.replicas is not None and str(service.replicas) != check.replicas:
        return f"{check.name} has {service.replicas} replicas, not {check.replicas}"
    return None


def _find_ticket_failure(check: TicketCheck, before: EstateState, after: EstateState) -> str | None:
    old_keys = before.records.get(TICKETS, {}).keys()
    new_tickets = [ticket for key, ticket in after.records.get(TICKETS, {}).items() if key not in old_keys]
    if check.project is not None:
        new_tickets = [ticket for ticket in new_tickets if ticket["project"] == check.project]
    where = f" in {check.project}" if check.project else ""
    if not new_tickets:
        return f"there is no new ticket{where}"
    for ticket in new_tickets:
        text = f"{ticket['summary']}\n{ticket['description']}"
        if all(answer_text.names(text, phrase) for phrase in check.contains):
            return None
    return f"no new ticket{where} names {_quote(check.contains)}"


def _quote(texts: Iterable[str]) -> str:
    return ", ".join(f'"{text}"' for text in texts)
