"""JSON values as protobuf's `Value`, which cannot hold all of them, and back, with integers restored."""

import json
from typing import Any

from google.protobuf.json_format import ParseDict
from google.protobuf.struct_pb2 import Value

_MAX_INTEGER = 2**53  # a protobuf Struct knows only doubles
_MAX_DEPTH = 24  # protobuf reads at most 100 levels of its own, and one of an object takes three


def to_protobuf_value(data: Any) -> Value:
    """JSON as a protobuf value, with text for what protobuf cannot hold: long integers and deep nesting."""
    return ParseDict(_replace_unsupported(data), Value())


def restore_integers(value: Any) -> Any:
    """The value with every integral double as an integer; JSON knows no difference, Python code does."""
    if isinstance(value, float):
        if value.is_integer() and abs(value) < _MAX_INTEGER:
            return int(value)
        return value
    if isinstance(value, dict):
        return {key: restore_integers(item) for key, item in value.items()}
    if isinstance(value, list):
        return [restore_integers(item) for item in value]
    return value


def to_wire_value(data: Any, depth: int = 0) -> Any:
    """JSON as it is after `to_protobuf_value` and `restore_integers`, without protobuf."""
    if isinstance(data, str | bool) or data is None:
        return data
    if isinstance(data, int):
        if abs(data) > _MAX_INTEGER:
            return str(data)
        if abs(data) == _MAX_INTEGER:
            return float(data)
        return data
    if isinstance(data, float):
        return restore_integers(data)
    if depth >= _MAX_DEPTH:
        return json.dumps(data)
    if isinstance(data, dict):
        return {key: to_wire_value(item, depth + 1) for key, item in data.items()}
    return [to_wire_value(item, depth + 1) for item in data]


def _replace_unsupported(data: Any, depth: int = 0) -> Any:
    if isinstance(data, int) and abs(data) > _MAX_INTEGER:
        return str(data)
    if isinstance(data, dict | list) and depth >= _MAX_DEPTH:
        return json.dumps(data)
    if isinstance(data, dict):
        return {key: _replace_unsupported(item, depth + 1) for key, item in data.items()}
    if isinstance(data, list):
        return [_replace_unsupported(item, depth + 1) for item in data]
    return data
