"""Filled arguments of a tool: values in the types of the schema, combined to calls, or what they lack."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.models.offline.argument_slots import ArgumentSlot
from ai_platform_engineering.models.offline.bound_tools import RoutableTool
from ai_platform_engineering.models.offline.call_arguments import MAX_CALLS, combine_values, convert_value
from ai_platform_engineering.models.offline.entities import SALIENT_KINDS, Entity
from ai_platform_engineering.models.offline.word_values import ArgumentValue

_MISSING_PENALTY = 1.2
_UNUSED_PENALTY = 0.6
_OPTIONAL_WEIGHT = 0.4


@dataclass(frozen=True, slots=True)
class FilledArguments:
    """The arguments of the calls that a request makes of a tool, or what they lack."""

    argument_sets: tuple[dict[str, Any], ...]
    missing: tuple[ArgumentSlot, ...] = ()
    problems: tuple[str, ...] = ()
    fit: float = 0.0  # how well the entities and words of the request serve the tool
    omitted_calls: int = 0  # beyond the most that are made


@dataclass(slots=True)
class SlotValues:
    """The values found for the slots of a tool, and the entities that they came from."""

    by_slot: dict[str, list[ArgumentValue]] = field(default_factory=dict)
    used_entities: set[Entity] = field(default_factory=set)


def finish_arguments(
    tool: RoutableTool, entities: Sequence[Entity], slot_values: SlotValues
) -> FilledArguments:
    """Converts and combines the values; `entities` are those of the request."""
    values = dict(slot_values.by_slot)
    problems = list[str]()
    for slot in tool.slots:
        problems.extend(_convert_values(slot, values))
    missing = tuple(slot for slot in tool.required_slots if slot.name not in values)
    unused_count = _count_unused_entities(entities, slot_values.used_entities)
    fit = _rate_values(tool, values) - _MISSING_PENALTY * len(missing) - _UNUSED_PENALTY * unused_count
    if missing or problems:
        return FilledArguments((), missing, tuple(problems), fit)
    unique_sets = list[dict[str, Any]]()
    for arguments in combine_values(tool.slots, values):
        if arguments not in unique_sets:
            unique_sets.append(arguments)
    omitted_calls = max(0, len(unique_sets) - MAX_CALLS)
    return FilledArguments(tuple(unique_sets[:MAX_CALLS]), (), (), fit, omitted_calls)


def _convert_values(slot: ArgumentSlot, values: dict[str, list[ArgumentValue]]) -> Iterator[str]:
    """Converts the values of a slot to its type; yields a problem for each that cannot be."""
    if slot.name not in values:
        return
    converted = list[ArgumentValue]()
    for value in values[slot.name]:
        try:
            converted_value = convert_value(slot, value.value)
        except ValueError as error:
            yield f"`{slot.name}` {error}"
            continue
        converted.append(ArgumentValue(converted_value, value.start, value.confidence))
    values[slot.name] = converted
    if converted and (slot.type == "array" or _make_one_list(slot, values)):
        items = [value.value for value in converted]
        values[slot.name] = [ArgumentValue(items, converted[0].start, converted[0].confidence)]


def _make_one_list(slot: ArgumentSlot, values: Mapping[str, list[ArgumentValue]]) -> bool:
    """Whether several values of an argument that also takes a list make one call.

    They do unless each belongs to a value of another argument.
    """
    converted = values[slot.name]
    if len(converted) <= 1 or "array" not in slot.alternative_types:
        return False
    for name, other_values in values.items():
        if name != slot.name and len(other_values) != 1:
            return False
    return all(isinstance(value.value, int) for value in converted)


def _rate_values(tool: RoutableTool, values: Mapping[str, list[ArgumentValue]]) -> float:
    required_names = {slot.name for slot in tool.required_slots}
    fit = 0.0
    for name, slot_values in values.items():
        confidence = max((value.confidence for value in slot_values), default=0.0)
        fit += confidence if name in required_names else _OPTIONAL_WEIGHT * confidence
    return fit


def _count_unused_entities(entities: Sequence[Entity], used_entities: set[Entity]) -> int:
    """How many salient entities serve no argument; entities of one word count once."""
    unused_starts = set[int]()
    for entity in entities:
        if entity.kind in SALIENT_KINDS and not entity.derived and entity not in used_entities:
            unused_starts.add(entity.start)
    return len(unused_starts - {entity.start for entity in used_entities})
