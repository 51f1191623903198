"""The server as a process: it starts with its settings, explains what is wrong in a sentence, and stops."""

import asyncio
import secrets
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from tests.support.dialects import V03, V10
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Hang, Say, Script, Turn
from tests.support.harness import PLAIN, Client
from tests.support.processes import Program, invoke_caipe, run_command, start_command

ECHO = Script(Turn(Say("You said {{user}}.")))


def model_of(server: OpenAIServer) -> dict[str, str]:
    return {"LLM_MODEL": "openai:scripted", "OPENAI_BASE_URL": server.url, "OPENAI_API_KEY": "test-key"}


@asynccontextmanager
async def serving(*command: str, **env: str) -> AsyncIterator[tuple[Program, Client]]:
    """A server process on a port of its own choice, and a client for it."""
    async with (
        start_command(*command, env=env) as program,
        httpx.AsyncClient(timeout=120, verify=PLAIN) as http,
    ):
        match = await program.wait_for_stderr(r"serving on (http://\S+)")
        yield program, Client(match[1], http)


@pytest.mark.full
async def test_a_question_is_answered_with_all_settings_in_a_file(tmp_path: Path) -> None:
    text, key = secrets.token_hex(8), secrets.token_urlsafe()
    async with serve_openai(ECHO) as model:
        lines = {
            **model_of(model),
            "A2A_AUTH_SHARED_KEY": key,
            "A2A_PORT": "abc",
            "A2A_AGENT_NAME": "From the file",
        }
        (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        await run_command("caipe", "trust")
        async with serving("platform-engineer", A2A_PORT="0") as (program, client):  # the environment wins
            with (tmp_path / ".env").open("a") as file:
                file.write(f"CAIPE_URL={client.url}\n")
            await run_command("caipe", "trust", ".env")
            done = await run_command("caipe", "ask", text)
            card = (await client.http.get(client.url + ".well-known/agent-card.json")).json()
            refused = await client.http.get(client.url + "tools")
            ready = await client.http.get(client.url + "ready")
    assert (done.code, done.out) == (0, f"You said {text}.\n"), done.err
    assert (card["name"], card["url"]) == ("From the file", client.url)
    assert (refused.status_code, ready.json()["status"]) == (401, "ok")
    assert model.refusals == []
    for secret in ("test-key", key, "Traceback"):
        assert secret not in program.err


async def test_without_a_model_the_server_starts_and_says_so_and_ends_at_an_interrupt() -> None:
    async with serving("caipe", "serve", "--port", "0") as (program, client):
        ready = await client.http.get(client.url + "ready")
        program.send_signal(signal.SIGINT)
        done = await program.wait_for_exit()
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    assert "LLM_MODEL" in ready.json()["components"]["model"]["message"]
    assert done.code == 0
    assert "LLM_MODEL" in program.err
    for word in ("Traceback", "Aborted", "KeyboardInterrupt"):
        assert word not in program.err


async def test_a_signal_ends_the_streams_the_waiting_and_the_work() -> None:
    begun = Script(Turn(Say("I begin."), Hang()))
    async with (
        serve_openai(begun) as model,
        serving("platform-engineer-single", A2A_PORT="0", SHUTDOWN_SECONDS="1", **model_of(model)) as (
            program,
            client,
        ),
    ):
        blocking = asyncio.create_task(client.call(V03.send, V03.message("Well?")))
        await program.wait_for_stderr("run .* started")
        frames = []
        async for frame in client.open(V10.stream, V10.message("Well?")):
            frames.append(frame)
            if len(frames) == 3:
                program.send_signal(signal.SIGTERM)
        answer = await blocking
        done = await program.wait_for_exit()
    assert frames[-1].name == "streaming_result"  # no end was sent: come back with the number
    assert V03.state(V03.sent(answer)) == "working"  # the task as it stands
    assert done.code in (0, -signal.SIGTERM)
    assert "the server has stopped" in program.err
    for word in ("Traceback", "timeout graceful shutdown exceeded"):
        assert word not in program.err


async def test_a_port_in_use_is_told_in_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = str(listener.getsockname()[1])
        done = await invoke_caipe("serve", env={"A2A_PORT": port, "ENABLE_RAG": "false"})
    output = done.out + done.err
    assert done.code == 1
    assert f"port {port}" in output
    assert "A2A_PORT" in output
    for word in ("serving on", "Traceback"):
        assert word not in output


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("A2A_PORT", "abc"),
        ("A2A_PORT", "70000"),
        ("LOG_LEVEL", "loud"),
        ("A2A_KEEP_ALIVE_SECONDS", "-1"),
        ("A2A_HOST", "192.0.2.7"),
    ],
)
async def test_a_wrong_setting_is_told_in_a_sentence(variable: str, value: str) -> None:
    done = await invoke_caipe(
        "serve", env={"A2A_PORT": "0", "A2A_AUTH_SHARED_KEY": "a-very-secret-key", variable: value}
    )
    output = done.out + done.err  # of a process all of it would be on stderr
    assert done.code == 1
    assert variable in output
    assert "very-secret" not in output
    assert len(output.splitlines()) == 1


async def test_more_than_one_worker_is_refused_with_what_is_possible() -> None:
    done = await invoke_caipe("serve", "--workers", "2")
    assert done.code == 2
    assert "DISTRIBUTED_AGENTS" in done.out + done.err


async def test_a_wrong_setting_leaves_no_traceback() -> None:
    done = await run_command("platform-engineer", env={"A2A_PORT": "abc"})
    assert (done.code, done.out) == (1, "")
    assert done.err.startswith("Invalid settings. A2A_PORT:")
    assert len(done.err.splitlines()) == 1


async def test_the_help_names_the_commands() -> None:
    done = await invoke_caipe("--help")
    assert done.code == 0
    for name in ("ask", "serve"):
        assert f"  {name} " in done.out
