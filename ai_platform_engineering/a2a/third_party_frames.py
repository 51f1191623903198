"""Frames of third-party servers as protobuf: protocol 1.0 or 0.3, what is harmless is mended or left out.

Servers differ in small things: a timestamp without a zone, a state in lower case, a part of an unknown kind,
a missing id. None of them may cost the whole answer: only what our reader needs is taken from a frame."""

import re
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from typing import Any

from a2a.types import StreamResponse, TaskState
from google.protobuf.json_format import ParseDict

from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.core.storable_text import clean_text

_TASK = "task"
_MESSAGE = "message"
_STATUS_UPDATE = "statusUpdate"
_ARTIFACT_UPDATE = "artifactUpdate"

_PAYLOAD_KEYS = {
    "task": _TASK,
    "message": _MESSAGE,
    "msg": _MESSAGE,
    "statusUpdate": _STATUS_UPDATE,
    "status_update": _STATUS_UPDATE,
    "artifactUpdate": _ARTIFACT_UPDATE,
    "artifact_update": _ARTIFACT_UPDATE,
}
_KINDS_03 = {
    "task": _TASK,
    "message": _MESSAGE,
    "status-update": _STATUS_UPDATE,
    "artifact-update": _ARTIFACT_UPDATE,
}
_STATE_PREFIX = "TASK_STATE_"
_STATE_SPELLINGS = {"CANCELLED": "CANCELED"}
_KNOWN_STATES = frozenset(TaskState.keys()) - {"TASK_STATE_UNSPECIFIED"}
_MAX_STATE_LENGTH = 60

JsonDict = dict[str, Any]


def parse_frame(result: Any) -> StreamResponse:
    """The payload of a JSON-RPC result; an empty frame if it is of no kind that we know.

    Raises ValueError for what is no object, and protobuf's ParseError for values that it cannot hold."""
    return ParseDict(normalize_result(result), StreamResponse())


def normalize_result(result: Any) -> JsonDict:
    """The result in the JSON form of protocol 1.0, with the fields that our reader needs."""
    if not isinstance(result, Mapping):
        raise ValueError("A result is an object.")
    name, payload = _find_payload(result)
    match name:
        case "task":
            return {_TASK: _normalize_task(payload)}
        case "message":
            return {_MESSAGE: _normalize_message(payload)}
        case "statusUpdate":
            return {_STATUS_UPDATE: _normalize_status_update(payload)}
        case "artifactUpdate":
            return {_ARTIFACT_UPDATE: _normalize_artifact_update(payload)}
        case _:
            return {}


def _find_payload(result: Mapping[str, Any]) -> tuple[str | None, Mapping[str, Any]]:
    """The kind of the payload and the payload: wrapped as in 1.0, or with a `kind` as in 0.3, or bare."""
    kind = result.get("kind")
    if isinstance(kind, str) and kind in _KINDS_03:
        return _KINDS_03[kind], result
    for key, name in _PAYLOAD_KEYS.items():
        payload = result.get(key)
        if isinstance(payload, Mapping) and "status" not in result:
            return name, payload
    if isinstance(result.get("artifact"), Mapping):
        return _ARTIFACT_UPDATE, result
    if isinstance(result.get("status"), Mapping):
        if "id" in result:
            return _TASK, result
        return _STATUS_UPDATE, result
    if isinstance(result.get("parts"), list):
        return _MESSAGE, result
    return None, result


def _normalize_task(task: Mapping[str, Any]) -> JsonDict:
    normalized = _pick_texts(task, "id", "contextId")
    normalized["status"] = _normalize_status(_read_object(task, "status"))
    normalized["artifacts"] = [_normalize_artifact(item) for item in _read_objects(task, "artifacts")]
    normalized["history"] = [_normalize_message(item) for item in _read_objects(task, "history")]
    return normalized | _normalize_metadata(task)


def _normalize_status_update(update: Mapping[str, Any]) -> JsonDict:
    normalized = _pick_texts(update, "taskId", "contextId")
    status = _read_object(update, "status")
    normalized["status"] = _normalize_status(status)
    if update.get("final") is True and "state" not in normalized["status"] and status.get("state"):
        normalized["status"] |= _unknown_end(str(status["state"]))
    return normalized | _normalize_metadata(update)


def _unknown_end(state: str) -> JsonDict:
    """The status for a state that we do not know and that ends the task: nothing more is to come."""
    text = clean_text(f"It ended in the state {state[:_MAX_STATE_LENGTH]}.")
    return {"state": "TASK_STATE_FAILED", "message": {"role": "ROLE_AGENT", "parts": [{"text": text}]}}


