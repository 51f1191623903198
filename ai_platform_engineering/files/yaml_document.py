"""YAML and JSON with the line of every value, so that an error can name the line of a mistake."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from ai_platform_engineering.files.yaml_file import VALUE_ERRORS, InvalidYaml, YamlFileError, read_text
from ai_platform_engineering.files.yaml_limits import YamlLimitExceeded, check_yaml

KeyPath = tuple[str | int, ...]

# libyaml is ten times faster and also takes tabs in JSON; both give the same nodes and lines.
_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_TEXT_TAG = "tag:yaml.org,2002:str"
# An escaped backslash is matched first and kept, so that its `\u` is not taken for an escape.
_SURROGATES = re.compile(r"(\\\\)|\\u([dD][89abAB][0-9a-fA-F]{2})\\u([dD][c-fC-F][0-9a-fA-F]{2})")
_LINE_END = re.compile(r"\r\n|[\r\n\x85\u2028\u2029]")  # the same line ends that YAML counts


@dataclass(frozen=True, slots=True, order=True)
class FilePosition:
    file: str
    line: int

    def __str__(self) -> str:
        return f"{self.file}:{self.line}"


@dataclass(frozen=True, slots=True, order=True)
class FileProblem:
    """A mistake and its position; the text quotes keys and names, never a value, which may be a secret."""

    position: FilePosition
    text: str

    def __str__(self) -> str:
        return f"{self.position}: {self.text}"


class MalformedFile(Exception):
    """A file with problems that leave no data to work on."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        super().__init__("; ".join(map(str, problems)))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class LineRange:
    """The lines of a value with its key, and the source text of a value that is not text (`true`, `8080`)."""

    first: int
    last: int
    text: str | None = None


@dataclass(frozen=True, slots=True)
class YamlDocument:
    """The data of a file, and the lines of every value by its path in the data."""

    file: str
    data: Any
    line_ranges: Mapping[KeyPath, LineRange]
    lines: tuple[str, ...]
    folder: Path

    def find_lines(self, path: KeyPath) -> LineRange:
        """The lines of a value, or of the nearest value around it that the file holds."""
        while path and path not in self.line_ranges:
            path = path[:-1]
        return self.line_ranges[path]

    def find_position(self, path: KeyPath) -> FilePosition:
        return FilePosition(self.file, self.find_lines(path).first)

    def find_match(self, path: KeyPath, pattern: str, skipped: int = 0) -> FilePosition:
        """The position of a regular expression's match inside a value: values such as prompts have many
        lines."""
        value_lines = self.find_lines(path)
        for number in range(value_lines.first, value_lines.last + 1):
            matches = re.findall(pattern, self.lines[number - 1])
            if len(matches) > skipped:
                return FilePosition(self.file, number)
            skipped -= len(matches)
        return FilePosition(self.file, value_lines.first)


def read_document(path: Path, file: str) -> YamlDocument:
    """Reads a file; `file` is its name in messages. Raises MalformedFile."""
    try:
        text = read_text(path)
    except YamlFileError as error:
        raise MalformedFile([FileProblem(FilePosition(file, 1), str(error))]) from None
    return parse_document(text, file, path.absolute().parent)


def parse_document(text: str, file: str, folder: Path) -> YamlDocument:
    """Parses a text; `folder` is where relative paths in it begin. Raises MalformedFile."""
    if text.lstrip()[:1] in ("{", "["):
        text = _json_to_yaml(text)
    try:
        check_yaml(text)
        node = yaml.compose(text, Loader=_LOADER)
    except (yaml.YAMLError, YamlLimitExceeded) as yaml_error:
        error = InvalidYaml.from_error(yaml_error)
        position = FilePosition(file, error.line or 1)
        raise MalformedFile([FileProblem(position, f"is not valid YAML: {error.problem}")]) from None
    lines = tuple(_LINE_END.split(text))
    builder = _Builder(file, last_line=len(lines))
    data = None
    if node is not None:
        data = builder.build(node, (), 1)
    if builder.problems:
        raise MalformedFile(builder.problems)
    return YamlDocument(file, data, builder.line_ranges or {(): LineRange(1, 1)}, lines, folder)


def _json_to_yaml(text: str) -> str:
    """Replaces what JSON allows and YAML does not; lines and columns stay."""

    def join_surrogates(match: re.Match[str]) -> str:
        if match[1]:
            return match[1]
        return chr(0x10000 + ((int(match[2], 16) - 0xD800) << 10) + int(match[3], 16) - 0xDC00)

    return _SURROGATES.sub(join_surrogates, text.replace("\t", " "))


class _Builder:
    """Builds data from YAML nodes, and collects line ranges and problems on the way."""

    def __init__(self, file: str, last_line: int) -> None:
        self._file = file
        self._last_line = last_line
        self._constructor = yaml.constructor.SafeConstructor()
        self.line_ranges: dict[KeyPath, LineRange] = {}
        self.problems: list[FileProblem] = []

    def build(self, node: yaml.Node, path: KeyPath, first_line: int) -> Any:
        self.line_ranges[path] = LineRange(first_line, min(node.end_mark.line + 1, self._last_line))
        if isinstance(node, yaml.MappingNode):
            return self._build_mapping(node, path)
        if isinstance(node, yaml.SequenceNode):
            return self._build_list(node, path)
        return self._build_scalar(node, path, first_line)

    def _build_list(self, node: yaml.SequenceNode, path: KeyPath) -> list[Any]:
        items: list[Any] = []
        for index, item in enumerate(node.value):
            items.append(self.build(item, (*path, index), item.start_mark.line + 1))
        return items

    def _build_mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        data: dict[str, Any] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if not isinstance(key, yaml.ScalarNode):
                self._report(line, "a key must be text")
            elif key.value in data:
                first_line = self.line_ranges[(*path, key.value)].first
                self._report(line, f"`{key.value}` is written twice; the first is on line {first_line}")
            else:
                data[key.value] = self.build(value, (*path, key.value), line)
        return data

    def _build_scalar(self, node: yaml.Node, path: KeyPath, first_line: int) -> Any:
        if node.tag == _TEXT_TAG:
            return node.value
        try:
            data = self._constructor.construct_object(node)
        except (yaml.YAMLError, *VALUE_ERRORS):
            self._report(first_line, "a value that YAML does not accept unquoted; put it in quotes")
            return None
        if data is not None:
            self.line_ranges[path] = LineRange(first_line, self.line_ranges[path].last, node.value)
        return data

    def _report(self, line: int, text: str) -> None:
        self.problems.append(FileProblem(FilePosition(self._file, line), text))
