"""Commands on stored results, each in a process of its own: shapes, queries, patterns, and their limits."""

import asyncio
import json
from typing import Any

import pytest

from ai_platform_engineering.runtime.results.result_commands import CommandRefused, run_command
from ai_platform_engineering.runtime.results.result_reader import ResultReader, ResultUnreadable
from ai_platform_engineering.runtime.results.result_shape import describe_shape, list_lines

ITEMS = [{"name": f"app-{number}", "labels": {"team": "web"}, "log": "one\ntwo"} for number in range(30)]
DOUBLING = " | ".join(["[@,@][]"] * 60)


def query(value: Any, expression: str, max_chars: int = 1_000) -> str:
    command = {"name": "query", "expression": expression, "max_chars": max_chars}
    return run_command(command, json.dumps(value))


def grep(text: str, pattern: str, skip: int = 0, max_chars: int = 1_000) -> list[str]:
    command = {"name": "grep", "pattern": pattern, "skip": skip, "max_chars": max_chars}
    return run_command(command, text).splitlines()


@pytest.mark.parametrize(
    ("text", "shape"),
    [
        (
            json.dumps(ITEMS),
            "JSON, array of 30 objects {name: string, labels: object {team: string}, log: string}",
        ),
        (json.dumps({"items": [], "next": None}), "JSON, object {items: empty array, next: null}"),
        (json.dumps({"a": {"b": {"c": {"d": 1}}}}), "JSON, object {a: object {b: object {c: object}}}"),
        (json.dumps([1, "a", None]), "JSON, array of 3 (null, number, string)"),
        ('{"a": 1}\n{"b": true}\n', "JSON, array of 2 objects {a: number, b: boolean}"),
        ("one\ntwo\n{three}", "text, 3 lines"),
        ('{"a": 1} and more', "text, 1 lines"),
        ("12", "text, 1 lines"),
        ("[" * 100_000, "text, 1 lines"),
    ],
)
def test_the_shape_of_a_result_in_words(text: str, shape: str) -> None:
    assert describe_shape(text) == shape


def test_a_shape_is_short_however_large_the_object_is() -> None:
    value = {f"key {number} {'x' * 100}": {"a": [1]} for number in range(1_000)}
    assert len(describe_shape(json.dumps(value))) < 1_300


def test_lines_of_json_are_values_with_their_paths() -> None:
    value = {"items": [{"name": "a", "my key": 1, "empty": {}, "text": "one\ntwo"}]}
    assert [(line.place, line.text) for line in list_lines(json.dumps(value))] == [
        ("items[0].name", "a"),
        ('items[0]."my key"', "1"),
        ("items[0].empty", "{}"),
        ("items[0].text line 1", "one"),
        ("items[0].text line 2", "two"),
    ]


def test_queries() -> None:
    assert query(ITEMS, "[?name=='app-7'].labels.team") == 'Array of 1:\n["web"]'
    assert query(ITEMS, "length(@)") == "30"
    assert query(ITEMS, "[0].missing").startswith("The expression gives null. The result is JSON, array")
    cut = query(ITEMS, "[].name", 50)
    assert cut.startswith('["app-0", "app-1"')
    assert "[Cut after 50 characters." in cut
    assert len(cut) < 200


@pytest.mark.parametrize("expression", ["[?", "nope(@)", "sum(@)", "x" * 2_001])
def test_a_wrong_expression_is_refused(expression: str) -> None:
    with pytest.raises(CommandRefused):
        query(ITEMS, expression)


def test_a_query_of_a_text_is_refused() -> None:
    with pytest.raises(CommandRefused, match="no JSON"):
        run_command({"name": "query", "expression": "@", "max_chars": 10}, "one\ntwo")


def test_matches_are_paged() -> None:
    text = "\n".join(f"line {number}" for number in range(100))
    first = grep(text, "LINE \\d+$", max_chars=50)
    assert first[0] == "Matching lines: 100. Shown: 1 to 3."
    assert first[1:] == ["line 1: line 0", "line 2: line 1", "line 3: line 2", "[97 more: skip=3]"]
    assert grep(text, "LINE \\d+$", skip=98) == [
        "Matching lines: 100. Shown: 99 to 100.",
        "line 99: line 98",
        "line 100: line 99",
    ]
    assert grep(text, "line", skip=100) == ["Matching lines: 100. There are none after the first 100."]
    assert grep(text, "zebra") == ["No line matches. The result is text, 100 lines."]


def test_a_match_in_a_very_long_line_is_found() -> None:
    for position in (0, 799, 995, 5_000, 49_990):
        text = "x" * position + "needle" + "x" * (50_000 - position)
        assert any("needle" in line for line in grep(text, "needle", max_chars=3_000)[1:])


async def test_a_process_answers_as_the_command_does() -> None:
    reader = ResultReader(60)
    content = json.dumps(ITEMS).encode()
    shape, names, lines = await asyncio.gather(
        reader.describe(content),
        reader.query(content, "[0:2].name", 100),
        reader.grep(content, r"name: app-1$", 0, 100),
    )
    assert shape.startswith("JSON, array of 30 objects")
    assert names == 'Array of 2:\n["app-0", "app-1"]'
    assert lines.splitlines()[1] == "[1].name: app-1"
    with pytest.raises(ResultUnreadable, match="JMESPath"):
        await reader.query(content, "[?", 100)


@pytest.mark.parametrize("expression", [DOUBLING, f"to_string({DOUBLING})"])
async def test_a_query_that_explodes_ends(expression: str) -> None:
    with pytest.raises(ResultUnreadable, match=r"took more than|more memory"):
        await ResultReader(2).query(json.dumps(ITEMS).encode(), expression, 100)
