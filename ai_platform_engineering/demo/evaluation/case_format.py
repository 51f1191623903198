"""The format of evaluation cases: a question for the demo estate, and the checks of its answer."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from ai_platform_engineering.core.text_patterns import check_pattern
from ai_platform_engineering.demo.estate.estate import Health

MAX_TURNS = 10
MAX_CHECKS = 50
MAX_CHECK_TEXTS = 50
MAX_CASE_SECONDS = 3600.0
_ANY_TOOL = "*"


def _as_list(value: Any) -> Any:
    return [value] if isinstance(value, str) else value


def _as_decisions(value: Any) -> Any:
    return {_ANY_TOOL: value} if isinstance(value, str) else value


CheckText = Annotated[str, Field(min_length=1, max_length=1000)]
CheckTexts = Annotated[
    tuple[CheckText, ...], BeforeValidator(_as_list), Field(min_length=1, max_length=MAX_CHECK_TEXTS)
]
CaseDecision = Literal["approve", "reject"]
CaseDecisions = Annotated[Mapping[str, CaseDecision], BeforeValidator(_as_decisions)]


class _CaseModel(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class TicketCheck(_CaseModel):
    """A ticket that was not there before; its summary or description holds all of the texts."""

    project: CheckText | None = None
    contains: CheckTexts


class ServiceCheck(_CaseModel):
    """The state of a service at the end."""

    name: CheckText
    health: Health | None = None
    version: CheckText | None = None
    replicas: CheckText | None = None

    @model_validator(mode="after")
    def _expects_something(self) -> Self:
        if self.health is None and self.version is None and self.replicas is None:
            raise ValueError("a service needs `health`, `version` or `replicas` to compare with")
        return self


class CaseCheck(_CaseModel):
    """One check. Exactly one key says what is checked; `turn` says of which answer, by default the last.

    `expected` is the same in words, for the report of those who do not read patterns."""

    contains: CheckTexts | None = None
    contains_any: CheckTexts | None = None
    not_contains: CheckTexts | None = None
    matches: CheckText | None = None
    not_matches: CheckText | None = None
    not_blamed: CheckTexts | None = None
    says_unknown: Literal[True] | None = None
    calls_agents: CheckTexts | None = None
    calls_any_agent: CheckTexts | None = None
    calls_no_agent: CheckTexts | None = None
    calls_tools: CheckTexts | None = None
    calls_no_tool: CheckTexts | None = None
    ticket: TicketCheck | None = None
    service: ServiceCheck | None = None
    unchanged: Literal[True] | None = None
    turn: int | None = Field(None, ge=1, le=MAX_TURNS)
    expected: CheckText | None = None  # in words, for the report

    @property
    def kind(self) -> str:
        """The key that says what is checked."""
        return next(name for name in CHECK_KINDS if getattr(self, name) is not None)

    @property
    def is_about_text(self) -> bool:
        return self.kind in _TEXT_KINDS

    @property
    def is_about_state(self) -> bool:
        """Whether it needs to look into the estate after the answer."""
        return self.kind in _STATE_KINDS

    @model_validator(mode="after")
    def _has_one_kind(self) -> Self:
        kinds = [name for name in CHECK_KINDS if getattr(self, name) is not None]
        if len(kinds) != 1:
            raise ValueError(f"a check has exactly one of {', '.join(f'`{name}`' for name in CHECK_KINDS)}")
        if self.turn is not None and not self.is_about_text:
            raise ValueError(f"`turn` is for checks of an answer's text; `{kinds[0]}` is about all turns")
        for pattern in (self.matches, self.not_matches):
            if pattern is not None:
                check_pattern(pattern)
        return self


CHECK_KINDS = tuple(name for name in CaseCheck.model_fields if name not in ("turn", "expected"))
_STATE_KINDS = ("ticket", "service", "unchanged")
_TEXT_KINDS = CHECK_KINDS[: CHECK_KINDS.index("calls_agents")]


class CaseExamples(_CaseModel):
    """Answers to the last question that the checks of its text must accept, and those they must not."""

    right: CheckTexts
    wrong: CheckTexts


class EvaluationCase(_CaseModel):
    """A question for the estate with what is expected of the answer.

    Texts may name facts of the estate, as in `{checkout.version}`. `agents` are those that it needs: without
    one of them it is skipped. Approvals are decided by the tool's name, the first pattern that fits decides,
    and what no pattern fits is rejected. `forms` are values for the fields of forms.
    """

    title: CheckText
    question: CheckText
    follow_ups: CheckTexts | tuple[()] = ()
    agents: CheckTexts | tuple[()] = ()
    tags: CheckTexts | tuple[()] = ()
    approvals: CaseDecisions = Field(default_factory=dict)
    forms: Mapping[str, str] = Field(default_factory=dict)
    timeout: float | None = Field(None, gt=0, le=MAX_CASE_SECONDS)
    checks: Annotated[tuple[CaseCheck, ...], Field(min_length=1, max_length=MAX_CHECKS)]
    examples: CaseExamples | None = None

    @property
    def questions(self) -> tuple[str, ...]:
        return (self.question, *self.follow_ups)

    @property
    def needs_state(self) -> bool:
        return any(check.is_about_state for check in self.checks)

    @model_validator(mode="after")
    def _has_the_turns_of_its_checks(self) -> Self:
        if len(self.questions) > MAX_TURNS:
            raise ValueError(f"a case has at most {MAX_TURNS} questions")
        for check in self.checks:
            if check.turn is not None and check.turn > len(self.questions):
                raise ValueError(f"a check is about turn {check.turn}, and there are {len(self.questions)}")
        return self
