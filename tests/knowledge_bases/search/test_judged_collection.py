"""Collections in the layout of BEIR, and the significance of a difference."""

import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.search.judged_collection import (
    JudgedCollection,
    JudgedDocument,
    read_collection,
)
from ai_platform_engineering.knowledge_bases.search.significance import compute_p_value

CORPUS = ({"_id": "d1", "title": "Volumes", "text": "About disks."}, {"_id": 2, "text": "No title."})
QUERIES = ({"_id": "q1", "text": "disks?", "metadata": {}},)
EXPECTED = JudgedCollection(
    (JudgedDocument("d1", "Volumes", "About disks."), JudgedDocument("2", "", "No title.")),
    {"q1": "disks?"},
    {"q1": {"d1": 2, "2": 0}},
)


def write_collection(folder: Path, qrels: str = "qrels.tsv") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "corpus.jsonl").write_text("\n".join(map(json.dumps, CORPUS)) + "\n\n")
    (folder / "queries.jsonl").write_text("\n".join(map(json.dumps, QUERIES)))
    (folder / qrels).parent.mkdir(exist_ok=True)
    (folder / qrels).write_text("query-id\tcorpus-id\tscore\nq1\td1\t2\nq1\t2\t0\n")
    return folder


def pack(folder: Path) -> Path:
    archive = folder.with_suffix(".zip")
    with zipfile.ZipFile(archive, "w") as target:
        for path in sorted(folder.rglob("*")):
            target.write(path, Path(folder.name) / path.relative_to(folder))
    return archive


LAYOUTS: dict[str, Callable[[Path], Path]] = {
    "a folder": lambda home: write_collection(home / "made"),
    "judgements in a folder": lambda home: write_collection(home / "made", "qrels/test.tsv"),
    "a folder around it": lambda home: write_collection(home / "made").parent,
    "a file of it": lambda home: write_collection(home / "made") / "corpus.jsonl",
    "a zip file": lambda home: pack(write_collection(home / "made", "qrels/test.tsv")),
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_collection_is_read(tmp_path: Path, layout: str) -> None:
    assert read_collection(LAYOUTS[layout](tmp_path)) == EXPECTED


@pytest.mark.parametrize(
    ("file", "text", "words"),
    [
        ("corpus.jsonl", None, "holds no corpus.jsonl"),
        ("queries.jsonl", None, "queries.jsonl cannot be read"),
        ("qrels.tsv", None, "holds no judgements"),
        ("corpus.jsonl", '{"_id": "d1", "text": "x"}\nnonsense\n', "corpus.jsonl, line 2: expected a JSON"),
        ("queries.jsonl", '{"text": "x"}\n', "queries.jsonl, line 1: expected a JSON"),
        ("qrels.tsv", "q1\td1\t1\nq1 d1 1\n", "qrels.tsv, line 2: expected query-id"),
        ("corpus.jsonl", b"\xff\xfe\x00", "not a text file in UTF-8"),
    ],
)
def test_a_broken_collection_is_named(
    tmp_path: Path, file: str, text: str | bytes | None, words: str
) -> None:
    broken = write_collection(tmp_path / "made") / file
    match text:
        case None:
            broken.unlink()
        case bytes():
            broken.write_bytes(text)
        case str():
            broken.write_text(text)
    with pytest.raises(Refused, match=words):
        read_collection(tmp_path / "made")


def test_a_difference_is_significant_when_it_is_in_most_questions() -> None:
    before = [0.4, 0.5, 0.6, 0.3, 0.7] * 6
    better = [value + 0.1 for value in before]
    mixed = [value + (0.1 if number % 2 else -0.1) for number, value in enumerate(before)]
    assert compute_p_value(before, better) < 0.001
    assert compute_p_value(before, mixed) > 0.5
    assert compute_p_value(before, before) == 1.0
    assert compute_p_value(before, better) == compute_p_value(before, better)
    # Two questions have four outcomes, of which two are as large.
    assert compute_p_value([0.0, 0.0], [0.5, 0.5]) == pytest.approx(0.5, abs=0.02)
