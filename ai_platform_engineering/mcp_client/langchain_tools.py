"""MCP tools as LangChain tools: with names that models accept, and only those that the policy allows."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool
from langgraph.config import get_stream_writer
from pydantic import PrivateAttr

from ai_platform_engineering.core.agent_definition import Permission, ToolPolicy
from ai_platform_engineering.core.call_targets import TargetKind
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.signals import NoticeEmitted, ToolProgressed
from ai_platform_engineering.core.tool_traits import RESERVED_TOOL_NAMES, ToolTraits
from ai_platform_engineering.mcp_client.connection_context import ProgressCallback
from ai_platform_engineering.mcp_client.elicitation import resumable_call
from ai_platform_engineering.mcp_client.feature_tools import FeatureSpec, use_feature
from ai_platform_engineering.mcp_client.mcp_errors import McpLoginRequired
from ai_platform_engineering.mcp_client.owned_sessions import OwnedSessions
from ai_platform_engineering.mcp_client.server_state import describe_start
from ai_platform_engineering.mcp_client.session import McpSession
from ai_platform_engineering.mcp_client.tool_types import ResultPart, ToolResult, ToolSpec

_MAX_NAME_LENGTH = 64  # what the strictest of the model providers takes
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_PROGRESS_INTERVAL = 0.25
_MAX_PROGRESS_CHARS = 300


class McpTool(BaseTool):
    """A tool of an MCP server.

    Its name may differ from the one at the server; the schema is the server's own.
    """

    _session: McpSession | OwnedSessions = PrivateAttr()
    _spec: ToolSpec = PrivateAttr()

    @classmethod
    def from_spec(
        cls, session: McpSession | OwnedSessions, spec: ToolSpec, *, name: str, metadata: dict[str, Any]
    ) -> "McpTool":
        description = spec.description or spec.title or spec.name
        tool = cls(name=name, description=description, args_schema=spec.inputSchema, metadata=metadata)
        tool._session = session
        tool._spec = spec
        return tool

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        # As one value: a server may call an argument `config`, `runtime` or `run_manager`, which LangChain
        # would take for its own.
        return (), {"arguments": self._parse_input(tool_input, tool_call_id), "call_id": tool_call_id}

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(
        self, arguments: dict[str, Any], call_id: str | None = None, *, config: RunnableConfig
    ) -> str | list[dict[str, Any]]:
        context = RunContext.from_config(config)
        session = self._session.for_principal(context.principal)
        try:
            result = await self._use(session, arguments, call_id, context.principal)
        except McpLoginRequired as error:
            _emit_notice(str(error), context.delegation_call)
            raise
        if result.has_images:
            return [_to_block(part) for part in result.parts]
        return result.text

    async def _use(
        self, session: McpSession, arguments: dict[str, Any], call_id: str | None, principal: str | None
    ) -> ToolResult:
        if isinstance(self._spec, FeatureSpec):
            return await use_feature(session, self._spec, arguments)
        callback = _make_progress_callback(call_id)
        if callback is not None and not session.is_ready:
            callback(0, None, describe_start(session.name))
        return await session.call(
            self._spec, arguments, callback, principal=principal, resumable=resumable_call.get()
        )


@dataclass(frozen=True, slots=True)
class ServerTools:
    """A server's tools before they are named and checked against the policy."""

    server: str
    session: McpSession | OwnedSessions
    specs: tuple[ToolSpec, ...]


@dataclass(frozen=True, slots=True)
class _PermittedTool:
    """A tool with the policy's permission for it."""

    server: str
    session: McpSession | OwnedSessions
    spec: ToolSpec
    permission: Permission | None


def build_langchain_tools(
    server_tools: Sequence[ServerTools], policy: ToolPolicy, knowledge: Collection[str] = ()
) -> list[BaseTool]:
    """The tools that the policy does not deny.

    A name that two servers have is prefixed with the server's, for both. `knowledge` are name patterns of
    tools that search a knowledge base.
    """
    allowed = [tool for tool in _check_permissions(server_tools, policy) if tool.permission != "deny"]
    name_counts = Counter(_make_name(tool.spec.name) for tool in allowed)
    used_names = set(RESERVED_TOOL_NAMES)
    tools: list[BaseTool] = []
    for tool in allowed:
        spec = tool.spec
        name = _make_name(spec.name)
        if name_counts[name] > 1:
            name = _make_name(f"{tool.server}_{spec.name}")
        name = _make_unique(name, used_names)
        used_names.add(name)
        metadata = _make_metadata(tool, policy, knowledge)
        tools.append(McpTool.from_spec(tool.session, spec, name=name, metadata=metadata))
    return tools


