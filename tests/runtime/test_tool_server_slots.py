"""Two replicas on one PostgreSQL, with real tool servers: together they run no more than the limit allows."""

import asyncio
import contextlib
import json
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psycopg
import pytest
from psycopg import sql

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.mcp_client.mcp_errors import McpUnavailable
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.log.tool_server_slots import ToolServerSlots
from tests.support.agent_services import model_of
from tests.support.database_servers import DatabaseServers
from tests.support.fakes.mcp_servers import (
    FAKES,
    LONG,
    by_name,
    child_test_environment,
    list_processes,
    list_server_pids,
    raw_stdio_server,
    run_python_script,
    until,
)
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import PLAIN
from tests.support.processes import start_command
from tests.support.run_logs import new_address
from tests.support.tcp_relay import relay_to

AT_ONCE = 1.0  # seconds that a start waits where no slot is expected


@dataclass(frozen=True, slots=True)
class Replica:
    """The sessions of a replica, and its slots."""

    sessions: McpSessionPool
    slots: ServerSlots

    async def call(self, server: McpServer, tool: str = "who") -> Any:
        tools = by_name(await self.sessions.tools("raw", server))
        return json.loads(await tools[tool].ainvoke({}))

    def status(self, server: McpServer) -> str:
        return self.sessions.state("raw", server).status


@contextlib.asynccontextmanager
async def replica(
    address: PostgresAddress | None, tmp_path: Path, limit: int, wait: float = LONG
) -> AsyncIterator[Replica]:
    """A replica of its own folder; without an address it shares nothing."""
    async with contextlib.AsyncExitStack() as stack:
        store: ToolServerSlots | None = None
        if address is not None:
            log = await asyncio.to_thread(PostgresLog.open, address)  # a relay may be in this loop
            stack.push_async_callback(log.close)
            assert log.replicas is not None
            store = ToolServerSlots(log.replicas.database, log.replicas.replica_id)
        slots = ServerSlots(limit, wait, lambda: store)
        environment = child_test_environment(tmp_path)
        sessions = McpSessionPool(
            connect_timeout=LONG, call_timeout=LONG, environment=environment, slots=slots
        )
        stack.push_async_callback(sessions.aclose)
        yield Replica(sessions, slots)
    assert list_processes(tmp_path) == {}


@contextlib.asynccontextmanager
async def two_replicas(
    servers: DatabaseServers, tmp_path: Path, limit: int, wait: float = LONG
) -> AsyncIterator[tuple[Replica, Replica]]:
    address = new_address(servers)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    async with (
        replica(address, tmp_path / "a", limit, wait) as first,
        replica(address, tmp_path / "b", limit, wait) as second,
    ):
        yield first, second


def count_servers(tmp_path: Path) -> int:
    return len(list_server_pids(tmp_path / "a")) + len(list_server_pids(tmp_path / "b"))


async def watch(tmp_path: Path, counts: list[int]) -> None:
    while True:
        counts.append(await asyncio.to_thread(count_servers, tmp_path))
        await asyncio.sleep(0.05)


async def test_more_servers_than_slots_run_in_turns(servers: DatabaseServers, tmp_path: Path) -> None:
    limit = 2
    counts: list[int] = []
    async with two_replicas(servers, tmp_path, limit) as replicas:
        watching = asyncio.create_task(watch(tmp_path, counts))
        calls = [
            replica.call(raw_stdio_server(NUMBER=f"{number}")) for replica in replicas for number in range(3)
        ]
        identities = await asyncio.gather(*calls)
        watching.cancel()
    assert len({identity["token"] for identity in identities}) == len(calls)
    assert max(counts) == limit


