"""A user's A2A message: its parts (text, data, text files within a limit) and its metadata.

Parts of other kinds are refused with a reason."""

import hashlib
import json
from collections.abc import Sequence
from typing import Any, Literal

from a2a.types import Message
from a2a.types import Part as A2APart
from google.protobuf.json_format import MessageToDict
from pydantic import ValidationError

from ai_platform_engineering.a2a.protobuf_values import restore_integers
from ai_platform_engineering.core.errors import Refused, UnsupportedPart
from ai_platform_engineering.core.events import PARTS_ADAPTER, DataPart, FilePart, TextPart
from ai_platform_engineering.core.message_metadata import (
    DirectCallNote,
    WorkflowRequest,
    budget_metadata,
    scope_metadata,
    untrusted_metadata,
)
from ai_platform_engineering.core.named_targets import NamedTargets, collect_texts
from ai_platform_engineering.core.run_budget import RunBudget
from ai_platform_engineering.core.run_scope import LONGEST_INSTRUCTIONS, RunScope
from ai_platform_engineering.core.untrusted_content import UntrustedContent

# Metadata of a user's message.
TIMEOUT_KEY = "caipe.timeout_seconds"  # how long its sender will wait
NEW_QUESTION_KEY = (
    "caipe.new_question"  # it answers no request; pending requests of its conversation are given up
)
BUSY_KEY = "caipe.when_busy"  # enqueue, reject or interrupt, when its conversation works on another question

# Keys of data parts in a user's message.
CALL_PART = (
    "caipe.call"  # a direct tool call: one tool of an agent with its arguments, without the agent's model
)
WORKFLOW_PART = "workflow"  # the name of a workflow to start, with `values` for its form
ANSWER_PART = "resume"  # answers to requests: values or decisions by request id, or one list of `decisions`
DECISIONS_KEY = "decisions"  # in the answer part: a list, as clients of LangGraph send it
SCOPE_PART = (
    "caipe.scope"  # in a part of its own: the agents that the run may use, and instructions for it alone
)
BUDGET_PART = "caipe.budget"  # of a delegation, in a part of its own: what the run may still use
UNTRUSTED_PART = "caipe.untrusted"  # of a delegation: the untrusted content that its model had read

# From a supervisor to an agent's service, in a part of its own: the run, and the hosts and web addresses that
# people named. The text is the supervisor's then, and names nothing.
NAMED_PART = "caipe.named"
_RUN_KEY = "run"

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
    f"{SCOPE_PART} is an object in a data part of its own, once: "
    '{"agents": a list of names, or null for all, '
    f'"instructions": a text of at most {LONGEST_INSTRUCTIONS} characters, or null}}.'
)


def read_parts(message: Message, max_file_bytes: int) -> tuple[UserPart, ...]:
    """The user's parts.

    Raises Refused for a message without a question and UnsupportedPart for other parts."""
    parts = tuple(_read_part(part, max_file_bytes) for part in message.parts)
    _check_scope(parts)
    if not any(_has_content(part) for part in parts):
        raise Refused("The message is empty: send a text part, a data part or a text file.")
    return parts


def read_timeout(message: Message) -> float | None:
    """How many seconds the sender will wait; None when it did not say."""
    if TIMEOUT_KEY not in message.metadata.fields:
        return None
    seconds = message.metadata.fields[TIMEOUT_KEY].number_value
    if seconds > 0:
        return seconds
    return None


def is_new_question(message: Message) -> bool:
    """Whether the sender says that the message is no answer to a pending request of the conversation."""
    return (
        NEW_QUESTION_KEY in message.metadata.fields and message.metadata.fields[NEW_QUESTION_KEY].bool_value
    )


def read_busy_policy(message: Message) -> Literal["enqueue", "reject", "interrupt"] | None:
    """What to do while the conversation works on another question; None when the sender did not say."""
    if BUSY_KEY not in message.metadata.fields:
        return None
    match message.metadata.fields[BUSY_KEY].string_value:  # empty for what is no text
        case ("enqueue" | "reject" | "interrupt") as policy:
            return policy
        case _:
            raise Refused(f"{BUSY_KEY} is one of enqueue, reject and interrupt.")


def hash_parts(parts: tuple[UserPart, ...]) -> str:
    """A digest of the content, from canonical JSON, so that it is the same in every process."""
    # What people named may have grown when a delegation is sent again after a crash: it is the same message.
    # What remains of the budget is no content either.
    content = tuple(part for part in parts if not _is_named_part(part) and not _is_budget_part(part))
    canonical = json.dumps(
        PARTS_ADAPTER.dump_python(content, mode="json"), sort_keys=True, separators=(",", ":")
    )
    return hashlib.sha256(canonical.encode()).hexdigest()


def render_prompt(parts: tuple[UserPart, ...]) -> str:
    """The parts as one text for the model, without message metadata."""
    prompt = "\n\n".join(_render_part(part) for part in parts if not _is_metadata(part))
    if prompt:
        return prompt
    workflow_name = ""
    for part in parts:
        workflow_name = _workflow_name(part) or workflow_name
    return f"Run the workflow {workflow_name}."


def read_metadata(parts: tuple[UserPart, ...]) -> dict[str, Any]:
    """The message metadata in data parts: a direct call, a workflow, the scope, what its sender had read."""
    metadata: dict[str, Any] = {}
    for part in parts:
        data = _data_fields(part)
        direct_call = DirectCallNote.from_data(data.get(CALL_PART))
        if direct_call is not None:
            metadata.update(direct_call.to_metadata())
        workflow_name = _workflow_name(part)
        if workflow_name is not None:
            metadata.update(WorkflowRequest(workflow_name, data.get("values") or {}).to_metadata())
        if _has_scope(part):
            metadata.update(scope_metadata(RunScope.model_validate(data[SCOPE_PART])))
        if UNTRUSTED_PART in data:
            # One that is not understood still says that there is such content.
            content = UntrustedContent.from_data(data[UNTRUSTED_PART])
            metadata.update(untrusted_metadata(content or UntrustedContent(results=("its sender",))))
        budget = RunBudget.from_data(data.get(BUDGET_PART))
        if budget is not None:
            metadata.update(budget_metadata(budget))
    return metadata


