"""Workflows as data: what may be written, how templates are filled, and what comes next in every story."""

import contextlib
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from ai_platform_engineering.core.events import SUPERVISOR, Form
from ai_platform_engineering.core.templates import (
    BadTemplate,
    MissingValue,
    TemplateScope,
    escape_template,
    fill,
    fill_text,
    fill_tree,
    parse_value,
    split_data,
)
from ai_platform_engineering.core.workflow_actions import (
    AskModel,
    AskPerson,
    DelegateTask,
    DirectToolCall,
    FailStep,
    FinishWorkflow,
    StepOutcome,
    build_plan_steps,
    next_action,
)
from ai_platform_engineering.core.workflows import Workflow
from ai_platform_engineering.workflows.workflow_reader import check_workflow
from tests.support.strategies import examples, json_value, text

# Templates

KNOWN = TemplateScope(
    {
        "input": {"repo": "web", "private": False, "count": 0, "note": "", "tags": ["a", "b"], "none": None},
        "create": {
            "full_name": "octo/web",
            "owner": {"login": "octo"},
            "topics": [{"name": "x"}],
            "size": 12.5,
        },
        "port": 'Port 80 is open.\n{"ports":[{"state":"open"}],"open":[80]}',
        "plain": "just words",
        "results": "",
    },
    {"announce": "failed", "issue": "was left out"},
)


@pytest.mark.parametrize(
    ("template", "value"),
    [
        ("no placeholder", "no placeholder"),
        ("", ""),
        ("{{ input.repo }}", "web"),
        ("{{input.repo}}", "web"),
        (" {{ input.repo }}\n", "web"),
        ("{{ input.private }}", False),
        ("{{ input.count }}", 0),
        ("{{ input.tags }}", ["a", "b"]),
        ("{{ input.tags[1] }}", "b"),
        ("{{ create.topics[0].name }}", "x"),
        ("{{ create.size }}", 12.5),
        ("{{ create.owner }}", {"login": "octo"}),
        ("a {{ input.private }} b {{ input.count }}", "a false b 0"),
        ("{{ create.owner }}, {{ input.tags }}", '{"login": "octo"}, ["a", "b"]'),
        ("{{ input.repo }}{{ input.repo }}", "webweb"),
        ('{{ input.missing or "none" }}', "none"),
        ('{{ input.none or "none" }}', "none"),
        ('{{ input.note or "none" }}', "none"),
        ("{{ input.note }}", ""),
        ('{{ input.private or "none" }}', False),
        ('{{ input.count or "none" }}', 0),
        ('{{ input.repo or "none" }}', "web"),
        ('{{ input.missing or "" }}', ""),
        ("{{ input.missing or true }}", True),
        ("{{ input.missing or -1.5 }}", -1.5),
        ("{{ input.missing or null }}", None),
        ("[{{ input.missing or null }}]", "[]"),
        ('{{ announce or "it failed" }}', "it failed"),
        (r'{{ input.missing or "a \"b\" }} c" }}', 'a "b" }} c'),
        ("{{ port.ports[0].state }}", "open"),
        ("{{ results }}", ""),
        ('{{ "{{" }} input.repo }}', "{{ input.repo }}"),
        ("{ input.repo } }} {", "{ input.repo } }} {"),
        ("{{{ input.repo }}}", "{web}"),
    ],
)
def test_a_template_is_filled(template: str, value: JsonValue) -> None:
    filled = fill(template, KNOWN)
    assert (filled, type(filled)) == (value, type(value))


@pytest.mark.parametrize(
    ("template", "sentence"),
    [
        ("{{ input.missing }}", "The step `input` gave no `missing`."),
        ("{{ input.none }}", "The step `input` gave no `none`."),
        ("{{ input.tags[2] }}", "The step `input` gave no `tags[2]`."),
        ("{{ input.tags.first }}", "The step `input` gave no `tags.first`."),
        ("{{ create[0] }}", "The step `create` gave no `[0]`."),
        ("{{ plain.x }}", "The step `plain` gave no `x`."),
        ("{{ nobody }}", "The step `nobody` gave nothing."),
        ("a {{ announce.number }}", "The step `announce` failed, so there is no `announce.number`."),
        ("{{ issue }}", "The step `issue` was left out, so there is no `issue`."),
    ],
)
def test_a_lookup_that_finds_nothing_names_the_step_and_the_name(template: str, sentence: str) -> None:
    with pytest.raises(MissingValue) as error:
        fill(template, KNOWN)
    assert str(error.value) == sentence


