"""Where the attempts of an evaluation run: an estate and a supervisor of their own, or a running demo."""

import contextlib
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Protocol

import httpx
from pydantic import ValidationError

from ai_platform_engineering.a2a.client import A2AClient, create_http_client
from ai_platform_engineering.a2a.own_servers import check_own_server
from ai_platform_engineering.agents.installed_commands import missing_commands
from ai_platform_engineering.cli.demo_environment import (
    build_environment,
    find_demo_home,
    link_agents_folder,
    list_demo_entries,
)
from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.demo.estate.control_api import ControlAddress, DemoStatus
from ai_platform_engineering.demo.estate.estate_state import EstateState
from ai_platform_engineering.demo.launcher import serve_demo
from ai_platform_engineering.demo.stand_ins import STAND_INS
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from ai_platform_engineering.runtime.server.embedded_server import bind_loopback, run_embedded_server
from ai_platform_engineering.runtime.storage import Storage
from ai_platform_engineering.terminal.server_info import fetch_server_info

_NOT_INSTALLED = "the tool server of {agent} is not installed (caipe agents install {agent})"
_NO_MODEL = (
    "An evaluation needs a language model. Set LLM_MODEL to provider:name and the provider's key, "
    "for example in .env."
)
_CONTROL_SECONDS = 30.0


class EstateControl:
    """Reads and resets an estate through its control API."""

    def __init__(self, address: ControlAddress) -> None:
        self._address = address

    async def read_state(self) -> EstateState:
        """Raises CaipeError."""
        return EstateState.model_validate(await self._request("GET", "/state"))

    async def read_status(self) -> DemoStatus:
        """Raises CaipeError."""
        return DemoStatus.model_validate(await self._request("GET", "/status"))

    async def reset(self) -> None:
        """Raises CaipeError."""
        await self._request("POST", "/reset")

    async def _request(self, method: str, path: str) -> object:
        url = f"{self._address.url}{path}"
        headers = {"Authorization": f"Bearer {self._address.token}"}
        try:
            async with create_http_client(url, timeout=_CONTROL_SECONDS) as http:
                response = await http.request(method, url, headers=headers)
                response.raise_for_status()
                return response.json()
        except (httpx.HTTPError, ValueError, ValidationError) as error:
            raise CaipeError(f"The control API of the demo does not answer: {error}") from None


@dataclass(frozen=True, slots=True)
class AttemptServer:
    """A server for one attempt; without a control, nothing is known of the estate behind it."""

    url: str
    token: str | None = None
    control: EstateControl | None = None


class EvaluationServers(Protocol):
    """Gives each attempt a server."""

    def find_problem(self, agents: tuple[str, ...], *, needs_state: bool) -> str | None:
        """Why cases that need these agents cannot be tried; None when they can."""

    def open(self, seed: int) -> contextlib.AbstractAsyncContextManager[AttemptServer]:
        """A server over the fresh estate of a seed. Raises CaipeError."""


class OwnServers:
    """Starts an estate and a supervisor for each attempt, with the model of the environment and nothing else
    of the user's systems."""

    def __init__(self) -> None:
        self._variables = read_environment()
        self.settings = Settings.from_variables(self._variables)
        if self.settings.model.name is None:
            raise ConfigurationError(_NO_MODEL)
        self._missing = self._find_missing_agents()

    def find_problem(self, agents: tuple[str, ...], *, needs_state: bool) -> str | None:
        names = [stand_in.name for stand_in in STAND_INS]
        for agent in agents:
            if agent not in names:
                return f"the estate has no stand-in for {agent}; there are {', '.join(names)}"
            if agent in self._missing:
                return _NOT_INSTALLED.format(agent=agent)
        return None

    def describe(self) -> dict[str, Any]:
        """The fields of EvaluationSettings about the model."""
        model = self.settings.model
        names = [stand_in.name for stand_in in STAND_INS]
        entries = list_demo_entries(self._variables, names)
        agent_models = {entry.name: entry.definition.model for entry in entries if entry.definition.model}
        return {
            "model": str(model.name),
            "temperature": model.temperature,
            "fallback_models": tuple(map(str, model.fallbacks)),
            "agent_models": agent_models,
            "prompt_cache": model.prompt_cache,
        }

    @contextlib.asynccontextmanager
    async def open(self, seed: int) -> AsyncIterator[AttemptServer]:
        with TemporaryDirectory(prefix="caipe-eval-", ignore_cleanup_errors=True) as folder:
            home = Path(folder)
            link_agents_folder(self.settings.agent.home.absolute(), home)
            async with serve_demo(STAND_INS, seed, home / "estate") as demo:
                address = ControlAddress.load(home / "estate")
                assert address is not None
                async with self._run_supervisor(home, demo.variables) as url:
                    yield AttemptServer(url, control=EstateControl(address))

    @contextlib.asynccontextmanager
    async def _run_supervisor(
        self, home: Path, systems: Mapping[str, Mapping[str, str]]
    ) -> AsyncIterator[str]:
        listener = bind_loopback()
        usable = {name: values for name, values in systems.items() if name not in self._missing}
        variables = build_environment(self._variables, home, usable, listener.getsockname()[1])
        # Nothing but the estate: the same for whoever runs the cases.
        variables |= {"ENABLE_RAG": "false", "MCP_CHECK_SERVERS": "false", "REMEMBER_FACTS": "false"}
        settings = Settings.from_variables(variables)
        app = build_app(settings, variables, storage=Storage.in_memory())
        async with run_embedded_server(app, listener) as url:
            yield url

    def _find_missing_agents(self) -> frozenset[str]:
        names = [stand_in.name for stand_in in STAND_INS]
        home = self.settings.agent.home
        entries = list_demo_entries(self._variables, names)
        return frozenset(entry.name for entry in entries if missing_commands(entry.definition, home))


class RunningServers:
    """A server that runs already; with the demo of this CAIPE_HOME behind it, the estate is reset before each
    attempt, and its state is read."""

    def __init__(self, url: str, token: str | None, model: str) -> None:
        self._url = url
        self._token = token
        self._model = model
        self.seed: int | None = None
        self.control: EstateControl | None = None

    @classmethod
    async def connect(cls, url: str, token: str | None) -> "RunningServers":
        """Raises CaipeError."""
        await check_own_server(url)
        async with create_http_client(url) as http:
            info = await fetch_server_info(A2AClient(url, http, token=token))
        servers = cls(url, token, info.model)
        address = ControlAddress.load(find_demo_home(read_environment()))
        if address is not None:
            servers.control = EstateControl(address)
            servers.seed = (await servers.control.read_status()).seed
        return servers

    def describe(self) -> dict[str, Any]:
        """The fields of EvaluationSettings about the model."""
        return {"model": self._model, "server": mask_urls(self._url)}

    def find_problem(self, agents: tuple[str, ...], *, needs_state: bool) -> str | None:
        if needs_state and self.control is None:
            return "it looks into the estate, and no `caipe demo` of this CAIPE_HOME runs"
        return None

    @contextlib.asynccontextmanager
    async def open(self, seed: int) -> AsyncIterator[AttemptServer]:
        if self.control is not None:
            await self.control.reset()
        yield AttemptServer(self._url, self._token, self.control)
