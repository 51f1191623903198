"""Answers in plain text: the exact forms that a person is told, and nothing that only looks like one."""

from typing import Any

import pytest

from ai_platform_engineering.core.events import Approval, Form, InputField, InputRequested, TextPart
from ai_platform_engineering.core.request_text import describe_requests, number_requests
from ai_platform_engineering.runtime.runs.answers import ParsedAnswers, read_answers

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"app": {"type": "string"}, "n": {"type": "integer"}, "dry": {"type": "boolean"}},
}
CALL = InputRequested(
    request_id="call",
    agent="argocd",
    asked=Approval(tool="sync", arguments={"app": "web", "n": 3}, arguments_schema=SCHEMA),
)
FIXED = InputRequested(
    request_id="fixed", asked=Approval(tool="delete", arguments={"app": "web"}, allowed=("approve", "reject"))
)
FORM = InputRequested(
    request_id="form", asked=Form(fields=(InputField(field_name="repo"), InputField(field_name="why")))
)
QUESTION = InputRequested(request_id="question", asked=Form(fields=(InputField(field_name="answer"),)))


def read(
    text: str, *pending: InputRequested, before: tuple[InputRequested, ...] = (), by_text: bool = True
) -> ParsedAnswers:
    numbered = number_requests([*before, *pending])
    return read_answers([TextPart(text=text)], pending, numbered, text_decisions=by_text)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("approve", {"type": "approve"}),
        (" APPROVE! ", {"type": "approve"}),
        ("approve 1", {"type": "approve"}),
        ("approve #1", {"type": "approve"}),
        ("reject", {"type": "reject"}),
        ("reject: too late", {"type": "reject", "message": "too late"}),
        ("Reject 3 replicas are too many", {"type": "reject", "message": "3 replicas are too many"}),
        ("n: 5", {"type": "edit", "arguments": {"app": "web", "n": 5}}),
        ("edit\napp: 7\ndry: true", {"type": "edit", "arguments": {"app": "7", "n": 3, "dry": True}}),
        ("edit 1 n: 4", {"type": "edit", "arguments": {"app": "web", "n": 4}}),
    ],
)
def test_a_decision_on_the_only_request(text: str, expected: dict[str, Any]) -> None:
    assert read(text, CALL).values == {"call": expected}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "yes",
        "I approve",
        "approve it",
        "approved",
        "approve 2",
        "approve\nreject",
        "please approve",
        "other: 5",
        "n: 5\nand then go",
        "edit",
        "edit it",
        "answer 1 approve",
    ],
)
def test_what_only_looks_like_a_decision_is_none(text: str) -> None:
    assert read(text, CALL).values == {}


def test_an_edit_is_checked_as_data_is() -> None:
    answers = read("n: many", CALL)
    assert (answers.values, list(answers.wrong)) == ({}, ["call"])
    assert list(read("app: x", FIXED).wrong) == ["fixed"]


def test_texts_decide_nothing_where_they_may_not() -> None:
    for text in ("approve", "reject no", "n: 5", "approve 1"):
        assert read(text, CALL, by_text=False).values == {}
    assert read("repo: x\nwhy: y", FORM, by_text=False).values == {"form": {"repo": "x", "why": "y"}}


def test_a_number_names_the_request_that_had_it_from_the_beginning() -> None:
    """Another one was answered meanwhile: the number of those behind it stays."""
    assert read("approve 3", CALL, FIXED, before=(FORM,)).values == {"fixed": {"type": "approve"}}
    closed = read("approve 1", CALL, FIXED, before=(FORM,))
    assert (closed.values, closed.unmatched) == ({}, ["Request 1 takes no answer."])
    assert read("approve", CALL, FIXED).values == {}


def test_forms_beside_approvals() -> None:
    assert read("repo: x\nwhy: y", FORM, CALL).values == {"form": {"repo": "x", "why": "y"}}
    assert read("answer 1\nrepo: x\nwhy: y", FORM, CALL).values == {"form": {"repo": "x", "why": "y"}}
    assert read("reject 1 no need", FORM, CALL).values == {"form": {"type": "reject", "message": "no need"}}
    assert read("answer 2 because", FORM, QUESTION).values == {"question": {"answer": "because"}}


def test_a_free_text_is_the_answer_to_the_only_question_whatever_it_says() -> None:
    assert read("reject it", QUESTION).values == {"question": {"answer": "reject it"}}
    assert read("approve", QUESTION, CALL).values == {"question": {"answer": "approve"}}
    assert read("approve 2", QUESTION, CALL).values == {"call": {"type": "approve"}}


def test_what_is_explained_is_what_is_read() -> None:
    """Each form in quotes, with its number, is taken for the request that it stands under."""
    text = describe_requests(number_requests([FORM, CALL, FIXED]))
    assert '"approve 2"' in text
    assert '"reject 3 <reason>"' in text
    assert '"edit 3"' not in text
    for words, request_id in (("approve 2", "call"), ("reject 3 no", "fixed"), ("reject 1 no", "form")):
        assert list(read(words, FORM, CALL, FIXED).values) == [request_id]


def test_hidden_characters_of_a_call_are_shown() -> None:
    hidden = Approval(tool="sync\u202e", arguments={"app": "we\u200bb"}, reason="a\u2028b")
    text = describe_requests(number_requests([InputRequested(request_id="r", asked=hidden)]))
    assert "sync⟨U+202E⟩" in text
    assert "\\u200b" in text
    assert "\u2028" not in text