@pytest.mark.parametrize(
    "template",
    [
        "{{",
        "{{ }}",
        "{{ a b }}",
        "{{ a | upper }}",
        "{{ f() }}",
        "{{ a or b }}",
        "{{ a.b ",
        "{{ 1 + 1 }}",
        '{{ "\\q" }}',
    ],
)
def test_what_is_no_placeholder_is_a_mistake(template: str) -> None:
    with pytest.raises(BadTemplate, match="one is written as"):
        fill(template, KNOWN)


def test_all_texts_of_a_tree_are_filled() -> None:
    tree: JsonValue = {
        "{{ input.repo }}": ["{{ input.private }}", 3, {"deep": "x-{{ input.repo }}"}],
        "none": None,
    }
    assert fill_tree(tree, KNOWN) == {"{{ input.repo }}": [False, 3, {"deep": "x-web"}], "none": None}


@pytest.mark.parametrize(
    ("text", "value", "words"),
    [
        ('{"a": 1}', {"a": 1}, ""),
        (' ["x"]\n', ["x"], ' ["x"]\n'),
        ("true", True, "true"),
        ("12", 12, "12"),
        ("NaN", "NaN", "NaN"),
        ('{"a": NaN}', {"a": "NaN"}, ""),
        ("two words", "two words", "two words"),
        ("{not json", "{not json", "{not json"),
        ('It is open.\n{"open": [80]}', 'It is open.\n{"open": [80]}', "It is open."),
        ("See\n[this] page", "See\n[this] page", "See\n[this] page"),
        ("1" * 5000, "1" * 5000, "1" * 5000),
    ],
)
def test_a_result_is_read(text: str, value: JsonValue, words: str) -> None:
    assert (parse_value(text), split_data(text)[0]) == (value, words)


@given(text | st.text(alphabet='{} "a', max_size=12))
def test_any_text_survives_as_a_literal(anything: str) -> None:
    assert fill_text(escape_template(anything), TemplateScope()) == anything


@given(st.text(alphabet='{}" .ab[0]or\n\\', max_size=30) | text)
@examples(300)
def test_a_template_is_filled_or_refused(template: str) -> None:
    with contextlib.suppress(BadTemplate, MissingValue):
        fill(template, TemplateScope({"a": {"b": [1]}}))


# What may be written

REPO: dict[str, Any] = {
    "name": "create-repo",
    "title": "Create Repo",
    "description": "Creates one.",
    "phrases": ["new repo"],
    "form": {
        "title": "Repo",
        "response": "Details, please.",
        "fields": [
            {"name": "repo", "label": "Repository", "pattern": "[a-z-]+", "max_length": 8},
            {"name": "private", "type": "boolean", "default": True},
            {
                "name": "size",
                "type": "select",
                "values": ["s", "m"],
                "default": "s",
                "description": "How big?",
                "required": False,
            },
        ],
    },
    "steps": [
        {
            "name": "create",
            "title": "Create it",
            "agent": "github",
            "tool": "create_repository",
            "arguments": {
                "name": "{{ input.repo }}",
                "private": "{{ input.private }}",
                "team": "{{ input.size or null }}",
            },
        },
        {
            "name": "announce",
            "agent": "github",
            "prompt": "Announce {{ create.full_name }}.",
            "on_error": "continue",
        },
        {
            "name": "more",
            "title": "More",
            "form": {
                "description": "For {{ create.full_name }}.",
                "fields": [
                    {"name": "topic", "default": "{{ announce.topic }}", "required": False},
                    {"name": "repo", "default": "{{ input.repo }}-docs"},
                    {"name": "count", "type": "integer", "default": "{{ create.count or 3 }}"},
                ],
            },
        },
        {"name": "report", "prompt": "Report {{ more.repo }} from:\n{{ results }}"},
    ],
    "answer": 'Created {{ create.full_name }} ({{ more.topic or "no topic" }}). {{ report }}',
}


