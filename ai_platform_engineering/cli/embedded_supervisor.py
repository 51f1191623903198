"""The supervisor inside a command: it serves every command of its CAIPE_HOME while this one runs."""

import contextlib
import os
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click
import httpx

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.server_address import ServerAddress
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.databases.database_choice import choose_checkpoint_database
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from ai_platform_engineering.runtime.server.embedded_server import bind_loopback, run_embedded_server
from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage

_IN_MEMORY = "Conversations are kept in memory, as configured, and are lost when this command ends."


@dataclass(frozen=True, slots=True)
class EmbeddedSupervisor:
    """A supervisor that has the storage of its CAIPE_HOME open, and is not running yet."""

    settings: Settings
    variables: Mapping[str, str]
    storage: Storage

    @classmethod
    def from_environment(cls) -> "EmbeddedSupervisor":
        """Opens the storage. Raises StorageInUse when another process has it, and other CaipeErrors."""
        variables = read_environment()
        # It lives as long as one command: what cannot be used is told when it is needed.
        settings = Settings.from_variables({**variables, "MCP_CHECK_SERVERS": "false"})
        storage = Storage.from_settings(settings.storage, settings.agent.home, STORAGE_NAME)
        if choose_checkpoint_database(settings.storage).backend == "memory":
            click.echo(_IN_MEMORY, err=True)
        return cls(settings, variables, storage)

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[str]:
        """Serves on loopback while the context is open; yields the URL."""
        home = self.settings.agent.home
        listener = _bind(home)
        own_address = {"host": "127.0.0.1", "port": listener.getsockname()[1], "external_url": None}
        server = self.settings.server.model_copy(update=own_address)
        settings = self.settings.model_copy(update={"server": server})
        app = build_app(settings, self.variables, storage=self.storage)
        async with run_embedded_server(app, listener) as url:
            with contextlib.suppress(OSError):  # a home that cannot be written is nobody else's either
                ServerAddress(url, os.getpid(), embedded=True).write(home)
            yield url


def _bind(home: Path) -> socket.socket:
    """A socket at the address of the last embedded server, where its clients look for it, else a free one."""
    last = ServerAddress.read(home)
    if last is not None and last.embedded:
        with contextlib.suppress(OSError, OverflowError, httpx.InvalidURL):
            return bind_loopback(httpx.URL(last.url).port or 0)
    return bind_loopback()
