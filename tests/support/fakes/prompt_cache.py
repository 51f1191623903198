"""The prompt cache of a fake provider: which part of a request it has seen, and which part it stores."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LOOKBACK = 20  # blocks before a mark in which Anthropic looks for a stored prefix
MAX_MARKS = 4
_SMALLEST_HIT = 1024  # tokens that OpenAI caches at least
_MARK = "cache_control"


@dataclass(frozen=True)
class CacheUse:
    """Shares of a request, in characters."""

    read: float = 0.0
    created: float = 0.0


class MarkedCache:
    """Anthropic's and Bedrock's: it stores the prefixes that end at marks."""

    def __init__(self) -> None:
        self._stored: set[str] = set()

    def use(self, blocks: Sequence[tuple[str, bool]]) -> CacheUse:
        """Looks a request up and stores it. `blocks`: texts in order, and whether a mark stands behind."""
        digest = hashlib.sha256()
        prefixes: list[str] = []
        lengths: list[int] = []
        for text, _ in blocks:
            digest.update(text.encode(errors="backslashreplace"))
            prefixes.append(digest.hexdigest())
            lengths.append(len(text) + (lengths[-1] if lengths else 0))
        marks = [index for index, (_, is_marked) in enumerate(blocks) if is_marked]
        if not marks:
            return CacheUse()
        hits = [
            index
            for mark in marks
            for index in range(max(0, mark - LOOKBACK), mark + 1)
            if prefixes[index] in self._stored
        ]
        read = lengths[max(hits)] if hits else 0
        self._stored |= {prefixes[mark] for mark in marks}
        total = lengths[-1] or 1
        return CacheUse(read / total, max(0, lengths[marks[-1]] - read) / total)


class AutomaticCache:
    """OpenAI's: the longest prefix of an earlier request of the same model."""

    def __init__(self) -> None:
        self._texts: list[str] = []

    def use(self, text: str) -> CacheUse:
        longest = max((common_length(text, earlier) for earlier in self._texts), default=0)
        self._texts.append(text)
        if longest // 4 < _SMALLEST_HIT:
            return CacheUse()
        return CacheUse(longest / len(text))


def common_length(first: str, second: str) -> int:
    """How many characters two texts begin with in common."""
    low, high = 0, min(len(first), len(second))
    while low < high:
        middle = (low + high + 1) // 2
        if first[low:middle] == second[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low


def anthropic_blocks(body: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """The blocks of a messages request: tools, system prompt, messages."""
    blocks = [_read(tool) for tool in body.get("tools") or ()]
    blocks += [_read(block) for block in _as_blocks(body.get("system"))]
    for message in body["messages"]:
        for block in _as_blocks(message["content"]):
            text, is_marked = _read(block)
            blocks.append((f"{message['role']}: {text}", is_marked))
    return blocks


def bedrock_blocks(body: Mapping[str, Any]) -> list[tuple[str, bool]]:
    """The blocks of a converse request; its marks are blocks themselves."""
    contents: list[Any] = [*(body.get("toolConfig") or {}).get("tools", ()), *(body.get("system") or ())]
    for message in body["messages"]:
        contents += [
            block if "cachePoint" in block else {message["role"]: block} for block in message["content"]
        ]
    blocks: list[tuple[str, bool]] = []
    for content in contents:
        if "cachePoint" in content:
            blocks[-1] = (blocks[-1][0], True)
        else:
            blocks.append((json.dumps(content), False))
    return blocks


def _as_blocks(content: Any) -> list[dict[str, Any]]:
    if isinstance(content, str):
        return [{"type": "text", "text": content}]
    return list(content or ())


def _read(block: Mapping[str, Any]) -> tuple[str, bool]:
    text = json.dumps({name: value for name, value in block.items() if name != _MARK})
    return text, _MARK in block
