"""REST routes that show an installation: its agents, its settings, and what a first start lacks."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.env_files import EnvFiles
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import SettingRow, describe_settings, find_source
from ai_platform_engineering.multi_agents.platform_engineer.agent_logins import LoginState
from ai_platform_engineering.multi_agents.platform_engineer.agent_states import AgentState, list_agent_states
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_source import KnowledgeSource
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.first_start import (
    describe_first_start,
)
from ai_platform_engineering.multi_agents.platform_engineer.reloadable_agent import ReloadableAgent
from ai_platform_engineering.runtime.rest.problems import Forbidden, with_problem_responses
from ai_platform_engineering.runtime.server.app import Readiness
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import is_trusted, principal_of_request

_MASKED = "\u2022" * 4
_AGENT_GROUP = "agents"
_NOT_TRUSTED = (
    "How this server is configured is shown to whoever sends its key, or is on its machine where none is "
    "needed."
)


@dataclass(frozen=True, slots=True)
class InstallationApi:
    """REST routes over what is installed and configured; nothing is changed by them.

    A reload replaces what they show. `ready` reports the components of `/ready`, and `env_files` returns the
    files that the configuration was read from."""

    reloadable: ReloadableAgent[PlatformEngineerDeepAgent]
    ready: Readiness
    knowledge: KnowledgeSource | None
    env_files: Callable[[], EnvFiles]

    def routes(self) -> list[Route]:
        return [
            Route("/v1/agents", with_problem_responses(self.list_agents)),
            Route("/v1/settings", with_problem_responses(self.list_settings)),
            Route("/v1/setup", with_problem_responses(self.get_setup)),
        ]

    async def list_agents(self, request: Request) -> Response:
        states = await self._list_states(request)
        trusted = self._is_trusted(request)
        return AsciiJSONResponse({"agents": [_agent_to_json(state, trusted=trusted) for state in states]})

    async def list_settings(self, request: Request) -> Response:
        self._check_trusted(request)
        placed = self.reloadable.deployment.placed
        files = self.env_files()
        rows = describe_settings(self._settings, placed.variables, files.variables)
        settings = [_setting_to_json(row) for row in rows]
        known_names = {row.name for row in rows}
        settings += _agent_variables_to_json(placed, files.variables, known_names)
        return AsciiJSONResponse({"settings": settings, "files": [str(path) for path in files.paths]})

    async def get_setup(self, request: Request) -> Response:
        self._check_trusted(request)
        components = await self.ready()
        knowledge: Mapping[str, Any] | None = None
        if self.knowledge is not None:
            has_documents = await self.knowledge.has_documents()
            knowledge = {**components.get("knowledge", {"status": "opening"}), "has_documents": has_documents}
        setup = describe_first_start(
            self._settings, components["model"], await self._list_states(request), knowledge
        )
        return AsciiJSONResponse(setup)

    @property
    def _settings(self) -> Settings:
        return self.reloadable.deployment.agent.settings

    async def _list_states(self, request: Request) -> list[AgentState]:
        deployment = self.reloadable.deployment
        return await list_agent_states(
            deployment.placed,
            read_only=deployment.agent.read_only,
            principal=principal_of_request(request),
        )

    def _is_trusted(self, request: Request) -> bool:
        return is_trusted(request.scope, self._settings.server)

    def _check_trusted(self, request: Request) -> None:
        """Raises Forbidden."""
        if not self._is_trusted(request):
            raise Forbidden(_NOT_TRUSTED)


def _agent_to_json(state: AgentState, *, trusted: bool) -> dict[str, Any]:
    """What is wrong with an agent names programs and addresses: it is told whom `/ready` tells it."""
    tools: list[dict[str, Any]] = []
    for tool in state.tools or ():
        tools.append(
            {
                "name": tool.name,
                "description": tool.description,
                "read_only": tool.read_only,
                "needs_approval": tool.needs_approval,
            }
        )
    return {
        "name": state.name,
        "title": state.title,
        "description": state.description,
        "placement": state.placement,
        "status": state.status,
        "message": state.message if trusted else "",
        "missing_variables": list(state.missing_variables) if trusted else [],
        "tools": tools,
        "tools_known": state.tools is not None,
        "logins": [_login_to_json(login) for login in state.logins],
    }


def _login_to_json(login: LoginState) -> dict[str, Any]:
    signed_in_at = login.signed_in_at.isoformat() if login.signed_in_at is not None else None
    return {"server": login.server, "owner": login.owner, "signed_in_at": signed_in_at}


def _setting_to_json(row: SettingRow) -> dict[str, Any]:
    # Imported late: only this route shows the descriptions.
    from ai_platform_engineering.core.setting_descriptions import DESCRIPTIONS

    value: str | None = row.value or None
    if row.is_secret and value is not None:
        value = _MASKED
    return {
        "name": row.name,
        "value": value,
        "source": row.source,
        "secret": row.is_secret,
        "group": row.group,
        "description": DESCRIPTIONS.get(row.name, ""),
    }


def _agent_variables_to_json(
    placed: PlacedAgents, from_file: Mapping[str, str], known_names: set[str]
) -> list[dict[str, Any]]:
    """The variables that definitions of agents use besides the settings. Nobody says which of them are
    secrets, so none is shown."""
    users: dict[str, list[str]] = {}
    for entry in placed.catalog:
        for variable in entry.variables:
            if variable not in known_names:
                users.setdefault(variable, []).append(entry.name)
    variables: list[dict[str, Any]] = []
    for variable, agents in sorted(users.items()):
        source = find_source(variable, placed.variables, from_file)
        variables.append(
            {
                "name": variable,
                "value": None if source == "default" else _MASKED,
                "source": source,
                "secret": True,
                "group": _AGENT_GROUP,
                "description": f"Used by {', '.join(agents)}.",
            }
        )
    return variables
