"""The digest of a tool call that waits for approval: an approval holds for exactly the call that has it."""

import hashlib
import hmac
import json
from collections.abc import Mapping
from typing import Any


def call_digest(place: str, agent: str, tool: str, arguments: Mapping[str, Any]) -> str:
    """The digest of a call. `place` names where in which run it waits, so that no other call has the same."""
    return _hash({"place": place, "agent": agent, "tool": tool, "arguments": arguments})


def edit_digest(digest: str, arguments: Mapping[str, Any]) -> str:
    """The digest of a call with other arguments, bound to the one that the person changed."""
    return _hash({"edits": digest, "arguments": arguments})


def same_digest(first: object, second: object) -> bool:
    """Whether both are the same digest; nothing is the same as no digest."""
    if not isinstance(first, str) or not isinstance(second, str) or not first:
        return False
    return hmac.compare_digest(first.encode(), second.encode())


def _hash(value: Mapping[str, Any]) -> str:
    canonical = json.dumps(_canonical(value), sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()


def _canonical(value: Any) -> Any:
    """The value with one spelling for each number: protocols in between know no difference of 1 and 1.0."""
    if isinstance(value, Mapping):
        return {str(key): _canonical(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_canonical(item) for item in value]
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value
