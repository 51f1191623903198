"""Whether a tool runs: by the agent's definition, the server's annotations, READ_ONLY, or a person."""

from itertools import product
from typing import Any

import pytest

from ai_platform_engineering.core.agent_definition import Effect, Permission, ToolPolicy
from ai_platform_engineering.core.policy import (
    NOT_ALLOWED,
    READ_ONLY,
    PolicyDecision,
    decide_permission,
)
from ai_platform_engineering.core.tool_traits import ToolTraits

LISTED = "Its agent's definition requires approval for it."
DESTRUCTIVE = "Its server says that it can destroy or overwrite something."
UNKNOWN = "Its server does not say whether it changes anything."

READS: dict[str, Any] = {"readOnlyHint": True}
ADDS: dict[str, Any] = {"destructiveHint": False}
DESTROYS: dict[str, Any] = {"destructiveHint": True}
REPEATS: dict[str, Any] = {"idempotentHint": True}
NOTHING: dict[str, Any] = {}
HINTS = (READS, ADDS, DESTROYS, REPEATS, NOTHING)


def tool_metadata(
    listed: Permission | None = None, hints: Any = None, effect: Effect | None = None
) -> dict[str, Any]:
    """What is known of a tool of an MCP server."""
    return {"listed": listed, "annotations": hints, **({"effect": effect} if effect else {})}


def traits(metadata: dict[str, Any]) -> ToolTraits:
    return ToolTraits.from_metadata("tool", metadata)


# --- what is asked ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("listed", "hints", "effect", "permission", "reason"),
    [
        # Without a word of the definition the server's word decides, and no word of either asks.
        (None, READS, None, "allow", ""),
        (None, ADDS, None, "allow", ""),
        (None, DESTROYS, None, "ask", DESTRUCTIVE),
        (None, NOTHING, None, "ask", UNKNOWN),
        (None, None, None, "ask", UNKNOWN),
        (None, {"readOnlyHint": False}, None, "ask", UNKNOWN),
        (None, {"openWorldHint": False, "title": "Harmless, honestly"}, None, "ask", UNKNOWN),
        # To do no harm twice is not to do no harm once.
        (None, REPEATS, None, "ask", UNKNOWN),
        (None, {**REPEATS, **DESTROYS}, None, "ask", DESTRUCTIVE),
        (None, {**REPEATS, **ADDS}, None, "allow", ""),
        # A reading tool destroys nothing: the protocol gives the second hint no meaning beside the first.
        (None, {**READS, **DESTROYS}, None, "allow", ""),
        # The definition's word on the effect counts as the server's does, and above it.
        (None, NOTHING, "read", "allow", ""),
        (None, DESTROYS, "read", "allow", ""),
        (None, NOTHING, "idempotent", "ask", UNKNOWN),
        (None, DESTROYS, "idempotent", "ask", DESTRUCTIVE),
        (None, READS, "write", "ask", UNKNOWN),
        # The definition's word on the tool is above everything that is said of its effect.
        ("allow", READS, None, "allow", ""),
        ("allow", DESTROYS, None, "allow", ""),
        ("allow", NOTHING, None, "allow", ""),
        ("ask", READS, None, "ask", LISTED),
        ("ask", ADDS, None, "ask", LISTED),
        ("ask", DESTROYS, None, "ask", LISTED),
        ("ask", NOTHING, "read", "ask", LISTED),
        ("deny", READS, None, "deny", NOT_ALLOWED),
        ("deny", NOTHING, "read", "deny", NOT_ALLOWED),
        ("deny", DESTROYS, None, "deny", NOT_ALLOWED),
    ],
)
def test_who_decides(
    listed: Permission | None, hints: Any, effect: Effect | None, permission: Permission, reason: str
) -> None:
    assert decide_permission(traits(tool_metadata(listed, hints, effect)), read_only=False) == PolicyDecision(
        permission, reason
    )


@pytest.mark.parametrize(
    ("listed", "hints", "effect", "permission", "reason"),
    [
        (None, READS, None, "allow", ""),
        (None, NOTHING, "read", "allow", ""),
        ("allow", READS, None, "allow", ""),
        ("ask", READS, None, "ask", LISTED),
        (None, ADDS, None, "deny", READ_ONLY),
        (None, DESTROYS, None, "deny", READ_ONLY),
        (None, REPEATS, None, "deny", READ_ONLY),
        (None, NOTHING, None, "deny", READ_ONLY),
        (None, NOTHING, "idempotent", "deny", READ_ONLY),
        (None, READS, "write", "deny", READ_ONLY),
        # What the definition lets run, or a person might approve, is refused all the same.
        ("allow", NOTHING, None, "deny", READ_ONLY),
        ("allow", DESTROYS, None, "deny", READ_ONLY),
        ("ask", DESTROYS, None, "deny", READ_ONLY),
        # Whoever is not allowed at all is told that, and not the other reason.
        ("deny", READS, None, "deny", NOT_ALLOWED),
        ("deny", DESTROYS, None, "deny", NOT_ALLOWED),
    ],
)
def test_what_read_only_leaves(
    listed: Permission | None, hints: Any, effect: Effect | None, permission: Permission, reason: str
) -> None:
    assert decide_permission(traits(tool_metadata(listed, hints, effect)), read_only=True) == PolicyDecision(
        permission, reason
    )


