"""What a workflow does next: a pure function of the workflow and of what its steps gave so far."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from ai_platform_engineering.core.events import SUPERVISOR, Form, PlanStep, StepStatus
from ai_platform_engineering.core.templates import (
    MissingValue,
    Scope,
    as_text,
    fill,
    fill_text,
    fill_tree,
    read_value,
    references,
    split_data,
)
from ai_platform_engineering.core.workflows import RESULTS, Step, Workflow

_LONGEST_TOLD = 2_000  # characters of one step's result in words for people
_LONGEST_HANDED_ON = 8_000  # and in a prompt
_LONGEST_CALL = 300


@dataclass(frozen=True, slots=True)
class Outcome:
    """How a step ended: a form's values, an agent's or a tool's text (or the value it says), or why it failed."""

    step: str
    ok: bool
    value: JsonValue


@dataclass(frozen=True, slots=True)
class Call:
    """One tool, without the model of its agent."""

    tool: str
    arguments: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class Ask:
    """A person is asked."""

    step: str
    form: Form


@dataclass(frozen=True, slots=True)
class Order:
    """An agent does it: what `text` says, or `call`, which `text` then describes for people."""

    step: str
    agent: str
    text: str
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Think:
    """The supervisor's own model does it."""

    step: str
    text: str


@dataclass(frozen=True, slots=True)
class Fail:
    """The step lacks what it needs: it failed without being tried."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The last words; `failed` when a step stopped the workflow."""

    text: str
    failed: bool


