"""What a workflow does next: a pure function of the workflow and of what its steps gave so far."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from ai_platform_engineering.core.events import SUPERVISOR, Form, PlanStep, StepStatus
from ai_platform_engineering.core.templates import (
    MissingValue,
    TemplateScope,
    fill,
    fill_text,
    fill_tree,
    read_value,
    references,
    split_data,
    to_text,
)
from ai_platform_engineering.core.workflows import RESULTS, Workflow, WorkflowStep

_LONGEST_TOLD = 2_000  # characters of one step's result in words for people
_LONGEST_HANDED_ON = 8_000  # and in a prompt
_LONGEST_CALL = 300


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step ended: a form's values, an agent's or a tool's text (or the value it says), or why it failed."""

    step: str
    ok: bool
    value: JsonValue


@dataclass(frozen=True, slots=True)
class DirectToolCall:
    """One tool, without the model of its agent."""

    tool: str
    arguments: dict[str, JsonValue]


@dataclass(frozen=True, slots=True)
class AskPerson:
    """A person is asked."""

    step: str
    form: Form


@dataclass(frozen=True, slots=True)
class DelegateTask:
    """An agent does it: what `text` says, or `call`, which `text` then describes for people."""

    step: str
    agent: str
    text: str
    call: DirectToolCall | None = None


@dataclass(frozen=True, slots=True)
class AskModel:
    """The supervisor's own model does it."""

    step: str
    text: str


@dataclass(frozen=True, slots=True)
class FailStep:
    """The step lacks what it needs: it failed without being tried."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class FinishWorkflow:
    """The last words; `failed` when a step stopped the workflow."""

    text: str
    failed: bool


WorkflowAction = AskPerson | DelegateTask | AskModel | FailStep | FinishWorkflow
_Ending = Literal["completed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class _Done:
    """A step that is over."""

    step: WorkflowStep
    status: _Ending
    value: JsonValue = None

    def paragraph(self, text: str) -> str:
        return f"{self.step.display_title}{' (failed)' if self.status == 'failed' else ''}: {text}"


@dataclass(frozen=True, slots=True)
class _Progress:
    done: tuple[_Done, ...]
    following: WorkflowStep | None  # None: nothing is left to do
    stopped: bool  # by the last step of `done`
    rest: tuple[WorkflowStep, ...]  # after `following`, or after what stopped it


def next_action(
    workflow: Workflow, given: Mapping[str, JsonValue], outcomes: Sequence[StepOutcome]
) -> WorkflowAction:
    """The next move; `given` are values that are known before a person is asked. Outcomes of steps that do not exist count for nothing."""
    progress = _progress(workflow, outcomes)
    if progress.stopped:
        return FinishWorkflow(_stopped(workflow, progress), failed=True)
    if progress.following is None:
        return FinishWorkflow(_answer(workflow, progress), failed=False)
    try:
        return _move(progress.following, _scope(progress.done), given)
    except MissingValue as error:
        return FailStep(progress.following.name, str(error))


def build_plan_steps(workflow: Workflow, outcomes: Sequence[StepOutcome]) -> tuple[PlanStep, ...]:
    """The steps with their state; the one that comes next is in progress, and those after a failure are skipped."""
    progress = _progress(workflow, outcomes)
    steps = [_planned(done.step, done.status) for done in progress.done]
    if progress.following:
        steps.append(_planned(progress.following, "in_progress"))
    return (*steps, *(_planned(step, "skipped" if progress.stopped else "pending") for step in progress.rest))


def _planned(step: WorkflowStep, status: StepStatus) -> PlanStep:
    return PlanStep(step_id=step.name, title=step.display_title, agent=step.agent, status=status)


def _progress(workflow: Workflow, outcomes: Sequence[StepOutcome]) -> _Progress:
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


def _ended(step: WorkflowStep, outcome: StepOutcome) -> _Done:
    if not outcome.ok:
        return _Done(step, "failed", to_text(outcome.value).strip() or "no reason was given")
    return _Done(
        step, "completed", read_value(outcome.value) if isinstance(outcome.value, str) else outcome.value
    )


def _is_wanted(step: WorkflowStep, done: Sequence[_Done]) -> bool:
    if step.when is None:
        return True
    try:
        return fill(step.when, _scope(done)) not in (None, False, "", "false", [], {})
    except MissingValue:
        return False


_WHY: Mapping[_Ending, str] = {"failed": "failed", "skipped": "was left out"}


def _scope(done: Sequence[_Done], *, for_people: bool = False) -> TemplateScope:
    values: dict[str, JsonValue] = {each.step.name: each.value for each in done if each.status == "completed"}
    values[RESULTS] = "\n\n".join(_paragraphs(done, _told if for_people else _handed_on))
    return TemplateScope(values, {each.step.name: _WHY[each.status] for each in done if each.status in _WHY})


def _move(step: WorkflowStep, scope: TemplateScope, given: Mapping[str, JsonValue]) -> WorkflowAction:
    if step.form:
        return AskPerson(step.name, step.build_form(scope, given))
    if step.tool is not None:
        # An argument without a value is one that is not given.
        filled = {key: fill_tree(value, scope) for key, value in step.arguments.items()}
        call = DirectToolCall(step.tool, {key: value for key, value in filled.items() if value is not None})
        return DelegateTask(step.name, step.agent, f"{step.display_title}: {_written(call)}", call)
    text = fill_text(step.prompt or "", scope)
    if step.agent == SUPERVISOR:
        return AskModel(step.name, text)
    return DelegateTask(step.name, step.agent, text)


def _written(call: DirectToolCall) -> str:
    arguments = (f"{key}={_quoted(value)}" for key, value in call.arguments.items())
    return f"{call.tool}({_cut(', '.join(arguments), _LONGEST_CALL)})"


def _quoted(value: JsonValue) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return to_text(value)


def _answer(workflow: Workflow, progress: _Progress) -> str:
    failed = [done for done in progress.done if done.status == "failed"]
    if text := _in_its_words(workflow.answer or "", progress.done):
        # A failure is never passed over, whatever the answer speaks of.
        unsaid = (
            ()
            if any(found.name == RESULTS for found in references(workflow.answer or ""))
            else _paragraphs(failed, _told)
        )
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
    parts = [f"{workflow.title} stopped: the step “{last.step.display_title}” failed: {_told(last.value)}"]
    if told := [*_paragraphs(before, _told)]:
        parts += ["Before that:", *told]
    if progress.rest:
        parts.append(f"Not done: {', '.join(step.display_title for step in progress.rest)}.")
    return "\n\n".join(parts)


def _paragraphs(done: Sequence[_Done], told: Callable[[JsonValue], str]) -> Iterator[str]:
    """What the steps gave; forms that were filled in are left out, since people know what they typed."""
    return (
        each.paragraph(told(each.value))
        for each in done
        if each.status == "failed" or (each.status == "completed" and not each.step.form)
    )


def _told(value: JsonValue) -> str:
    """A result in words for people: without the data that follow the words, an object as its keys and values."""
    match value:
        case str():
            words, data = split_data(value)
            text = words or _told(data)
        case dict():
            text = ", ".join(f"{key}: {to_text(item)}" for key, item in value.items())
        case _:
            text = to_text(value)
    return _cut(text.strip() or "(nothing)", _LONGEST_TOLD)


def _handed_on(value: JsonValue) -> str:
    return _cut(to_text(value).strip() or "(nothing)", _LONGEST_HANDED_ON)


def _cut(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}…"