def changed(**more: Any) -> dict[str, Any]:
    return {**REPO, **more}


def with_step(**more: Any) -> dict[str, Any]:
    """A workflow with a form and one more step after it."""
    return changed(steps=[{"name": "one", **more}], answer=None)


def with_field(**more: Any) -> dict[str, Any]:
    return changed(form={"fields": [{"name": "it", **more}]}, steps=[], answer=None)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (changed(stages=[]), "unknown key `stages`; did you mean `steps`?"),
        (
            changed(name="Create Repo"),
            "`name` is made of a-z, 0-9 and -, and starts with a letter or a digit",
        ),
        ({"name": "x", "title": "X", "steps": [{"name": "a", "prompt": "b"}]}, "`description` is missing"),
        (changed(form=None, steps=[], answer=None), "it needs a `form` or `steps`"),
        (changed(steps="all"), "`steps`: must be a list"),
        (changed(steps=["all"]), "step 1: must be a mapping of keys and values"),
        (changed(title=7), "`title`: must be text; numbers, true, false and what begins with { need quotes"),
        (with_step(promt="x"), "step `one`: unknown key `promt`; did you mean `prompt`?"),
        (
            with_step(prompt=3),
            "step `one`, `prompt`: must be text; numbers, true, false and what begins with { need quotes",
        ),
        (with_step(), "step `one`: it needs exactly one of `form`, `tool` and `prompt`, and has none"),
        (
            with_step(agent="x", tool="y", prompt="z"),
            "step `one`: it needs exactly one of `form`, `tool` and `prompt`, and has tool and prompt",
        ),
        (with_step(tool="y"), "step `one`: `tool` is one tool of an agent: it needs an `agent`"),
        (with_step(agent="x", prompt="z", arguments={"a": 1}), "step `one`: `arguments` go with `tool`"),
        (with_step(prompt=" "), "step `one`: `prompt` is empty"),
        (
            with_step(agent="Git Hub", prompt="z"),
            "step `one`: `agent` is the name of an agent: a-z, 0-9, _ and -, starting with a letter",
        ),
        (
            with_step(agent="x", form={"fields": [{"name": "a"}]}),
            "step `one`: `form` asks a person: it goes without `agent` and `arguments`",
        ),
        (
            with_step(prompt="x", on_error="ignore"),
            "step `one`, `on_error`: Input should be 'stop' or 'continue'",
        ),
        (
            with_step(name="input", prompt="x"),
            "step `input`: the name is that of the workflow's own `form`; choose another",
        ),
        (
            with_step(name="results", prompt="x"),
            "step `results`: the name means what all steps gave; choose another",
        ),
        (
            with_step(name="One", prompt="x"),
            "step `One`: `name` is made of a-z, 0-9, _ and -, and starts with a letter",
        ),
        (
            changed(steps=[{"name": "a", "prompt": "x"}] * 2, answer=None),
            "step `a`: the name is taken by a step before it",
        ),
        (
            with_step(prompt="{{ two.x }}"),
            "step `one`, `prompt`: `two.x` names no form and no step before it; there are `input`, `results`",
        ),
        (
            with_step(prompt="{{ one }}"),
            "step `one`, `prompt`: `one` names no form and no step before it; there are `input`, `results`",
        ),
        (
            with_step(agent="x", tool="y", arguments={"a": [{"b": "{{ input.owner }}"}]}),
            "step `one`, `arguments.a[0].b`: `input.owner`: the form has no such field; "
            "its fields are `private`, `repo`, `size`",
        ),
        (
            with_step(prompt="x", when="{{ input[0] }}"),
            "step `one`, `when`: `input[0]`: the form has no such field; "
            "its fields are `private`, `repo`, `size`",
        ),
        (
            changed(steps=[], answer="{{ create.x }}"),
            "`answer`: `create.x` names no form and no step before it; there are `input`, `results`",
        ),
        (
            with_step(form={"fields": [{"name": "a", "default": "{{ x }}"}]}),
            "step `one`, field `a`, `default`: `x` names no form and no step before it; "
            "there are `input`, `results`",
        ),
        (
            changed(form={"response": "{{ results }}", "fields": [{"name": "it"}]}, steps=[], answer=None),
            "the form, `response`: `results` names no form and no step before it; there are none",
        ),
        (
            changed(answer="{{ more.nope }}"),
            "`answer`: `more.nope`: the form has no such field; its fields are `count`, `repo`, `topic`",
        ),
        (with_step(form={"fields": []}), "step `one`: `fields` is empty"),
        (
            with_field(field_type="text"),
            "the form, field `it`: unknown key `field_type`; did you mean `type`?",
        ),
        (with_field(type="secret"), "the form, field `it`, `type`: Input should be"),
        (
            with_field(pattern="[a-z"),
            "the form, field `it`: `pattern`: the pattern cannot be used (unclosed character class)",
        ),
        (
            with_field(pattern="(?=a)b"),
            "the form, field `it`: `pattern`: the pattern cannot be used (look-around, including",
        ),
        (
            with_field(type="select"),
            "the form, field `it`: `values` is missing: a select needs what can be chosen",
        ),
        (
            with_field(type="select", values=["a"], default="b"),
            "the form, field `it`: `default`: it must be one of a.",
        ),
        (
            with_field(type="integer", default="many"),
            "the form, field `it`: `default`: it must be a whole number.",
        ),
        (
            with_field(type="integer", default=10**400),
            "the form, field `it`: `default`: it must be a whole number.",
        ),
        (
            with_field(pattern="[a-z]+", default="B"),
            "the form, field `it`: `default`: it must consist of lowercase letters.",
        ),
        (
            with_field(values=[1]),
            "the form, field `it`, `values`: must be text; "
            "numbers, true, false and what begins with { need quotes",
        ),
        (
            changed(form={"fields": [{"name": "a"}] * 2}, steps=[], answer=None),
            "the form: `fields`: the name `a` is taken twice",
        ),
        (
            changed(form={"fields": [{"name": "a b"}]}),
            "the form, field `a b`: `name` is made of letters, digits, _ and -, and starts",
        ),
    ],
)
def test_a_mistake_names_the_step_and_the_field(data: dict[str, Any], problem: str) -> None:
    workflow, problems = check_workflow(data)
    assert workflow is None
    assert len(problems) == 1
    assert problems[0].startswith(problem)