Move = Ask | Order | Think | Fail | Finish
_Ending = Literal["completed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class _Done:
    """A step that is over."""

    step: Step
    status: _Ending
    value: JsonValue = None

    def paragraph(self, text: str) -> str:
        return f"{self.step.words}{' (failed)' if self.status == 'failed' else ''}: {text}"


@dataclass(frozen=True, slots=True)
class _Progress:
    done: tuple[_Done, ...]
    following: Step | None  # None: nothing is left to do
    stopped: bool  # by the last step of `done`
    rest: tuple[Step, ...]  # after `following`, or after what stopped it


def next_move(workflow: Workflow, given: Mapping[str, JsonValue], outcomes: Sequence[Outcome]) -> Move:
    """The next move; `given` are values that are known before a person is asked. Outcomes of steps that do not exist count for nothing."""
    progress = _progress(workflow, outcomes)
    if progress.stopped:
        return Finish(_stopped(workflow, progress), failed=True)
    if progress.following is None:
        return Finish(_answer(workflow, progress), failed=False)
    try:
        return _move(progress.following, _scope(progress.done), given)
    except MissingValue as error:
        return Fail(progress.following.name, str(error))


def plan_of(workflow: Workflow, outcomes: Sequence[Outcome]) -> tuple[PlanStep, ...]:
    """The steps with their state; the one that comes next is in progress, and those after a failure are skipped."""
    progress = _progress(workflow, outcomes)
    steps = [_planned(done.step, done.status) for done in progress.done]
    if progress.following:
        steps.append(_planned(progress.following, "in_progress"))
    return (*steps, *(_planned(step, "skipped" if progress.stopped else "pending") for step in progress.rest))


def _planned(step: Step, status: StepStatus) -> PlanStep:
    return PlanStep(step_id=step.name, title=step.words, agent=step.agent, status=status)


def _progress(workflow: Workflow, outcomes: Sequence[Outcome]) -> _Progress:
    ended = {outcome.step: outcome for outcome in outcomes}
    steps = workflow.sequence
    done: list[_Done] = []
    for at, step in enumerate(steps):
        outcome = ended.get(step.name)
        if outcome is not None:
            done.append(_ended(step, outcome))
            if not outcome.ok and step.on_error == "stop":
                return _Progress(tuple(done), None, stopped=True, rest=steps[at + 1 :])
        elif _is_wanted(step, done):
            return _Progress(tuple(done), step, stopped=False, rest=steps[at + 1 :])
        else:
            done.append(_Done(step, "skipped"))
    return _Progress(tuple(done), None, stopped=False, rest=())


def _ended(step: Step, outcome: Outcome) -> _Done:
    if not outcome.ok:
        return _Done(step, "failed", as_text(outcome.value).strip() or "no reason was given")
    return _Done(step, "completed", read_value(outcome.value) if isinstance(outcome.value, str) else outcome.value)


def _is_wanted(step: Step, done: Sequence[_Done]) -> bool:
    if step.when is None:
        return True
    try:
        return fill(step.when, _scope(done)) not in (None, False, "", "false", [], {})
    except MissingValue:
        return False


_WHY: Mapping[_Ending, str] = {"failed": "failed", "skipped": "was left out"}


def _scope(done: Sequence[_Done], *, for_people: bool = False) -> Scope:
    values: dict[str, JsonValue] = {each.step.name: each.value for each in done if each.status == "completed"}
    values[RESULTS] = "\n\n".join(_paragraphs(done, _told if for_people else _handed_on))
    return Scope(values, {each.step.name: _WHY[each.status] for each in done if each.status in _WHY})


def _move(step: Step, scope: Scope, given: Mapping[str, JsonValue]) -> Move:
    if step.form:
        return Ask(step.name, step.asked(scope, given))
    if step.tool is not None:
        # An argument without a value is one that is not given.
        filled = {key: fill_tree(value, scope) for key, value in step.arguments.items()}
        call = Call(step.tool, {key: value for key, value in filled.items() if value is not None})
        return Order(step.name, step.agent, f"{step.words}: {_written(call)}", call)
    text = fill_text(step.prompt or "", scope)
    return Think(step.name, text) if step.agent == SUPERVISOR else Order(step.name, step.agent, text)


def _written(call: Call) -> str:
    arguments = (f"{key}={_quoted(value)}" for key, value in call.arguments.items())
    return f"{call.tool}({_cut(', '.join(arguments), _LONGEST_CALL)})"


def _quoted(value: JsonValue) -> str:
    return f'"{value}"' if isinstance(value, str) else as_text(value)


def _answer(workflow: Workflow, progress: _Progress) -> str:
    failed = [done for done in progress.done if done.status == "failed"]
    if text := _in_its_words(workflow.answer or "", progress.done):
        # A failure is never passed over, whatever the answer speaks of.
        unsaid = () if any(found.name == RESULTS for found in references(workflow.answer or "")) else _paragraphs(failed, _told)
        return "\n\n".join((text, *unsaid))
    opening = f"{workflow.title}: done{', but not every step worked' if failed else ''}."
    return "\n\n".join((opening, *_paragraphs(progress.done, _told)))


def _in_its_words(answer: str, done: Sequence[_Done]) -> str:
    """The workflow's own last words; empty when a step that may fail left them without a value."""
    try:
        return fill_text(answer, _scope(done, for_people=True)).strip()
    except MissingValue:
        return ""


def _stopped(workflow: Workflow, progress: _Progress) -> str:
    *before, last = progress.done
    parts = [f"{workflow.title} stopped: the step “{last.step.words}” failed: {_told(last.value)}"]
    if told := [*_paragraphs(before, _told)]:
        parts += ["Before that:", *told]
    if progress.rest:
        parts.append(f"Not done: {', '.join(step.words for step in progress.rest)}.")
    return "\n\n".join(parts)


def _paragraphs(done: Sequence[_Done], told: Callable[[JsonValue], str]) -> Iterator[str]:
    """What the steps gave; forms that were filled in are left out, since people know what they typed."""
    return (
        each.paragraph(told(each.value)) for each in done if each.status == "failed" or (each.status == "completed" and not each.step.form)
    )


def _told(value: JsonValue) -> str:
    """A result in words for people: without the data that follow the words, an object as its keys and values."""
    match value:
        case str():
            words, data = split_data(value)
            text = words or _told(data)
        case dict():
            text = ", ".join(f"{key}: {as_text(item)}" for key, item in value.items())
        case _:
            text = as_text(value)
    return _cut(text.strip() or "(nothing)", _LONGEST_TOLD)


def _handed_on(value: JsonValue) -> str:
    return _cut(as_text(value).strip() or "(nothing)", _LONGEST_HANDED_ON)


def _cut(text: str, longest: int) -> str:
    return text if len(text) <= longest else f"{text[:longest]}…"