def test_every_combination_keeps_the_rules() -> None:
    """Whatever is said of a tool: only these ways lead to a call that nobody was asked about."""
    listings: tuple[Permission | None, ...] = (None, "allow", "ask", "deny")
    effects: tuple[Effect | None, ...] = (None, "read", "idempotent", "write")
    for listed, hints, effect, read_only in product(listings, HINTS, effects, (False, True)):
        tool = tool_metadata(listed, hints, effect)
        decision, reads = decide_permission(traits(tool), read_only=read_only), traits(tool).effect == "read"
        may_run = listed == "allow" or (listed is None and (reads or hints == ADDS))
        assert (decision.permission == "allow") == (may_run and (reads or not read_only)), tool
        assert (decision.permission == "deny") == (listed == "deny" or (read_only and not reads)), tool
        assert bool(decision.reason) == (decision.permission != "allow"), tool


def test_a_tool_of_the_program_runs_unless_something_else_is_said() -> None:
    assert decide_permission(traits({}), read_only=False) == PolicyDecision("allow")
    assert decide_permission(traits({"effect": "write"}), read_only=False) == PolicyDecision("allow")
    assert decide_permission(traits({"listed": "ask"}), read_only=False) == PolicyDecision("ask", LISTED)
    assert decide_permission(traits({}), read_only=True) == PolicyDecision("deny", READ_ONLY)
    assert decide_permission(traits({"effect": "read"}), read_only=True) == PolicyDecision("allow")


def test_what_the_program_needs_itself_runs_and_changes_nothing_with_read_only() -> None:
    assert decide_permission(traits({"own": True, "effect": "write"}), read_only=False).permission == "allow"
    assert decide_permission(traits({"own": True, "effect": "read"}), read_only=True).permission == "allow"
    refused = PolicyDecision("deny", READ_ONLY)
    assert decide_permission(traits({"own": True, "effect": "write"}), read_only=True) == refused


# --- what calling again would do ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("metadata", "effect"),
    [
        ({}, "write"),
        (tool_metadata(), "write"),
        (tool_metadata(hints=READS), "read"),
        (tool_metadata(hints=REPEATS), "idempotent"),
        (tool_metadata(hints={**READS, **REPEATS}), "read"),
        (tool_metadata(hints=ADDS), "write"),
        (tool_metadata(hints=DESTROYS), "write"),
        (tool_metadata(hints={"readOnlyHint": False, "idempotentHint": False}), "write"),
        (tool_metadata(hints=NOTHING, effect="read"), "read"),
        (tool_metadata(hints=READS, effect="idempotent"), "idempotent"),
        (tool_metadata(hints=READS, effect="write"), "write"),
        ({"effect": "something else", "annotations": READS}, "read"),
        ({"effect": None}, "write"),
        (tool_metadata(listed="allow"), "write"),  # to be allowed to run is not to be harmless
    ],
)
def test_what_calling_again_would_do(metadata: dict[str, Any], effect: Effect) -> None:
    assert traits(metadata).effect == effect


# --- what a definition says ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("policy", "tool", "listed"),
    [
        ({}, "get_app", None),
        ({"read": ("*",), "idempotent": ("*",)}, "get_app", None),
        ({"allow": ("get_*",)}, "get_app", "allow"),
        ({"allow": ("get_*",)}, "delete_app", "deny"),
        ({"allow": ("*",)}, "delete_app", "allow"),
        ({"ask": ("delete_*",)}, "delete_app", "ask"),
        ({"ask": ("delete_*",)}, "get_app", None),
        ({"deny": ("delete_*",)}, "delete_app", "deny"),
        ({"deny": ("delete_*",)}, "get_app", None),
        # Not in `allow` and in `ask`: it is asked about, for somebody listed it.
        ({"allow": ("get_*",), "ask": ("delete_*",)}, "delete_app", "ask"),
        ({"allow": ("*",), "ask": ("delete_*",)}, "delete_app", "ask"),
        ({"allow": ("*",), "ask": ("*",), "deny": ("delete_*",)}, "delete_app", "deny"),
        ({"deny": ("DELETE_*",)}, "delete_app", None),
        ({"deny": ("delete_?",)}, "delete_app", None),
    ],
)
def test_what_a_definition_says_of_a_tool(
    policy: dict[str, Any], tool: str, listed: Permission | None
) -> None:
    tool_policy = ToolPolicy(**policy)
    assert tool_policy.find_permission(tool) == listed
    assert tool_policy.permission(tool) == (listed or "allow")


@pytest.mark.parametrize(
    ("policy", "effect"),
    [
        ({}, None),
        ({"allow": ("*",)}, None),
        ({"read": ("get_*",)}, "read"),
        ({"idempotent": ("get_*",)}, "idempotent"),
        ({"read": ("*",), "idempotent": ("get_*",)}, "read"),
        ({"read": ("list_*",)}, None),
    ],
)
def test_what_a_definition_says_of_an_effect(policy: dict[str, Any], effect: Effect | None) -> None:
    assert ToolPolicy(**policy).effect("get_app") == effect