def test_all_mistakes_are_told_at_once() -> None:
    steps = [{"name": "a", "prompt": "{{ x }}"}, {"name": "a", "prompt": "{{ y"}]
    assert [problem.partition(": ")[0] for problem in check_workflow(changed(steps=steps))[1]] == [
        "step `a`, `prompt`",
        "step `a`",
        "step `a`, `prompt`",
        "`answer`",
        "`answer`",
        "`answer`",
    ]


# What comes next

WORKFLOW = Workflow.model_validate(REPO)
FILLED = StepOutcome("input", ok=True, value={"repo": "web", "private": False})
CREATED = StepOutcome("create", ok=True, value='{"full_name": "octo/web"}')
ANNOUNCED = StepOutcome("announce", ok=True, value='Done.\n{"topic": "infra"}')
NOT_ANNOUNCED = StepOutcome("announce", ok=False, value="The chat is closed.")
MORE = StepOutcome("more", ok=True, value={"repo": "docs"})
REPORTED = StepOutcome("report", ok=True, value="All is well.")


def statuses(*outcomes: StepOutcome) -> list[str]:
    return [step.status for step in build_plan_steps(WORKFLOW, outcomes)]


def next_form(*outcomes: StepOutcome, **values: JsonValue) -> Form:
    move = next_action(WORKFLOW, values, outcomes)
    assert isinstance(move, AskPerson)
    return move.form


