"""Untrusted content: what is covered by people's words, and which calls ask because of it."""

import pytest

from ai_platform_engineering.core.policy import PolicyDecision, decide_permission, tighten_for_untrusted
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.core.untrusted_content import (
    MAX_WORDS_CHARS,
    UntrustedContent,
    describe_sources,
    is_covered,
)

SAID = "Please add the note 'Build is broken' to acme/app, number 42."
ADDS = ToolTraits(annotations={"destructiveHint": False})
ALLOWED = ToolTraits(annotations={"destructiveHint": True}, permission="allow")
READS = ToolTraits(annotations={"readOnlyHint": True})


@pytest.mark.parametrize(
    ("value", "covered"),
    [
        ("Build is broken", True),
        ("broken build", True),
        ("BUILD  is\nbroken!", True),
        ("Ｂｕｉｌｄ", True),  # in full width
        (42, True),
        (True, True),
        (None, True),
        ({"number": 42, "note": ["acme", "app"]}, True),
        ("", True),
        ("Build is fine", False),
        (43, False),
        ({"other": 42}, False),
        (["broken", ["more"]], False),
        ("bro\u200bken", False),
    ],
)
def test_a_value_is_covered_when_people_said_all_of_it(value: object, covered: bool) -> None:
    assert is_covered(value, SAID) is covered


@pytest.mark.parametrize(
    ("traits", "content", "asks"),
    [
        (ADDS, UntrustedContent(words=SAID), False),
        (ADDS, UntrustedContent(results=("a ticket",), words=SAID), True),
        (ALLOWED, UntrustedContent(results=("a ticket",), words=SAID), True),
        (READS, UntrustedContent(results=("a ticket",), words=SAID), False),
        (ADDS, UntrustedContent(definitions=("a description",), words=SAID), False),
        (ADDS, UntrustedContent(definitions=("a description",), words="Go."), True),
        (READS, UntrustedContent(definitions=("a description",), words="Go."), False),
        (ToolTraits.from_name("remember_fact"), UntrustedContent(results=("a ticket",)), True),
        (ToolTraits.from_name("forget_fact"), UntrustedContent(results=("a ticket",)), True),
        (ToolTraits.from_name("list_facts"), UntrustedContent(results=("a ticket",)), False),
        (ToolTraits.from_name("load_skill"), UntrustedContent(results=("a ticket",)), True),
        (ToolTraits.from_name("load_skill"), UntrustedContent(definitions=("a description",)), False),
        (ToolTraits.from_name("run_workflow"), UntrustedContent(results=("a ticket",)), True),
        (ToolTraits.from_name("task"), UntrustedContent(results=("a ticket",)), False),
    ],
)
def test_which_calls_ask(traits: ToolTraits, content: UntrustedContent, asks: bool) -> None:
    decision = decide_permission(traits, read_only=False)
    tightened = tighten_for_untrusted(decision, traits, {"note": "Build is broken"}, content)
    assert (tightened.permission, tightened.follows_untrusted) == (
        ("ask", True) if asks else ("allow", False)
    )


def test_a_refusal_stays_one_and_two_reasons_are_both_said() -> None:
    content = UntrustedContent(results=("a ticket",))
    denied = PolicyDecision("deny", "No.")
    assert tighten_for_untrusted(denied, ADDS, {}, content) == denied
    asked = tighten_for_untrusted(PolicyDecision("ask", "It destroys."), ADDS, {}, content)
    assert asked.reason == (
        "It destroys. Text that nobody in this conversation wrote may have led to it: a ticket."
    )


def test_the_last_sources_are_named_and_the_others_counted() -> None:
    assert describe_sources(["a", "b", "a"]) == "a, b"
    assert describe_sources([str(number) for number in range(5)]) == "4, 3, 2 and 2 more"


def test_what_travels_is_bounded_and_nothing_else_is_read() -> None:
    content = UntrustedContent(tuple("x" * 500 for _ in range(50)), (), "w" * (2 * MAX_WORDS_CHARS))
    read = UntrustedContent.from_data(content.to_data())
    assert read is not None
    assert (len(read.results), len(read.results[0]), len(read.words)) == (20, 120, MAX_WORDS_CHARS)
    assert UntrustedContent.from_data({"results": "all", "definitions": 3}) == UntrustedContent()
    assert UntrustedContent.from_data("none") is None
