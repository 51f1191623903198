"""The server as a process with a database that cannot be used: it goes on in memory and says so, or refuses.

`caipe doctor` says it before."""

import asyncio
import os
import socket
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.storage import STORAGE_NAME, Storage
from tests.support.database_servers import PASSWORD
from tests.support.dialects import V03, artifact, text_of
from tests.support.harness import PLAIN, Client
from tests.support.ports import closed_port
from tests.support.processes import CommandResult, Program, run_command, start_command

IN_MEMORY = "Conversations are kept in memory and are lost when the server stops."
ALL_IN_MEMORY = "Everything is kept in memory and is lost when the server stops."  # runs would be there, too
REFUSED = "STORAGE_REQUIRED forbids to go on without it."
SERVE = ("caipe", "serve", "--port", "0")
# Executed, not forked: the command server has imported the libraries that are to be missing.
SERVE_ANEW = ("platform-engineer",)


@pytest.fixture
def silent_port() -> Iterator[int]:
    """Takes connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield listening.getsockname()[1]


@asynccontextmanager
async def serving(*command: str, env: Mapping[str, str]) -> AsyncIterator[tuple[Program, Client]]:
    async with (
        start_command(*command, env={"A2A_PORT": "0", **env}) as program,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        match = await program.wait_for_stderr(r"serving on (http://\S+)")
        yield program, Client(match[1], http)


async def read_ready(client: Client) -> dict[str, Any]:
    response = await client.http.get(client.url + "ready")
    assert response.status_code == 200
    report: dict[str, Any] = response.json()
    assert report["status"] == "degraded"
    components: dict[str, Any] = report["components"]
    return components


def assert_refused(done: CommandResult, sentence: str) -> None:
    """It ended with this sentence as its last line, and without a traceback or the password."""
    assert done.code == 1
    assert done.err.splitlines()[-1] == sentence
    for word in ("Traceback", "Exiting", PASSWORD):
        assert word not in done.err


def hide_packages(folder: Path, *names: str) -> dict[str, str]:
    """The variable that makes packages look as if they were not installed."""
    for name in names:
        (folder / f"{name}.py").write_text(f"raise ModuleNotFoundError({name!r})\n")
    return {"PYTHONPATH": os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])}


@pytest.mark.full
async def test_databases_that_do_not_answer_are_told_and_questions_are_answered(silent_port: int) -> None:
    unused_port = closed_port()
    env = {
        "DATABASE_URL": f"redis://:{PASSWORD}@127.0.0.1:{silent_port}/0",
        "STORAGE_TIMEOUT_SECONDS": "0.5",
        "RAG_DATABASE_URL": f"postgresql://caipe:{PASSWORD}@127.0.0.1:{unused_port}/x",
        "ENABLE_RAG": "true",
    }
    async with serving(*SERVE, env=env) as (program, client):
        await program.wait_for_stderr("the knowledge base cannot be opened")
        components = await read_ready(client)
        task = V03.sent(await client.call(V03.send, V03.message("What does 10.0.0.0/22 contain?")))
    silent = (
        f"Redis at 127.0.0.1:{silent_port} cannot be used: it did not answer in time"
        f" (STORAGE_TIMEOUT_SECONDS). {IN_MEMORY} Check DATABASE_URL."
    )
    closed = (
        f"The knowledge base in PostgreSQL at 127.0.0.1:{unused_port} cannot be used: "
        "nothing listens at its address. Check RAG_DATABASE_URL."
    )
    assert components["storage"] == {"status": "degraded", "backend": "memory", "message": silent}
    assert components["knowledge"] == {"status": "degraded", "message": closed}
    assert "WARNING storage: " + silent in program.err
    assert "1,024 addresses" in text_of(artifact(task, "final_result"))
    assert PASSWORD not in program.err
    assert "Traceback" not in program.err


async def test_a_missing_client_is_told_with_the_command_that_installs_it(tmp_path: Path) -> None:
    env = {
        "DATABASE_URL": f"postgresql://caipe:{PASSWORD}@db.example:5432/x",
        "CAIPE_HOME": str(tmp_path / "a"),
    }
    hidden = hide_packages(tmp_path, "psycopg")
    async with serving(*SERVE_ANEW, env={**env, **hidden}) as (program, client):
        storage = (await read_ready(client))["storage"]
    problem = "PostgreSQL at db.example:5432 cannot be used: its client is not installed."
    command = "Run: caipe extras install postgres"
    assert storage["message"] == f"{problem} {ALL_IN_MEMORY} {command}"
    assert "WARNING storage: " + storage["message"] in program.err
    assert PASSWORD not in program.err


@pytest.mark.full
async def test_a_client_that_is_installed_and_broken_is_told(tmp_path: Path) -> None:
    (tmp_path / "psycopg.py").write_text("raise AttributeError('an older library')\n")
    caipe = ("python", "-c", "from ai_platform_engineering.cli.main import main; main()")
    path = os.pathsep.join([str(tmp_path), os.environ["PYTHONPATH"]])
    env = {"DATABASE_URL": "postgresql://db.example/x", "PYTHONPATH": path}
    examined = await run_command(*caipe, "doctor", env=env)
    assert "❌ PostgreSQL at db.example cannot be used: its client failed (AttributeError)." in examined.out
    assert "Traceback" not in examined.err


@pytest.mark.full
async def test_a_required_database_that_is_away_stops_the_start_in_one_sentence() -> None:
    port = closed_port()
    mongodb = {
        "MONGODB_URI": f"mongodb://caipe:{PASSWORD}@127.0.0.1:{port}/x",
        "STORAGE_TIMEOUT_SECONDS": "0.5",
    }
    knowledge = {
        "RAG_DATABASE_URL": f"postgresql://caipe:{PASSWORD}@127.0.0.1:{port}/x",
        "ENABLE_RAG": "true",
        "CAIPE_HOME": str(Path.cwd() / "other"),
    }
    redis = {"REDIS_URL": f"redis://:{PASSWORD}@127.0.0.1:{port}/0", "STORAGE_REQUIRED": "true"}
    first, second, agent = await asyncio.gather(
        run_command(*SERVE, env={**mongodb, "STORAGE_REQUIRED": "true"}),
        run_command(*SERVE, env={**knowledge, "STORAGE_REQUIRED": "true"}),
        run_command("caipe", "agent", "netutils", "--port", "0", env=redis),
    )
    away = f"at 127.0.0.1:{port} cannot be used: nothing listens at its address. {REFUSED}"
    assert_refused(first, f"MongoDB {away} Check MONGODB_URI.")
    assert_refused(second, f"The knowledge base in PostgreSQL {away} Check RAG_DATABASE_URL.")
    assert_refused(agent, f"Redis {away} Check REDIS_URL.")


@pytest.mark.sample(2)
@pytest.mark.parametrize(
    ("variables", "sentence"),
    [
        (
            {"DATABASE_URL": f"mysql://u:{PASSWORD}@db/x"},
            "DATABASE_URL: the address must begin with postgresql, redis, mongodb, sqlite or memory and ://.",
        ),
        (
            {"DATABASE_URL": f"postgresql://u:{PASSWORD}@[db/x"},
            "DATABASE_URL is not an address of a PostgreSQL database.",
        ),
        ({"REDIS_URL": f"{PASSWORD}@cache"}, "REDIS_URL is not an address of a Redis server."),
        ({"MONGODB_URI": f"{PASSWORD}@docs"}, "MONGODB_URI is not an address of a MongoDB server."),
        (
            {"LANGGRAPH_CHECKPOINT_TYPE": "redis"},
            "Redis is selected for conversations, but its address is missing. "
            "Set LANGGRAPH_CHECKPOINT_REDIS_URL or REDIS_URL or DATABASE_URL.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
async def test_a_text_that_is_no_address_stops_the_start_in_one_sentence(
    variables: dict[str, str], sentence: str
) -> None:
    started, examined = await asyncio.gather(
        run_command(*SERVE, env=variables), run_command("caipe", "doctor", env=variables)
    )
    assert_refused(started, sentence)
    assert f"❌ {sentence} The server does not start." in examined.out
    assert PASSWORD not in examined.out + examined.err


async def test_a_command_without_a_server_says_it_as_well(tmp_path: Path) -> None:
    port = closed_port()
    away = {"DATABASE_URL": f"postgresql://caipe:{PASSWORD}@127.0.0.1:{port}/x"}
    required = {**away, "STORAGE_REQUIRED": "true", "CAIPE_HOME": str(tmp_path / "other")}
    warned, refused = await asyncio.gather(
        run_command("caipe", "pending", env=away), run_command("caipe", "pending", env=required)
    )
    problem = f"PostgreSQL at 127.0.0.1:{port} cannot be used: nothing listens at its address."
    assert warned.code == 0
    assert f"{problem} {ALL_IN_MEMORY} Check DATABASE_URL." in warned.err
    assert_refused(refused, f"{problem} {REFUSED} Check DATABASE_URL.")


def test_a_required_database_of_runs_that_is_away_stops_the_composition(tmp_path: Path) -> None:
    url = f"postgresql://caipe:{PASSWORD}@127.0.0.1:{closed_port()}/x"
    settings = Settings.from_variables({"DATABASE_URL": url, "STORAGE_REQUIRED": "true"})
    with pytest.raises(ConfigurationError) as raised:
        Storage.from_settings(settings.storage, tmp_path, STORAGE_NAME)
    assert REFUSED in str(raised.value)
    assert PASSWORD not in str(raised.value)


async def test_any_asgi_server_is_told_the_sentence_and_no_traceback(tmp_path: Path) -> None:
    settings = Settings.from_variables(
        {"DATABASE_URL": f"redis://127.0.0.1:{closed_port()}/0", "STORAGE_REQUIRED": "true"}
    )
    app = create_app(settings, storage=Storage.from_settings(settings.storage, tmp_path, STORAGE_NAME))
    messages: list[Any] = []

    async def receive() -> dict[str, str]:
        return {"type": "lifespan.startup"}

    async def send(message: Any) -> None:
        messages.append(message)

    with pytest.raises(ConfigurationError) as raised:
        await app({"type": "lifespan"}, receive, send)
    assert REFUSED in str(raised.value)
    assert messages == [{"type": "lifespan.startup.failed", "message": str(raised.value)}]


async def test_the_doctor_tells_what_the_start_would(tmp_path: Path) -> None:
    port = closed_port()
    env = {
        "DATABASE_URL": f"postgresql://caipe:{PASSWORD}@127.0.0.1:{port}/x",
        "RAG_DATABASE_URL": f"postgresql://caipe:{PASSWORD}@127.0.0.1:{port}/x",
        "ENABLE_RAG": "true",
    }
    (tmp_path / "file").write_text("")
    at_rest = {"CAIPE_HOME": str(tmp_path / "file" / "home"), "PATH": str(tmp_path)}
    away, required, fine, unusable = await asyncio.gather(
        run_command("caipe", "doctor", env=env),
        run_command("caipe", "doctor", env={**env, "STORAGE_REQUIRED": "true"}),
        run_command("caipe", "doctor", "--all", env={"CAIPE_HOME": str(tmp_path / "new")}),
        run_command("caipe", "doctor", env=at_rest),
    )
    reason = f"PostgreSQL at 127.0.0.1:{port} cannot be used: nothing listens at its address."
    assert f"❌ {reason} The server starts without it, and forgets conversations" in away.out
    assert "   Check DATABASE_URL." in away.out
    assert f"❌ The knowledge base in {reason}" in away.out
    assert "   The server starts without documents." in away.out
    assert required.out.count("The server does not start without it (STORAGE_REQUIRED).") == 2
    assert "✅ Conversations are kept in SQLite, which works." in fine.out
    assert "SQLite cannot be used" in unusable.out
    assert "git is not on this machine" in unusable.out
    assert [result.code for result in (away, required, unusable)] == [1, 1, 1]
    assert not (tmp_path / "new" / "supervisor").exists()
    assert PASSWORD not in away.out + away.err


async def test_a_folder_that_cannot_be_used_is_replaced_by_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    env = {"CAIPE_HOME": str(tmp_path / "file")}
    async with serving(*SERVE, env=env) as (program, client):
        storage = (await read_ready(client))["storage"]
    assert storage["backend"] == "memory"
    assert "Runs are kept in memory and are lost when the server stops." in storage["message"]
    assert IN_MEMORY in storage["message"]
    assert "Traceback" not in program.err
    refused = await run_command(*SERVE, env={**env, "STORAGE_REQUIRED": "true"})
    assert_refused(refused, refused.err.splitlines()[-1])
    assert REFUSED in refused.err