def test_a_story_that_goes_well() -> None:
    form = next_form()
    assert (form.title, form.description, form.response) == ("Repo", None, "Details, please.")
    repo, private, size = form.fields
    assert (repo.field_name, repo.field_label, repo.pattern, repo.max_length, repo.required) == (
        "repo",
        "Repository",
        "[a-z-]+",
        8,
        True,
    )
    assert (private.field_type, private.default_value, private.value) == ("boolean", True, None)
    assert (size.field_values, size.default_value, size.field_description, size.required) == (
        ("s", "m"),
        "s",
        "How big?",
        False,
    )

    call = DirectToolCall("create_repository", {"name": "web", "private": False})
    assert next_action(WORKFLOW, {}, [FILLED]) == DelegateTask(
        "create", "github", 'Create it: create_repository(name="web", private=false)', call
    )
    assert next_action(WORKFLOW, {}, [FILLED, CREATED]) == DelegateTask(
        "announce", "github", "Announce octo/web."
    )

    more = next_form(FILLED, CREATED, ANNOUNCED)
    assert (more.title, more.description) == ("More", "For octo/web.")
    assert [(field.field_name, field.default_value) for field in more.fields] == [
        ("topic", "infra"),
        ("repo", "web-docs"),
        ("count", 3),
    ]

    results = 'Create it: {"full_name": "octo/web"}\n\nAnnounce: Done.\n{"topic": "infra"}'
    assert next_action(WORKFLOW, {}, [FILLED, CREATED, ANNOUNCED, MORE]) == AskModel(
        "report", f"Report docs from:\n{results}"
    )
    ended = next_action(WORKFLOW, {}, [FILLED, CREATED, ANNOUNCED, MORE, REPORTED])
    assert ended == FinishWorkflow("Created octo/web (no topic). All is well.", failed=False)


def test_the_plan_of_a_story() -> None:
    first = [(step.step_id, step.title, step.agent) for step in build_plan_steps(WORKFLOW, [])]
    assert first == [
        ("input", "Repo", SUPERVISOR),
        ("create", "Create it", "github"),
        ("announce", "Announce", "github"),
        ("more", "More", SUPERVISOR),
        ("report", "Report", SUPERVISOR),
    ]
    assert statuses() == ["in_progress", *["pending"] * 4]
    assert statuses(FILLED, CREATED) == ["completed", "completed", "in_progress", "pending", "pending"]
    assert statuses(FILLED, CREATED, NOT_ANNOUNCED) == [
        "completed",
        "completed",
        "failed",
        "in_progress",
        "pending",
    ]
    assert statuses(FILLED, StepOutcome("create", ok=False, value="no")) == [
        "completed",
        "failed",
        *["skipped"] * 3,
    ]
    assert statuses(FILLED, CREATED, ANNOUNCED, MORE, REPORTED) == ["completed"] * 5


def test_a_failed_step_stops_the_story_and_says_what_was_done_and_what_not() -> None:
    failed = StepOutcome("report", ok=False, value="No model.")
    move = next_action(WORKFLOW, {}, [FILLED, CREATED, NOT_ANNOUNCED, MORE, failed])
    assert move == FinishWorkflow(
        "Create Repo stopped: the step “Report” failed: No model.\n\n"
        "Before that:\n\nCreate it: full_name: octo/web\n\n"
        "Announce (failed): The chat is closed.",
        failed=True,
    )
    early = next_action(WORKFLOW, {}, [FILLED, StepOutcome("create", ok=False, value=None)])
    assert early == FinishWorkflow(
        "Create Repo stopped: the step “Create it” failed: no reason was given\n\n"
        "Not done: Announce, More, Report.",
        failed=True,
    )


def test_a_step_that_may_fail_is_passed_over_but_not_in_silence() -> None:
    more = next_form(FILLED, CREATED, NOT_ANNOUNCED)
    assert [field.default_value for field in more.fields] == [None, "web-docs", 3]
    ended = next_action(WORKFLOW, {}, [FILLED, CREATED, NOT_ANNOUNCED, MORE, REPORTED])
    assert ended == FinishWorkflow(
        "Created octo/web (no topic). All is well.\n\nAnnounce (failed): The chat is closed.", failed=False
    )


def test_a_step_that_needs_the_value_of_a_failed_one_fails_untried() -> None:
    data = with_step(agent="x", prompt="One", on_error="continue")
    data["steps"].append({"name": "two", "agent": "x", "prompt": "Two {{ one.id }}", "on_error": "continue"})
    workflow = Workflow.model_validate({**data, "answer": "{{ one }} {{ two }}"})
    story = [FILLED, StepOutcome("one", ok=False, value="Too late.")]
    fail = next_action(workflow, {}, story)
    assert fail == FailStep("two", "The step `one` failed, so there is no `one.id`.")
    assert isinstance(fail, FailStep)
    assert next_action(
        workflow, {}, [*story, StepOutcome("two", ok=False, value=fail.reason)]
    ) == FinishWorkflow(
        "Create Repo: done, but not every step worked.\n\nOne (failed): Too late.\n\n"
        "Two (failed): The step `one` failed, so there is no `one.id`.",
        failed=False,
    )


