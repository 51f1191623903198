"""Recognizes servers of this program by their agent card, before anything is sent to them."""

import json
from typing import Any

import httpx

from ai_platform_engineering.a2a.client import Unreachable, create_http_client
from ai_platform_engineering.a2a.client_shape import EVENTS_EXTENSION
from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.terminals import command_name

# The agent's stream carries our events and sequence numbers, so it can be followed from a cursor.
_CARD_PATH = ".well-known/agent-card.json"
_MAX_CARD_BYTES = 1024 * 1024
_LOCAL_SECONDS = 3.0
_REMOTE_SECONDS = 10.0


class ThirdPartyServer(Unreachable):
    """Something answers at the address, and it is not a server of this program."""


async def check_own_server(url: str, *, seconds: float = _REMOTE_SECONDS) -> None:
    """Fetches the agent card, without credentials. Raises Unreachable or ThirdPartyServer."""
    card_url = f"{url.rstrip('/')}/{_CARD_PATH}"
    if not _is_web_address(url):
        raise Unreachable(f"{url} is not the address of a server.", accepted=False)
    try:
        async with create_http_client(url, timeout=seconds) as http:
            status, body = await _fetch(http, card_url)
    except httpx.HTTPError as error:
        raise Unreachable(
            f"{url} cannot be reached{why_unreachable(error)}. "
            f"Is the server running? Start it with: {command_name()} serve",
            accepted=False,
        ) from None
    if status >= 500:
        raise Unreachable(f"{url} cannot be reached (HTTP {status}).", accepted=False)
    if status != 200:
        raise _third_party(url, f"it has no agent card (HTTP {status})")
    if not _is_own_card(body):
        raise _third_party(url, "its agent card is another program's")


async def is_own_server(url: str) -> bool:
    """Whether a server of this program answers at an address of this machine."""
    try:
        await check_own_server(url, seconds=_LOCAL_SECONDS)
    except Unreachable:
        return False
    return True


def _is_web_address(url: str) -> bool:
    try:
        address = httpx.URL(url)
    except httpx.InvalidURL:
        return False
    return address.scheme in ("http", "https") and bool(address.host) and (address.port or 0) < 65536


def _third_party(url: str, reason: str) -> ThirdPartyServer:
    return ThirdPartyServer(
        f"{url} is not a server of this program: {reason}. Nothing was sent. Check --url and CAIPE_URL.",
        accepted=False,
    )


async def _fetch(http: httpx.AsyncClient, url: str) -> tuple[int, bytes]:
    """The status and the body, which is read no further than the size limit of a card."""
    body = bytearray()
    async with http.stream("GET", url) as response:
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > _MAX_CARD_BYTES:
                break
    return response.status_code, bytes(body)


def _is_own_card(body: bytes) -> bool:
    """Whether a card has our extension; it is not parsed further, which would take the A2A libraries."""
    try:
        card: Any = json.loads(body)
        extensions = card["capabilities"]["extensions"]
        return any(extension["uri"] == EVENTS_EXTENSION for extension in extensions)
    except (ValueError, KeyError, TypeError, RecursionError):
        return False