def named_part(run_id: str, named: NamedTargets, text: str) -> dict[str, Any]:
    """The data of a part with what people named in the conversation; `text` is the delegation's."""
    return {NAMED_PART: {_RUN_KEY: run_id, **named.to_data(text)}}


def read_named_targets(parts: tuple[UserPart, ...]) -> NamedTargets:
    """The hosts and web addresses that people named in a message. Attached files are not their words."""
    forwarded = _find_forwarded(parts)
    if forwarded is not None:
        return NamedTargets.from_data(forwarded)
    texts: list[str] = []
    for part in parts:
        if isinstance(part, TextPart):
            texts.append(part.text)
        elif isinstance(part, DataPart):
            texts += collect_texts(part.data)
    return NamedTargets.from_texts(texts)


def read_origin_run(parts: tuple[UserPart, ...]) -> str | None:
    """The run of the supervisor that sent the message; None for a message of a person."""
    forwarded = _find_forwarded(parts)
    if forwarded is None:
        return None
    return str(forwarded.get(_RUN_KEY) or "") or None


def _find_forwarded(parts: tuple[UserPart, ...]) -> dict[str, Any] | None:
    for part in parts:
        forwarded = _data_fields(part).get(NAMED_PART)
        if isinstance(forwarded, dict):
            return forwarded
    return None


def _is_metadata(part: UserPart) -> bool:
    is_direct_call = isinstance(_data_fields(part).get(CALL_PART), dict)
    is_bound = _has_scope(part) or _is_budget_part(part) or _is_named_part(part)
    return is_direct_call or is_bound or _has_untrusted_content(part) or _workflow_name(part) is not None


def _workflow_name(part: UserPart) -> str | None:
    name = _data_fields(part).get(WORKFLOW_PART)
    if isinstance(name, str):
        return name
    return None


def _has_scope(part: UserPart) -> bool:
    return isinstance(_data_fields(part).get(SCOPE_PART), dict)


def _has_untrusted_content(part: UserPart) -> bool:
    return UNTRUSTED_PART in _data_fields(part)


def bounds_run(part: UserPart) -> bool:
    """Whether the part bounds a run, by its scope, its budget or what people named; it neither asks nor
    answers."""
    return _is_scope_part(part) or _is_budget_part(part) or _is_named_part(part)


def _is_scope_part(part: UserPart) -> bool:
    return SCOPE_PART in _data_fields(part)


def _is_budget_part(part: UserPart) -> bool:
    return BUDGET_PART in _data_fields(part)


def has_budget(parts: Sequence[UserPart]) -> bool:
    """Whether the message is a delegation, which brings the budget of its run."""
    return any(map(_is_budget_part, parts))


def _is_named_part(part: UserPart) -> bool:
    return NAMED_PART in _data_fields(part)


def _data_fields(part: UserPart) -> dict[str, Any]:
    """The fields of a data part that is an object; empty for other parts."""
    if isinstance(part, DataPart) and isinstance(part.data, dict):
        return part.data
    return {}


def _has_content(part: UserPart) -> bool:
    if isinstance(part, TextPart):
        return bool(part.text.strip())
    return not bounds_run(part) and not _has_untrusted_content(part)


def _check_scope(parts: tuple[UserPart, ...]) -> None:
    """Raises Refused: a restriction that is not understood must not be dropped."""
    scope_parts = [_data_fields(part) for part in parts if _is_scope_part(part)]
    if not scope_parts:
        return
    if len(scope_parts) > 1 or len(scope_parts[0]) > 1:
        raise Refused(_SCOPE_EXPECTED)
    try:
        RunScope.model_validate(scope_parts[0][SCOPE_PART])
    except ValidationError:
        raise Refused(_SCOPE_EXPECTED) from None


def _read_part(part: A2APart, max_file_bytes: int) -> UserPart:
    match part.WhichOneof("content"):
        case "text":
            return TextPart(text=part.text)
        case "data":
            return DataPart(data=restore_integers(MessageToDict(part.data)))
        case "raw":
            return _read_file(part, max_file_bytes)
        case "url":
            raise UnsupportedPart(
                "Files by address are not fetched. Send the text itself, or attach the file with its content."
            )
        case _:
            raise Refused("A part of the message has no content.")


def _read_file(part: A2APart, max_file_bytes: int) -> FilePart:
    name = part.filename or "file"
    if len(part.raw) > max_file_bytes:
        raise UnsupportedPart(
            f"The file {name} has {len(part.raw)} bytes; at most {max_file_bytes} can be read. "
            "Send the part that matters."
        )
    media_type = part.media_type.partition(";")[0].strip().lower()
    try:
        text = part.raw.decode()
    except UnicodeDecodeError:
        text = "\x00"
    if "\x00" in text or (media_type and not media_type.startswith(TEXT_TYPES)):
        raise UnsupportedPart(
            f"The file {name} ({media_type or 'unknown type'}) is not a text file; "
            "only UTF-8 text can be read."
        )
    return FilePart(name=name, media_type=media_type or "text/plain", text=text)


def _render_part(part: UserPart) -> str:
    match part:
        case TextPart():
            return part.text
        case DataPart():
            return json.dumps(part.data, ensure_ascii=False)
        case FilePart():
            return f"File {part.name}:\n```\n{part.text}\n```"