def list_denied_tools(server_tools: Sequence[ServerTools], policy: ToolPolicy) -> tuple[str, ...]:
    """The names of the tools that the servers have and the policy denies."""
    names = list[str]()
    for tool in _check_permissions(server_tools, policy):
        if tool.permission == "deny":
            names.append(_make_name(tool.spec.name))
    return tuple(names)


def list_held_tools(server_tools: Sequence[ServerTools], policy: ToolPolicy) -> tuple[str, ...]:
    """The names of held tools; those that the policy denies anyway are left out."""
    names = list[str]()
    for tools in server_tools:
        for tool in tools.session.held_tools:
            if _find_permission(policy, tools.server, tool) != "deny":
                names.append(_make_name(tool))
    return tuple(names)


def _check_permissions(server_tools: Sequence[ServerTools], policy: ToolPolicy) -> Iterator[_PermittedTool]:
    for tools in server_tools:
        for spec in tools.specs:
            permission = _find_permission(policy, tools.server, spec.name)
            yield _PermittedTool(tools.server, tools.session, spec, permission)


def _find_permission(policy: ToolPolicy, server: str, tool: str) -> Permission | None:
    """The policy's permission for the tool's own name.

    With the server's name before it a tool can only be restricted, and only literally: a pattern that also
    matched such names would match every tool of some server.
    """
    permission = policy.find_permission(tool)
    qualified_name = f"{server}_{tool}"
    if permission == "deny" or qualified_name in policy.deny:
        return "deny"
    if qualified_name in policy.ask:
        return "ask"
    return permission


def _make_metadata(tool: _PermittedTool, policy: ToolPolicy, knowledge: Collection[str]) -> dict[str, Any]:
    name = tool.spec.name
    traits = ToolTraits(
        defined_effect=policy.effect(name),
        permission=tool.permission,
        annotations=tool.spec.hints,
        is_knowledge=any(fnmatchcase(name, pattern) for pattern in knowledge),
        may_poll=policy.is_polled(name),
        targets=_find_targets(tool.spec, policy),
    )
    return {"server": tool.server, "tool": name, **traits.to_metadata()}


def _find_targets(spec: ToolSpec, policy: ToolPolicy) -> Mapping[str, TargetKind]:
    kinds = policy.find_targets(spec.name)
    if kinds is None:
        return spec.targets
    return kinds


def _make_name(name: str) -> str:
    """A name that every model provider takes; different ones stay different."""
    clean = _NOT_IN_NAMES.sub("_", name)
    if len(clean) <= _MAX_NAME_LENGTH:
        return clean
    return f"{clean[: _MAX_NAME_LENGTH - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _make_unique(name: str, used_names: Collection[str]) -> str:
    """The name, with a number behind it when it is used already."""
    unique_name = name
    number = 2
    while unique_name in used_names:
        suffix = f"_{number}"
        unique_name = f"{name[: _MAX_NAME_LENGTH - len(suffix)]}{suffix}"
        number += 1
    return unique_name


def _to_block(part: ResultPart) -> dict[str, Any]:
    """A part of a result as LangChain's content block."""
    if isinstance(part, str):
        return {"type": "text", "text": part}
    extras = {"description": part.description}
    return {"type": "image", "base64": part.data, "mime_type": part.mime_type, "extras": extras}


def _emit_notice(text: str, delegation_call: str) -> None:
    """Tells the person of the run, if there is one: what to do about it is theirs, not the model's."""
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):
        return
    write(NoticeEmitted("info", text, delegation_call or None))


def _make_progress_callback(call_id: str | None) -> ProgressCallback | None:
    """Writes the progress of a call into the stream of the graph that runs it, if there is one.

    Not every step of a fast counter is written.
    """
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):
        return None
    if call_id is None:
        return None
    context = copy_context()  # the writer looks for its graph in the context; progress arrives in another
    last_written_at = float("-inf")

    def write_progress(done: float, total: float | None, text: str | None) -> None:
        nonlocal last_written_at
        now = time.monotonic()
        if now - last_written_at >= _PROGRESS_INTERVAL or done == total:
            last_written_at = now
            context.run(write, ToolProgressed(call_id, (text or "")[:_MAX_PROGRESS_CHARS], done, total))

    return write_progress
