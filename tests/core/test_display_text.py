"""Text as people see it: nothing hides in what they decide on, and answers stay readable."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.display_text import (
    is_hidden,
    remove_controls,
    reveal,
    reveal_json,
    reveal_line,
)
from tests.support.strategies import json_value

HIDDEN = {
    "NUL": "\x00",
    "bell": "\x07",
    "carriage return": "\r",
    "escape": "\x1b",
    "delete": "\x7f",
    "CSI in one byte": "\x9b",
    "no-break space": "\u00a0",
    "soft hyphen": "\u00ad",
    "combining grapheme joiner": "\u034f",
    "Arabic letter mark": "\u061c",
    "Hangul filler": "\u3164",
    "halfwidth Hangul filler": "\uffa0",
    "Hangul choseong filler": "\u115f",
    "Ogham space": "\u1680",
    "Khmer vowel without a shape": "\u17b4",
    "Mongolian vowel separator": "\u180e",
    "en quad": "\u2000",
    "zero width space": "\u200b",
    "zero width joiner": "\u200d",
    "left-to-right mark": "\u200e",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "right-to-left override": "\u202e",
    "narrow no-break space": "\u202f",
    "word joiner": "\u2060",
    "invisible times": "\u2062",
    "right-to-left isolate": "\u2067",
    "Braille blank": "\u2800",
    "ideographic space": "\u3000",
    "private use": "\ue000",
    "variation selector": "\ufe0f",
    "byte order mark": "\ufeff",
    "interlinear annotation": "\ufff9",
    "tag": "\U000e0041",
    "variation selector of a plane": "\U000e0100",
}


@pytest.mark.parametrize("character", HIDDEN.values(), ids=HIDDEN.keys())
def test_what_cannot_be_seen_is_named_where_people_decide(character: str) -> None:
    name = f"⟨U+{ord(character):04X}⟩"
    assert is_hidden(character)
    assert reveal(f"a{character}b") == f"a{name}b"
    assert reveal_line(f" a{character} \n b ") == f"a{name} b"
    shown = reveal_json({"command": f"a{character}b"})
    assert not any(map(is_hidden, shown))
    assert json.loads(shown) == {"command": f"a{character}b"}


@pytest.mark.parametrize(
    "text", ["plain", "two\nlines\tand a tab", "Grüße", "日本語", "مرحبا", "שלום", "😀", "é"]
)
def test_what_can_be_seen_stays_as_it_is(text: str) -> None:
    assert reveal(text) == text
    assert remove_controls(text) == text


def test_a_name_that_is_written_out_is_not_taken_for_the_character() -> None:
    assert reveal("⟨U+202E⟩") != reveal("\u202e")


@given(st.text(), st.text())
def test_different_texts_look_different(first: str, second: str) -> None:
    assert (first == second) == (reveal(first) == reveal(second))
    assert not any(map(is_hidden, reveal(first)))


@given(json_value)
def test_json_hides_nothing_and_says_the_same(value: object) -> None:
    shown = reveal_json(value, indent=2)
    assert not any(map(is_hidden, shown))
    assert json.loads(shown) == json.loads(json.dumps(value))


def test_an_answer_keeps_its_language_and_loses_what_controls_the_screen() -> None:
    family = "👩\u200d👩\u200d👧"
    assert remove_controls(f"مرحبا {family} נקודה\u200f.") == f"مرحبا {family} נקודה\u200f."
    assert remove_controls("a\x1b[2Jb\x9b31mc\u202ed\u2066e\x7f") == "a[2Jb31mcde"
    assert remove_controls("a\n\tb") == "a\n\tb"
