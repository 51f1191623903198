"""Which server and which model answer, as the server's readiness report says it."""

from dataclasses import dataclass
from typing import Any

import httpx

from ai_platform_engineering.a2a.client import A2AClient
from ai_platform_engineering.terminal.screen import sanitize_line

_TIMEOUT = 5.0  # seconds; a question does not wait for it
_OFFLINE = "degraded"


@dataclass(frozen=True, slots=True)
class ServerInfo:
    """A server's model and its agents; empty where the server does not tell.

    `is_offline`: no language model is set, and the embedded router answers. `problem` is why the model cannot
    be used.
    """

    model: str = ""
    is_offline: bool = False
    problem: str = ""
    agents: tuple["AgentInfo", ...] = ()


@dataclass(frozen=True, slots=True)
class AgentInfo:
    """An agent of a server: its status, and what it needs or what is wrong with it."""

    name: str
    status: str
    note: str = ""


async def fetch_server_info(client: A2AClient) -> ServerInfo:
    """Asks the server which model and which agents it has; nothing is known of a server that does not say."""
    try:
        response = await client.http.get(
            f"{client.url.rstrip('/')}/ready", headers=dict(client.headers), timeout=_TIMEOUT
        )
        components = response.json().get("components") or {}
        return _parse_components(components)
    except (httpx.HTTPError, httpx.InvalidURL, ValueError, AttributeError, TypeError):
        return ServerInfo()


def _parse_components(components: dict[str, Any]) -> ServerInfo:
    model = components.get("model") or {}
    status = model.get("status")
    agents: list[AgentInfo] = []
    for name, report in components.items():
        if name.startswith("agent "):
            note = sanitize_line(str(report.get("message") or ""))
            agents.append(AgentInfo(sanitize_line(name.removeprefix("agent ")), str(report["status"]), note))
    is_offline = status == _OFFLINE
    return ServerInfo(
        model="the embedded router" if is_offline else sanitize_line(str(model.get("name") or "")),
        is_offline=is_offline,
        problem=sanitize_line(str(model.get("message") or "")) if status == "unavailable" else "",
        agents=tuple(agents),
    )
