"""Call arguments from values: each value in its argument's type, and one call per intended combination."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ai_platform_engineering.models.offline.argument_slots import ArgumentSlot
from ai_platform_engineering.models.offline.word_values import ArgumentValue

MAX_CALLS = 8
_MAX_COMBINATIONS = 8 * MAX_CALLS  # enough to say how many calls are left out, and never endless
_TRUE_WORDS = ("true", "yes", "1", "on")
_FALSE_WORDS = ("false", "no", "0", "off")

Combination = dict[str, ArgumentValue]


def convert_value(slot: ArgumentSlot, value: Any) -> Any:
    """The value in the type of the schema. Raises ValueError with words that follow the argument's name."""
    value_type = slot.item_type if slot.type == "array" else slot.type
    if value_type in ("integer", "number"):
        return _convert_number(slot, value, value_type)
    if value_type == "boolean" and not isinstance(value, bool):
        return _convert_flag(value)
    if slot.options and slot.options[0] is not None and value not in slot.options:
        return _match_option(slot, value)
    return value


def _convert_number(slot: ArgumentSlot, value: Any, value_type: str) -> Any:
    try:
        number = float(value)
    except (TypeError, ValueError):
        if "string" in slot.alternative_types:
            return str(value)
        raise ValueError(f"is a number, and {value} is not") from None
    is_too_small = slot.minimum is not None and number < slot.minimum
    is_too_large = slot.maximum is not None and number > slot.maximum
    if is_too_small or is_too_large:
        raise ValueError(f"must be {_describe_bounds(slot)}, and {value} is not")
    if value_type == "integer":
        return int(number)
    return number


def _convert_flag(value: Any) -> bool:
    word = str(value).lower()
    if word in _TRUE_WORDS:
        return True
    if word in _FALSE_WORDS:
        return False
    raise ValueError(f"is yes or no, and {value} is neither")


def _match_option(slot: ArgumentSlot, value: Any) -> Any:
    for option in slot.options:
        if str(option).lower() == str(value).lower():
            return option
    raise ValueError(f"is one of {', '.join(map(str, slot.options[:20]))}, and {value} is not")


def _describe_bounds(slot: ArgumentSlot) -> str:
    if slot.minimum is None:
        return f"at most {slot.maximum:g}"
    if slot.maximum is None:
        return f"at least {slot.minimum:g}"
    return f"between {slot.minimum:g} and {slot.maximum:g}"


def combine_values(
    slots: Sequence[ArgumentSlot], values: Mapping[str, Sequence[ArgumentValue]]
) -> list[dict[str, Any]]:
    """The arguments of each call.

    What stands together (`host:443`) stays together, what alternates is paired, the rest is crossed.
    """
    combinations: list[Combination] = [{}]
    for slot in slots:
        slot_values = values.get(slot.name)
        if slot_values:
            combinations = _add_slot(slot, slot_values, combinations)
        combinations = combinations[:_MAX_COMBINATIONS]
    return list(map(_plain_values, combinations))


def _plain_values(combination: Combination) -> dict[str, Any]:
    return {name: value.value for name, value in combination.items()}


def _add_slot(
    slot: ArgumentSlot, slot_values: Sequence[ArgumentValue], combinations: Sequence[Combination]
) -> list[Combination]:
    extended = list[Combination]()
    for index, combination in enumerate(combinations):
        choices = _choose_values(slot, slot_values, combinations, index)
        if not choices:
            extended.append(combination)
        for choice in choices:
            extended.append({**combination, slot.name: choice})
    return extended


def _choose_values(
    slot: ArgumentSlot,
    slot_values: Sequence[ArgumentValue],
    combinations: Sequence[Combination],
    index: int,
) -> list[ArgumentValue]:
    """The values of a slot that belong to the combination at `index`."""
    own_starts = _collect_starts(combinations[index : index + 1]) - {0}
    linked = [value for value in slot_values if value.start in own_starts]
    if linked:
        return linked
    other_starts = _collect_starts(combinations) - own_starts
    unlinked = [value for value in slot_values if value.start not in other_starts]
    if not unlinked and slot.required:
        unlinked = list(slot_values)
    if len(unlinked) > 1 and len(unlinked) == len(combinations) and _alternate(combinations, unlinked):
        return [unlinked[index]]
    return unlinked


def _collect_starts(combinations: Sequence[Combination]) -> set[int]:
    starts = set[int]()
    for combination in combinations:
        starts.update(value.start for value in combination.values())
    return starts


def _alternate(combinations: Sequence[Combination], values: Sequence[ArgumentValue]) -> bool:
    """Whether combinations and values take turns in the text: "80 on a.example and 22 on b.example"."""
    marks = [(value.start, False) for value in values]
    for combination in combinations:
        last_start = max(_collect_starts([combination]), default=0)
        marks.append((last_start, True))
    marks.sort()
    return all(first[1] != second[1] for first, second in pairwise(marks))
