"""What a request asks of a provider's prompt cache, and which servers know these fields.

A provider bills a prefix that it has seen a moment ago at a fraction of the price. OpenAI and Gemini find it
by themselves; Anthropic and Bedrock are told up to where to store it.
"""

import hashlib
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlsplit

from ai_platform_engineering.core.model_streams import FeatureMode

OPENAI_HOST = "api.openai.com"
ANTHROPIC_HOST = "api.anthropic.com"

_BREAKPOINT = {"type": "ephemeral"}
# Blocks that Anthropic stores no prefix behind.
_UNMARKED_BLOCKS = frozenset({"thinking", "redacted_thinking"})
_KEY_CHARS = 32


def is_used(mode: FeatureMode, base_url: str, *own_hosts: str) -> bool:
    """Whether requests carry the fields of the cache: a compatible server might refuse them."""
    if mode == "auto":
        return is_own_address(base_url, *own_hosts)
    return mode == "on"


def is_own_address(base_url: str, *own_hosts: str) -> bool:
    """Whether an address is the provider's own, in any region."""
    host = urlsplit(base_url).hostname or ""
    return any(host == own or host.endswith(f".{own}") for own in own_hosts)


def make_cache_key(messages: Sequence[Any]) -> str:
    """A key by which OpenAI brings requests with the same beginning to the same machine.

    It is made from what all requests of one agent in one conversation begin with: the messages up to the
    first of the user's.
    """
    beginning: list[Any] = []
    for message in messages:
        beginning.append(message)
        if isinstance(message, dict) and message.get("role") == "user":
            break
    content = repr(beginning).encode(errors="backslashreplace")
    return hashlib.sha256(content).hexdigest()[:_KEY_CHARS]


def add_breakpoints(payload: dict[str, Any]) -> None:
    """Marks where Anthropic stores prefixes: behind the tools, the system prompt and two of the messages.

    The messages are the last ones of this request and of the preceding one: Anthropic looks only at the 20
    blocks before a mark, and a model may have called more tools at once. What others hold too is copied.
    """
    tools = payload.get("tools")
    if tools:
        payload["tools"] = [*tools[:-1], {**tools[-1], "cache_control": _BREAKPOINT}]
    system = payload.get("system")
    if system:
        payload["system"] = _mark_last(system)
    messages = list(payload["messages"])
    for index in _find_ends(messages):
        message = messages[index]
        messages[index] = {**message, "content": _mark_last(message["content"])}
    payload["messages"] = messages


def _find_ends(messages: Sequence[Mapping[str, Any]]) -> list[int]:
    """The last messages of this request and of the preceding one: a request ends with the user's role."""
    ends = [index for index, message in enumerate(messages) if message["role"] == "user"]
    return ends[-2:]


def _mark_last(content: Any) -> Any:
    """The content with a breakpoint at its last block; as it is where none can be."""
    if isinstance(content, str):
        if not content.strip():
            return content
        return [{"type": "text", "text": content, "cache_control": _BREAKPOINT}]
    if not isinstance(content, list) or not content:
        return content
    last = content[-1]
    if not isinstance(last, dict) or last.get("type") in _UNMARKED_BLOCKS or "cache_control" in last:
        return content
    if last.get("type") == "text" and not str(last.get("text") or "").strip():
        return content
    return [*content[:-1], {**last, "cache_control": _BREAKPOINT}]
