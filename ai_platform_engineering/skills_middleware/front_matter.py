"""The YAML between two lines of `---` at the top of a SKILL.md: texts, mappings of texts and lists of
texts only."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ai_platform_engineering.files.yaml_limits import YamlLimitExceeded, YamlLimits, check_yaml
from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD, SkillErrors, SkillProblem

FieldValue = str | tuple[str, ...] | dict[str, str] | None

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FENCE = re.compile(r"---[ \t]*")
_NULL_TAG = "tag:yaml.org,2002:null"
_MAX_DEPTH = 3
_LIMITS = YamlLimits(chars=100_000, nodes=2_000, scalar_chars=100_000)
_NOT_OPENED = (
    "The file must begin with front matter: a line `---`, then name and description, then a line `---`."
)
_NOT_CLOSED = "The front matter is not closed. Add a line `---` after its last field."


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """The fields of a SKILL.md and the text below them. Values stay as they are written: `version: 1.0` is
    `1.0`."""

    values: dict[str, FieldValue]
    lines: dict[str, int]  # of each key
    body: str
    body_line: int  # the line on which the body begins


def split_front_matter(text: str) -> FrontMatter:
    """Raises SkillErrors."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        raise _error(1, _NOT_OPENED)
    end = _find_fence(lines, 1)
    if end is None:
        raise _error(1, _NOT_CLOSED)
    values, key_lines = _read_fields(_compose("\n".join(lines[1:end]) + "\n"))
    body_start = end + 1
    while body_start < len(lines) and not lines[body_start].strip():
        body_start += 1
    body = "\n".join(lines[body_start:]).rstrip()
    return FrontMatter(values, key_lines, body, body_start + 1)


def _find_fence(lines: list[str], start: int) -> int | None:
    for index in range(start, len(lines)):
        if _FENCE.fullmatch(lines[index]):
            return index
    return None


def _compose(text: str) -> yaml.Node | None:
    try:
        _check_structure(yaml.parse(text, Loader=_LOADER))
        check_yaml(text, _LIMITS)
        node: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = mark.line + 2 if mark else 1
        # Without what PyYAML quotes, which may be anything.
        problem = re.sub(r"'[^']{2,}'", "'...'", error.problem or "it cannot be read")
        raise _error(
            line, f"The front matter is not valid YAML: {problem}. Put the value in quotes."
        ) from None
    except YamlLimitExceeded as limit:
        raise _error((limit.line or 0) + 1, f"The front matter is too large: {limit.problem}.") from None
    except (yaml.YAMLError, UnicodeEncodeError):
        raise _error(1, "The front matter holds a control character. Remove it.") from None
    return node


def _check_structure(events: Iterator[yaml.Event]) -> None:
    """Refuses aliases and deep nesting before anything is built: a few bytes of them can take any amount
    of memory."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise _error(
                _line_of(event),
                "Anchors and aliases (`&`, `*`) are not read here. Write the value out, or quote it.",
            )
        if isinstance(event, yaml.CollectionStartEvent):
            depth += 1
        elif isinstance(event, yaml.CollectionEndEvent):
            depth -= 1
        if depth > _MAX_DEPTH:
            raise _error(
                _line_of(event),
                "The front matter is nested too deep. Fields are texts, `metadata` has texts below it.",
            )


def _read_fields(node: yaml.Node | None) -> tuple[dict[str, FieldValue], dict[str, int]]:
    if not isinstance(node, yaml.MappingNode):
        raise _error(2, "The front matter must have fields, each as `name: value`.")
    values: dict[str, FieldValue] = {}
    lines: dict[str, int] = {}
    problems: list[SkillProblem] = []
    for key, value in node.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            problems.append(SkillProblem(SKILL_MD, "", "A key must be text.", line))
            continue
        field = key.value
        if field in values:
            message = f"The field is written twice, first on line {lines[field]}. Keep one."
            problems.append(SkillProblem(SKILL_MD, field[:64], message, line))
            continue
        lines[field] = line
        try:
            values[field] = _read_value(value)
        except ValueError as error:
            problems.append(SkillProblem(SKILL_MD, field[:64], str(error), line))
    if problems:
        raise SkillErrors(problems)
    return values, lines


def _read_value(node: yaml.Node) -> FieldValue:
    if isinstance(node, yaml.ScalarNode):
        if node.tag == _NULL_TAG:
            return None
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return tuple(_read_text(item) for item in node.value)
    texts: dict[str, str] = {}
    for key_node, value_node in node.value:
        key = _read_text(key_node)
        value = _read_text(value_node)
        if key in texts:
            raise ValueError("A key below it is written twice. Keep one.")
        texts[key] = value
    return texts


def _read_text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("What is below it must be texts. Write it on one level.")
    if node.tag == _NULL_TAG:
        return ""
    return str(node.value)


def _line_of(event: yaml.Event) -> int:
    if event.start_mark is None:
        return 1
    return event.start_mark.line + 2


def _error(line: int, message: str) -> SkillErrors:
    return SkillErrors([SkillProblem(SKILL_MD, "", message, line)])
