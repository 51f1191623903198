"""The next action of a workflow: a pure function of the workflow and of the outcomes of its steps so far."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pydantic import JsonValue

from ai_platform_engineering.core.events import SUPERVISOR, Form, PlanStep, StepStatus
from ai_platform_engineering.core.named_targets import NamedTargets, collect_texts
from ai_platform_engineering.core.templates import (
    MissingValue,
    TemplateScope,
    fill,
    fill_text,
    fill_tree,
    find_placeholders,
    literal_text,
    parse_value,
    split_data,
    to_text,
)
from ai_platform_engineering.core.workflows import RESULTS, Workflow, WorkflowStep

_LONGEST_FOR_PEOPLE = 2_000  # characters of one step's result in a text for people
_LONGEST_FOR_MODEL = 8_000  # and in a prompt
_LONGEST_CALL = 300


@dataclass(frozen=True, slots=True)
class StepOutcome:
    """How a step ended: a form's values, the text or JSON value of an agent or a tool, or why it failed."""

    step: str
    ok: bool
    value: JsonValue


@dataclass(frozen=True, slots=True)
class DirectToolCall:
    """One tool that an agent calls without its model."""

    tool: str
    arguments: dict[str, JsonValue]
    # The hosts that the workflow's definition itself names: who wrote it has chosen them.
    defined_targets: NamedTargets = field(default_factory=NamedTargets)


@dataclass(frozen=True, slots=True)
class AskPerson:
    """Ask a person to fill in a form."""

    step: str
    form: Form


@dataclass(frozen=True, slots=True)
class DelegateTask:
    """Delegate to an agent: the work in `text`, or `call`, which `text` then describes for people."""

    step: str
    agent: str
    text: str
    call: DirectToolCall | None = None


@dataclass(frozen=True, slots=True)
class AskModel:
    """Give a prompt to the supervisor's own model."""

    step: str
    text: str


@dataclass(frozen=True, slots=True)
class FailStep:
    """Fail the step without trying it: a value that it needs is missing."""

    step: str
    reason: str


@dataclass(frozen=True, slots=True)
class FinishWorkflow:
    """End the workflow with an answer; `failed` when a step stopped it."""

    text: str
    failed: bool