async def test_without_a_free_slot_the_caller_is_told_what_to_do(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    async with two_replicas(servers, tmp_path, 1, AT_ONCE) as (first, second):
        busy_server = raw_stdio_server(marks=tmp_path)
        hanging = asyncio.create_task(first.call(busy_server, "hang"))
        await until(lambda: list(tmp_path.glob("hanging*")), "the call")
        with pytest.raises(McpUnavailable) as raised:
            await second.call(raw_stdio_server())
        assert str(raised.value) == (
            "The tool server raw is not available: all 1 tool servers that may run at once are in use"
            " (MCP_MAX_SERVERS), and none ended within 1 seconds. Try again in a minute, or go on without it"
        )
        assert count_servers(tmp_path) == 1
        await second.sessions.check("raw", raw_stdio_server())
        assert second.sessions.failed_checks({"raw": raw_stdio_server()}) == {}
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        second.slots.set_limits(2, LONG)
        assert "token" in await second.call(raw_stdio_server())


async def test_an_idle_server_is_closed_for_another_one_of_its_replica(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    unused, used = raw_stdio_server(NUMBER="1"), raw_stdio_server(NUMBER="2")
    async with two_replicas(servers, tmp_path, 1) as (first, _):
        await first.call(unused)
        await first.call(used)
        assert (first.status(unused), first.status(used)) == ("not started", "ready")


async def test_an_idle_server_is_closed_for_another_replica(servers: DatabaseServers, tmp_path: Path) -> None:
    server = raw_stdio_server()
    async with two_replicas(servers, tmp_path, 1) as (first, second):
        before = await first.call(server)
        assert (await second.call(server))["token"] != before["token"]
        assert (first.status(server), second.status(server)) == ("not started", "ready")
        assert count_servers(tmp_path) == 1


HOLDER = """
import asyncio, sys
from pathlib import Path
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from ai_platform_engineering.databases.postgres_database import PostgresAddress
from ai_platform_engineering.runtime.log.postgres_log import PostgresLog
from ai_platform_engineering.runtime.log.tool_server_slots import ToolServerSlots

async def main(url, schema, program, started):
    log = PostgresLog.open(PostgresAddress(url, schema))
    store = ToolServerSlots(log.replicas.database, log.replicas.replica_id)
    sessions = McpSessionPool(slots=ServerSlots(1, 60, lambda: store))
    await sessions.tools("raw", McpServer(command=sys.executable, args=("-S", program)))
    Path(started).touch()
    await asyncio.sleep(3600)

asyncio.run(main(*sys.argv[1:]))
"""


@pytest.mark.full
async def test_a_busy_server_is_not_closed_and_its_slot_is_waited_for(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    server = raw_stdio_server(marks=tmp_path)
    async with two_replicas(servers, tmp_path, 1) as (first, second):
        hanging = asyncio.create_task(first.call(server, "hang"))
        await until(lambda: list(tmp_path.glob("hanging*")), "the call")
        waiting = asyncio.create_task(second.call(raw_stdio_server()))
        done, _ = await asyncio.wait({waiting, hanging}, timeout=5)
        assert not done
        hanging.cancel()
        assert "token" in await waiting
        assert first.status(server) == "not started"


@pytest.mark.full
async def test_the_slots_of_a_replica_that_was_killed_come_back(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    address = new_address(servers)
    PostgresLog.open(address)  # creates the tables
    started = tmp_path / "started"
    server = raw_stdio_server()
    async with replica(address, tmp_path / "own", 1, AT_ONCE) as survivor:
        arguments = (address.url, address.schema, str(FAKES / "mcp_raw.py"), str(started))
        with run_python_script(HOLDER, tmp_path, *arguments):
            await until(started.exists, "the server of the other replica")
            # Nothing renews the slot of a server that its replica uses: the replica is killed at the end.
        with pytest.raises(McpUnavailable, match="MCP_MAX_SERVERS"):
            await survivor.call(server)
        survivor.slots.set_limits(1, LONG)
        assert "token" in await survivor.call(server)


async def test_while_the_database_is_away_running_servers_work_and_none_is_started(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    running, other = raw_stdio_server(NUMBER="1"), raw_stdio_server(NUMBER="2")
    port = psycopg.conninfo.conninfo_to_dict(servers.postgres)["port"]
    async with relay_to(int(port or 0)) as (relay, relay_url):
        far = new_address(servers)
        address = PostgresAddress(far.url.replace(f":{port}/", f":{httpx.URL(relay_url).port}/"), far.schema)
        async with replica(address, tmp_path, 2, AT_ONCE) as alone:
            before = await alone.call(running)
            relay.cut()
            with pytest.raises(McpUnavailable, match="the database is away that tells how many"):
                await alone.call(other)
            assert await alone.call(running) == before
            assert len(list_server_pids(tmp_path)) == 1
            relay.mend()
            alone.slots.set_limits(2, LONG)
            assert (await alone.call(other))["token"] != before["token"]
            assert await alone.call(running) == before


async def test_a_server_that_ran_on_without_its_slot_takes_it_again(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    """As after a time without the database in which the slot has expired and another replica has come."""
    address = new_address(servers)
    server = raw_stdio_server()
    async with replica(address, tmp_path, 1) as alone:
        await alone.call(server)
        with address.connect().raw as db:
            db.execute(b"DELETE FROM tool_servers")
            await until(lambda: db.execute(b"SELECT 1 FROM tool_servers").fetchall(), "the renewal")
        assert alone.status(server) == "ready"


async def test_one_process_without_a_shared_database_has_the_limit_for_itself(tmp_path: Path) -> None:
    busy, other = raw_stdio_server(marks=tmp_path), raw_stdio_server()
    async with replica(None, tmp_path, 1, AT_ONCE) as alone:
        hanging = asyncio.create_task(alone.call(busy, "hang"))
        await until(lambda: list(tmp_path.glob("hanging*")), "the call")
        with pytest.raises(McpUnavailable, match="all 1 tool servers"):
            await alone.call(other)
        hanging.cancel()
        await asyncio.gather(hanging, return_exceptions=True)
        alone.slots.set_limits(1, LONG)
        assert "token" in await alone.call(other)
        assert alone.status(busy) == "not started"


MODEL = Book(
    {
        "^Look": Script(
            Turn(Call("task", {"description": "Describe one", "subagent_type": "raw1"})),
            Turn(Call("task", {"description": "Describe two", "subagent_type": "raw2"})),
            Turn(Say("Both were asked.")),
        ),
        "^Describe": Script(Turn(Call("read_who", {})), Turn(Say("I know."))),
    },
    Script(Turn(Say("?"))),
)


async def test_a_supervisor_counts_the_tool_servers_of_its_agents(
    servers: DatabaseServers, tmp_path: Path
) -> None:
    url = new_database(servers)
    server = {"command": sys.executable, "args": ["-S", str(FAKES / "mcp_raw.py")]}
    for name in ("raw1", "raw2"):
        mcp_servers = {"raw": {**server, "env": {"OWNER": name}}}
        agent = {"name": name, "description": "Knows who it is.", "mcpServers": mcp_servers}
        (tmp_path / f"{name}.yaml").write_text(json.dumps(agent))
    async with (
        serve_openai(MODEL) as model,
        start_command(
            "caipe",
            "serve",
            "--port",
            "0",
            env={
                **model_of(model),
                "DATABASE_URL": url,
                "AGENTS_CONFIG": str(tmp_path),
                "CAIPE_HOME": str(tmp_path / "home"),
                "MCP_MAX_SERVERS": "1",
                "MCP_SLOT_SECONDS": "60",
            },
        ) as program,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        match = await program.wait_for_stderr(r"serving on (http://\S+)")
        asked = A2AClient(match[1], http).ask("Look", ClientConversation())
        transcript = fold([event async for event in asked])
        with psycopg.connect(url) as db:
            rows = db.execute("SELECT count(*) FROM caipe_supervisor.tool_servers").fetchall()
    assert transcript.answer == "Both were asked.", transcript
    assert rows == [(1,)]
    assert program.err.count("connected") == 2


def new_database(servers: DatabaseServers) -> str:
    name = new_address(servers).schema
    with psycopg.connect(servers.postgres, autocommit=True) as db:
        db.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
    return servers.postgres.replace("/postgres", f"/{name}")
