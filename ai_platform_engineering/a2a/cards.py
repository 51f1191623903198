"""Agent cards: fetched, checked, and with addresses that lead to the host that was configured."""

import asyncio
import json
from collections.abc import Sequence

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentExtension
from google.protobuf.json_format import ParseError

from ai_platform_engineering.a2a.client import Unreachable, bearer_headers
from ai_platform_engineering.core.errors import AgentUnavailable

EVENTS_EXTENSION = (
    "urn:caipe:events:1"  # the stream carries our events and numbers: it can be followed from a cursor
)
_PATHS = (".well-known/agent-card.json", ".well-known/agent.json")
TOKEN_HINT = "Check <NAME>_AGENT_TOKEN or AGENT_TOKEN."
_MOST = 1024 * 1024


def events_extension(tools: Sequence[str] = ()) -> AgentExtension:
    """`tools` are the names of those that the agent has, as far as it knows: a supervisor chooses agents by them."""
    extension = AgentExtension(
        uri=EVENTS_EXTENSION, description="Every frame carries the whole event as JSON, and its number."
    )
    if tools:
        extension.params.update({"tools": list(tools)})
    return extension


def read_tool_names(card: AgentCard) -> tuple[str, ...]:
    """The names of the agent's tools, when it is one of ours and knows them."""
    for extension in card.capabilities.extensions:
        if extension.uri == EVENTS_EXTENSION and "tools" in extension.params.fields:
            return tuple(value.string_value for value in extension.params.fields["tools"].list_value.values)
    return ()


def has_events_extension(card: AgentCard) -> bool:
    return any(extension.uri == EVENTS_EXTENSION for extension in card.capabilities.extensions)


async def fetch_card(url: str, http: httpx.AsyncClient, *, token: str | None, timeout: float) -> AgentCard:
    """The card of the agent at an address. Raises Unreachable when nobody is there, AgentUnavailable when it is no agent."""
    status = 0
    for path in _PATHS:
        try:
            async with asyncio.timeout(
                timeout
            ):  # the whole of it: HTTP's own timeout is for a pause, and never ends a drip
                status, body = await _get(f"{url}{path}", http, token=token, timeout=timeout)
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unreachable(f"{url} cannot be reached ({type(error).__name__}).", accepted=False) from None
        if status == 200:
            return _with_our_host(_parsed(body, url), url)
        if status in (401, 403):
            raise AgentUnavailable(f"{url} refused our credentials ({status}). {TOKEN_HINT}")
    if status >= 500:
        raise Unreachable(f"{url} cannot be reached (HTTP {status}).", accepted=False)
    raise AgentUnavailable(f"{url} is no A2A agent: it has no card (HTTP {status}).")


async def _get(url: str, http: httpx.AsyncClient, *, token: str | None, timeout: float) -> tuple[int, bytes]:
    """The status and the body, read no further than a card may reach."""
    body = bytearray()
    async with http.stream(
        "GET", url, headers=bearer_headers(token), timeout=timeout, follow_redirects=False
    ) as response:
        async for piece in response.aiter_bytes():
            body += piece
            if len(body) > _MOST:
                break
    return response.status_code, bytes(body)


def _parsed(body: bytes, url: str) -> AgentCard:
    try:
        if len(body) > _MOST:
            raise ValueError("too large")
        card = parse_agent_card(json.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ParseError):
        raise AgentUnavailable(f"{url} is no A2A agent: its card cannot be read.") from None
    if not any(interface.protocol_binding == "JSONRPC" for interface in card.supported_interfaces):
        raise AgentUnavailable(f"{url} does not offer JSON-RPC, which is what we speak.")
    return card


def _with_our_host(card: AgentCard, url: str) -> AgentCard:
    """The card with addresses on the configured host only: behind a proxy or in a container cards name other ones, and a card
    must not lead us, and our token, to a host that nobody configured."""
    ours = httpx.URL(url)
    kept = [interface for interface in card.supported_interfaces if interface.protocol_binding == "JSONRPC"]
    for interface in kept:
        given = httpx.URL(interface.url) if _is_address(interface.url) else ours
        if given.host != ours.host:
            given = given.copy_with(scheme=ours.scheme, host=ours.host, port=ours.port)
        interface.url = str(given)
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(kept)
    return card


def _is_address(text: str) -> bool:
    try:
        return httpx.URL(text).host != ""
    except (httpx.InvalidURL, TypeError):
        return False
