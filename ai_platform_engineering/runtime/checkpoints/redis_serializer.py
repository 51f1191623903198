"""RedisCheckpointSerializer: our list of types for Redis with modules, where checkpoints are JSON."""

from collections.abc import Mapping
from typing import Any

import orjson
from langgraph.checkpoint.redis.jsonplus_redis import JsonPlusRedisSerializer
from langgraph.checkpoint.serde.jsonplus import EXT_PYDANTIC_V2

from ai_platform_engineering.runtime.checkpoints.serializer import (
    STORED_TYPES,
    CheckpointRefused,
    TypeName,
    build_model,
    find_type,
    unpack,
)

_SET = ("builtins", "set")
# LangChain's messages name themselves after the package that they were in long ago.
_MESSAGE_PREFIX = ("langchain", "schema", "messages")


def _name_models() -> dict[tuple[str, ...], TypeName]:
    """The listed models under the names that they have in JSON."""
    names: dict[tuple[str, ...], TypeName] = {}
    for (module, name), form in STORED_TYPES.items():
        if form != EXT_PYDANTIC_V2:
            continue
        names[(*module.split("."), name)] = (module, name)
        if module.startswith("langchain_core.messages."):
            names[(*_MESSAGE_PREFIX, name)] = (module, name)
    return names


_MODELS: Mapping[tuple[str, ...], TypeName] = _name_models()


def is_constructor(value: Any) -> bool:
    """Whether the JSON value names a type that a reader would construct."""
    return isinstance(value, dict) and "lc" in value and value.get("type") == "constructor"


class RedisCheckpointSerializer(JsonPlusRedisSerializer):
    """Writes as LangGraph's serializer for Redis does, and reads only the listed types.

    Raises CheckpointRefused.
    """

    def with_msgpack_allowlist(self, extra_allowlist: Any) -> "RedisCheckpointSerializer":
        """This serializer: a graph's schema does not make the list longer."""
        return self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, blob = data
        if kind == "json":
            try:
                value = orjson.loads(blob)
            except orjson.JSONDecodeError:
                raise CheckpointRefused.for_damage() from None
            return self._revive_if_needed(value)
        if kind == "msgpack":
            return unpack(blob)
        if kind in ("null", "bytes", "bytearray"):
            return super().loads_typed(data)
        raise CheckpointRefused.for_content(f"a value of the kind {kind}")

    def _revive_if_needed(self, obj: Any) -> Any:
        # Before the library's: it imports the module that the value names.
        if is_constructor(obj):
            return self.construct(obj)
        return super()._revive_if_needed(obj)

    def construct(self, envelope: Mapping[str, Any]) -> Any:
        """The value of a constructor in JSON, with all that is in it."""
        parts = envelope.get("id")
        if not isinstance(parts, list) or not all(isinstance(part, str) for part in parts):
            raise CheckpointRefused.for_content("a value without the name of its type")
        type_id = tuple(parts)
        try:
            if type_id == _SET:
                [items] = self._revive_if_needed(envelope["args"])
                return set(items)
            type_name = _MODELS.get(type_id)
            if type_name is None:
                raise CheckpointRefused.for_content(".".join(parts))
            return build_model(find_type(type_name), self._revive_if_needed(envelope["kwargs"]))
        except (TypeError, ValueError, KeyError):
            raise CheckpointRefused.for_damage() from None