def test_a_form_that_was_not_filled_in_is_told() -> None:
    workflow = Workflow.model_validate(with_step(form={"fields": [{"name": "a"}]}, on_error="continue"))
    move = next_action(workflow, {}, [FILLED, StepOutcome("one", ok=False, value="Nobody answered.")])
    assert move == FinishWorkflow(
        "Create Repo: done, but not every step worked.\n\nOne (failed): Nobody answered.", failed=False
    )


def test_without_an_answer_every_step_is_told_in_words_and_bounded() -> None:
    workflow = Workflow.model_validate(changed(answer=None))
    long = StepOutcome("report", ok=True, value="x" * 5000)
    move = next_action(workflow, {}, [FILLED, CREATED, ANNOUNCED, MORE, long])
    assert move == FinishWorkflow(
        f"Create Repo: done.\n\nCreate it: full_name: octo/web\n\nAnnounce: Done.\n\nReport: {'x' * 2000}…",
        failed=False,
    )


@pytest.mark.parametrize(
    ("value", "is_due"),
    [("x", True), ("", False), (None, False), (False, False), (True, True), ([], False), ("false", False)],
)
def test_a_step_is_left_out_when_its_condition_gives_nothing(value: JsonValue, is_due: bool) -> None:
    steps = [
        {"name": "one", "agent": "x", "prompt": "One", "when": "{{ input.repo }}"},
        {"name": "two", "prompt": '{{ one or "left out" }}'},
    ]
    workflow = Workflow.model_validate(changed(steps=steps, answer=None))
    story = [StepOutcome("input", ok=True, value={"repo": value})]
    expected = (
        (DelegateTask("one", "x", "One"), "in_progress")
        if is_due
        else (AskModel("two", "left out"), "skipped")
    )
    assert (next_action(workflow, {}, story), build_plan_steps(workflow, story)[1].status) == expected


def test_what_is_known_is_filled_in_and_asked_all_the_same() -> None:
    form = next_form(repo="docs", private="no", size="huge", stranger=1)
    assert [field.value for field in form.fields] == ["docs", False, None]
    assert [field.value for field in next_form(repo="Not a name").fields] == [None, None, None]
    assert [field.value for field in next_form(FILLED, CREATED, ANNOUNCED, repo="docs").fields] == [
        None,
        "docs",
        None,
    ]


def test_what_a_person_typed_stays_text() -> None:
    story = [StepOutcome("input", ok=True, value={"repo": "12", "private": True})]
    move = next_action(WORKFLOW, {}, story)
    assert isinstance(move, DelegateTask)
    assert move.call == DirectToolCall("create_repository", {"name": "12", "private": True})


def test_outcomes_of_steps_that_do_not_exist_count_for_nothing() -> None:
    assert next_action(
        WORKFLOW, {}, [StepOutcome("", ok=False, value=None), StepOutcome("later", ok=True, value=1)]
    ) == next_action(WORKFLOW, {}, [])
    assert statuses(CREATED, REPORTED) == statuses()


names = st.sampled_from(["input", "create", "announce", "more", "report", "results", ""]) | text
outcome = st.builds(StepOutcome, step=names, ok=st.booleans() | st.just(True), value=json_value)


@given(st.dictionaries(names, json_value, max_size=3), st.lists(outcome, max_size=8))
@examples(60)
def test_there_is_always_a_next_move_and_a_plan(
    values: dict[str, JsonValue], outcomes: list[StepOutcome]
) -> None:
    move = next_action(WORKFLOW, values, outcomes)
    assert not isinstance(move, FinishWorkflow) or move.text
    plan = build_plan_steps(WORKFLOW, outcomes)
    assert [step.step_id for step in plan] == [step.name for step in WORKFLOW.sequence]
    running = [step.step_id for step in plan if step.status == "in_progress"]
    assert running == ([] if isinstance(move, FinishWorkflow) else [move.step])
