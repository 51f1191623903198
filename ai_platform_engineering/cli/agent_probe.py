"""Tries an agent: its tool servers are started, their tools listed, and one read-only tool is called."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from langchain_core.tools import BaseTool, ToolException

from ai_platform_engineering.agents.agent_catalog import AgentEntry
from ai_platform_engineering.agents.installed_commands import resolve_commands
from ai_platform_engineering.core.agent_definition import AgentDefinition
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.tool_traits import server_of, traits_of
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from ai_platform_engineering.mcp_client.session_pool import AgentTools, McpSessionPool
from ai_platform_engineering.runtime.server.access_keys import SHARED_KEY_USER

_MAX_REASON_CHARS = 500
# Tools that answer for the credentials alone come first: they cost the least.
_PREFERRED_WORDS = ("me", "whoami", "who-am-i", "current_user", "list", "get")


@dataclass(frozen=True, slots=True)
class ProbedCall:
    """One read-only call, and why it failed if it did."""

    server: str
    tool: str
    problem: str | None = None


@dataclass(frozen=True, slots=True)
class AgentProbe:
    """What an agent's servers offer, what is wrong with them, and the calls that were tried."""

    tools: tuple[BaseTool, ...] = ()
    problems: Mapping[str, str] = field(default_factory=dict)  # by server
    calls: tuple[ProbedCall, ...] = ()

    @property
    def untried_servers(self) -> list[str]:
        """The servers with no tool that is known to only read and needs no arguments."""
        tried_servers = {call.server for call in self.calls}
        servers = {server_of(tool) or "" for tool in self.tools}
        return sorted(servers - tried_servers)

    def list_problems(self) -> list[str]:
        """What is wrong, a sentence part for each server."""
        problems = [f"{server}: {reason}" for server, reason in self.problems.items()]
        problems += [
            f"{call.server}: {call.tool} fails: {call.problem}" for call in self.calls if call.problem
        ]
        return problems


async def probe_agent(settings: Settings, variables: Mapping[str, str], entry: AgentEntry) -> AgentProbe:
    """Starts the servers of an in-process agent, and ends them again.

    Hosted servers are tried with the login of whoever uses this installation's own key, or needs none.
    """
    definition = resolve_commands(entry.definition, settings.agent.home)
    principal = SHARED_KEY_USER if settings.server.shared_key is not None else ""
    oauth = OAuthAccess(settings.agent.home, settings.oauth)
    sessions = McpSessionPool(
        connect_timeout=settings.mcp.connect_timeout,
        call_timeout=settings.mcp.call_timeout,
        message_bytes=settings.mcp.max_message_bytes,
        message_values=settings.mcp.max_message_values,
        cache_dir=None,
        environment=variables,
        sandbox=settings.mcp.sandbox,
        private_paths=(settings.agent.home,),
        oauth=oauth,
    )
    try:
        agent_tools = await sessions.agent_tools(
            definition.mcp_servers, definition.tools, principal=principal
        )
        calls = await _try_calls(definition, agent_tools, principal)
    finally:
        await sessions.aclose()
        await oauth.aclose()
    return AgentProbe(agent_tools.tools, agent_tools.problems, calls)


async def _try_calls(
    definition: AgentDefinition, agent_tools: AgentTools, principal: str
) -> tuple[ProbedCall, ...]:
    """One call for each server, as far as there is a tool that only reads."""
    by_server: dict[str, list[BaseTool]] = {}
    for tool in agent_tools.tools:
        by_server.setdefault(server_of(tool) or "", []).append(tool)
    calls: list[ProbedCall] = []
    for server, tools in by_server.items():
        choice = _choose_call(definition, tools)
        if choice is None:
            continue
        tool, arguments = choice
        calls.append(ProbedCall(server, tool.name, await _try_call(tool, arguments, principal)))
    return tuple(calls)


def _choose_call(
    definition: AgentDefinition, tools: Sequence[BaseTool]
) -> tuple[BaseTool, Mapping[str, Any]] | None:
    """The call that the definition names, else a read-only tool that needs no arguments."""
    if definition.check is not None:
        for tool in tools:
            if tool.name == definition.check.tool and traits_of(tool).effect == "read":
                return tool, definition.check.arguments
    candidates = [
        tool for tool in tools if traits_of(tool).effect == "read" and not _required_arguments(tool)
    ]
    candidates.sort(key=_rank)
    if candidates:
        return candidates[0], {}
    return None


def _rank(tool: BaseTool) -> int:
    words = tool.name.lower().replace("-", "_").split("_")
    for rank, word in enumerate(_PREFERRED_WORDS):
        if word in words or word in tool.name.lower().split("."):
            return rank
    return len(_PREFERRED_WORDS)


def _required_arguments(tool: BaseTool) -> Sequence[str]:
    schema = tool.args_schema
    if isinstance(schema, dict):
        return list(schema.get("required") or ())
    return ()


async def _try_call(tool: BaseTool, arguments: Mapping[str, Any], principal: str) -> str | None:
    """Why the call failed; None when it worked."""
    try:
        await tool.ainvoke(dict(arguments), {"metadata": RunContext(principal=principal).to_metadata()})
    except (CaipeError, ToolException, OSError) as error:
        return " ".join(str(error).split())[:_MAX_REASON_CHARS].rstrip(".")
    return None
