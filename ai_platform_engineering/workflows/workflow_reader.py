"""Checks the data of a workflow file, with error messages that name the step and the field."""

from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from typing import Any

from pydantic import BaseModel, ValidationError

from ai_platform_engineering.core.workflows import FieldSpec, FormSpec, Workflow, WorkflowStep
from ai_platform_engineering.files.yaml_document import KeyPath

_MODELS: Mapping[str, type[BaseModel]] = {"steps": WorkflowStep, "form": FormSpec, "fields": FieldSpec}
_ITEM_NAMES = {"steps": "step", "fields": "field"}


def check_workflow(data: Any) -> tuple[Workflow | None, list[str]]:
    """The workflow, or its problems."""
    if not isinstance(data, dict):
        return None, ["a workflow must be a mapping of keys and values"]
    try:
        return Workflow.model_validate(data), []
    except ValidationError as error:
        problems: list[str] = []
        for detail in error.errors(include_input=False, include_url=False):
            problems += _describe_error(data, detail["type"], detail["msg"], detail["loc"])
        return None, problems


def _describe_error(data: Mapping[str, Any], kind: str, message: str, path: KeyPath) -> Iterator[str]:
    """pydantic's error in words for whoever wrote the file."""
    key = _last_key(path)
    location = ", ".join(_describe_location(data, path))
    parent_location = ", ".join(_describe_location(data, path[:-1]))
    match kind:
        case "extra_forbidden":
            model = _MODELS.get(_last_key(path[:-1]), Workflow)
            yield _prefix(parent_location, _describe_unknown_key(key, model.model_fields))
        case "missing":
            yield _prefix(parent_location, f"`{key}` is missing")
        case "string_type":
            yield _prefix(location, "must be text; numbers, true, false and what begins with { need quotes")
        case "tuple_type":
            yield _prefix(location, "must be a list")
        case "dict_type" | "model_type" | "model_attributes_type":
            yield _prefix(location, "must be a mapping of keys and values")
        case "value_error":  # our own; those of the whole workflow have one line each and name their location
            names = [name for name in _describe_location(data, path) if not name.startswith("`")]
            for line in message.removeprefix("Value error, ").splitlines():
                yield _prefix(", ".join(names), line)
        case _:
            yield _prefix(location, message)


def _last_key(path: KeyPath) -> str:
    return next((part for part in reversed(path) if isinstance(part, str)), "")


def _prefix(location: str, text: str) -> str:
    if not location:
        return text
    return f"{location}: {text}"


def _describe_location(data: Any, path: KeyPath) -> Iterator[str]:
    """The names of the step, the field and the key that a path leads to."""
    item_name = ""
    for index, part in enumerate(path):
        data = _find_value(data, part)
        is_last = index + 1 == len(path)
        if isinstance(part, int):
            yield _describe_item(data, item_name, part)
        elif part in _ITEM_NAMES and not is_last and isinstance(path[index + 1], int):
            item_name = _ITEM_NAMES[part]
        elif part == "form" and index == 0:
            yield "the form"
        elif part == "form" and not is_last:
            continue  # the step names it
        else:
            yield f"`{part}`"
            return


def _describe_item(item: Any, item_name: str, index: int) -> str:
    name = item.get("name") if isinstance(item, dict) else None
    if isinstance(name, str):
        return f"{item_name} `{name}`"
    return f"{item_name} {index + 1}"


def _find_value(data: Any, part: str | int) -> Any:
    if isinstance(data, dict):
        return data.get(part)
    if isinstance(data, list) and isinstance(part, int) and part < len(data):
        return data[part]
    return None


def _describe_unknown_key(key: str, known_keys: Mapping[str, Any]) -> str:
    bare_key = key.removeprefix("field_")  # the prefix that fields have on the wire
    similar_keys = get_close_matches(bare_key, known_keys, n=1)
    if similar_keys:
        return f"unknown key `{key}`; did you mean `{similar_keys[0]}`?"
    listed_keys = ", ".join(f"`{known_key}`" for known_key in sorted(known_keys))
    return f"unknown key `{key}`; known are {listed_keys}"
