"""The YAML between two lines of `---` at the top of a SKILL.md, read with few means: texts, one level of
texts, lists of texts."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD, SkillErrors, SkillProblem

Value = str | tuple[str, ...] | dict[str, str] | None

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_FENCE = re.compile(r"---[ \t]*")
_NULL = "tag:yaml.org,2002:null"
_MAX_DEPTH = 3


@dataclass(frozen=True, slots=True)
class FrontMatter:
    """Values as they are written, so that `version: 1.0` stays `1.0`; the line of each key; what follows;
    and the line it begins on."""

    values: dict[str, Value]
    lines: dict[str, int]
    body: str
    body_line: int


def split_front_matter(text: str) -> FrontMatter:
    """Raises SkillErrors."""
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    if not _FENCE.fullmatch(lines[0]):
        raise _broken(
            1,
            "The file must begin with front matter: a line `---`, then name and description, then a line `---`.",
        )
    end = next((at for at, line in enumerate(lines[1:], 1) if _FENCE.fullmatch(line)), None)
    if end is None:
        raise _broken(1, "The front matter is not closed. Add a line `---` after its last field.")
    values, places = _fields(_composed("\n".join(lines[1:end]) + "\n"))
    rest = end + 1
    while rest < len(lines) and not lines[rest].strip():
        rest += 1
    return FrontMatter(values, places, "\n".join(lines[rest:]).rstrip(), rest + 1)


def _composed(text: str) -> yaml.Node | None:
    try:
        _bounded(yaml.parse(text, Loader=_LOADER))
        found: yaml.Node | None = yaml.compose(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        # Without what it quotes, which may be anything.
        said = re.sub(r"'[^']{2,}'", "'...'", error.problem or "it cannot be read")
        raise _broken(
            mark.line + 2 if mark else 1,
            f"The front matter is not valid YAML: {said}. Put the value in quotes.",
        ) from None
    except yaml.YAMLError:
        raise _broken(1, "The front matter holds a control character. Remove it.") from None
    return found


def _bounded(events: Iterator[yaml.Event]) -> None:
    """Before anything is built: a few bytes of aliases or brackets can stand for any amount of memory."""
    depth = 0
    for event in events:
        if isinstance(event, yaml.AliasEvent):
            raise _broken(
                _line(event),
                "Anchors and aliases (`&`, `*`) are not read here. Write the value out, or quote it.",
            )
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > _MAX_DEPTH:
            raise _broken(
                _line(event),
                "The front matter is nested too deep. Fields are texts, `metadata` has texts below it.",
            )


def _fields(node: yaml.Node | None) -> tuple[dict[str, Value], dict[str, int]]:
    if not isinstance(node, yaml.MappingNode):
        raise _broken(2, "The front matter must have fields, each as `name: value`.")
    values: dict[str, Value] = {}
    lines: dict[str, int] = {}
    problems: list[SkillProblem] = []
    for key, value in node.value:
        line = key.start_mark.line + 2
        if not isinstance(key, yaml.ScalarNode):
            problems.append(SkillProblem(SKILL_MD, "", "A key must be text.", line))
        elif key.value in values:
            problems.append(
                SkillProblem(
                    SKILL_MD,
                    key.value[:64],
                    f"The field is written twice, first on line {lines[key.value]}. Keep one.",
                    line,
                )
            )
        else:
            lines[key.value] = line
            try:
                values[key.value] = _value(value)
            except ValueError as error:
                problems.append(SkillProblem(SKILL_MD, key.value[:64], str(error), line))
    if problems:
        raise SkillErrors(problems)
    return values, lines


def _value(node: yaml.Node) -> Value:
    if isinstance(node, yaml.ScalarNode):
        if node.tag == _NULL:
            return None
        return str(node.value)
    if isinstance(node, yaml.SequenceNode):
        return tuple(_text(item) for item in node.value)
    pairs = [(_text(key), _text(value)) for key, value in node.value]
    if len({key for key, _ in pairs}) < len(pairs):
        raise ValueError("A key below it is written twice. Keep one.")
    return dict(pairs)


def _text(node: yaml.Node) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ValueError("What is below it must be texts. Write it on one level.")
    if node.tag == _NULL:
        return ""
    return str(node.value)


def _line(event: yaml.Event) -> int:
    if event.start_mark:
        return event.start_mark.line + 2
    return 1


def _broken(line: int, message: str) -> SkillErrors:
    return SkillErrors([SkillProblem(SKILL_MD, "", message, line)])


def render_front_matter(fields: dict[str, Any], body: str) -> str:
    """A SKILL.md; what it says is read back as it was given."""
    # Quoted where YAML would take it for something else; never folded, so that lines are the author's.
    top = yaml.safe_dump(fields, sort_keys=False, allow_unicode=True, width=2**20)
    return f"---\n{top}---\n\n{body.strip()}\n"
