"""Numbers after protobuf: a Struct knows only doubles, so what was an integer is made one again."""

from typing import Any


def whole_numbers(value: Any) -> Any:
    """The value with every integral double as an integer; JSON knows no difference, Python code does."""
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) < 2**53 else value
    if isinstance(value, dict):
        return {key: whole_numbers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [whole_numbers(item) for item in value]
    return value
