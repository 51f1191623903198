"""A server's tools as LangChain tools: named so that models accept them, allowed by policy, and called through the server's session."""

import hashlib
import re
import time
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from contextvars import copy_context
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from langchain_core.tools import BaseTool
from langgraph.config import get_stream_writer
from pydantic import PrivateAttr

from ai_platform_engineering.core.agent_definition import Permission, ToolPolicy
from ai_platform_engineering.core.signals import ToolProgressed
from ai_platform_engineering.core.tool_traits import (
    DELEGATION_TOOL,
    PLANNING_TOOL,
    USER_INPUT_TOOL,
    WAIT_TOOL,
)
from ai_platform_engineering.mcp_client.server import ProgressCallback
from ai_platform_engineering.mcp_client.session import McpSession
from ai_platform_engineering.mcp_client.tool_types import ToolSpec

_TAKEN = frozenset(
    {USER_INPUT_TOOL, DELEGATION_TOOL, PLANNING_TOOL, WAIT_TOOL}
)  # tools that nobody is asked about: a server's would run as one of them
_LONGEST_NAME = 64  # what the strictest of the model providers takes
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_-]")
_PROGRESS_EVERY = 0.25
_MOST_OF_PROGRESS = 300


class McpTool(BaseTool):
    """One tool. What it is called here may differ from its name at the server; the schema is the server's own."""

    _session: McpSession = PrivateAttr()
    _spec: ToolSpec = PrivateAttr()

    @classmethod
    def from_spec(
        cls, session: McpSession, spec: ToolSpec, *, name: str, metadata: dict[str, Any]
    ) -> "McpTool":
        described = spec.description or spec.title or spec.name
        tool = cls(name=name, description=described, args_schema=spec.inputSchema, metadata=metadata)
        tool._session, tool._spec = session, spec
        return tool

    def _to_args_and_kwargs(
        self, tool_input: str | dict[str, Any], tool_call_id: str | None
    ) -> tuple[tuple[str, ...], dict[str, Any]]:
        # As one value: a server may call an argument `config`, `runtime` or `run_manager`, which LangChain would take for its own.
        return (), {"arguments": self._parse_input(tool_input, tool_call_id), "call_id": tool_call_id}

    def _run(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError(f"{self.name} is asynchronous: use ainvoke")

    async def _arun(self, arguments: dict[str, Any], call_id: str | None = None) -> str:
        return (await self._session.call(self._spec, arguments, _reporter(call_id))).text


@dataclass(frozen=True, slots=True)
class ServerTools:
    """A server's tools before they are named and sifted."""

    server: str
    session: McpSession
    specs: tuple[ToolSpec, ...]


def build_langchain_tools(
    offers: Sequence[ServerTools], policy: ToolPolicy, knowledge: Collection[str] = ()
) -> list[BaseTool]:
    """The tools that the policy does not deny. A name that two servers have is prefixed with the server's, for both.

    `knowledge` are name patterns of tools that search a knowledge base.
    """
    admitted = [
        (offer, spec, listed)
        for offer in offers
        for spec in offer.specs
        if (listed := _listed(policy, offer.server, spec.name)) != "deny"
    ]
    plain = Counter(_named(spec.name) for _, spec, _ in admitted)
    used = set(_TAKEN)
    tools: list[BaseTool] = []
    for offer, spec, listed in admitted:
        name = _named(spec.name)
        name = _free(name if plain[name] == 1 else _named(f"{offer.server}_{spec.name}"), used)
        metadata = {
            "server": offer.server,
            "tool": spec.name,
            "listed": listed,
            "annotations": spec.hints,
            "knowledge": any(fnmatchcase(spec.name, pattern) for pattern in knowledge),
            **({"poll": True} if policy.is_polled(spec.name) else {}),
            **({"effect": effect} if (effect := policy.effect(spec.name)) else {}),
        }
        tools.append(McpTool.from_spec(offer.session, spec, name=name, metadata=metadata))
    return tools


def list_denied_tools(offers: Sequence[ServerTools], policy: ToolPolicy) -> tuple[str, ...]:
    """The names of the tools that are there and are not offered."""
    return tuple(
        _named(spec.name)
        for offer in offers
        for spec in offer.specs
        if _listed(policy, offer.server, spec.name) == "deny"
    )


def _listed(policy: ToolPolicy, server: str, tool: str) -> Permission | None:
    """The policy's word on the tool's own name. With the server's name before it a tool can only be restricted, and only literally:
    a pattern that also matched such names would match every tool of some server."""
    listed, qualified = policy.find_permission(tool), f"{server}_{tool}"
    if listed == "deny" or qualified in policy.deny:
        return "deny"
    if qualified in policy.ask:
        return "ask"
    return listed


def _named(name: str) -> str:
    """A name that every model provider takes; different ones stay different."""
    clean = _NOT_IN_NAMES.sub("_", name)
    if len(clean) <= _LONGEST_NAME:
        return clean
    return f"{clean[: _LONGEST_NAME - 9]}_{hashlib.sha256(name.encode()).hexdigest()[:8]}"


def _free(name: str, used: set[str]) -> str:
    free = next(one for one in _numbered(name) if one not in used)
    used.add(free)
    return free


def _numbered(name: str) -> Iterable[str]:
    yield name
    number = 2
    while True:
        ending = f"_{number}"
        yield f"{name[: _LONGEST_NAME - len(ending)]}{ending}"
        number += 1


def _reporter(call_id: str | None) -> ProgressCallback | None:
    """Where progress of this call goes: into the stream of the graph that runs it, if there is one. Not every step of a fast counter."""
    try:
        write = get_stream_writer()
    except (RuntimeError, KeyError):
        return None
    if call_id is None:
        return None
    context, told_at = (
        copy_context(),
        float("-inf"),
    )  # the writer looks for its graph in the context; progress arrives in another

    def report(done: float, total: float | None, text: str | None) -> None:
        nonlocal told_at
        now = time.monotonic()
        if now - told_at >= _PROGRESS_EVERY or done == total:
            told_at = now
            context.run(write, ToolProgressed(call_id, (text or "")[:_MOST_OF_PROGRESS], done, total))

    return report
