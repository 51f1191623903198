"""What of a model's text is shown, whatever the pieces it comes in: no reasoning, no blank opening, and
nothing else lost."""

import json
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.storable_text import clean_text
from ai_platform_engineering.graph.visible_text import JsonStringReader, VisibleTextFilter, visible_text
from tests.support import strategies as given_by
from tests.support.fakes.corpora import INLINE, Corpus


def shown(pieces: Sequence[str]) -> str:
    filtered = VisibleTextFilter()
    return "".join(map(filtered.feed, pieces)) + filtered.end()


@st.composite
def pieces_of(draw: st.DrawFn, whole: str) -> list[str]:
    cuts = sorted(draw(st.lists(st.integers(0, len(whole)), max_size=6)))
    return [whole[start:end] for start, end in zip([0, *cuts], [*cuts, len(whole)], strict=True)]


# --- reasoning that stands in the text ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("It is 3.", "It is 3."),
        ("<think>Hm.</think>It is 3.", "It is 3."),
        ("\n <think>Hm.</think>\n\nIt is 3.", "It is 3."),
        ("<think>a</think><think>b</think>It is 3.", "It is 3."),
        ("<think>a</think>\n<think>b</think>\nIt is 3.\n", "It is 3.\n"),
        ("<think></think>It is 3.", "It is 3."),
        ("<think>never ended", ""),
        ("<think>ended</think>", ""),
        ("Use <think> as a tag </think> here.", "Use <think> as a tag </think> here."),
        ("<thinking>is another word", "<thinking>is another word"),
        ("<thi", "<thi"),
        ("<", "<"),
        ("  \n ", ""),
        ("  indented", "indented"),
        ("", ""),
        ("</think>It is 3.", "</think>It is 3."),
        ("<think>a <think> b</think>It is 3.", "It is 3."),
    ],
)
def test_of_a_whole_text_this_is_shown(text: str, expected: str) -> None:
    assert visible_text(text) == expected


@given_by.examples(80)
@given(
    data=st.data(),
    parts=st.lists(
        st.sampled_from(["<think>", "</think>", "<thi", "nk>", "</", " ", "\n", "a", "b < c", "<", ">"]),
        max_size=8,
    ),
)
def test_the_pieces_of_a_text_do_not_matter(data: st.DataObject, parts: list[str]) -> None:
    whole = "".join(parts)
    assert shown(data.draw(pieces_of(whole))) == visible_text(whole)


@given_by.examples(50)
@given(data=st.data(), text=given_by.text)
def test_a_text_without_a_thought_is_shown_whole(data: st.DataObject, text: str) -> None:
    assert shown(data.draw(pieces_of(text))) == text.lstrip()


@given_by.examples(60)
@given(data=st.data(), thought=given_by.text, answer=given_by.text)
def test_a_thought_is_never_shown(data: st.DataObject, thought: str, answer: str) -> None:
    if "</think>" not in thought and not answer.lstrip().startswith("<"):
        assert shown(data.draw(pieces_of(f"<think>{thought}</think>{answer}"))) == answer.lstrip()


@pytest.mark.parametrize("corpus", INLINE, ids=lambda corpus: corpus.name)
def test_the_inline_corpora_show_their_text_alone(corpus: Corpus) -> None:
    assert shown([str(chunk.text) for chunk in corpus.chunks]) == corpus.text


def test_ordinary_text_is_shown_at_once() -> None:
    filtered = VisibleTextFilter()
    assert [filtered.feed(piece) for piece in ("I", " look", " <th", "ink>")] == [
        "I",
        " look",
        " <th",
        "ink>",
    ]


def test_what_could_be_a_thought_is_held_no_longer_than_it_can_be_one() -> None:
    filtered = VisibleTextFilter()
    assert [filtered.feed(piece) for piece in ("<", "th", "e", " end")] == ["", "", "<the", " end"]
    assert filtered.end() == ""


def test_text_after_a_thought_is_shown_as_it_comes() -> None:
    filtered = VisibleTextFilter()
    assert [filtered.feed(piece) for piece in ("<think>x</thi", "nk>", "\n", "It", " is")] == [
        "",
        "",
        "",
        "It",
        " is",
    ]


# --- one string of a JSON object that grows -----------------------------------------------------------------


def read(pieces: Sequence[str], name: str = "content") -> str:
    field = JsonStringReader(name)
    return "".join(map(field.feed, pieces))


@given_by.examples(80)
@given(
    data=st.data(),
    content=given_by.text.map(clean_text),
    before=st.dictionaries(
        given_by.text.map(clean_text).filter(lambda key: key != "content"), given_by.json_value, max_size=3
    ),
    ascii_only=st.booleans(),
    indent=st.sampled_from([None, 1]),
)
def test_a_field_is_read_whatever_the_pieces_and_whatever_stands_before(
    data: st.DataObject, content: str, before: dict[str, object], ascii_only: bool, indent: int | None
) -> None:
    whole = json.dumps(
        {**before, "content": content, "after": {"content": "no"}}, ensure_ascii=ascii_only, indent=indent
    )
    assert read(data.draw(pieces_of(whole))) == json.loads(whole)["content"]


def test_a_field_is_read_as_it_grows() -> None:
    field = JsonStringReader("content")
    pieces = [
        '{"con',
        'tent"',
        ': "One ',
        "two\\",
        "n",
        "\\u00",
        "e9\\ud83d",
        "\\ude",
        "00",
        '"',
        ', "content": "no"}',
    ]
    assert [field.feed(piece) for piece in pieces] == [
        "",
        "",
        "One ",
        "two",
        "\n",
        "",
        "é",
        "",
        "\N{GRINNING FACE}",
        "",
        "",
    ]


@pytest.mark.parametrize(
    "text",
    [
        '{"other": "content\\": \\"no"}',
        '{"other": {"content": "no"}}',
        '{"other": [{"content": "no"}]}',
        '{"content": 3}',
        '{"content": null}',
        '{"content',
        "{}",
        "",
    ],
)
def test_what_only_looks_like_the_field_is_not_read(text: str) -> None:
    assert read([text]) == ""
    assert read(list(text)) == ""


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ('{"content": "a\\qb"}', "aqb"),
        ('{"content": "a\\u12zzb"}', "a\ufffdb"),
        ('{"content": "broken off', "broken off"),
        ('{"content": "ends in \\', "ends in "),
        ('{"content": ""}', ""),
        ('{"content": "\\/\\\\\\""}', '/\\"'),
    ],
)
def test_odd_json_is_read_as_far_as_it_goes(text: str, expected: str) -> None:
    assert read([text]) == expected
    assert read(list(text)) == expected


def test_half_an_emoji_becomes_something_that_can_be_sent() -> None:
    assert clean_text(read(['{"content": "a\\ud83d!!!!!!b"}'])) == "a\ufffd!!!!!!b"
    assert clean_text(read(['{"content": "a\\ude00b"}'])) == "a\ufffdb"
