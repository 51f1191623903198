"""Label and field selectors of list requests."""

import re
from collections.abc import Callable
from typing import Any

from ai_platform_engineering.demo.estate.cluster_objects import Json

Predicate = Callable[[Json], bool]

_MAX_SELECTOR_LENGTH = 2_000
_SET_REQUIREMENT = re.compile(r"^([\w./-]+)\s+(in|notin)\s+\(([^()]*)\)$")
_EQUALITY_REQUIREMENT = re.compile(r"^([\w./-]+)\s*(==|=|!=)\s*([\w./:-]*)$")
_EXISTENCE_REQUIREMENT = re.compile(r"^(!?)\s*([\w./-]+)$")
_COMMA_OUTSIDE_PARENTHESES = re.compile(r",(?![^()]*\))")
_COMMON_FIELDS = ("metadata.name", "metadata.namespace")
_FIELDS = {
    "Event": (
        "involvedObject.kind",
        "involvedObject.name",
        "involvedObject.namespace",
        "involvedObject.uid",
        "involvedObject.apiVersion",
        "reason",
        "source",
        "type",
    ),
    "Namespace": ("status.phase",),
    "Node": ("spec.unschedulable",),
    "Pod": ("spec.nodeName", "spec.restartPolicy", "status.phase", "status.podIP"),
    "ReplicaSet": ("status.replicas",),
}


class InvalidSelector(ValueError):
    """A selector that cannot be parsed, or a field that the kind cannot be selected by."""


def parse_label_selector(text: str) -> Predicate:
    """Raises InvalidSelector."""
    requirements = [_parse_label_requirement(part) for part in _split(text)]
    return lambda resource: all(
        requirement(resource["metadata"].get("labels") or {}) for requirement in requirements
    )


def parse_field_selector(text: str, kind: str) -> Predicate:
    """Raises InvalidSelector."""
    requirements: list[Predicate] = []
    for part in _split(text):
        match = _EQUALITY_REQUIREMENT.match(part)
        if match is None:
            raise InvalidSelector(f"invalid selector: '{part}'; can't understand '{part}'")
        path, operator, value = match.groups()
        if path not in (*_COMMON_FIELDS, *_FIELDS.get(kind, ())):
            raise InvalidSelector(f"field label not supported: {path}")
        requirements.append(_field_requirement(path, operator, value))
    return lambda resource: all(requirement(resource) for requirement in requirements)


def _split(text: str) -> list[str]:
    if len(text) > _MAX_SELECTOR_LENGTH:
        raise InvalidSelector("the selector is too long")
    return [part.strip() for part in _COMMA_OUTSIDE_PARENTHESES.split(text) if part.strip()]


def _parse_label_requirement(text: str) -> Predicate:
    if match := _SET_REQUIREMENT.match(text):
        key, operator, values_text = match.groups()
        values = {value.strip() for value in values_text.split(",")}
        if operator == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if match := _EQUALITY_REQUIREMENT.match(text):
        key, operator, value = match.groups()
        if operator == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if match := _EXISTENCE_REQUIREMENT.match(text):
        negation, key = match.groups()
        if negation:
            return lambda labels: key not in labels
        return lambda labels: key in labels
    raise InvalidSelector(f"unable to parse requirement: '{text}'")


def _field_requirement(path: str, operator: str, value: str) -> Predicate:
    def matches(resource: Json) -> bool:
        is_equal = _read_field(resource, path) == value
        return not is_equal if operator == "!=" else is_equal

    return matches


def _read_field(resource: Json, path: str) -> str:
    value: Any = resource
    for key in path.split("."):
        value = value.get(key, "") if isinstance(value, dict) else ""
    if isinstance(value, dict):  # an event's source is matched by its component
        value = value.get("component", "")
    if isinstance(value, bool):
        return str(value).lower()
    return str(value)
