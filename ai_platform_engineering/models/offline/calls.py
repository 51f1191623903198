"""From values to calls: each value in its argument's type, and one call per combination that was meant."""

from collections.abc import Mapping, Sequence
from itertools import pairwise
from typing import Any

from ai_platform_engineering.models.offline.schemas import ArgumentSlot
from ai_platform_engineering.models.offline.values import ArgumentValue

MOST_CALLS = 8


def typed(slot: ArgumentSlot, value: Any) -> Any:
    """The value as the schema wants it. Raises ValueError with words that follow the argument's name."""
    kind = slot.item if slot.type == "array" else slot.type
    if kind in ("integer", "number"):
        try:
            number = float(value)
        except (TypeError, ValueError):
            if "string" in slot.also:
                return str(value)
            raise ValueError(f"is a number, and {value} is not") from None
        if (slot.minimum is not None and number < slot.minimum) or (
            slot.maximum is not None and number > slot.maximum
        ):
            raise ValueError(f"must be {_between(slot)}, and {value} is not")
        if kind == "integer":
            return int(number)
        return number
    if kind == "boolean" and not isinstance(value, bool):
        if str(value).lower() in ("true", "yes", "1", "on"):
            return True
        if str(value).lower() in ("false", "no", "0", "off"):
            return False
        raise ValueError(f"is yes or no, and {value} is neither")
    if slot.options and slot.options[0] is not None and value not in slot.options:
        alike = next((option for option in slot.options if str(option).lower() == str(value).lower()), None)
        if alike is None:
            raise ValueError(
                f"is one of {', '.join(str(option) for option in slot.options[:20])}, and {value} is not"
            )
        return alike
    return value


def _between(slot: ArgumentSlot) -> str:
    low, high = (None if bound is None else f"{bound:g}" for bound in (slot.minimum, slot.maximum))
    if low and high:
        return f"between {low} and {high}"
    if low:
        return f"at least {low}"
    return f"at most {high}"


def rows(
    slots: Sequence[ArgumentSlot], values: Mapping[str, Sequence[ArgumentValue]]
) -> list[dict[str, Any]]:
    """One call per combination: what stands together (`host:443`) stays together, what alternates is paired, the rest is crossed."""
    found: list[dict[str, ArgumentValue]] = [{}]
    for slot in slots:
        options = values.get(slot.name)
        if options:
            found = [
                {**row, **choice}
                for at, row in enumerate(found)
                for choice in _choices(slot, options, found, at)
            ]
        found = found[: 8 * MOST_CALLS]  # enough to say how many are left out, and never endless
    return [{name: value.value for name, value in row.items()} for row in found]


def _choices(
    slot: ArgumentSlot, options: Sequence[ArgumentValue], rows: Sequence[Mapping[str, ArgumentValue]], at: int
) -> list[dict[str, ArgumentValue]]:
    starts = {value.start for value in rows[at].values() if value.start}
    others = {value.start for row in rows for value in row.values()} - starts
    linked = [option for option in options if option.start in starts]
    free = [option for option in options if option.start not in others] or (
        list(options) if slot.required else []
    )
    if linked:
        free = linked
    elif len(free) > 1 and len(free) == len(rows) and _alternate(rows, free):
        free = [free[at]]
    return [{slot.name: option} for option in free] or [{}]


def _alternate(rows: Sequence[Mapping[str, ArgumentValue]], options: Sequence[ArgumentValue]) -> bool:
    before = [(max((value.start for value in row.values()), default=0), "row") for row in rows]
    marks = [mark for _, mark in sorted([*before, *((option.start, "option") for option in options)])]
    return all(one != other for one, other in pairwise(marks))
