"""The events as TypeScript types, from their JSON schema:
`python -m tests.support.typescript_types > ui/src/generated/events.ts`."""

import json
from typing import Any

from ai_platform_engineering.core.events import EVENT_ADAPTER

_HEADER = """// Generated from ai_platform_engineering/core/events.py by `make ui-types`. Do not edit.

export type JsonValue = null | boolean | number | string | JsonValue[] | { [key: string]: JsonValue };
"""


def render_types() -> str:
    """The module with one interface for each definition, and the union of all events."""
    schema = EVENT_ADAPTER.json_schema(mode="serialization")
    definitions = {name: definition for name, definition in schema["$defs"].items() if name != "JsonValue"}
    interfaces = [_render_interface(name, definition) for name, definition in sorted(definitions.items())]
    kinds = " | ".join(sorted(reference["$ref"].rpartition("/")[2] for reference in schema["oneOf"]))
    return "\n".join([_HEADER, *interfaces, f"export type RunEvent = {kinds};\n", _render_defaults(schema)])


def _render_defaults(schema: dict[str, Any]) -> str:
    """The defaults of each kind of event: they are left out on the wire."""
    defaults: dict[str, dict[str, Any]] = {}
    for kind, reference in sorted(schema["discriminator"]["mapping"].items()):
        properties = schema["$defs"][reference.rpartition("/")[2]]["properties"]
        defaults[kind] = {name: field["default"] for name, field in properties.items() if "default" in field}
        defaults[kind].update(_factory_defaults(properties, defaults[kind]))
    return f"export const DEFAULTS: {{ [kind: string]: object }} = {json.dumps(defaults, indent=2)};\n"


def _factory_defaults(properties: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    """Empty objects, which pydantic makes anew and does not name in the schema."""
    missing = [name for name in ("arguments", "wrong") if name in properties and name not in defaults]
    return {name: {} for name in missing}


def _render_interface(name: str, definition: dict[str, Any]) -> str:
    fields = [f"  {field}: {_render_type(schema)};" for field, schema in definition["properties"].items()]
    return "\n".join([f"export interface {name} {{", *fields, "}", ""])


def _render_type(schema: dict[str, Any]) -> str:
    """The type of a value. A field with a default is always there: events are written whole."""
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    for union in ("anyOf", "oneOf"):
        if union in schema:
            return " | ".join(_render_type(option) for option in schema[union])
    match schema.get("type"):
        case "string":
            return "string"
        case "integer" | "number":
            return "number"
        case "boolean":
            return "boolean"
        case "null":
            return "null"
        case "array":
            return f"({_render_type(schema['items'])})[]"
        case "object":
            values = schema.get("additionalProperties", True)
            return f"{{ [key: string]: {_render_type(values) if isinstance(values, dict) else 'JsonValue'} }}"
        case _:
            return "JsonValue"


if __name__ == "__main__":
    print(render_types(), end="")  # noqa: T201
