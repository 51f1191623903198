"""Whether a tool call runs: by its agent's definition, then by its server's annotations, else by a person."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from ai_platform_engineering.core.agent_definition import Permission
from ai_platform_engineering.core.call_targets import CallTargets
from ai_platform_engineering.core.host_patterns import AllowedHosts
from ai_platform_engineering.core.named_targets import NamedTargets
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.core.untrusted_content import UntrustedContent, describe_sources, is_covered

NOT_ALLOWED = "The definition of its agent does not allow it."
READ_ONLY = "Nothing may be changed here: READ_ONLY is set."
TOOL_HELD = "Its server has changed it since it was trusted; a person has to allow that: caipe agents trust."
_LISTED = "Its agent's definition requires approval for it."
_DESTRUCTIVE = "Its server says that it can destroy or overwrite something."
_NOBODY_NAMED = "Nobody named this host in the conversation: {targets}."
_CARRIES_DATA = "It sends data that nobody wrote in the conversation: {targets}."
_REQUEST_CARRIES_DATA = "Nothing may leave here unasked: READ_ONLY is set, and a request carries data."
_UNKNOWN = "Its server does not say whether it changes anything."
_UNTRUSTED = "Text that nobody in this conversation wrote may have led to it: {sources}."


_STRICTNESS: Mapping[Permission, int] = {"allow": 0, "ask": 1, "deny": 2}


class PolicyDecision(NamedTuple):
    """Whether a call runs, waits for a person or is refused, and why."""

    permission: Permission
    reason: str = ""
    # What an "always" of a person holds for; empty for every call of the tool.
    subject: str = ""
    follows_untrusted: bool = False  # an allowance for other calls of the tool does not cover it

    def combine(self, other: "PolicyDecision") -> "PolicyDecision":
        """The stricter of two decisions; two that ask give both reasons."""
        if self.permission == other.permission == "ask":
            return PolicyDecision("ask", f"{self.reason} {other.reason}", self.subject or other.subject)
        return max(self, other, key=lambda decision: _STRICTNESS[decision.permission])


def decide_permission(traits: ToolTraits, *, read_only: bool) -> PolicyDecision:
    """The permission of a tool: by its agent's definition, else by its server's annotations.

    A tool without annotations is part of this program and runs, unless the definition says otherwise.
    """
    if traits.permission == "deny" and not traits.is_own:
        return PolicyDecision("deny", NOT_ALLOWED)
    if read_only and traits.effect != "read":
        return PolicyDecision("deny", READ_ONLY)
    if traits.is_own:
        return PolicyDecision("allow")
    if traits.permission == "ask":
        return PolicyDecision("ask", _LISTED)
    if traits.permission == "allow" or traits.effect == "read" or traits.annotations is None:
        return PolicyDecision("allow")
    return _decide_by_annotations(traits)


def tighten_for_untrusted(
    decision: PolicyDecision, traits: ToolTraits, arguments: Mapping[str, Any], content: UntrustedContent
) -> PolicyDecision:
    """The decision for a call that a model made after it had read untrusted content.

    After a result every change asks: text can be encoded, translated or split, and a model may choose the
    tool alone. Definitions are always there: after them a change asks unless its values are people's own.
    """
    if decision.permission == "deny" or not traits.needs_trust:
        return decision
    sources = content.results
    if not sources and not traits.manages_skills and not _are_own_values(arguments, content.words):
        sources = content.definitions
    if not sources:
        return decision
    reason = _UNTRUSTED.format(sources=describe_sources(sources))
    reasons = f"{decision.reason} {reason}".strip()
    return PolicyDecision("ask", reasons, decision.subject, follows_untrusted=True)


def _are_own_values(arguments: Mapping[str, Any], words: str) -> bool:
    """Whether people said every value. The names of the arguments are the tool's."""
    return all(is_covered(value, words) for value in arguments.values())


def _decide_by_annotations(traits: ToolTraits) -> PolicyDecision:
    if traits.is_destructive is False:
        return PolicyDecision("allow")  # it adds something and destroys nothing
    if traits.is_destructive:
        return PolicyDecision("ask", _DESTRUCTIVE)
    return PolicyDecision("ask", _UNKNOWN)


def decide_targets(
    targets: CallTargets, named: NamedTargets, allowed: AllowedHosts, *, read_only: bool
) -> PolicyDecision:
    """The permission of a call that reaches other hosts: those that people named or an operator allows.

    A query, a body or a method that changes something counts as a change, unless a person wrote the URL. With
    `read_only` nobody is asked, and the call is refused.
    """
    unnamed = [host for host in targets.hosts if host not in named.hosts and not allowed.has_host(host)]
    carried = [url for url in targets.data_urls if url not in named.urls]
    carried += targets.data_arguments
    reasons: list[str] = []
    if unnamed:
        reasons.append(_NOBODY_NAMED.format(targets=", ".join(unnamed)))
    if carried:
        reasons.append(_CARRIES_DATA.format(targets=", ".join(carried)))
    if not reasons:
        return PolicyDecision("allow")
    if read_only:
        return PolicyDecision("deny", " ".join([_REQUEST_CARRIES_DATA, *reasons]))
    return PolicyDecision("ask", " ".join(reasons), ", ".join([*unnamed, *carried]))
