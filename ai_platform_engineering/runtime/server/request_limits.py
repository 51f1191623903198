"""Limits of one A2A request: its bytes, its values, the parts of its message and the length of ids."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.json_limits import JsonLimits
from ai_platform_engineering.core.settings import ServerSettings

# In both spellings that protobuf reads.
_ID_KEYS = ("id", "messageId", "message_id", "taskId", "task_id", "contextId", "context_id")
_ID_LIST_KEYS = ("referenceTaskIds", "reference_task_ids", "extensions")


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """What a request may hold; checked before anything is converted."""

    body_bytes: int
    json: JsonLimits
    parts: int
    id_chars: int

    @classmethod
    def from_settings(cls, settings: ServerSettings) -> "RequestLimits":
        return cls(
            body_bytes=settings.max_request_bytes,
            json=JsonLimits(settings.max_json_values, settings.max_json_depth),
            parts=settings.max_parts,
            id_chars=settings.max_id_chars,
        )

    def find_problem(self, body: Mapping[str, Any]) -> str | None:
        """What is too long in a JSON-RPC request, for its sender."""
        params = _read_object(body, "params")
        return self._find_long_id("", body) or self.find_params_problem(params, "params.")

    def find_params_problem(self, params: Mapping[str, Any], prefix: str = "") -> str | None:
        """What is too long in the parameters of a method, for their sender."""
        message = _read_object(params, "message")
        problem = self._find_long_id(prefix, params) or self._find_long_id(f"{prefix}message.", message)
        if problem:
            return problem
        parts = message.get("parts", message.get("content"))
        if isinstance(parts, list) and len(parts) > self.parts:
            return f"{prefix}message.parts: a message has at most {self.parts} parts (A2A_MAX_PARTS)"
        return None

    def _find_long_id(self, prefix: str, fields: Mapping[str, Any]) -> str | None:
        for key, value in _iterate_ids(fields):
            if self._is_long(value):
                return f"{prefix}{key}: an id has at most {self.id_chars} characters (A2A_MAX_ID_CHARS)"
        return None

    def echoed_id(self, body: Mapping[str, Any]) -> Any:
        """The id of a request as its answer repeats it: none that is too long."""
        request_id = body.get("id")
        if self._is_long(request_id):
            return None
        return request_id

    def _is_long(self, value: Any) -> bool:
        return len(str(value)) > self.id_chars


def _iterate_ids(fields: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for key in _ID_KEYS:
        if key in fields:
            yield key, fields[key]
    for key in _ID_LIST_KEYS:
        values = fields.get(key)
        if isinstance(values, list):
            for value in values:
                yield key, value


def _read_object(fields: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    value = fields.get(key)
    if isinstance(value, dict):
        return value
    return {}
