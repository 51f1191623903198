"""The router's reply to a list of messages: a text and tool calls."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class RoutedCall:
    """A tool call that the router makes."""

    name: str
    arguments: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class RouterReply:
    """What the model says and calls in one turn; an answer has no calls."""

    text: str = ""
    calls: tuple[RoutedCall, ...] = ()
    citations: tuple[Mapping[str, str], ...] = ()
    delay_seconds: float = 0.0  # before the reply, for what takes a while
