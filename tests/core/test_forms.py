"""Answers to requests: every field type, every error, and every shape that clients send."""

import json
import secrets
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from ai_platform_engineering.core.events import (
    Approval,
    DataPart,
    Form,
    InputField,
    InputRequested,
    InputResolved,
    TextPart,
)
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.runtime.runs.answers import ParsedAnswers, read_answers
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, supervisor

CHOICE = {"field_values": ("dev", "prod")}


def make_field(field_type: str = "text", **more: Any) -> InputField:
    return InputField.model_validate(
        {"field_name": "it", "field_label": "It", "field_type": field_type, **more}
    )


@pytest.mark.parametrize(
    ("field", "sent_value", "value"),
    [
        (make_field(), "web", "web"),
        (make_field(), 7, "7"),
        (make_field(pattern="[a-z-]+"), "a-b", "a-b"),
        (make_field(pattern="[broken"), "anything", "anything"),
        (make_field(pattern="x+"), "x" * 1_000, "x" * 1_000),
        (make_field(min_length=2, max_length=3), "ab", "ab"),
        (make_field(min_length=2, max_length=3), "abc", "abc"),
        (make_field(required=False), "", None),
        (make_field(required=False), None, None),
        (make_field(default_value="web"), None, "web"),
        (make_field("textarea"), "a\nb", "a\nb"),
        (make_field("select", **CHOICE), "dev", "dev"),
        (make_field("multiselect", **CHOICE), ["dev", "prod"], ["dev", "prod"]),
        (make_field("multiselect", **CHOICE), "prod, dev", ["prod", "dev"]),
        (make_field("boolean"), False, False),
        (make_field("boolean"), "Yes", True),
        (make_field("integer", minimum=0, maximum=5), 5, 5),
        (make_field("integer", minimum=0, maximum=5), 0, 0),
        (make_field("integer"), "12", 12),
        (make_field("integer"), 3.0, 3),
        (make_field("integer"), str(2**70), 2**70),
        (make_field("number"), "1.5", 1.5),
        (make_field("date"), "2026-02-28", "2026-02-28"),
        (make_field("url"), "https://example.com/a", "https://example.com/a"),
        (make_field("email"), "me@example.com", "me@example.com"),
        (make_field("email"), f"{'m' * 308}@example.com", f"{'m' * 308}@example.com"),
    ],
)
def test_a_value_in_the_fields_type(field: InputField, sent_value: Any, value: Any) -> None:
    good, wrong = check_form(Form(fields=(field,)), {} if sent_value is None else {"it": sent_value})
    assert (good, wrong) == ({} if value is None else {"it": value}, {})
    assert type(good.get("it")) is type(value)


@pytest.mark.parametrize(
    ("field", "sent_value", "sentence"),
    [
        (make_field(), None, "It is required."),
        (make_field(), "", "It is required."),
        (make_field(), ["a"], "It must be a text."),
        (make_field(), True, "It must be a text."),
        (make_field(pattern="[a-z-]+"), "A b", "It must consist of lowercase letters and hyphens."),
        (make_field(pattern="x+", max_length=99_999), "x" * 10_001, "It must consist of x."),
        (make_field(pattern="(a+)+b"), "a" * 10_000, "It must look like ab."),
        (make_field("email"), "a@" + "." * 9_000 + " ", "It must be a mail address."),
        (make_field(min_length=2), "a", "It must have at least 2 characters."),
        (make_field(max_length=2), "abc", "It must have at most 2 characters."),
        (make_field(), "x" * 10_001, "It must have at most 10000 characters."),
        (make_field("select", **CHOICE), "test", "It must be one of dev, prod."),
        (make_field("multiselect", **CHOICE), ["dev", "test"], "It must be one of dev, prod."),
        (make_field("multiselect", **CHOICE), 3, "It must be a list."),
        (make_field("boolean"), "perhaps", "It must be yes or no."),
        (make_field("integer"), "1.5", "It must be a whole number."),
        (make_field("integer"), True, "It must be a whole number."),
        (make_field("integer", minimum=0), -1, "It must be at least 0."),
        (make_field("number", maximum=1), 2, "It must be at most 1."),
        (make_field("number"), "nan", "It must be a number."),
        (make_field("number"), {}, "It must be a number."),
        (make_field("date"), "31.1.2026", "It must be a date such as 2026-01-31."),
        (make_field("url"), "ftp://example.com", "It must be a URL such as https://example.com."),
        (make_field("url"), "https://", "It must be a URL such as https://example.com."),
        (make_field("email"), "me@example", "It must be a mail address."),
        (make_field("email"), f"{'m' * 309}@example.com", "It must be a mail address."),
    ],
)
def test_a_value_that_does_not_fit_is_told_by_its_field(
    field: InputField, sent_value: Any, sentence: str
) -> None:
    _, wrong = check_form(Form(fields=(field,)), {} if sent_value is None else {"it": sent_value})
    assert wrong == {"it": sentence}


