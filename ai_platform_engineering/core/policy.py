"""Who decides whether a tool runs: the agent's definition first, then what the tool's server says of it, and a person where neither
is sure."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ai_platform_engineering.core.agent_definition import Effect, Permission

_EFFECTS: Mapping[str, Effect] = {"read": "read", "idempotent": "idempotent", "write": "write"}

NOT_ALLOWED = "The definition of its agent does not allow it."
READ_ONLY = "Nothing may be changed here: READ_ONLY is set."
_LISTED = "The definition of its agent wants a person's approval for it."
_DESTRUCTIVE = "Its server says that it can destroy or overwrite something."
_UNKNOWN = "Its server does not say whether it changes anything."


class PolicyDecision(NamedTuple):
    """Whether a call runs, waits for a person or is refused, and why."""

    permission: Permission
    reason: str = ""


def read_effect(metadata: Mapping[str, Any]) -> Effect:
    """What calling the tool again would do: its agent's word, else its server's. A tool that says nothing of itself writes."""
    if (said := _EFFECTS.get(str(metadata.get("effect")))) is not None:
        return said
    hints: Mapping[str, Any] = metadata.get("annotations") or {}
    if hints.get("readOnlyHint"):
        return "read"
    if hints.get("idempotentHint"):
        return "idempotent"
    return "write"


def decide_permission(metadata: Mapping[str, Any], *, read_only: bool) -> PolicyDecision:
    """On a tool by what is known of it: `listed` is its agent's word, `annotations` are its server's.

    A tool without annotations of its own is part of the program and runs, unless something else is said.
    """
    if metadata.get("own"):
        return PolicyDecision("allow")
    listed, effect = metadata.get("listed"), read_effect(metadata)
    if listed == "deny":
        return PolicyDecision("deny", NOT_ALLOWED)
    if read_only and effect != "read":
        return PolicyDecision("deny", READ_ONLY)
    if listed == "ask":
        return PolicyDecision("ask", _LISTED)
    if listed == "allow" or effect == "read" or "annotations" not in metadata:
        return PolicyDecision("allow")
    return _by_hints(metadata["annotations"] or {})


def _by_hints(hints: Mapping[str, Any]) -> PolicyDecision:
    if hints.get("destructiveHint") is False:
        return PolicyDecision("allow")  # it adds something and destroys nothing
    return PolicyDecision("ask", _DESTRUCTIVE if hints.get("destructiveHint") else _UNKNOWN)
