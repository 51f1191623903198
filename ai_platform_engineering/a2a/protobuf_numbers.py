"""Numbers after protobuf: a Struct knows only doubles, so what was an integer is made one again."""

from typing import Any


def restore_integers(value: Any) -> Any:
    """The value with every integral double as an integer; JSON knows no difference, Python code does."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < 2**53:
            return int(value)
        return value
    if isinstance(value, dict):
        return {key: restore_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restore_integers(item) for item in value]
    return value