def test_a_field_that_does_not_exist_is_told() -> None:
    _, wrong = check_form(Form(fields=(make_field(),)), {"it": "x", "that": 1})
    assert wrong == {"that": "There is no field that; the fields are it."}


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
)


@given(
    st.sampled_from(
        ["text", "textarea", "select", "multiselect", "boolean", "integer", "number", "date", "url", "email"]
    ),
    JSON,
)
def test_whatever_is_answered_is_taken_or_told(field_type: str, value: Any) -> None:
    good, wrong = check_form(Form(fields=(make_field(field_type, **CHOICE),)), {"it": value})
    assert len(good) + len(wrong) == 1
    json.dumps(good, allow_nan=False)


# --- which request is meant ---------------------------------------------------------------------------------

CREATE, DELETE = (
    InputRequested(request_id=tool, asked=Approval(tool=tool, arguments={"n": 1}))
    for tool in ("create", "delete")
)
FORM = InputRequested(request_id="form", asked=Form(title="Form", fields=(make_field(),)))
NOTE = InputRequested(request_id="note", asked=Form(title="Note", fields=(make_field("textarea"),)))
YES, NO = {"type": "approve"}, {"type": "reject"}
WHICH = "Say which request each decision is for."


def inputs(**values: Any) -> dict[str, Any]:
    return {"type": "edit", "args": {"args": {"user_inputs": values}}}


def read(data: Any, *pending: InputRequested) -> ParsedAnswers:
    return read_answers([DataPart(data=data)], pending)


@pytest.mark.parametrize(
    ("decisions", "pending", "values"),
    [
        ([{**YES, "action_name": "delete"}], (CREATE, DELETE, FORM), {"delete": YES}),
        (
            [{**NO, "action_name": "delete"}, {**YES, "action_name": "create"}],
            (CREATE, DELETE),
            {"create": YES, "delete": NO},
        ),
        (
            [{"type": "accept"}, {"type": "response", "message": "no"}],
            (CREATE, DELETE),
            {"create": YES, "delete": {**NO, "message": "no"}},
        ),
        ([YES], (CREATE,), {"create": YES}),
        ([YES], (FORM, CREATE), {"create": YES}),
        ([inputs(it="x"), YES], (FORM, CREATE), {"form": {"it": "x"}, "create": YES}),
        ([{**inputs(it="x"), "action_name": "CAIPEAgentResponse"}], (CREATE, FORM), {"form": {"it": "x"}}),
        (
            [{**NO, "action_name": "CAIPEAgentResponse", "message": "no"}],
            (CREATE, FORM),
            {"form": {**NO, "message": "no"}},
        ),
        (
            [{"type": "edit", "edited_action": {"name": "create", "args": {"n": 2}}}],
            (DELETE, CREATE),
            {"create": {"type": "edit", "arguments": {"n": 2}}},
        ),
        ([{**YES, "action_name": "create", "args": {"args": {"n": 1}}}], (CREATE, DELETE), {"create": YES}),
    ],
)
def test_a_decision_is_for_the_request_that_it_names_or_that_alone_can_be_meant(
    decisions: Any, pending: Any, values: Any
) -> None:
    answers = read({"resume": {"decisions": decisions}}, *pending)
    assert (answers.values, answers.wrong, answers.unmatched) == (values, {}, [])


