"""The run that a graph works for, as the graph's configuration carries it.

This module alone knows the keys of the configuration's `configurable` and `metadata`, apart from the
checkpointers, which LangGraph hands its own keys.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# Keys of `metadata`. LangGraph stores them in the metadata of checkpoints: they cannot be renamed.
_RUN_ID = "query_id"
_EPOCH = "epoch"
_OWNER = "owner"
_PRINCIPAL = "principal"
_DELEGATION_CALL = "call"

# Keys of `configurable`; all but the deadline and the end of tools are LangGraph's.
_THREAD_ID = "thread_id"
_CHECKPOINT_NS = "checkpoint_ns"
_DEADLINE = "deadline"
_TOOLS_UNTIL = "tools_until"

# The part of its time in which an agent uses no tools any more, and answers. In less time no model answers.
_ANSWER_SHARE = 0.1
_SHORTEST_ANSWER_SECONDS = 1.0
_LONGEST_ANSWER_SECONDS = 60.0


def answer_seconds(seconds: float) -> float:
    """How much of its time an agent keeps for its answer; nothing where that would be too short for one."""
    kept_seconds = _ANSWER_SHARE * seconds
    if kept_seconds < _SHORTEST_ANSWER_SECONDS:
        return 0.0
    return min(kept_seconds, _LONGEST_ANSWER_SECONDS)


@dataclass(frozen=True, slots=True)
class RunContext:
    """The run, the thread and the delegation that a graph works for; empty outside of a run."""

    run_id: str = ""
    epoch: int = 0  # of the run's writer; the first one is 1
    owner: str | None = None
    principal: str | None = None
    deadline: float | None = None  # of the whole run, or of the delegation; in seconds since the epoch
    tools_until: float | None = None  # when no tools are used any more, so that there is time to answer
    thread_id: str | None = None
    checkpoint_ns: str | None = None
    # The call ids of the delegation that the graph works on. After a crash they tell where its state belongs.
    delegation_call: str = ""

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunContext":
        """The context in a graph's configuration."""
        return cls._read(config.get("metadata") or {}, config.get("configurable") or {})

    @classmethod
    def from_checkpoint_metadata(cls, metadata: Mapping[str, Any]) -> "RunContext":
        """The context in which a checkpoint was stored, without its thread."""
        return cls._read(metadata, {})

    @classmethod
    def _read(cls, metadata: Mapping[str, Any], configurable: Mapping[str, Any]) -> "RunContext":
        return cls(
            run_id=_read_text(metadata, _RUN_ID) or "",
            epoch=_read_epoch(metadata),
            owner=_read_text(metadata, _OWNER),
            principal=_read_text(metadata, _PRINCIPAL),
            deadline=configurable.get(_DEADLINE),
            tools_until=configurable.get(_TOOLS_UNTIL),
            thread_id=configurable.get(_THREAD_ID),
            checkpoint_ns=configurable.get(_CHECKPOINT_NS),
            delegation_call=_read_text(metadata, _DELEGATION_CALL) or "",
        )

    def to_metadata(self) -> dict[str, Any]:
        """The configuration's `metadata`; LangGraph takes what is not set from the outer graph."""
        metadata: dict[str, Any] = {}
        if self.run_id:
            metadata[_RUN_ID] = self.run_id
            metadata[_EPOCH] = self.epoch
        if self.owner is not None:
            metadata[_OWNER] = self.owner
        if self.principal is not None:
            metadata[_PRINCIPAL] = self.principal
        if self.delegation_call:
            metadata[_DELEGATION_CALL] = self.delegation_call
        return metadata

    def to_configurable(self) -> dict[str, Any]:
        """The configuration's `configurable`; LangGraph takes what is not set from the outer graph."""
        configurable: dict[str, Any] = {}
        if self.thread_id is not None:
            configurable[_THREAD_ID] = self.thread_id
        if self.checkpoint_ns is not None:
            configurable[_CHECKPOINT_NS] = self.checkpoint_ns
        if self.deadline is not None:
            configurable[_DEADLINE] = self.deadline
        if self.tools_until is not None:
            configurable[_TOOLS_UNTIL] = self.tools_until
        return configurable


def _read_text(metadata: Mapping[str, Any], key: str) -> str | None:
    """The text of a key; clients of a graph without our server may have put anything there."""
    text = metadata.get(key)
    if isinstance(text, str):
        return text
    return None


def _read_epoch(metadata: Mapping[str, Any]) -> int:
    epoch = metadata.get(_EPOCH)
    if isinstance(epoch, int):
        return epoch
    return 0
