"""Which server a command talks to: the named one, that of its CAIPE_HOME or of the settings, or one that
several commands share."""

import json
import os
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse
from starlette.routing import Route

from tests.support.agent_services import model_of, run_server_process
from tests.support.dialects import V10
from tests.support.fakes.mcp_servers import until
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Book, Gate, Say, Script, Turn
from tests.support.harness import serve_app
from tests.support.ports import free_port
from tests.support.processes import Program, run_command, start_command
from tests.support.terminals import start_in_terminal

OK, FAILED, UNREACHABLE = 0, 1, 3
QUICK = {"A2A_PORT": "0", "SHUTDOWN_SECONDS": "0.1"}
ECHO = Script(Turn(Say("You said {{user}}.")))


def server_file(home: Path) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((home / "supervisor" / "server.json").read_text())
    return content


# --- which one ----------------------------------------------------------------------------------------------


async def test_the_port_of_a_file_counts_for_servers_and_for_commands(tmp_path: Path) -> None:
    """Of another CAIPE_HOME, so that the address file does not help."""
    async with serve_openai(ECHO) as model:
        lines = {"A2A_PORT": str(free_port()), **model_of(model)}
        (tmp_path / ".env").write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        own = {"CAIPE_HOME": str(tmp_path / "other")}
        for env in ({}, own):
            await run_command("caipe", "trust", env=env)
        async with start_command("caipe", "serve") as server:
            await server.wait_for_stderr(f"serving on http://127.0.0.1:{lines['A2A_PORT']}/")
            done = await run_command("caipe", "ask", "hi", env={**own, "LLM_MODEL": "openai:other"})
    assert (done.code, done.out) == (OK, "You said hi.\n"), done.err
    assert {request.model for request in model.requests} == {"scripted"}
    assert not (tmp_path / "other" / "supervisor").exists()  # no server was started for the command


async def test_a_server_is_found_by_its_home_whatever_its_port(tmp_path: Path) -> None:
    async with (
        serve_openai(ECHO) as model,
        run_server_process("caipe", "serve", **model_of(model)) as (_, on),
    ):
        assert server_file(tmp_path / "caipe-home")["url"] == on.url
        asked = await run_command("caipe", "ask", "hi", env={"LLM_MODEL": "openai:nobody"})
        skills = await run_command("caipe", "skills", "list")
        tasks = (await on.call("ListTasks", {}))["result"]["tasks"]
    assert (asked.code, asked.out) == (OK, "You said hi.\n"), asked.err
    assert skills.code == OK
    assert len(tasks) == 1


async def test_an_address_file_goes_with_its_server_and_a_stale_one_is_no_harm(tmp_path: Path) -> None:
    home = tmp_path / "caipe-home"
    async with serve_openai(ECHO) as model:
        async with run_server_process("caipe", "serve", **model_of(model)) as (server, _):
            stale = server_file(home)
            server.send_signal(signal.SIGTERM)
            await server.wait_for_exit()
        assert not (home / "supervisor" / "server.json").exists()
        (home / "supervisor" / "server.json").write_text(json.dumps(stale))
        done = await run_command("caipe", "ask", "hi", env={**model_of(model), "A2A_PORT": "0"})
    assert (done.code, done.out) == (OK, "You said hi.\n"), done.err


class ThirdPartyServer:
    """An A2A agent of another program, which writes down what it is sent."""

    def __init__(self) -> None:
        self.requests: list[tuple[str, str, str | None]] = []

    async def answer(self, request: Request) -> JSONResponse:
        self.requests.append((request.method, request.url.path, request.headers.get("authorization")))
        return JSONResponse({"name": "Somebody else", "capabilities": {"streaming": True}})

    def app(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self.answer, methods=["GET", "POST", "DELETE"])])


@pytest.mark.parametrize(
    "command",
    [
        ["ask", "our plan"],
        ["pending"],
        ["facts", "list"],
        ["skills", "list"],
        ["kb", "list"],
        ["follow", "x"],
    ],
    ids=lambda command: command[0],
)
async def test_nothing_is_sent_to_a_server_that_is_not_ours(command: list[str]) -> None:
    third_party = ThirdPartyServer()
    async with serve_app(third_party.app()) as url:
        done = await run_command("caipe", *command, env={"CAIPE_URL": url, "A2A_AUTH_SHARED_KEY": "k" * 32})
    assert (done.code, done.out) == (UNREACHABLE, "")
    assert f"{url} is not a server of this program: its agent card is another program's." in done.err
    assert third_party.requests == [("GET", "/.well-known/agent-card.json", None)]


async def test_another_program_at_our_port_is_passed_by() -> None:
    third_party = ThirdPartyServer()
    async with serve_openai(ECHO) as model, serve_app(third_party.app()) as url:
        env = {**model_of(model), "A2A_PORT": url.rstrip("/").rpartition(":")[2]}
        done = await run_command("caipe", "ask", "hi", env=env)
    assert (done.code, done.out) == (OK, "You said hi.\n"), done.err
    assert {request[0] for request in third_party.requests} == {"GET"}


