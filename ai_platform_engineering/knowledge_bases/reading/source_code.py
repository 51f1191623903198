"""Source code and configuration: cut where top-level definitions begin, each with the comment above it."""

import ast
import itertools
import json
import re
import warnings
from collections.abc import Iterator

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.languages import begins_definition
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line

_LONG_CLASS = 60  # lines; a longer one is cut at its methods
_COMMENT = re.compile(r"\s*(?:#(?!!)|//|/\*|\*|--|;|%|@|<!--)")  # @: annotations belong to what follows
_MANIFEST = re.compile(r"^kind:\s{0,4}(\S{1,80})", re.MULTILINE)
_MANIFEST_NAME = re.compile(
    r"^metadata:\n(?:[ \t][^\n]{0,400}\n){0,5}?[ \t]{1,8}name:\s{0,4}(\S{1,120})", re.MULTILINE
)
_LONG_LINE = 2_000

SectionStart = tuple[int, tuple[str, ...]]  # the line where a part begins, and its headings


def parse(detected: DetectedDocument) -> ParsedDocument:
    text = _indent_json(detected.text, detected.language)
    lines = text.split("\n")
    return ParsedDocument(
        detected.name,
        tuple(_split_sections(lines, _find_starts(text, lines, detected.language))),
        detected.language or "text",
    )


def _indent_json(text: str, language: str) -> str:
    """JSON that is on one line, indented."""
    if language != "JSON" or len(text) < _LONG_LINE or "\n" in text.strip():
        return text
    try:
        return json.dumps(json.loads(text), indent=1, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def _find_starts(text: str, lines: list[str], language: str) -> list[SectionStart]:
    if language == "Python":
        try:
            return list(_find_python_starts(text, lines))
        except (SyntaxError, ValueError, RecursionError, MemoryError):
            pass  # another version of the language, or half a file
    starts: list[SectionStart] = [
        (number, (_signature(line),))
        for number, line in enumerate(lines)
        if line[:1].strip() and begins_definition(line, language)
    ]
    if language == "YAML":
        return _name_manifests(lines, starts)
    return starts


def _find_python_starts(text: str, lines: list[str]) -> Iterator[SectionStart]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a document's own warnings are no concern of ours
        module = ast.parse(text)
    previous = 0
    for node in module.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            name = _signature(lines[node.lineno - 1])
            yield _first_line(node), (name,)
            if isinstance(node, ast.ClassDef) and (node.end_lineno or 0) - node.lineno > _LONG_CLASS:
                yield from _find_methods(node, name, lines)
        elif previous:
            yield node.lineno - 1, ()  # module level again
        previous = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)


def _find_methods(node: ast.ClassDef, name: str, lines: list[str]) -> Iterator[SectionStart]:
    for inner in node.body:
        if isinstance(inner, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield _first_line(inner), (name, _signature(lines[inner.lineno - 1]))


def _first_line(node: ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) -> int:
    return min((decorator.lineno for decorator in node.decorator_list), default=node.lineno) - 1


def _signature(line: str) -> str:
    return to_single_line(line[:200]).rstrip(" {(:[=")[:120]


def _name_manifests(lines: list[str], starts: list[SectionStart]) -> list[SectionStart]:
    """The documents of a YAML file, each with kind and name as heading if it is a Kubernetes manifest."""
    borders = [0, *(number for number, _ in starts if number), len(lines)]
    manifests: list[SectionStart] = []
    for begin, end in itertools.pairwise(borders):
        text = "\n".join(lines[begin:end])
        kind = _MANIFEST.search(text)
        name = _MANIFEST_NAME.search(text)
        if kind is None:
            manifests.append((begin, ()))
        elif name is None:
            manifests.append((begin, (kind[1],)))
        else:
            manifests.append((begin, (f"{kind[1]} {name[1]}",)))
    return manifests


def _split_sections(lines: list[str], starts: list[SectionStart]) -> Iterator[Section]:
    borders: list[SectionStart] = [(0, ())]
    for number, headings in starts:
        begin = _include_comment(lines, number, borders[-1][0])
        if begin == borders[-1][0]:
            borders[-1] = (begin, headings)
        else:
            borders.append((begin, headings))
    borders.append((len(lines), ()))
    for (begin, headings), (end, _) in itertools.pairwise(borders):
        text = "\n".join(lines[begin:end])
        if end < len(lines):
            text += "\n"
        yield Section(text, headings, "code")


def _include_comment(lines: list[str], number: int, lowest: int) -> int:
    while number > lowest and _COMMENT.match(lines[number - 1]):
        number -= 1
    return number
