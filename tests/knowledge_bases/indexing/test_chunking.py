"""Chunks: all of a document's text, in order, along its structure, none longer than the embedding model
reads."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ai_platform_engineering.knowledge_bases.documents import Chunk, ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.indexing.chunking import (
    MAX_WORDS,
    TARGET_WORDS,
    chunk_document,
    count_words,
)
from tests.support.examples import scale_examples


def of(*sections: Section, language: str = "") -> tuple[str, tuple[Chunk, ...]]:
    return chunk_document(ParsedDocument("Title", sections, language))


def sentences(count: int, words: int = 10, name: str = "word") -> str:
    return " ".join(" ".join(f"{name}{number}" for _ in range(words)) + "." for number in range(count))


def rows(count: int) -> str:
    return "\n".join(
        [
            "| team | what it does |",
            "| --- | --- |",
            *(f"| team{number} | {'runs things ' * 5}|" for number in range(count)),
        ]
    )


# --- along the structure


def test_what_fits_under_one_heading_is_one_chunk_that_begins_with_the_heading() -> None:
    text, chunks = of(
        Section("First.", ("Guide", "Start")),
        Section("Second.", ("Guide", "Start")),
        Section("a = 1", ("Guide", "Start"), "code"),
    )
    assert text == "# Guide\n\n## Start\n\nFirst.\n\nSecond.\n\na = 1"
    assert chunks == (Chunk(0, text, ("Guide", "Start"), 0, len(text)),)


@pytest.mark.parametrize(
    ("one", "other", "count"),
    [
        ((), ("A",), 2),
        (("A",), ("B",), 2),
        (("A",), ("A", "a"), 2),
        (("A", "a"), ("A", "b"), 2),
        (("A", "a"), ("A", "a", "deep"), 1),
        (("A", "a", "one"), ("A", "a", "two"), 1),
    ],
)
def test_a_chunk_never_crosses_a_heading_of_the_first_two_levels(
    one: tuple[str, ...], other: tuple[str, ...], count: int
) -> None:
    _, chunks = of(Section("Some text.", one), Section("Other text.", other))
    assert len(chunks) == count
    assert chunks[-1].headings == (other if count == 2 else ("A", "a"))


def test_a_heading_is_never_the_end_of_a_chunk() -> None:
    path = ("A", "a")
    _, chunks = of(Section(sentences(16), path), Section(sentences(10), (*path, "deep")))
    assert [chunk.text.split("\n")[0] for chunk in chunks] == ["# A", "### deep"]
    assert chunks[1].headings == ("A", "a", "deep")


def test_headings_without_text_are_kept() -> None:
    text, chunks = of(Section("", ("A", "x")), Section("", ("A", "y")), Section("End.", ("B",)))
    assert text == "# A\n\n## x\n\n## y\n\n# B\n\nEnd."
    assert [chunk.text for chunk in chunks] == ["# A\n\n## x", "## y", "# B\n\nEnd."]


def test_long_prose_is_cut_between_sentences_and_says_the_last_one_again() -> None:
    text, chunks = of(Section(sentences(40), ("A",)))
    assert len(chunks) == 3
    for before, after in pairwise(chunks):
        again = text[after.start : before.end]
        assert before.text.endswith(again)
        assert again.endswith(".")
        assert again.count(".") == 1
        assert count_words(before.text) > TARGET_WORDS - 20
    assert all(chunk.text == text[chunk.start : chunk.end] for chunk in chunks)


@pytest.mark.parametrize(
    ("last_sentence", "following", "said_again"),
    [
        (10, TARGET_WORDS - 10, True),
        (10, TARGET_WORDS - 9, False),  # the sentence would take the next chunk above its target
        (40, 100, True),
        (41, 100, False),  # too long to say again
    ],
)
def test_a_sentence_is_said_again_where_there_is_room_for_it(
    last_sentence: int, following: int, said_again: bool
) -> None:
    first = f"{sentences(1, 150 - last_sentence)} {sentences(1, last_sentence, 'last')}"
    text, (before, after) = of(Section(first), Section(sentences(1, following, "next")))
    assert count_words(before.text) == 150
    assert text[after.start : before.end] == (sentences(1, last_sentence, "last") if said_again else "")
    assert count_words(after.text) == following + (last_sentence if said_again else 0)


def test_nothing_is_said_again_under_another_heading_or_in_code() -> None:
    _, prose = of(Section(sentences(17), ("A", "a", "x")), Section(sentences(17), ("A", "a", "y")))
    assert [chunk.text.count("word16") for chunk in prose] == [10, 10]
    _, code = of(Section("\n".join(f"call({number}) # and so on" for number in range(200)), kind="code"))
    assert len(code) > 2
    assert all(after.start >= before.end for before, after in pairwise(code))


@pytest.mark.parametrize(("rest", "count"), [(MAX_WORDS - 150, 1), (MAX_WORDS - 149, 2)])
def test_a_rest_goes_with_what_is_before_it_up_to_the_limit(rest: int, count: int) -> None:
    _, chunks = of(Section(sentences(1, 150)), Section(sentences(1, rest, "next")))
    assert len(chunks) == count


def test_a_small_rest_goes_with_what_is_before_it() -> None:
    _, chunks = of(Section(sentences(18)), Section("Three more words."), Section("And three more."))
    assert len(chunks) == 1
    assert TARGET_WORDS < count_words(chunks[0].text) <= MAX_WORDS


def test_code_is_cut_at_lines_and_keeps_its_indentation() -> None:
    code = "\n".join(f"    step({number}, with_some, arguments)" for number in range(150))
    text, chunks = of(Section(code, kind="code"))
    assert text == code
    assert [line for chunk in chunks for line in chunk.text.split("\n")] == code.split("\n")


def test_source_code_is_kept_as_it_is_written_and_names_its_definitions() -> None:
    text, chunks = of(
        Section("import os\n\n", (), "code"),
        Section("def f():\n    pass\n", ("def f()",), "code"),
        language="Python",
    )
    assert text == "import os\n\ndef f():\n    pass\n"
    assert [(chunk.text, chunk.headings) for chunk in chunks] == [
        ("import os", ()),
        ("def f():\n    pass", ("def f()",)),
    ]


def test_a_table_is_cut_between_rows_and_says_its_header_again() -> None:
    text, chunks = of(Section("Before.", ("A",)), Section(rows(60), ("A",), "table"))
    header = "| team | what it does |\n| --- | --- |\n"
    assert len(chunks) > 2
    assert "Before." in chunks[0].text
    assert chunks[0].text.count(header) == 1
    for chunk in chunks[1:]:
        assert chunk.text == header + text[chunk.start : chunk.end]
        assert text[chunk.start - 1] == "\n"
        assert count_words(chunk.text) <= MAX_WORDS


def test_a_row_and_the_header_said_again_are_within_the_limit() -> None:
    long_rows = (f"| {'word ' * 180}|" for _ in range(4))
    _, chunks = of(Section("\n".join([f"| {'name ' * 48}|", "| --- |", *long_rows]), kind="table"))
    assert max(count_words(chunk.text) for chunk in chunks) <= MAX_WORDS
    assert all(chunk.text.startswith("| name name") for chunk in chunks)


def test_a_list_is_cut_between_its_items() -> None:
    items = "\n".join(f"- item {number} {'word ' * 20}\n  and more of it" for number in range(30))
    _, chunks = of(Section(items, kind="list"))
    assert len(chunks) > 2
    assert all(chunk.text.startswith("- item") and chunk.text.endswith("and more of it") for chunk in chunks)


def test_a_small_paragraph_before_something_large_does_not_stand_alone() -> None:
    _, chunks = of(
        Section("It looks like this:"),
        Section("\n".join("line of the example" for _ in range(200)), kind="code"),
    )
    assert "line of the example" in chunks[0].text


@pytest.mark.parametrize(
    "text", ["x" * 40_000, "漢字" * 3_000, "漢字かな。" * 800, "word " * 3_000, "한국어 문장입니다. " * 500]
)
def test_text_without_anything_to_cut_by_is_cut_all_the_same(text: str) -> None:
    document_text, chunks = of(Section(text))
    assert max(count_words(chunk.text) for chunk in chunks) <= MAX_WORDS
    assert min(count_words(chunk.text) for chunk in chunks[:-1]) >= TARGET_WORDS - 60
    assert_all_there(document_text, chunks)


def test_words_are_counted_as_a_model_reads_them() -> None:
    assert count_words("two words") == 2
    assert count_words("漢字漢字") == 2
    assert count_words("x" * 240) == 10


def test_no_sections_are_no_chunks() -> None:
    assert of() == ("", ())
    assert of(Section(" \n ")) == (" \n ", ())


# --- whatever the document

WORDS = st.sampled_from(
    [
        "a",
        "word",
        "Ende.",
        "why?",
        "漢字かな。",
        "x" * 300,
        "| cell |",
        "- item",
        "1. step",
        "#",
        "é\u0301",
        "…",
        "`code`",
    ]
)
BETWEEN = st.sampled_from([" ", " ", " ", "\n", "\n\n", "  ", "\n    ", "\t"])


@st.composite
def texts(draw: st.DrawFn) -> str:
    parts = draw(st.lists(st.tuples(WORDS, BETWEEN), max_size=30))
    return "".join(word + space for word, space in parts) * draw(st.sampled_from([1, 1, 3, 30]))


@st.composite
def tables(draw: st.DrawFn) -> str:
    cell = draw(st.sampled_from(["x", "some words in it", "y" * 100, "word " * 50]))
    return "\n".join(
        [f"| {cell} |", "| --- |", *(f"| {cell} {number} |" for number in range(draw(st.integers(0, 80))))]
    )


HEADINGS = st.lists(st.sampled_from(["A", "B", "A long heading of some words", "z " * 140]), max_size=4).map(
    tuple
)
KINDS = st.sampled_from(["prose", "code", "table", "list"])
SECTIONS = st.lists(
    st.one_of(
        st.builds(Section, text=texts(), headings=HEADINGS, kind=KINDS),
        st.builds(Section, text=tables(), headings=HEADINGS, kind=st.just("table")),
    ),
    max_size=6,
)


def assert_all_there(text: str, chunks: tuple[Chunk, ...]) -> None:
    at = 0
    for chunk in chunks:
        assert not text[at : chunk.start].strip()
        at = max(at, chunk.end)
    assert not text[at:].strip()


@settings(max_examples=scale_examples(120))
@given(sections=SECTIONS, language=st.sampled_from(["", "", "Go"]))
def test_every_document_is_covered_in_order_within_the_limit(sections: list[Section], language: str) -> None:
    parsed = ParsedDocument("Title", tuple(sections), language)
    text, chunks = chunk_document(parsed)
    assert (text, chunks) == chunk_document(parsed)
    assert_all_there(text, chunks)
    assert [chunk.ordinal for chunk in chunks] == list(range(len(chunks)))
    for before, after in pairwise(chunks):
        assert before.start < after.start
        assert before.end < after.end
    for chunk in chunks:
        assert chunk.text.strip()
        assert count_words(chunk.text) <= MAX_WORDS
        assert chunk.text.endswith(text[chunk.start : chunk.end])
        said_again = chunk.text.removesuffix(text[chunk.start : chunk.end])
        assert not said_again or said_again.split("\n")[1] == "| --- |"
    for section in sections:
        assert section.text.strip() in text
