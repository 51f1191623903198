"""Tokens that a third-party agent reports in the metadata of its frames, as common frameworks name them."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from a2a.types import StreamResponse, Task
from google.protobuf.json_format import MessageToDict
from google.protobuf.struct_pb2 import Struct

from ai_platform_engineering.core.events import Usage

# `usage`, `usage_metadata`, `adk_usage_metadata`, `tokenUsage`; what a key means stands at its end.
_USAGE_KEY = re.compile(r"(?:^|_|token)usage(?:_?metadata)?$", re.IGNORECASE)
_EVENT_KEY = re.compile(r"(?:^|_)event_?id$", re.IGNORECASE)
# Keys in lower case and without underscores.
_INPUT_KEYS = ("inputtokens", "prompttokens", "prompttokencount", "inputtokencount")
_OUTPUT_KEYS = ("outputtokens", "completiontokens", "candidatestokencount", "outputtokencount")
_TOTAL_KEYS = ("totaltokens", "totaltokencount")
_MAX_SOURCES = 1000  # messages whose usage is recognised when it comes again
_MAX_TOKENS = 10**12
_TASK = "task"


class ThirdPartyUsage:
    """Adds up what the messages and artifacts of one task report, each once; a total of the task wins."""

    def __init__(self) -> None:
        self._by_source: dict[str, Usage] = {}
        self._of_task: Usage | None = None
        self._earlier = Usage()  # of sources that are not held any more

    def read(self, frame: StreamResponse) -> None:
        """Takes in what a frame reports."""
        for source, metadata in _list_metadata(frame):
            usage, event_id = _read_metadata(metadata)
            if usage is None:
                continue
            if source == _TASK:
                self._of_task = _larger(self._of_task, usage)
            else:
                self._add(event_id or source, usage)

    @property
    def total(self) -> Usage | None:
        """The tokens so far; None when nothing was reported."""
        if self._of_task is not None:
            return self._of_task
        if not self._by_source:
            return None
        total = self._earlier
        for usage in self._by_source.values():
            total = _sum(total, usage)
        return total

    def _add(self, source: str, usage: Usage) -> None:
        # The same message again, as a stream and a stored task have it, or its count while it is written.
        self._by_source[source] = _larger(self._by_source.get(source), usage)
        if len(self._by_source) > _MAX_SOURCES:
            oldest = next(iter(self._by_source))
            self._earlier = _sum(self._earlier, self._by_source.pop(oldest))


def _list_metadata(frame: StreamResponse) -> Iterator[tuple[str, Struct]]:
    """The metadata of a frame, each with an id of what it belongs to."""
    match frame.WhichOneof("payload"):
        case "task":
            yield from _list_task_metadata(frame.task)
        case "message":
            yield f"message:{frame.message.message_id}", frame.message.metadata
        case "status_update":
            update = frame.status_update
            source = f"message:{update.status.message.message_id}"
            yield source, update.metadata
            yield source, update.status.message.metadata
        case "artifact_update":
            artifact = frame.artifact_update.artifact
            source = f"artifact:{artifact.artifact_id}"
            yield source, frame.artifact_update.metadata
            yield source, artifact.metadata
        case _:
            return


def _list_task_metadata(task: Task) -> Iterator[tuple[str, Struct]]:
    yield _TASK, task.metadata
    yield f"message:{task.status.message.message_id}", task.status.message.metadata
    for message in task.history:
        yield f"message:{message.message_id}", message.metadata
    for artifact in task.artifacts:
        yield f"artifact:{artifact.artifact_id}", artifact.metadata


def _read_metadata(metadata: Struct) -> tuple[Usage | None, str]:
    """The tokens in metadata, and the id of the agent's own event, if it has one."""
    usage: Usage | None = None
    event_id = ""
    for key in metadata.fields:
        if _EVENT_KEY.search(key):
            event_id = f"event:{metadata.fields[key].string_value}"
        elif usage is None and _USAGE_KEY.search(key):
            usage = _read_usage(MessageToDict(metadata.fields[key]))
    return usage, event_id


def _read_usage(data: Any) -> Usage | None:
    if not isinstance(data, Mapping):
        return None
    counts = {str(key).lower().replace("_", ""): value for key, value in data.items()}
    input_tokens = _find_count(counts, _INPUT_KEYS)
    output_tokens = _find_count(counts, _OUTPUT_KEYS)
    total_tokens = _find_count(counts, _TOTAL_KEYS)
    if input_tokens is None and output_tokens is None:
        if total_tokens is None:
            return None
        return Usage(input_tokens=total_tokens)
    return Usage(input_tokens=input_tokens or 0, output_tokens=output_tokens or 0)


def _find_count(counts: Mapping[str, Any], keys: tuple[str, ...]) -> int | None:
    for key in keys:
        value = counts.get(key)
        if isinstance(value, bool) or not isinstance(value, int | float):
            continue
        if 0 <= value <= _MAX_TOKENS:
            return int(value)
    return None


def _larger(before: Usage | None, usage: Usage) -> Usage:
    if before is None:
        return usage
    return Usage(
        input_tokens=max(before.input_tokens, usage.input_tokens),
        output_tokens=max(before.output_tokens, usage.output_tokens),
    )


def _sum(first: Usage, second: Usage) -> Usage:
    return Usage(
        input_tokens=first.input_tokens + second.input_tokens,
        output_tokens=first.output_tokens + second.output_tokens,
    )
