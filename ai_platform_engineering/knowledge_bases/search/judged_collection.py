"""Judged collections in the layout of BEIR: `corpus.jsonl`, `queries.jsonl` and `qrels.tsv`."""

import json
import zipfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.errors import Refused

MAX_DOCUMENTS = 200_000
MAX_LINE_CHARS = 2_000_000

_QRELS_NAMES = ("qrels.tsv", "qrels/test.tsv", "qrels/dev.tsv", "qrels/train.tsv")

Folder = Path | zipfile.Path


@dataclass(frozen=True, slots=True)
class JudgedDocument:
    """A document of a collection."""

    name: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class JudgedCollection:
    """Documents, questions by id, and the grades of documents by question."""

    documents: tuple[JudgedDocument, ...]
    queries: dict[str, str]
    qrels: dict[str, dict[str, int]]


def read_collection(path: Path) -> JudgedCollection:
    """The collection in a folder, in a zip file, or in the folder of a `corpus.jsonl`. Raises Refused."""
    folder: Folder = path
    if path.is_file():
        folder = path.parent
        if zipfile.is_zipfile(path):
            folder = zipfile.Path(path)
    folder = _find_root(folder)
    documents = _read_documents(folder / "corpus.jsonl")
    queries = {_get_id(record): _get_text(record) for record in _read_records(folder / "queries.jsonl")}
    return JudgedCollection(documents, queries, _read_qrels(folder))


def _find_root(folder: Folder) -> Folder:
    """The folder, or the only one in it that holds a corpus: archives often have one around all files."""
    if (folder / "corpus.jsonl").is_file():
        return folder
    children: Iterable[Folder] = folder.iterdir()
    for child in sorted(children, key=str):
        if child.is_dir() and (child / "corpus.jsonl").is_file():
            return child
    raise Refused(
        f"{folder.name} holds no corpus.jsonl. Expected: corpus.jsonl, queries.jsonl and qrels.tsv."
    )


def _read_documents(file: Folder) -> tuple[JudgedDocument, ...]:
    documents: list[JudgedDocument] = []
    for record in _read_records(file):
        if len(documents) == MAX_DOCUMENTS:
            raise Refused(f"{file.name} holds more than {MAX_DOCUMENTS} documents.")
        documents.append(JudgedDocument(_get_id(record), str(record.get("title") or ""), _get_text(record)))
    return tuple(documents)


def _read_qrels(folder: Folder) -> dict[str, dict[str, int]]:
    file = next((folder / name for name in _QRELS_NAMES if (folder / name).is_file()), None)
    if file is None:
        raise Refused(f"{folder.name} holds no judgements: expected {' or '.join(_QRELS_NAMES[:2])}.")
    qrels: dict[str, dict[str, int]] = {}
    for number, line in _read_lines(file):
        columns = line.split("\t")
        if number == 1 and columns[-1].strip() == "score":
            continue
        try:
            question, document, grade = columns
            qrels.setdefault(question, {})[document] = int(grade)
        except ValueError:
            raise Refused(
                f"{file.name}, line {number}: expected query-id, corpus-id and score, separated by tabs."
            ) from None
    return qrels


def _read_records(file: Folder) -> Iterator[dict[str, Any]]:
    for number, line in _read_lines(file):
        try:
            record = json.loads(line)
        except ValueError:
            record = None
        if not isinstance(record, dict) or "_id" not in record:
            raise Refused(f"{file.name}, line {number}: expected a JSON object with `_id` and `text`.")
        yield record


def _get_id(record: dict[str, Any]) -> str:
    return str(record["_id"])


def _get_text(record: dict[str, Any]) -> str:
    return str(record.get("text") or "")


def _read_lines(file: Folder) -> Iterator[tuple[int, str]]:
    """The lines that are not empty, with their numbers."""
    try:
        with file.open("r", encoding="utf-8-sig") as lines:
            for number in count(1):
                line = lines.readline(MAX_LINE_CHARS + 1)
                if not line:
                    return
                if len(line) > MAX_LINE_CHARS:
                    raise Refused(f"{file.name}, line {number}: longer than {MAX_LINE_CHARS} characters.")
                if line.strip():
                    yield number, line.rstrip("\r\n")
    except (OSError, KeyError):
        raise Refused(f"{file.name} cannot be read.") from None
    except UnicodeDecodeError:
        raise Refused(f"{file.name} is not a text file in UTF-8.") from None