def _normalize_artifact_update(update: Mapping[str, Any]) -> JsonDict:
    normalized = _pick_texts(update, "taskId", "contextId")
    normalized["artifact"] = _normalize_artifact(_read_object(update, "artifact"))
    normalized["append"] = update.get("append") is True
    normalized["lastChunk"] = _read(update, "lastChunk") is True
    return normalized | _normalize_metadata(update)


def _normalize_status(status: Mapping[str, Any]) -> JsonDict:
    normalized: JsonDict = {}
    state = _normalize_state(status.get("state"))
    if state is not None:
        normalized["state"] = state
    timestamp = _normalize_timestamp(status.get("timestamp"))
    if timestamp is not None:
        normalized["timestamp"] = timestamp
    message = status.get("message")
    if isinstance(message, Mapping):
        normalized["message"] = _normalize_message(message)
    return normalized


def _normalize_state(state: Any) -> str | None:
    """The state's name in 1.0; None for a state that we do not know, which changes nothing."""
    if not isinstance(state, str):
        return None
    name = state.strip().upper().replace("-", "_").removeprefix(_STATE_PREFIX)
    name = _STATE_PREFIX + _STATE_SPELLINGS.get(name, name)
    if name in _KNOWN_STATES:
        return name
    return None


def _normalize_timestamp(timestamp: Any) -> str | None:
    """The time as protobuf wants it; UTC where no zone is given, None for what is no time."""
    if not isinstance(timestamp, str):
        return None
    try:
        time = datetime.fromisoformat(timestamp)
        if time.tzinfo is None:
            time = time.replace(tzinfo=UTC)
        return time.astimezone(UTC).isoformat().replace("+00:00", "Z")
    except (ValueError, OverflowError):
        return None


def _normalize_message(message: Mapping[str, Any]) -> JsonDict:
    normalized = _pick_texts(message, "messageId", "contextId", "taskId")
    role = str(message.get("role")).upper()
    normalized["role"] = "ROLE_USER" if role in ("USER", "ROLE_USER") else "ROLE_AGENT"
    normalized["parts"] = _normalize_parts(message)
    return normalized | _normalize_metadata(message)


def _normalize_artifact(artifact: Mapping[str, Any]) -> JsonDict:
    normalized = _pick_texts(artifact, "artifactId", "name")
    normalized["parts"] = _normalize_parts(artifact)
    return normalized | _normalize_metadata(artifact)


def _normalize_parts(holder: Mapping[str, Any]) -> list[JsonDict]:
    parts = [_normalize_part(part) for part in _read_objects(holder, "parts")]
    return [part for part in parts if part]


def _normalize_part(part: Mapping[str, Any]) -> JsonDict:
    """The part in the form of 1.0; empty for a kind that we do not know. A file is never read."""
    metadata = _normalize_metadata(part)
    if isinstance(part.get("text"), str):
        return {"text": clean_text(part["text"]), **metadata}
    file = part.get("file")
    if isinstance(file, Mapping):
        return {"raw": "", **_name_file(file, "name", "mimeType"), **metadata}
    if "raw" in part or "url" in part:
        return {"raw": "", **_name_file(part, "filename", "mediaType"), **metadata}
    if part.get("data") is not None:
        return {"data": clean_json(part["data"]), **metadata}
    return {}


def _name_file(file: Mapping[str, Any], name_key: str, type_key: str) -> JsonDict:
    named: JsonDict = {}
    name = _read(file, name_key)
    media_type = _read(file, type_key)
    if isinstance(name, str):
        named["filename"] = clean_text(name)
    if isinstance(media_type, str):
        named["mediaType"] = clean_text(media_type)
    return named


def _normalize_metadata(holder: Mapping[str, Any]) -> JsonDict:
    metadata = holder.get("metadata")
    if isinstance(metadata, Mapping) and metadata:
        return {"metadata": clean_json(metadata)}
    return {}


def _pick_texts(holder: Mapping[str, Any], *names: str) -> JsonDict:
    """The named fields that are texts; a number is a text, since some servers count their ids."""
    picked: JsonDict = {}
    for name in names:
        value = _read(holder, name)
        if isinstance(value, str | int) and not isinstance(value, bool):
            picked[name] = clean_text(str(value))
    return picked


def _read(holder: Mapping[str, Any], name: str) -> Any:
    """The field under its name in JSON, or in protobuf."""
    if name in holder:
        return holder[name]
    protobuf_name = re.sub(r"[A-Z]", lambda match: f"_{match[0].lower()}", name)
    return holder.get(protobuf_name)


def _read_object(holder: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    value = holder.get(name)
    if isinstance(value, Mapping):
        return value
    return {}


def _read_objects(holder: Mapping[str, Any], name: str) -> Iterable[Mapping[str, Any]]:
    value = holder.get(name)
    if not isinstance(value, list):
        return []
    return [item for item in value if isinstance(item, Mapping)]
