"""Whether a tool call runs: by its agent's definition, then by its server's annotations, else by a person."""

from typing import NamedTuple

from ai_platform_engineering.core.agent_definition import Permission
from ai_platform_engineering.core.tool_traits import ToolTraits

NOT_ALLOWED = "The definition of its agent does not allow it."
READ_ONLY = "Nothing may be changed here: READ_ONLY is set."
_LISTED = "The definition of its agent wants a person's approval for it."
_DESTRUCTIVE = "Its server says that it can destroy or overwrite something."
_UNKNOWN = "Its server does not say whether it changes anything."


class PolicyDecision(NamedTuple):
    """Whether a call runs, waits for a person or is refused, and why."""

    permission: Permission
    reason: str = ""


def decide_permission(traits: ToolTraits, *, read_only: bool) -> PolicyDecision:
    """The permission of a tool: by its agent's definition, else by its server's annotations.

    A tool without annotations is part of this program and runs, unless the definition says otherwise.
    """
    if traits.is_own:
        return PolicyDecision("allow")
    if traits.permission == "deny":
        return PolicyDecision("deny", NOT_ALLOWED)
    if read_only and traits.effect != "read":
        return PolicyDecision("deny", READ_ONLY)
    if traits.permission == "ask":
        return PolicyDecision("ask", _LISTED)
    if traits.permission == "allow" or traits.effect == "read" or traits.annotations is None:
        return PolicyDecision("allow")
    return _decide_by_annotations(traits)


def _decide_by_annotations(traits: ToolTraits) -> PolicyDecision:
    if traits.is_destructive is False:
        return PolicyDecision("allow")  # it adds something and destroys nothing
    if traits.is_destructive:
        return PolicyDecision("ask", _DESTRUCTIVE)
    return PolicyDecision("ask", _UNKNOWN)