WorkflowAction = AskPerson | DelegateTask | AskModel | FailStep | FinishWorkflow
_FinalStatus = Literal["completed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class _EndedStep:
    step: WorkflowStep
    status: _FinalStatus
    value: JsonValue = None

    def paragraph(self, text: str) -> str:
        if self.status == "failed":
            return f"{self.step.display_title} (failed): {text}"
        return f"{self.step.display_title}: {text}"


@dataclass(frozen=True, slots=True)
class _WorkflowProgress:
    ended: tuple[_EndedStep, ...]
    next_step: WorkflowStep | None  # None: nothing is left to do
    stopped: bool  # by the last step of `ended`
    rest: tuple[WorkflowStep, ...]  # after `next_step`, or after the step that stopped it


def next_action(
    workflow: Workflow, values: Mapping[str, JsonValue], outcomes: Sequence[StepOutcome]
) -> WorkflowAction:
    """The next action. `values` are known before a person is asked; outcomes of unknown steps are ignored."""
    progress = _find_progress(workflow, outcomes)
    if progress.stopped:
        return FinishWorkflow(_build_failure(workflow, progress), failed=True)
    if progress.next_step is None:
        return FinishWorkflow(_build_answer(workflow, progress), failed=False)
    try:
        return _build_action(progress.next_step, _build_scope(progress.ended, _text_for_model), values)
    except MissingValue as error:
        return FailStep(progress.next_step.name, str(error))


def build_plan_steps(workflow: Workflow, outcomes: Sequence[StepOutcome]) -> tuple[PlanStep, ...]:
    """The steps with their status; the next one is in progress, and those after a failure are skipped."""
    progress = _find_progress(workflow, outcomes)
    steps = [_to_plan_step(ended.step, ended.status) for ended in progress.ended]
    if progress.next_step:
        steps.append(_to_plan_step(progress.next_step, "in_progress"))
    rest_status: StepStatus = "skipped" if progress.stopped else "pending"
    steps += [_to_plan_step(step, rest_status) for step in progress.rest]
    return tuple(steps)


def _to_plan_step(step: WorkflowStep, status: StepStatus) -> PlanStep:
    return PlanStep(step_id=step.name, title=step.display_title, agent=step.agent, status=status)


def _find_progress(workflow: Workflow, outcomes: Sequence[StepOutcome]) -> _WorkflowProgress:
    outcome_by_step = {outcome.step: outcome for outcome in outcomes}
    steps = workflow.sequence
    ended: list[_EndedStep] = []
    for index, step in enumerate(steps):
        rest = steps[index + 1 :]
        outcome = outcome_by_step.get(step.name)
        if outcome is not None:
            ended.append(_end_step(step, outcome))
            if not outcome.ok and step.on_error == "stop":
                return _WorkflowProgress(tuple(ended), None, stopped=True, rest=rest)
        elif _is_due(step, ended):
            return _WorkflowProgress(tuple(ended), step, stopped=False, rest=rest)
        else:
            ended.append(_EndedStep(step, "skipped"))
    return _WorkflowProgress(tuple(ended), None, stopped=False, rest=())


def _end_step(step: WorkflowStep, outcome: StepOutcome) -> _EndedStep:
    if not outcome.ok:
        return _EndedStep(step, "failed", to_text(outcome.value).strip() or "no reason was given")
    value = outcome.value
    if isinstance(value, str):
        value = parse_value(value)
    return _EndedStep(step, "completed", value)


def _is_due(step: WorkflowStep, ended: Sequence[_EndedStep]) -> bool:
    """Whether the step's `when` holds."""
    if step.when is None:
        return True
    try:
        return fill(step.when, _build_scope(ended, _text_for_model)) not in (None, False, "", "false", [], {})
    except MissingValue:
        return False


_ABSENCE_REASONS: Mapping[_FinalStatus, str] = {"failed": "failed", "skipped": "was left out"}


def _build_scope(ended: Sequence[_EndedStep], to_result_text: Callable[[JsonValue], str]) -> TemplateScope:
    """What the templates of the next step may name; `to_result_text` renders each result in `results`."""
    values: dict[str, JsonValue] = {}
    absent: dict[str, str] = {}
    for each in ended:
        if each.status == "completed":
            values[each.step.name] = each.value
        else:
            absent[each.step.name] = _ABSENCE_REASONS[each.status]
    values[RESULTS] = "\n\n".join(_result_paragraphs(ended, to_result_text))
    return TemplateScope(values, absent)


def _build_action(
    step: WorkflowStep, scope: TemplateScope, values: Mapping[str, JsonValue]
) -> WorkflowAction:
    if step.form:
        return AskPerson(step.name, step.build_form(scope, values))
    if step.tool is not None:
        arguments: dict[str, JsonValue] = {}
        for key, template in step.arguments.items():
            value = fill_tree(template, scope)
            if value is not None:  # an argument without a value is not passed
                arguments[key] = value
        call = DirectToolCall(step.tool, arguments, _find_defined_targets(step.arguments))
        return DelegateTask(step.name, step.agent, f"{step.display_title}: {_describe_call(call)}", call)
    text = fill_text(step.prompt or "", scope)
    if step.agent == SUPERVISOR:
        return AskModel(step.name, text)
    return DelegateTask(step.name, step.agent, text)


def _find_defined_targets(templates: Mapping[str, JsonValue]) -> NamedTargets:
    """The targets in the arguments of a definition, without what is filled in when it runs."""
    return NamedTargets.from_texts(literal_text(text) for text in collect_texts(templates))


def _describe_call(call: DirectToolCall) -> str:
    arguments = ", ".join(f"{key}={_quote(value)}" for key, value in call.arguments.items())
    return f"{call.tool}({_truncate(arguments, _LONGEST_CALL)})"


def _quote(value: JsonValue) -> str:
    if isinstance(value, str):
        return f'"{value}"'
    return to_text(value)


def _build_answer(workflow: Workflow, progress: _WorkflowProgress) -> str:
    failed = [each for each in progress.ended if each.status == "failed"]
    answer = _fill_answer(workflow, progress.ended)
    if answer:
        if _answer_has_results(workflow):
            return answer
        # A failure is always reported, even when the answer does not mention it.
        return "\n\n".join((answer, *_result_paragraphs(failed, _text_for_people)))
    summary = f"{workflow.title}: done."
    if failed:
        summary = f"{workflow.title}: done, but not every step worked."
    return "\n\n".join((summary, *_result_paragraphs(progress.ended, _text_for_people)))


def _fill_answer(workflow: Workflow, ended: Sequence[_EndedStep]) -> str:
    """The workflow's own answer; empty when a step that may fail left it without a value."""
    try:
        return fill_text(workflow.answer or "", _build_scope(ended, _text_for_people)).strip()
    except MissingValue:
        return ""


def _answer_has_results(workflow: Workflow) -> bool:
    return any(placeholder.name == RESULTS for placeholder in find_placeholders(workflow.answer or ""))


def _build_failure(workflow: Workflow, progress: _WorkflowProgress) -> str:
    *earlier, failed = progress.ended
    reason = _text_for_people(failed.value)
    paragraphs = [f"{workflow.title} stopped: the step “{failed.step.display_title}” failed: {reason}"]
    results = list(_result_paragraphs(earlier, _text_for_people))
    if results:
        paragraphs += ["Before that:", *results]
    if progress.rest:
        paragraphs.append(f"Not done: {', '.join(step.display_title for step in progress.rest)}.")
    return "\n\n".join(paragraphs)


def _result_paragraphs(
    ended: Sequence[_EndedStep], to_result_text: Callable[[JsonValue], str]
) -> Iterator[str]:
    """The results of steps; forms that were filled in are left out, since people know what they typed."""
    for each in ended:
        is_result = each.status == "completed" and not each.step.form
        if is_result or each.status == "failed":
            yield each.paragraph(to_result_text(each.value))


def _text_for_people(value: JsonValue) -> str:
    """A result for people: without the JSON that follows its text, and an object as its keys and values."""
    match value:
        case str():
            words, data = split_data(value)
            text = words or _text_for_people(data)
        case dict():
            text = ", ".join(f"{key}: {to_text(item)}" for key, item in value.items())
        case _:
            text = to_text(value)
    return _truncate(text.strip() or "(nothing)", _LONGEST_FOR_PEOPLE)


def _text_for_model(value: JsonValue) -> str:
    return _truncate(to_text(value).strip() or "(nothing)", _LONGEST_FOR_MODEL)


def _truncate(text: str, longest: int) -> str:
    if len(text) <= longest:
        return text
    return f"{text[:longest]}…"
