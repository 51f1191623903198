"""Whether a tool call runs: by its agent's definition, then by its server's annotations, else by a person."""

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
    """What calling the tool again would do, by its agent's definition, else by its server's annotations.

    A tool without either is taken to write.
    """
    defined_effect = _EFFECTS.get(str(metadata.get("effect")))
    if defined_effect is not None:
        return defined_effect
    annotations: Mapping[str, Any] = metadata.get("annotations") or {}
    if annotations.get("readOnlyHint"):
        return "read"
    if annotations.get("idempotentHint"):
        return "idempotent"
    return "write"


def decide_permission(metadata: Mapping[str, Any], *, read_only: bool) -> PolicyDecision:
    """The permission of a tool by its metadata: `listed` by its agent, `annotations` by its server.
    A tool without annotations is part of this program and runs, unless the definition says otherwise.
    """
    if metadata.get("own"):
        return PolicyDecision("allow")
    listed = metadata.get("listed")
    effect = read_effect(metadata)
    if listed == "deny":
        return PolicyDecision("deny", NOT_ALLOWED)
    if read_only and effect != "read":
        return PolicyDecision("deny", READ_ONLY)
    if listed == "ask":
        return PolicyDecision("ask", _LISTED)
    if listed == "allow" or effect == "read" or "annotations" not in metadata:
        return PolicyDecision("allow")
    return _decide_by_annotations(metadata["annotations"] or {})


def _decide_by_annotations(annotations: Mapping[str, Any]) -> PolicyDecision:
    destructive = annotations.get("destructiveHint")
    if destructive is False:
        return PolicyDecision("allow")  # it adds something and destroys nothing
    if destructive:
        return PolicyDecision("ask", _DESTRUCTIVE)
    return PolicyDecision("ask", _UNKNOWN)
