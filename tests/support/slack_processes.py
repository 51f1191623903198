"""Several processes of the bot with the same tokens, on one PostgreSQL and one fake Slack."""

import contextlib
import secrets
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass

import psycopg
from aiohttp import web

from ai_platform_engineering.integrations.slack_bot.app import RunningBot
from tests.support.database_servers import DatabaseServers
from tests.support.processes import Program, start_command
from tests.support.slack_workspace import BotHarness


@contextlib.contextmanager
def empty_database(servers: DatabaseServers) -> Iterator[str]:
    """The address of a database that nobody else uses."""
    name = f"bot{secrets.token_hex(6)}"
    with psycopg.connect(servers.postgres, autocommit=True) as db:
        db.execute(f"CREATE DATABASE {name}".encode())
        yield servers.postgres.replace("/postgres", f"/{name}")
        db.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())


@dataclass(frozen=True)
class ConnectedBot:
    """A bot in this test's process, and the socket over which Slack reaches it."""

    running: RunningBot
    socket: web.WebSocketResponse

    def is_drawing(self) -> bool:
        return bool(self.running.bot.turns._active)


@dataclass(frozen=True)
class ConnectedProcess:
    """`caipe slack` as a process, and the socket over which Slack reaches it."""

    program: Program
    socket: web.WebSocketResponse


@contextlib.asynccontextmanager
async def connect_bots(on: BotHarness) -> AsyncIterator[tuple[ConnectedBot, ConnectedBot]]:
    """Two bots in this test's process; the first one gets what Slack delivers, unless a test says so."""
    async with on.bot() as first_running:
        first = ConnectedBot(first_running, on.slack.sockets[-1])
        async with on.bot() as second_running:
            second = ConnectedBot(second_running, on.slack.sockets[-1])
            on.slack.receiver = first.socket
            yield first, second


@contextlib.asynccontextmanager
async def start_process(on: BotHarness) -> AsyncIterator[ConnectedProcess]:
    env = {
        "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test",
        "SLACK_INTEGRATION_APP_TOKEN": "xapp-test",
        "SLACK_INTEGRATION_API_URL": on.slack.base_url,
        "CAIPE_HOME": str(on.home),
        **on.env,
    }
    connected = set(on.slack.sockets)
    async with start_command("caipe", "slack", "--url", on.client.url, env=env) as program:
        await on.slack.wait(lambda: set(on.slack.sockets) - connected, 90)
        [socket] = set(on.slack.sockets) - connected
        yield ConnectedProcess(program, socket)