@pytest.mark.parametrize(
    ("decisions", "pending", "stray"),
    [
        ([{**YES, "action_name": "destroy"}], (CREATE,), ["No open request is called destroy."]),
        ([{**YES, "action_name": "destroy"}], (CREATE, DELETE, FORM), ["No open request is called destroy."]),
        (
            [{"type": "edit", "edited_action": {"name": "destroy", "args": {}}}],
            (CREATE,),
            ["No open request is called destroy."],
        ),
        ([YES], (CREATE, DELETE), [WHICH]),
        ([YES, YES, YES], (CREATE, DELETE), [WHICH, WHICH, WHICH]),
        ([inputs(it="x")], (FORM, NOTE), [WHICH]),
        ([inputs(it="x")], (CREATE,), [WHICH]),
        (
            [{**NO, "action_name": "CAIPEAgentResponse"}],
            (CREATE,),
            ["No open request is called CAIPEAgentResponse."],
        ),
        (["approve"], (CREATE,), ["A decision is an object with a `type`."]),
    ],
)
def test_a_decision_that_fits_nothing_is_given_to_no_other_request(
    decisions: Any, pending: Any, stray: list[str]
) -> None:
    answers = read({"resume": {"decisions": decisions}}, *pending)
    assert (answers.values, answers.wrong, answers.unmatched) == ({}, {}, stray)
    assert answers.describe_problems() == " ".join(stray)


def test_two_calls_of_one_tool_are_decided_in_their_order() -> None:
    again = CREATE.model_copy(update={"request_id": "again"})
    both = [{**YES, "action_name": "create"}, {**NO, "action_name": "create"}]
    assert read({"resume": {"decisions": both}}, CREATE, again).values == {"create": YES, "again": NO}
    third = read({"resume": {"decisions": [*both, {**YES, "action_name": "create"}]}}, CREATE, again)
    assert (len(third.values), third.unmatched) == (2, ["No open request is called create."])


@pytest.mark.parametrize(
    ("decision_value", "wrong"),
    [
        ({"type": "perhaps"}, {"type": "The decision on create is one of approve, edit, reject."}),
        ({}, {"type": "The decision on create is one of approve, edit, reject."}),
        ("approve", {"": "The decision on create is one of approve, edit, reject, as `type`."}),
        ({"type": "edit"}, {"arguments": "An edit of create needs its `arguments`."}),
        (
            {"type": "approve", "arguments": {"n": 2}},
            {
                "arguments": "An approval of create changes no arguments: "
                "to change them, send the type `edit`."
            },
        ),
    ],
)
def test_a_decision_that_is_none_leaves_the_request_open(decision_value: Any, wrong: Any) -> None:
    answers = read({"resume": {"create": decision_value, "delete": YES}}, CREATE, DELETE)
    assert (answers.values, answers.wrong) == ({"delete": YES}, {"create": wrong})


def test_a_decision_has_no_more_than_it_needs() -> None:
    sent_values = {
        "create": {**YES, "arguments": {"n": 1}, "always": True, "by": "somebody else"},
        "delete": {**NO, "always": True},
    }
    assert read({"resume": sent_values}, CREATE, DELETE).values == {
        "create": {**YES, "always": True},
        "delete": NO,
    }


def test_a_form_is_declined_unless_it_asks_for_a_type() -> None:
    typed = FORM.model_copy(update={"asked": Form(fields=(InputField(field_name="type"),))})
    assert read({"resume": {"form": {"type": "reject", "message": "no"}}}, FORM).values == {
        "form": {**NO, "message": "no"}
    }
    assert read({"resume": {"form": {"type": "reject"}}}, typed).values == {"form": {"type": "reject"}}
    assert read({"resume": {"form": "x"}}, FORM).wrong == {
        "form": {"": "The answer to a form holds a value for each field by its name."}
    }


@pytest.mark.parametrize(
    ("pending", "values"),
    [
        ((NOTE,), {"note": {"it": "approve"}}),
        ((CREATE, NOTE, DELETE), {"note": {"it": "approve"}}),
        ((FORM, NOTE), {}),
        ((CREATE,), {}),
        ((CREATE, DELETE), {}),
    ],
)
def test_words_answer_what_takes_words_and_decide_nothing(pending: Any, values: Any) -> None:
    assert read_answers([TextPart(text="approve")], pending).values == values


def test_bare_values_answer_a_form_that_is_open_alone() -> None:
    assert read({"it": "x"}, CREATE, FORM).values == {"form": {"it": "x"}}
    assert read({"it": "x"}, FORM, NOTE).values == {}


# --- on the wire --------------------------------------------------------------------------------------------

