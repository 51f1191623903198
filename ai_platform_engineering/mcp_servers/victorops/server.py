"""The MCP server for Splunk On-Call (VictorOps): incidents, on-call schedules, acknowledge and resolve."""

import inspect
from collections.abc import Callable, Sequence
from importlib.metadata import version
from typing import Annotated, Any, Literal
from urllib.parse import quote

import httpx
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool
from mcp.types import ToolAnnotations
from pydantic import Field

DEFAULT_URL = "https://api.victorops.com"
TIMEOUT = 20.0
MAX_INCIDENTS = 100

Team = Annotated[
    str, Field(min_length=1, max_length=120, description="The team's slug, as list_teams gives it.")
]
User = Annotated[str, Field(min_length=1, max_length=120, description="The user's name in Splunk On-Call.")]
IncidentNumbers = Annotated[
    list[str], Field(min_length=1, max_length=50, description='Incident numbers, like ["4711"].')
]
Message = Annotated[str, Field(max_length=1000, description="Why, for the timeline.")]
Days = Annotated[int, Field(ge=1, le=30, description="How many days ahead.")]

Phase = Literal["triggered", "acknowledged", "resolved"]
_PHASES: dict[Phase, str] = {"triggered": "UNACKED", "acknowledged": "ACKED", "resolved": "RESOLVED"}

# The API answers with dozens of keys per incident; these are the ones a person asks about.
_INCIDENT = (
    "incidentNumber",
    "currentPhase",
    "entityDisplayName",
    "entityId",
    "service",
    "host",
    "startTime",
    "routingKey",
    "alertCount",
    "monitorName",
    "pagedTeams",
    "pagedUsers",
    "transitions",
    "lastAlertId",
    "incidentLink",
)


class OnCallApi:
    """The REST API; errors say what to do and never hold the credentials."""

    def __init__(self, url: str, api_id: str, api_key: str) -> None:
        # People give the address with and without the API's own path.
        self._url = url.rstrip("/").removesuffix("/v1").removesuffix("/api-public").rstrip("/")
        self._headers = {"X-VO-Api-Id": api_id, "X-VO-Api-Key": api_key}

    async def call(
        self, method: str, path: str, *, params: dict[str, Any] | None = None, json: Any = None
    ) -> Any:
        try:
            async with httpx.AsyncClient(timeout=TIMEOUT, headers=self._headers) as client:
                response = await client.request(method, f"{self._url}/{path}", params=params, json=json)
        except httpx.TimeoutException:
            raise ToolError(f"Splunk On-Call did not answer within {TIMEOUT:g} s.") from None
        except (httpx.HTTPError, httpx.InvalidURL):
            raise ToolError(
                "Splunk On-Call cannot be reached. Check VICTOROPS_API_URL and the way there."
            ) from None
        if response.is_success:
            return _parse_json(response)
        raise ToolError(_describe_status(response.status_code))


def _parse_json(response: httpx.Response) -> Any:
    try:
        if response.content:
            return response.json()
        return {}
    except ValueError:
        raise ToolError(
            "What answers at VICTOROPS_API_URL is not Splunk On-Call: the answer is not JSON."
        ) from None


def _describe_status(status: int) -> str:
    match status:
        case 401 | 403:
            return (
                "Splunk On-Call refused the credentials. "
                "Check X_VO_API_ID and X_VO_API_KEY, and that the key may do this."
            )
        case 404:
            return "Splunk On-Call knows nothing by this name."
        case 429:
            return "Splunk On-Call asks for fewer calls. Wait a minute and try again."
        case _:
            return f"Splunk On-Call answered with status {status}."


