"""Agent cards: fetched, checked, and with URLs on the configured host only."""

import asyncio
import json
import re
from collections.abc import Sequence

import httpx
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard, AgentExtension
from google.protobuf.json_format import ParseError

from ai_platform_engineering.a2a.client import Unreachable, bearer_headers
from ai_platform_engineering.a2a.client_shape import EVENTS_EXTENSION
from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.errors import AgentUnavailable
from ai_platform_engineering.core.json_limits import JsonTooLarge

_CARD_PATHS = (".well-known/agent-card.json", ".well-known/agent.json")
TOKEN_HINT = "Check <NAME>_AGENT_TOKEN or AGENT_TOKEN."
_MAX_CARD_BYTES = 1024 * 1024
_MAX_TOOLS = 500
_MAX_SKILLS = 40
# The names stand in a supervisor's prompt: a sentence in a name's place is left out.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_.-]{1,64}")
# Of agents that are not ours: a few short words, so that nothing that is encoded fits in.
_SKILL_NAME = re.compile(r"(?=.{1,48}$)[A-Za-z][A-Za-z0-9]{0,15}(?:[_.-][A-Za-z0-9]{1,16}){0,4}")


def events_extension(tools: Sequence[str] = ()) -> AgentExtension:
    """The extension of our agents.

    `tools` are the names of the agent's tools; a supervisor chooses agents by them."""
    extension = AgentExtension(
        uri=EVENTS_EXTENSION, description="Every frame carries the whole event as JSON, and its number."
    )
    if tools:
        extension.params.update({"tools": list(tools)})
    return extension


def read_tool_names(card: AgentCard) -> tuple[str, ...]:
    """The names of the agent's tools, if its card has our extension and lists them."""
    for extension in card.capabilities.extensions:
        if extension.uri == EVENTS_EXTENSION and "tools" in extension.params.fields:
            names = [value.string_value for value in extension.params.fields["tools"].list_value.values]
            return tuple(name for name in names[:_MAX_TOOLS] if _TOOL_NAME.fullmatch(name))
    return ()


def read_skill_names(card: AgentCard) -> tuple[str, ...]:
    """The ids of a third-party agent's skills, as far as they are names; no other text of a card is used.

    A card of ours has the names of the tools instead.
    """
    if has_events_extension(card):
        return ()
    names = [skill.id for skill in card.skills[:_MAX_SKILLS]]
    return tuple(dict.fromkeys(name for name in names if _SKILL_NAME.fullmatch(name)))


def has_events_extension(card: AgentCard) -> bool:
    return any(extension.uri == EVENTS_EXTENSION for extension in card.capabilities.extensions)


async def fetch_card(url: str, http: httpx.AsyncClient, *, token: str | None, timeout: float) -> AgentCard:
    """Fetches the card of the agent at a URL.

    Raises Unreachable when nothing answers, AgentUnavailable when the answer is no agent's."""
    status = 0
    for path in _CARD_PATHS:
        try:
            # For the whole response: HTTP's own timeout is for a pause, and never ends a slow drip of bytes.
            async with asyncio.timeout(timeout):
                status, body = await _fetch(f"{url}{path}", http, token=token, timeout=timeout)
        except JsonTooLarge as error:
            raise AgentUnavailable(f"{url} is no A2A agent: its card is not read. {error}") from None
        except (httpx.HTTPError, TimeoutError) as error:
            raise Unreachable(f"{url} cannot be reached{why_unreachable(error)}.", accepted=False) from None
        if status == 200:
            return _use_configured_host(_parse_card(body, url), url)
        if status in (401, 403):
            raise AgentUnavailable(f"{url} refused our credentials ({status}). {TOKEN_HINT}")
    if status >= 500:
        raise Unreachable(f"{url} cannot be reached (HTTP {status}).", accepted=False)
    raise AgentUnavailable(f"{url} is no A2A agent: it has no card (HTTP {status}).")


async def _fetch(
    url: str, http: httpx.AsyncClient, *, token: str | None, timeout: float
) -> tuple[int, bytes]:
    """The status and the body, which is read no further than the size limit of a card."""
    body = bytearray()
    async with http.stream(
        "GET", url, headers=bearer_headers(token), timeout=timeout, follow_redirects=False
    ) as response:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_CARD_BYTES:
                break
    return response.status_code, bytes(body)


def _parse_card(body: bytes, url: str) -> AgentCard:
    try:
        if len(body) > _MAX_CARD_BYTES:
            raise ValueError("too large")
        card = parse_agent_card(json.loads(body))
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, ParseError):
        raise AgentUnavailable(f"{url} is no A2A agent: its card cannot be read.") from None
    if not any(interface.protocol_binding == "JSONRPC" for interface in card.supported_interfaces):
        raise AgentUnavailable(f"{url} does not offer JSON-RPC, which is what we speak.")
    return card


def _use_configured_host(card: AgentCard, url: str) -> AgentCard:
    """The card with its JSON-RPC interfaces only, all of them on the configured host.

    Behind a proxy or in a container cards name other hosts, and a card must not lead us, and our token, to a
    host that nobody configured."""
    configured = httpx.URL(url)
    interfaces = [
        interface for interface in card.supported_interfaces if interface.protocol_binding == "JSONRPC"
    ]
    for interface in interfaces:
        interface_url = _parse_absolute_url(interface.url) or configured
        if interface_url.host != configured.host:
            interface_url = interface_url.copy_with(
                scheme=configured.scheme, host=configured.host, port=configured.port
            )
        interface.url = str(interface_url)
    del card.supported_interfaces[:]
    card.supported_interfaces.extend(interfaces)
    return card


def _parse_absolute_url(text: str) -> httpx.URL | None:
    try:
        url = httpx.URL(text)
    except (httpx.InvalidURL, TypeError):
        return None
    if not url.host:
        return None
    return url