FIELDS = [
    {"field_name": "repo", "field_label": "Repository", "pattern": "[a-z0-9-]+"},
    {"field_name": "stars", "field_label": "Stars", "field_type": "integer", "required": False, "minimum": 0},
]
SCRIPT = Script(Turn(Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}.")))
NEEDS = "I still need your input: "


def form_tool() -> BaseTool:
    async def ask_form() -> str:
        """Asks."""
        return json.dumps(
            interrupt(
                {
                    "type": "form",
                    "title": "Create a repository",
                    "response": "A few details.",
                    "fields": FIELDS,
                }
            )
        )

    return StructuredTool.from_function(coroutine=ask_form, name="ask_form")


async def send(client: Client, dialect: Dialect, *parts: Any, **named: Any) -> ReceivedStream:
    return ReceivedStream(
        [frame async for frame in client.open(dialect.stream, dialect.message(*parts, **named))]
    )


def decision(**fields: Any) -> dict[str, Any]:
    return {"resume": {"decisions": [{"action_name": "CAIPEAgentResponse", **fields}]}}


@both_versions
@pytest.mark.parametrize(
    "shape",
    [
        lambda request_id, values: {"resume": {request_id: values}},
        lambda request_id, values: values,
        lambda request_id, values: decision(type="edit", args={"args": {"user_inputs": values}}),
        lambda request_id, values: decision(
            type="edit", edited_action={"name": "CAIPEAgentResponse", "args": {"user_inputs": values}}
        ),
        lambda request_id, values: decision(
            type="edit",
            args={
                "args": {
                    "metadata": {
                        "input_fields": [
                            {"field_name": name, "value": value} for name, value in values.items()
                        ]
                    }
                }
            },
        ),
    ],
    ids=["by id", "bare", "decision", "edited action", "beside the fields"],
)
async def test_every_shape_of_an_answer_continues_the_run(dialect: Dialect, shape: Any) -> None:
    repo = f"repo-{secrets.token_hex(4)}"
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        paused = await send(client, dialect, "Create a repo.")
        request_id = paused.named("UserInputMetaData")[0].artifact["parts"][0]["data"]["request_id"]
        more = await send(
            client,
            dialect,
            dialect.data(shape(request_id, {"repo": repo, "stars": 3})),
            taskId=paused.task_id,
        )
    assert more.answer == f"Made {repo}."


async def test_lines_of_text_answer_a_form_too() -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        paused = await send(client, V10, "Create a repo.")
        more = await send(client, V10, "repo: web-1\nstars: 2", contextId=paused.context_id)
    assert more.answer == "Made web-1."


@both_versions
async def test_a_wrong_answer_names_each_field_and_leaves_the_request_open(dialect: Dialect) -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        paused = await send(client, dialect, "Create a repo.")
        wrong = await send(
            client,
            dialect,
            dialect.data({"repo": "Not good", "stars": -1, "colour": "red"}),
            taskId=paused.task_id,
        )
        unclear = await send(client, dialect, "I do not know.", taskId=paused.task_id)
        right = await send(client, dialect, dialect.data({"repo": "good"}), taskId=paused.task_id)
    assert wrong.last.state == unclear.last.state == "input-required"
    assert wrong.last.status_text.startswith(
        f"{NEEDS}Repository must consist of lowercase letters, digits and hyphens. Stars must be at least 0. "
        "There is no field colour; the fields are repo, stars."
    )
    assert unclear.last.status_text.startswith(f"{NEEDS}Create a repository.")
    assert right.answer == "Made good."


@both_versions
async def test_a_declined_form_continues_the_run_without_values(dialect: Dialect) -> None:
    script = Script(
        Turn(Call("ask_form")), Turn(Say("It said {{tool:ask_form.type}}, {{tool:ask_form.message}}."))
    )
    async with supervisor(script, tools=[form_tool()]) as client:
        paused = await send(client, dialect, "Create a repo.")
        request_id = paused.named("UserInputMetaData")[0].artifact["parts"][0]["data"]["request_id"]
        no = {"resume": {request_id: {"type": "reject", "message": "not now"}}}
        more = await send(client, dialect, dialect.data(no), taskId=paused.task_id)
    assert more.answer == "It said reject, not now."
    (resolved,) = [event for event in more.events if isinstance(event, InputResolved)]
    assert (resolved.request_id, resolved.resolution) == (request_id, "rejected")
