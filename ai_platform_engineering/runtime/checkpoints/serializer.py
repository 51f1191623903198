"""The serializer of every checkpointer: a stored blob may hold the types that we store, and no others.

LangGraph's own serializer imports and calls whatever a blob names, so whoever can write to the database could
run code here. This one looks each name up in a list, and refuses the whole blob when a name is not on it.
"""

import functools
import importlib
from collections.abc import Callable, Mapping
from typing import Any

import ormsgpack
from langgraph.checkpoint.serde.jsonplus import (
    EXT_CONSTRUCTOR_KW_ARGS,
    EXT_CONSTRUCTOR_POS_ARGS,
    EXT_CONSTRUCTOR_SINGLE_ARG,
    EXT_METHOD_SINGLE_ARG,
    EXT_PYDANTIC_V2,
    JsonPlusSerializer,
)
from langgraph.types import Send
from pydantic import BaseModel, ValidationError

from ai_platform_engineering.core.errors import CaipeError

TypeName = tuple[str, str]  # module and name

# Each type with the one form in which LangGraph writes it.
STORED_TYPES: Mapping[TypeName, int] = {
    ("langchain_core.messages.human", "HumanMessage"): EXT_PYDANTIC_V2,
    ("langchain_core.messages.ai", "AIMessage"): EXT_PYDANTIC_V2,
    ("langchain_core.messages.ai", "AIMessageChunk"): EXT_PYDANTIC_V2,
    ("langchain_core.messages.tool", "ToolMessage"): EXT_PYDANTIC_V2,
    ("langchain_core.messages.system", "SystemMessage"): EXT_PYDANTIC_V2,
    ("langchain_core.messages.modifier", "RemoveMessage"): EXT_PYDANTIC_V2,
    ("langgraph.types", "Send"): EXT_CONSTRUCTOR_POS_ARGS,
    ("langgraph.types", "Interrupt"): EXT_CONSTRUCTOR_KW_ARGS,
    # By name: the supervisor is above this package.
    (
        "ai_platform_engineering.multi_agents.platform_engineer.response",
        "PlatformEngineerResponse",
    ): EXT_PYDANTIC_V2,
    ("ai_platform_engineering.multi_agents.platform_engineer.response", "CitedSource"): EXT_PYDANTIC_V2,
    # Plain values that a tool may return beside its text.
    ("datetime", "datetime"): EXT_METHOD_SINGLE_ARG,
    ("datetime", "date"): EXT_CONSTRUCTOR_POS_ARGS,
    ("datetime", "time"): EXT_CONSTRUCTOR_KW_ARGS,
    ("datetime", "timedelta"): EXT_CONSTRUCTOR_POS_ARGS,
    ("datetime", "timezone"): EXT_CONSTRUCTOR_POS_ARGS,
    ("uuid", "UUID"): EXT_CONSTRUCTOR_SINGLE_ARG,
    ("decimal", "Decimal"): EXT_CONSTRUCTOR_SINGLE_ARG,
    ("builtins", "set"): EXT_CONSTRUCTOR_SINGLE_ARG,
    ("builtins", "frozenset"): EXT_CONSTRUCTOR_SINGLE_ARG,
}
_DATETIME_METHOD = "fromisoformat"  # the only method that a blob may name

_QUOTED_CHARS = 120


class CheckpointRefused(CaipeError):
    """A stored checkpoint holds something that is never stored, or is damaged; nothing of it was used."""

    code = "checkpoint_refused"

    @classmethod
    def for_content(cls, content: str) -> "CheckpointRefused":
        # The text comes from the database: it is quoted in part, and as ASCII.
        quoted = ascii(content[:_QUOTED_CHARS])[1:-1]
        return cls(
            f"The stored state of this conversation was refused: it holds {quoted}, which is never stored "
            "there. Nothing was run or deleted. Start a new conversation, and find out who else can write "
            "to the database; a backup from before restores this one."
        )

    @classmethod
    def for_damage(cls) -> "CheckpointRefused":
        return cls(
            "The stored state of this conversation cannot be read: it is damaged. Nothing was deleted. Start "
            "a new conversation, or restore the database from a backup."
        )


