"""Typed signals from code inside a graph to the translator, sent over the graph's custom stream."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.events import AnyEvent, NoticeCode, Usage
from ai_platform_engineering.core.run_budget import RunUsage


@dataclass(frozen=True, slots=True)
class ModelRetried:
    """A model call failed and starts again: what it had said is void."""

    reason: str


@dataclass(frozen=True, slots=True)
class NoticeEmitted:
    """Something that people should know.

    With the id of a delegation's call it is the notice of the agent that was called."""

    code: NoticeCode
    text: str
    delegation_call: str | None = None


@dataclass(frozen=True, slots=True)
class ToolProgressed:
    """A running tool reports how far it is."""

    call_id: str
    text: str = ""
    done: float | None = None
    total: float | None = None


@dataclass(frozen=True, slots=True)
class ArgumentsEdited:
    """A person has changed the arguments of a call before it runs."""

    call_id: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RemoteEventReceived:
    """Something happened in a remote agent that works on this delegation."""

    event: AnyEvent


@dataclass(frozen=True, slots=True)
class RemoteUsageReported:
    """What a remote agent's models used."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class DroppedUsageCounted:
    """What a model used for attempts that left no message, and what it did not report itself."""

    usage: Usage


@dataclass(frozen=True, slots=True)
class RunUsageCounted:
    """What an agent has used of the run's budget for its question so far, with those that it delegated to."""

    usage: RunUsage


@dataclass(frozen=True, slots=True)
class FlushRequested:
    """Asks the translator to store every earlier signal and event; it sets `stored` when that is done."""

    stored: asyncio.Event
