"""From YAML files to checked workflows, with words for every mistake that name the step and the field."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import yaml
from pydantic import BaseModel, ValidationError

from ai_platform_engineering.core.workflows import FieldSpec, FormSpec, Workflow, WorkflowStep

Loc = tuple[str | int, ...]

_MODELS: Mapping[str, type[BaseModel]] = {"steps": WorkflowStep, "form": FormSpec, "fields": FieldSpec}
_LISTS = {"steps": "step", "fields": "field"}


class UnreadableFile(Exception):
    """A file that cannot be read as YAML; the text says why."""


class _Loader(yaml.SafeLoader):  # the slow one: libyaml's ends the process when a file nests without end
    """Takes a date as the text it is, and a key that is written twice as a mistake."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own way to say it
        first: [rule for rule in rules if rule[0] != "tag:yaml.org,2002:timestamp"]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        if twice := next((key for key in keys if keys.count(key) > 1), None):
            raise yaml.constructor.ConstructorError(
                None, None, f"`{twice}` is written twice", node.start_mark
            )
        return super().construct_mapping(node, deep)


def read(path: Path) -> Any:
    """The data of a file. Raises Unreadable."""
    try:
        return yaml.load(path.read_text(encoding="utf-8-sig"), Loader=_Loader)  # noqa: S506 - it is a safe one
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableFile("is not UTF-8 text") from None
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        raise UnreadableFile(
            f"is not valid YAML{f', line {mark.line + 1}' if mark else ''}: {_said(error)}"
        ) from None
    except (yaml.YAMLError, ValueError, RecursionError):
        raise UnreadableFile("is not valid YAML") from None


def _said(error: yaml.MarkedYAMLError) -> str:
    if "unhashable" in (error.problem or ""):
        return "a value that begins with {{ needs quotes around it"
    return error.problem or error.context or "it ends too early"


def check_workflow(data: Any) -> tuple[Workflow | None, list[str]]:
    """The workflow, or what is wrong with it."""
    if not isinstance(data, dict):
        return None, ["a workflow must be a mapping of keys and values"]
    try:
        return Workflow.model_validate(data), []
    except ValidationError as error:
        return None, [
            text
            for detail in error.errors(include_input=False, include_url=False)
            for text in _in_words(data, detail)
        ]


def _in_words(data: Mapping[str, Any], detail: Any) -> Iterator[str]:
    loc: Loc = detail["loc"]
    key = next((part for part in reversed(loc) if isinstance(part, str)), "")
    place = ", ".join(_places(data, loc))
    match detail["type"]:
        case "extra_forbidden":
            known = _MODELS.get(
                next((str(part) for part in reversed(loc[:-1]) if isinstance(part, str)), ""), Workflow
            ).model_fields
            around = ", ".join(_places(data, loc[:-1]))
            yield _joined(around, _unknown(key, known))
        case "missing":
            yield _joined(", ".join(_places(data, loc[:-1])), f"`{key}` is missing")
        case "string_type":
            yield _joined(place, "must be text; numbers, true, false and what begins with { need quotes")
        case "tuple_type":
            yield _joined(place, "must be a list")
        case "dict_type" | "model_type" | "model_attributes_type":
            yield _joined(place, "must be a mapping of keys and values")
        case "value_error":  # our own; those of the whole workflow stand one to a line and say their place
            around = ", ".join(part for part in _places(data, loc) if not part.startswith("`"))
            yield from (
                _joined(around, text) for text in detail["msg"].removeprefix("Value error, ").splitlines()
            )
        case _:
            yield _joined(place, detail["msg"])


def _joined(place: str, text: str) -> str:
    if place:
        return f"{place}: {text}"
    return text


def _places(data: Any, loc: Loc) -> Iterator[str]:
    """Where it is, as people call it: the step, the field, the key."""
    listed = ""
    for at, part in enumerate(loc):
        data = _inside(data, part)
        if isinstance(part, int):
            name = data.get("name") if isinstance(data, dict) else None
            yield f"{listed} `{name}`" if isinstance(name, str) else f"{listed} {part + 1}"
        elif part in _LISTS and at + 1 < len(loc) and isinstance(loc[at + 1], int):
            listed = _LISTS[part]
        elif part == "form" and at == 0:
            yield "the form"
        elif part == "form" and at + 1 < len(loc):
            continue  # the step says it
        else:
            yield f"`{part}`"
            return


def _inside(data: Any, part: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(part)
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return data[part]
    return None


def _unknown(key: str, known: Mapping[str, Any]) -> str:
    close = get_close_matches(
        key.removeprefix("field_"), known, n=1
    )  # the prefix that fields have on the wire
    hint = (
        f"did you mean `{close[0]}`?"
        if close
        else f"known are {', '.join(f'`{other}`' for other in sorted(known))}"
    )
    return f"unknown key `{key}`; {hint}"
