"""A2A message parts -> our parts: text, data, and text files within a limit; everything else is refused with a reason."""

import hashlib
import json
from typing import Any, Literal

from a2a.types import Message
from a2a.types import Part as WirePart
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError

from ai_platform_engineering.a2a.codec import (
    BUSY_KEY,
    CALL_PART,
    NEW_QUESTION_KEY,
    SCOPE_PART,
    TIMEOUT_KEY,
    WORKFLOW_PART,
)
from ai_platform_engineering.a2a.protobuf_numbers import restore_integers
from ai_platform_engineering.core.errors import Refused, UnsupportedPart
from ai_platform_engineering.core.events import PARTS_ADAPTER, DataPart, FilePart, TextPart
from ai_platform_engineering.core.run_scope import LONGEST_INSTRUCTIONS, SCOPE_KEY, RunScope

UserPart = TextPart | DataPart | FilePart

TEXT_TYPES = (
    "text/",
    "application/json",
    "application/yaml",
    "application/x-yaml",
    "application/xml",
    "application/toml",
    "application/sql",
)
_SCOPE_EXPECTED = (
    f'{SCOPE_PART} is an object in a data part of its own, once: {{"agents": a list of names, or null for all, '
    f'"instructions": a text of at most {LONGEST_INSTRUCTIONS} characters, or null}}.'
)


def read_parts(message: Message, max_file_bytes: int) -> tuple[UserPart, ...]:
    """The user's parts; raises Refused when there is nothing to answer and UnsupportedPart for what cannot be read."""
    parts = tuple(_read(part, max_file_bytes) for part in message.parts)
    _check_scope(parts)
    if not any(
        part.text.strip() if isinstance(part, TextPart) else not is_scope_part(part) for part in parts
    ):
        raise Refused("The message is empty: send a text part, a data part or a text file.")
    return parts


def read_timeout(message: Message) -> float | None:
    """How many seconds the sender will wait; None when it did not say."""
    said = (
        message.metadata.fields[TIMEOUT_KEY].number_value if TIMEOUT_KEY in message.metadata.fields else 0.0
    )
    if said > 0:
        return said
    return None


def is_new_question(message: Message) -> bool:
    """The sender says that the message is no answer to what the conversation waits for."""
    return (
        NEW_QUESTION_KEY in message.metadata.fields and message.metadata.fields[NEW_QUESTION_KEY].bool_value
    )


def read_busy_policy(message: Message) -> Literal["enqueue", "reject", "interrupt"] | None:
    """What the sender wants when the conversation works on another question; None when it did not say."""
    if BUSY_KEY not in message.metadata.fields:
        return None
    match message.metadata.fields[BUSY_KEY].string_value:  # empty for what is no text
        case ("enqueue" | "reject" | "interrupt") as said:
            return said
        case _:
            raise Refused(f"{BUSY_KEY} is one of enqueue, reject and interrupt.")


def hash_parts(parts: tuple[UserPart, ...]) -> str:
    """The content's fingerprint; canonical JSON, so that it is the same in every process."""
    canonical = json.dumps(
        PARTS_ADAPTER.dump_python(parts, mode="json"), sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def render_prompt(parts: tuple[UserPart, ...]) -> str:
    """The parts as one text for the model, without what is meant for the program."""
    told = "\n\n".join(_words(part) for part in parts if not read_metadata((part,)))
    return told or f"Run the workflow {read_metadata(parts).get('workflow', {}).get('name', '')}."


def read_metadata(parts: tuple[UserPart, ...]) -> dict[str, Any]:
    """What a message asks of the program itself: one tool to be called, a workflow to be started, the bounds of its run."""
    found: dict[str, Any] = {}
    for part in parts:
        if isinstance(part, DataPart) and isinstance(part.data, dict):
            if isinstance(call := part.data.get(CALL_PART), dict):
                found["call"] = call
            if isinstance(name := part.data.get(WORKFLOW_PART), str):
                found["workflow"] = {"name": name, "values": part.data.get("values") or {}}
            if isinstance(scope := part.data.get(SCOPE_PART), dict):
                found[SCOPE_KEY] = scope
    return found


def is_scope_part(part: UserPart) -> bool:
    """The part bounds a run; it asks and answers nothing."""
    return isinstance(part, DataPart) and isinstance(part.data, dict) and SCOPE_PART in part.data


def _check_scope(parts: tuple[UserPart, ...]) -> None:
    """Raises Refused: a restriction that is not understood must not be dropped."""
    given = [
        part.data
        for part in parts
        if is_scope_part(part) and isinstance(part, DataPart) and isinstance(part.data, dict)
    ]
    if not given:
        return
    if len(given) > 1 or len(given[0]) > 1:
        raise Refused(_SCOPE_EXPECTED)
    try:
        RunScope.model_validate(given[0][SCOPE_PART])
    except ValidationError:
        raise Refused(_SCOPE_EXPECTED) from None


def _read(part: WirePart, max_file_bytes: int) -> UserPart:
    match part.WhichOneof("content"):
        case "text":
            return TextPart(text=part.text)
        case "data":
            return DataPart(data=restore_integers(MessageToDict(part.data)))
        case "raw":
            return _file(part, max_file_bytes)
        case "url":
            raise UnsupportedPart(
                "Files by address are not fetched. Send the text itself, or attach the file with its content."
            )
        case _:
            raise Refused("A part of the message has no content.")


def _file(part: WirePart, max_file_bytes: int) -> FilePart:
    name = part.filename or "file"
    if len(part.raw) > max_file_bytes:
        raise UnsupportedPart(
            f"The file {name} has {len(part.raw)} bytes; at most {max_file_bytes} can be read. Send the part that matters."
        )
    known = part.media_type.partition(";")[0].strip().lower()
    try:
        text = part.raw.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text or (known and not known.startswith(TEXT_TYPES)):
        raise UnsupportedPart(
            f"The file {name} ({known or 'unknown type'}) is not a text file; only UTF-8 text can be read."
        )
    return FilePart(name=name, media_type=known or "text/plain", text=text)


def _words(part: UserPart) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return json.dumps(part.data, ensure_ascii=False)
        case FilePart():
            return f"File {part.name}:\n```\n{part.text}\n```"
