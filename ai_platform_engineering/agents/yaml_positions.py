"""YAML and JSON with the line of everything in them, so that a mistake can be pointed at."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import yaml

Loc = tuple[str | int, ...]

# libyaml is ten times faster and also takes tabs in JSON; both give the same nodes and lines.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT = "tag:yaml.org,2002:str"
# An escaped backslash is matched first and kept, so that its `\u` is not taken for an escape.
_SURROGATES = re.compile(r"(\\\\)|\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """What is wrong and where; the text quotes keys and names, never a value, which may be a secret."""

    place: FilePosition
    text: str

    def __str__(self) -> str:
        return f"{self.place}: {self.text}"


class MalformedFile(Exception):
    """A file with problems that leave nothing to work on."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Spot:
    """The lines of a value with its key, and its text where the value is not text (`true`, `8080`)."""

    first: int
    last: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Written:
    """What a file holds: the data, and the spot of every value by its path in the data."""

    file: str
    data: Any
    spots: Mapping[Loc, Spot]
    lines: tuple[str, ...]
    folder: Path

    def spot(self, loc: Loc) -> Spot:
        """The spot of a value, or of the nearest thing around it that is written down."""
        while loc and loc not in self.spots:
            loc = loc[:-1]
        return self.spots[loc]

    def place(self, loc: Loc) -> FilePosition:
        return FilePosition(self.file, self.spot(loc).first)

    def place_of_match(self, loc: Loc, pattern: str, skipped: int = 0) -> FilePosition:
        """The line within a value on which something stands: values such as prompts are long."""
        spot = self.spot(loc)
        matching = (
            line
            for line in range(spot.first, spot.last + 1)
            for _ in re.finditer(pattern, self.lines[line - 1])
        )
        return FilePosition(self.file, next(islice(matching, skipped, None), spot.first))


def read(path: Path, file: str) -> Written:
    """Reads a file; `file` is what it is called in messages. Raises Malformed."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise MalformedFile(
            [FileProblem(FilePosition(file, 1), f"cannot be read: {error.strerror}")]
        ) from None
    except UnicodeDecodeError:
        raise MalformedFile([FileProblem(FilePosition(file, 1), "is not UTF-8 text")]) from None
    return parse(text, file, path.absolute().parent)


def parse(text: str, file: str, folder: Path) -> Written:
    if text.lstrip()[:1] in ("{", "["):
        text = _json_as_yaml(text)
    try:
        node = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise MalformedFile(
            [
                FileProblem(
                    FilePosition(file, mark.line + 1 if mark else 1), f"is not valid YAML: {_said(error)}"
                )
            ]
        ) from None
    except yaml.YAMLError:  # a character that YAML does not allow; the error quotes it and has no line
        raise MalformedFile(
            [FileProblem(FilePosition(file, 1), "is not valid YAML: it holds a control character")]
        ) from None
    # The same line ends that YAML counts.
    lines = tuple(re.split(r"\r\n|[\r\n\x85\u2028\u2029]", text))
    building = _Building(file, last=len(lines))
    data = building.value(node, (), 1, ()) if node is not None else None
    if building.problems:
        raise MalformedFile(building.problems)
    return Written(file, data, building.spots or {(): Spot(1, 1)}, lines, folder)


def _said(error: yaml.MarkedYAMLError) -> str:
    parts = [part for part in (error.context, error.problem) if part]
    # What PyYAML quotes may be part of a secret; single characters are its own.
    return re.sub(
        r"'([^']*)'", lambda quoted: quoted[0] if len(quoted[1]) == 1 else "'...'", ", ".join(parts)
    )


def _json_as_yaml(text: str) -> str:
    """Takes care of what JSON allows and YAML does not; lines and columns stay."""

    def joined(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        return chr(0x10000 + ((int(match[2], 16) - 0xD800) << 10) + int(match[3], 16) - 0xDC00)

    return _SURROGATES.sub(joined, text.replace("\t", " "))


class _Building:
    """From nodes to data, noting spots and problems on the way."""

    def __init__(self, file: str, last: int) -> None:
        self._file, self._last = file, last
        self._constructor = yaml.constructor.SafeConstructor()
        self.spots: dict[Loc, Spot] = {}
        self.problems: list[FileProblem] = []

    def value(self, node: yaml.Node, loc: Loc, first: int, around: tuple[yaml.Node, ...]) -> Any:
        self.spots[loc] = Spot(first, min(node.end_mark.line + 1, self._last))
        if any(node is outer for outer in around):
            return self._wrong(first, "a value that contains itself (`*` refers to what it stands in)")
        around = (*around, node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc, around)
        if isinstance(node, yaml.SequenceNode):
            return [
                self.value(item, (*loc, at), item.start_mark.line + 1, around)
                for at, item in enumerate(node.value)
            ]
        return self._scalar(node, loc, first)

    def _mapping(self, node: yaml.MappingNode, loc: Loc, around: tuple[yaml.Node, ...]) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._wrong(line, "a key must be text")
            elif key.value in data:
                self._wrong(
                    line,
                    f"`{key.value}` is written twice; the first is on line {self.spots[(*loc, key.value)].first}",
                )
            else:
                data[key.value] = self.value(value, (*loc, key.value), line, around)
        return data

    def _scalar(self, node: yaml.Node, loc: Loc, first: int) -> Any:
        if node.tag == _TEXT:
            return node.value
        try:
            data = self._constructor.construct_object(node)
        except (yaml.YAMLError, ValueError):
            return self._wrong(first, "a value that YAML does not take as it is; put it in quotes")
        self.spots[loc] = Spot(first, self.spots[loc].last, node.value if data is not None else None)
        return data

    def _wrong(self, line: int, text: str) -> None:
        self.problems.append(FileProblem(FilePosition(self._file, line), text))