class CheckpointSerializer(JsonPlusSerializer):
    """Writes msgpack as LangGraph does, and reads only the listed types; raises CheckpointRefused."""

    def __init__(self) -> None:
        # The list again, for code of the library that asks the serializer for it.
        super().__init__(
            pickle_fallback=False, allowed_json_modules=None, allowed_msgpack_modules=tuple(STORED_TYPES)
        )

    def with_msgpack_allowlist(self, extra_allowlist: Any) -> "CheckpointSerializer":
        """This serializer: a graph's schema does not make the list longer."""
        return self

    def loads_typed(self, data: tuple[str, bytes]) -> Any:
        kind, blob = data
        if kind == "msgpack":
            return unpack(blob)
        if kind in ("null", "bytes", "bytearray"):
            return super().loads_typed(data)
        # JSON holds constructors that the library calls, and a pickle is code. We write neither.
        raise CheckpointRefused.for_content(f"a value of the kind {kind}")


def unpack(blob: bytes) -> Any:
    """The value of a msgpack blob. Raises CheckpointRefused."""
    reader = _BlobReader()
    try:
        return reader.unpack(blob)
    except (ValueError, RecursionError):
        if reader.refusal is not None:
            raise reader.refusal from None
        raise CheckpointRefused.for_damage() from None


class _BlobReader:
    """Reads one blob; keeps its refusal, since msgpack hides the errors of its hook."""

    def __init__(self) -> None:
        self.refusal: CheckpointRefused | None = None

    def unpack(self, blob: bytes) -> Any:
        return ormsgpack.unpackb(blob, ext_hook=self._read_extension, option=ormsgpack.OPT_NON_STR_KEYS)

    def _read_extension(self, code: int, blob: bytes) -> Any:
        if self.refusal is not None:
            raise self.refusal
        try:
            return self._build(code, self.unpack(blob))
        except CheckpointRefused as refusal:
            self.refusal = refusal
            raise

    def _build(self, code: int, envelope: Any) -> Any:
        if not isinstance(envelope, list) or not 3 <= len(envelope) <= 4:
            raise CheckpointRefused.for_content(f"an extension with the code {code}")
        module, name, value, *method = envelope
        if not isinstance(module, str) or not isinstance(name, str):
            raise CheckpointRefused.for_content("a value without the name of its type")
        type_name = (module, name)
        if STORED_TYPES.get(type_name) != code:
            raise CheckpointRefused.for_content(f"{module}.{name}")
        if code == EXT_METHOD_SINGLE_ARG and method != [_DATETIME_METHOD]:
            raise CheckpointRefused.for_content(f"{module}.{name}.{method}")
        try:
            return _BUILDERS[code](find_type(type_name), value)
        except (TypeError, ValueError, ArithmeticError):
            raise CheckpointRefused.for_damage() from None


@functools.cache
def find_type(type_name: TypeName) -> type[Any]:
    """A listed type. Raises KeyError for any other: no name from a database reaches the import."""
    if type_name not in STORED_TYPES:
        raise KeyError(type_name)
    module, name = type_name
    stored_type: type[Any] = getattr(importlib.import_module(module), name)
    return stored_type


def build_model(model: type[BaseModel], values: Any) -> BaseModel:
    """A message or another model; without validation when it was stored without, as the library does."""
    try:
        return model(**values)
    except ValidationError:
        return model.model_construct(**values)


def _build_positional(kind: type[Any], values: Any) -> Any:
    if kind is Send and len(values) != 2:
        raise ValueError("no timeouts are stored")
    return kind(*values)


_BUILDERS: Mapping[int, Callable[[type[Any], Any], Any]] = {
    EXT_CONSTRUCTOR_SINGLE_ARG: lambda kind, value: kind(value),
    EXT_CONSTRUCTOR_POS_ARGS: _build_positional,
    EXT_CONSTRUCTOR_KW_ARGS: lambda kind, values: kind(**values),
    EXT_METHOD_SINGLE_ARG: lambda kind, value: kind.fromisoformat(value),
    EXT_PYDANTIC_V2: build_model,
}