# --- one server for several commands ------------------------------------------------------------------------


class HeldModel:
    """A model whose answers wait until the test lets them go."""

    def __init__(self) -> None:
        self.gates = {name: Gate() for name in ("first", "second")}

    def script(self, name: str) -> Script:
        gate = self.gates[name]
        return Script(Turn(Say(f"begin{name}", f" end{name}"), gate=gate))


@asynccontextmanager
async def asking(model: OpenAIServer, word: str, **env: str) -> AsyncIterator[Program]:
    async with start_command("caipe", "ask", word, env={**model_of(model), **QUICK, **env}) as program:
        yield program


async def wait_for_requests(model: OpenAIServer, count: int) -> None:
    await until(lambda: len(model.requests) >= count, "the requests")


async def test_commands_share_a_server_and_the_next_one_takes_it_over(tmp_path: Path) -> None:
    """The first command serves. When it has its answer and ends, the second goes on serving at the same
    address, and its own run goes on."""
    held = HeldModel()
    book = Book({name: held.script(name) for name in held.gates})
    home = tmp_path / "caipe-home"
    async with serve_openai(book) as model, asking(model, "first") as first:
        await wait_for_requests(model, 1)
        served_by = server_file(home)
        assert served_by["embedded"]
        async with asking(model, "second") as second:
            await wait_for_requests(model, 2)
            assert server_file(home) == served_by  # it has joined
            held.gates["first"].seen("beginfirst")
            ended = await first.wait_for_exit()
            held.gates["second"].seen("beginsecond")
            done = await second.wait_for_exit()
        assert server_file(home)["url"] == served_by["url"]
        async with run_server_process("caipe", "serve", **model_of(model)) as (_, client):
            tasks = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert (ended.code, ended.out) == (OK, "beginfirst endfirst\n"), first.err
    assert (done.code, done.out) == (OK, "beginsecond endsecond\n"), second.err
    assert [V10.state(task) for task in tasks] == ["completed", "completed"]


async def test_a_command_says_when_nothing_is_kept() -> None:
    async with serve_openai(ECHO) as model:
        env = {**model_of(model), "A2A_PORT": "0", "LANGGRAPH_CHECKPOINT_TYPE": "memory"}
        done = await run_command("caipe", "ask", "hi", env=env)
    assert (done.code, done.out) == (OK, "You said hi.\n")
    assert "Conversations are kept in memory, as configured, and are lost when this command ends." in done.err


# --- the start and the end of a server ----------------------------------------------------------------------


async def test_the_start_is_told_in_six_lines() -> None:
    async with (
        serve_openai(ECHO) as model,
        run_server_process("caipe", "serve", **model_of(model)) as (server, _),
    ):
        await server.wait_for_stderr("to try it: ")
        lines = [line.partition(": ")[2] for line in server.err.splitlines()]
    assert len(lines) <= 6
    assert lines[0].startswith("serving on http://127.0.0.1:")
    assert lines[1:4] == [
        "model: openai:scripted",
        "agents ready: netutils",
        "not configured: 15 agents; what each needs: caipe agents",
    ]
    page = lines[0].removeprefix("serving on ")
    assert lines[4] == f'to try it: open {page} in a browser, or: caipe ask "what can you do?"'


async def test_in_a_terminal_the_start_is_plain_and_closing_it_ends_the_server(tmp_path: Path) -> None:
    async with start_in_terminal("caipe", "serve", "--port", "0") as screen:
        await screen.wait_for_text("To try it: ")
        lines = screen.text.splitlines()
        assert len(lines) <= 6
        assert lines[0].startswith("Serving on http://127.0.0.1:")
        assert lines[0].endswith("(Ctrl-C stops it)")
        assert lines[1] == "Model: none, so the embedded router answers; set LLM_MODEL for a model"
        os.kill(screen.process.pid, signal.SIGHUP)
        assert await screen.wait_for_exit() == 0
    assert not (tmp_path / "caipe-home" / "supervisor" / "server.json").exists()


async def test_a_port_that_we_use_ourselves_is_named_as_such() -> None:
    async with run_server_process("caipe", "serve") as (server, client):
        port = client.url.rstrip("/").rpartition(":")[2]
        done = await run_command("caipe", "serve", "--port", port)
    assert (done.code, done.out) == (FAILED, "")
    assert done.err.startswith(
        f"This program already serves on {client.url} (process {server.process.pid}). Use that one"
    )
    assert len(done.err.splitlines()) == 1


async def test_a_home_in_use_names_its_server() -> None:
    async with run_server_process("caipe", "serve") as (server, client):
        done = await run_command("caipe", "serve", "--port", "0")
    assert (done.code, done.out) == (FAILED, "")
    assert f"{client.url} (process {server.process.pid})" in done.err
