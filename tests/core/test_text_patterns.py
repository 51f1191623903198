"""Patterns that somebody else wrote: matched in linear time, and refused when they are wrong or too large."""

import contextlib
from collections.abc import Callable

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.core.text_patterns import (
    LONGEST_TEXT,
    UnsupportedPattern,
    check_pattern,
    finds,
    matches,
)
from tests.support.examples import scale_examples

BACKTRACKING = [
    "(a+)+b",
    "(a|a)*b",
    "(a|aa)+b",
    "(.*)*b",
    "(\\w+\\s?)+b",
    "((a{1,9}){1,9})*b",
    "a*" * 100 + "b",
]


@pytest.mark.parametrize("pattern", BACKTRACKING)
def test_a_pattern_that_would_stop_a_backtracking_engine_is_matched_at_once(pattern: str) -> None:
    """Runs into the time limit of the tests otherwise."""
    assert not matches(pattern, "a" * 10_000)
    assert matches(pattern, "a" * 100 + "b")


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?=a)b", "look-around"),
        (r"(a)\1", "backreferences"),
        ("[a-z", "unclosed character class"),
        ("a)|(b", "closes a group"),
        ("(" * 400 + ")" * 100, "unclosed group"),
        (r"(\w{1000}){1000}", "repeats too much"),
        (r"((((a{50}){50}){50}){50})", "repeats too much"),
        (r"[\p{L}]{500}", "repeats too much"),
        (r"a{99999999999999999999}", "repeats too much"),
        ("a{5000}", "repeats too much"),
        ("a" * 501, "more than 500"),
    ],
)
def test_a_pattern_that_cannot_be_used_is_refused_with_the_reason(pattern: str, reason: str) -> None:
    with pytest.raises(UnsupportedPattern, match=reason):
        check_pattern(pattern)


@pytest.mark.parametrize("look", [matches, finds])
def test_the_largest_pattern_and_the_longest_text_are_still_matched(look: Callable[[str, str], bool]) -> None:
    check_pattern("a{4999}")
    assert look("a+", "a" * LONGEST_TEXT)
    assert not look("a+", "a" * (LONGEST_TEXT + 1))


@pytest.mark.parametrize(
    ("pattern", "text", "expected"),
    [
        (r"[\w.-]+", "a.b-c", True),
        (r"\w+", "ä", False),  # as in a browser
        (r"\d{2}/\d{2}", "01/31", True),
        (r"a\/b", "a/b", True),
        (r"^[a-z]+$", "abc", True),
        ("a|b", "ab", False),
        ("a", "a\n", False),
        (r"\\w", "\\w", True),
        (r"(\w{1,63}\.)+\w{2,63}", "www.example.com", True),
    ],
)
def test_the_whole_text_is_matched(pattern: str, text: str, expected: bool) -> None:
    assert matches(pattern, text) is expected


@given(st.text(st.sampled_from(r"ab\wdpL.*+?{}()[]|^$1,29-"), max_size=60))
@settings(max_examples=scale_examples(600), deadline=None)
@example(r"\p")
@example("{9")
def test_any_text_is_a_pattern_or_is_refused(pattern: str) -> None:
    with contextlib.suppress(UnsupportedPattern):
        assert matches(pattern, "a" * 200) in (True, False)