class OnCallTools:
    """The tools; the docstring of a tool is what the model reads."""

    def __init__(self, api: OnCallApi) -> None:
        self._api = api

    async def list_incidents(
        self,
        phase: Annotated[Phase | None, Field(description="Only incidents in this phase.")] = None,
        team: Annotated[str | None, Field(description="Only incidents that paged this team (slug).")] = None,
    ) -> dict[str, Any]:
        """List the current incidents (triggered, acknowledged, and recently resolved) with their state and
        whom they paged.
        """
        incidents = (await self._api.call("GET", "api-public/v1/incidents")).get("incidents", [])
        if phase is not None:
            incidents = [each for each in incidents if each.get("currentPhase") == _PHASES[phase]]
        if team is not None:
            incidents = [each for each in incidents if team in each.get("pagedTeams", [])]
        shown_incidents = [_pick_fields(incident) for incident in incidents[:MAX_INCIDENTS]]
        return {"total": len(incidents), "incidents": shown_incidents}

    async def incident_history(
        self,
        started_after: Annotated[str, Field(description="ISO time in UTC, like 2026-01-31T00:00Z.")],
        started_before: Annotated[str | None, Field(description="ISO time in UTC.")] = None,
        offset: Annotated[int, Field(ge=0, description="How many to skip, for the next page.")] = 0,
        limit: Annotated[int, Field(ge=1, le=MAX_INCIDENTS)] = 20,
    ) -> dict[str, Any]:
        """Look back at incidents of a time range, with who acknowledged and resolved them.

        For reports and "did it happen before".
        """
        params: dict[str, Any] = {"startedAfter": started_after}
        if started_before is not None:
            params["startedBefore"] = started_before
        params |= {"offset": offset, "limit": limit}
        history: dict[str, Any] = await self._api.call("GET", "api-reporting/v2/incidents", params=params)
        incidents = [_pick_fields(incident) for incident in history.get("incidents", [])]
        return {**history, "incidents": incidents}

    async def get_alert(
        self, alert_id: Annotated[str, Field(min_length=1, description="The alert's id (`lastAlertId`).")]
    ) -> dict[str, Any]:
        """Read the alert behind an incident: the message and all details that the monitoring sent."""
        path = f"api-public/v1/alerts/{quote(alert_id, safe='')}"
        alert: dict[str, Any] = await self._api.call("GET", path)
        return alert

    async def who_is_on_call(
        self, team: Annotated[str | None, Field(description="Only this team (slug).")] = None
    ) -> dict[str, Any]:
        """Tell who is on call right now, per team and escalation policy."""
        teams = (await self._api.call("GET", "api-public/v1/oncall/current")).get("teamsOnCall", [])
        if team is not None:
            teams = [each for each in teams if each.get("team", {}).get("slug") == team]
        return {"teams": teams}

    async def team_schedule(self, team: Team, days: Days = 7) -> dict[str, Any]:
        """Show a team's on-call schedule for the coming days, with rotations and overrides."""
        path = f"api-public/v2/team/{quote(team, safe='')}/oncall/schedule"
        schedule: dict[str, Any] = await self._api.call("GET", path, params={"daysForward": days})
        return schedule

    async def user_schedule(self, user: User, days: Days = 7) -> dict[str, Any]:
        """Show when a person is on call in the coming days."""
        path = f"api-public/v2/user/{quote(user, safe='')}/oncall/schedule"
        schedule: dict[str, Any] = await self._api.call("GET", path, params={"daysForward": days})
        return schedule

    async def list_teams(self) -> dict[str, Any]:
        """List the teams with their slugs. Use it when only a team's name is known."""
        return {"teams": await self._api.call("GET", "api-public/v1/team")}

    async def acknowledge_incidents(
        self, user: User, incidents: IncidentNumbers, message: Message = ""
    ) -> dict[str, Any]:
        """Acknowledge incidents in the name of a user, which stops the paging.

        It changes things: only when asked for.
        """
        return await self._update_incidents("ack", user, incidents, message)

    async def resolve_incidents(
        self, user: User, incidents: IncidentNumbers, message: Message = ""
    ) -> dict[str, Any]:
        """Resolve incidents in the name of a user. It changes things: only when asked for."""
        return await self._update_incidents("resolve", user, incidents, message)

    async def _update_incidents(
        self, action: str, user: str, incidents: Sequence[str], message: str
    ) -> dict[str, Any]:
        body = {"userName": user, "incidentNames": list(incidents), "message": message}
        result: dict[str, Any] = await self._api.call("PATCH", f"api-public/v1/incidents/{action}", json=body)
        return result


def _pick_fields(incident: dict[str, Any]) -> dict[str, Any]:
    return {key: incident[key] for key in _INCIDENT if incident.get(key) not in (None, "", [])}


def _make_tool(function: Callable[..., Any], *, changes: bool) -> Tool:
    hints = ToolAnnotations(
        read_only_hint=not changes, destructive_hint=False, idempotent_hint=True, open_world_hint=True
    )
    description = " ".join((inspect.getdoc(function) or "").split())
    return Tool.from_function(function, description=description, annotations=hints)


def create_server(api: OnCallApi) -> MCPServer[None]:
    tools = OnCallTools(api)
    reading = (
        tools.list_incidents,
        tools.incident_history,
        tools.get_alert,
        tools.who_is_on_call,
        tools.team_schedule,
        tools.user_schedule,
        tools.list_teams,
    )
    changing = (tools.acknowledge_incidents, tools.resolve_incidents)
    all_tools = [
        *(_make_tool(each, changes=False) for each in reading),
        *(_make_tool(each, changes=True) for each in changing),
    ]
    return MCPServer(
        "victorops", version=version("ai-platform-engineering"), tools=all_tools, log_level="WARNING"
    )
