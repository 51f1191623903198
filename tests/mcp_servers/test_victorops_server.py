"""The Splunk On-Call server over stdio, as an agent starts it, against a REST API on loopback."""

import contextlib
import json
import secrets
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ai_platform_engineering.agents.agent_catalog import load_catalog
from tests.support.command_process import forked_python
from tests.support.harness import serve_app


@dataclass
class Far:
    """The REST API: what it answers, and what it was asked."""

    answers: dict[str, Any]
    asked: list[tuple[str, str, Any]] = field(default_factory=list)
    key: str = field(default_factory=lambda: secrets.token_hex(8))

    async def answer(self, request: Request) -> Response:
        if (request.headers.get("X-VO-Api-Id"), request.headers.get("X-VO-Api-Key")) != ("id", self.key):
            return JSONResponse({"message": f"bad key {request.headers.get('X-VO-Api-Key')}"}, 401)
        path = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        self.asked.append((request.method, path, json.loads(await request.body() or "null")))
        answer = self.answers.get(request.url.path, 404)
        if isinstance(answer, int):
            return JSONResponse({}, answer)
        return PlainTextResponse(answer) if isinstance(answer, str) else JSONResponse(answer)

    @contextlib.asynccontextmanager
    async def session(
        self, environment: dict[str, str], *, suffix: str = "", key: str | None = None
    ) -> AsyncIterator[ClientSession]:
        """The server started as the shipped definition says, with only the variables that it names."""
        async with serve_app(
            Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "PATCH"])])
        ) as url:
            variables = {
                "X_VO_API_ID": "id",
                "X_VO_API_KEY": key or self.key,
                "VICTOROPS_API_URL": url + suffix,
            }
            entry = load_catalog(variables, agents_config=None).get("victorops")
            assert entry
            server = entry.definition.mcp_servers["victorops"]
            command, *args = forked_python(*server.args)
            parameters = StdioServerParameters(command=command, args=args, env={**environment, **server.env})
            async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
                await session.initialize()
                yield session


async def called(session: ClientSession, tool: str, **arguments: Any) -> Any:
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def failed(session: ClientSession, tool: str, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments)
    assert result.is_error
    return "".join(getattr(block, "text", "") for block in result.content)


async def test_every_tool_is_covered_by_the_agents_policy_and_says_whether_it_changes_something(
    guarded_environment: dict[str, str],
) -> None:
    async with Far({}).session(guarded_environment) as session:
        tools = (await session.list_tools()).tools
    entry = load_catalog({}, agents_config=None).get("victorops")
    assert entry
    permissions = {tool.name: entry.definition.tools.permission(tool.name) for tool in tools}
    assert {name for name, permission in permissions.items() if permission == "ask"} == {
        "acknowledge_incidents",
        "resolve_incidents",
    }
    assert "deny" not in permissions.values()
    for tool in tools:
        assert tool.annotations
        assert tool.annotations.read_only_hint == (permissions[tool.name] == "allow")


@pytest.mark.parametrize("suffix", ["", "api-public/v1/"])
async def test_incidents_are_filtered_and_shortened(guarded_environment: dict[str, str], suffix: str) -> None:
    number = str(secrets.randbelow(10000))
    incidents = [
        {
            "incidentNumber": number,
            "currentPhase": "UNACKED",
            "pagedTeams": ["web"],
            "rawBulk": "x" * 100,
            "service": "",
        },
        {"incidentNumber": "2", "currentPhase": "RESOLVED", "pagedTeams": ["web"]},
        {"incidentNumber": "3", "currentPhase": "UNACKED", "pagedTeams": ["data"]},
    ]
    far = Far({"/api-public/v1/incidents": {"incidents": incidents}})
    async with far.session(guarded_environment, suffix=suffix) as session:
        found = await called(session, "list_incidents", phase="triggered", team="web")
    assert found == {
        "total": 1,
        "incidents": [{"incidentNumber": number, "currentPhase": "UNACKED", "pagedTeams": ["web"]}],
    }


async def test_reading_asks_the_right_addresses(guarded_environment: dict[str, str]) -> None:
    name = secrets.token_hex(4)
    on_call = [
        {"team": {"slug": "web"}, "oncallNow": [{"users": [{"onCalluser": {"username": name}}]}]},
        {"team": {"slug": "data"}},
    ]
    far = Far(
        {
            "/api-public/v1/oncall/current": {"teamsOnCall": on_call},
            "/api-public/v2/team/a/b/oncall/schedule": {"schedules": [name]},
            "/api-public/v2/user/kim/oncall/schedule": {"teamSchedules": [name]},
            "/api-public/v1/alerts/x-1": {"stateMessage": name},
            "/api-public/v1/team": [{"slug": name}],
            "/api-reporting/v2/incidents": {"total": 1, "incidents": [{"incidentNumber": name, "other": 1}]},
        }
    )
    async with far.session(guarded_environment) as session:
        assert await called(session, "who_is_on_call", team="web") == {"teams": on_call[:1]}
        assert await called(session, "team_schedule", team="a/b", days=3) == {"schedules": [name]}
        assert await called(session, "user_schedule", user="kim") == {"teamSchedules": [name]}
        assert await called(session, "get_alert", alert_id="x-1") == {"stateMessage": name}
        assert await called(session, "list_teams") == {"teams": [{"slug": name}]}
        history = await called(session, "incident_history", started_after="2026-01-01T00:00Z", limit=5)
    assert history == {"total": 1, "incidents": [{"incidentNumber": name}]}
    assert [path for _, path, _ in far.asked][1:3] == [
        "/api-public/v2/team/a/b/oncall/schedule?daysForward=3",
        "/api-public/v2/user/kim/oncall/schedule?daysForward=7",
    ]
    assert far.asked[-1][1] == "/api-reporting/v2/incidents?startedAfter=2026-01-01T00%3A00Z&offset=0&limit=5"


async def test_changing_says_who_which_and_why(guarded_environment: dict[str, str]) -> None:
    number = str(secrets.randbelow(10000))
    done = {"results": [{"incidentNumber": number, "cmdAccepted": True}]}
    far = Far({"/api-public/v1/incidents/ack": done, "/api-public/v1/incidents/resolve": done})
    async with far.session(guarded_environment) as session:
        for tool in ("acknowledge_incidents", "resolve_incidents"):
            assert await called(session, tool, user="kim", incidents=[number], message="on it") == done
    body = {"userName": "kim", "incidentNames": [number], "message": "on it"}
    assert far.asked == [
        ("PATCH", "/api-public/v1/incidents/ack", body),
        ("PATCH", "/api-public/v1/incidents/resolve", body),
    ]


async def test_an_error_says_what_is_wrong(guarded_environment: dict[str, str]) -> None:
    far = Far({})
    expected = {
        404: "knows nothing by this name",
        429: "fewer calls",
        500: "status 500",
        "<html>": "not Splunk On-Call",
    }
    async with far.session(guarded_environment) as session:
        for answer, said in expected.items():
            far.answers["/api-public/v1/team"] = answer
            assert said in await failed(session, "list_teams")


async def test_refused_credentials_are_told_and_not_shown(guarded_environment: dict[str, str]) -> None:
    wrong = secrets.token_hex(8)
    async with Far({}).session(guarded_environment, key=wrong) as session:
        text = await failed(session, "list_teams")
    assert "X_VO_API_KEY" in text
    assert wrong not in text
