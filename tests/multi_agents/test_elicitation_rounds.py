"""Tool servers that ask several questions in one call, and those that refuse one until people have opened
addresses."""

import asyncio
import contextlib
import json
import signal
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.agent_definition import McpServer, ToolPolicy
from ai_platform_engineering.core.events import ToolFinished
from ai_platform_engineering.mcp_client.mcp_errors import McpToolFailed
from tests.support.agent_services import (
    CastingByTools,
    Where,
    model_of,
    place_agent,
    run_server_process,
    run_supervisor,
    write_agent_definition,
)
from tests.support.asking_agent import ask_until_paused, request_ids, send_answers
from tests.support.asking_servers import (
    GENERATIONS,
    Generation,
    Transport,
    asking_server,
    change_question,
    list_calls,
    list_orders,
    open_door,
)
from tests.support.fakes.mcp_servers import by_name, open_sessions
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fakes.serving import ModelServer
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.ports import free_port
from tests.support.processes import Program
from tests.support.providers import OPENAI

RUN_ALL = ToolPolicy(allow=("*",))
DELEGATING = Script(
    Turn(Call("task", {"description": "Do it.", "subagent_type": "shop"})), Turn(Say("So: {{tool:shop}}"))
)
ANSWERS = ({"place": "Oslo"}, {"day": 3}, {"yes": True})
GO_ON = {"done": True}


def calling(tool: str, item: str) -> Script:
    return Script(Turn(Call(tool, {"item": item})), Turn(Say(f"{{{{tool:{tool}}}}}")))


def receipt(item: str, **answers: Any) -> str:
    return f"ordered {item}: {json.dumps(answers, sort_keys=True)}"


def read_form(stream: ReceivedStream) -> dict[str, Any]:
    """The last form that the run asks people to fill in."""
    form: dict[str, Any] = stream.named("UserInputMetaData")[-1].artifact["parts"][0]["data"]
    return form


async def fill_in(client: Client, asked: ReceivedStream, values: dict[str, Any]) -> ReceivedStream:
    """Answers the one question that waits."""
    return await send_answers(client, asked, {read_form(asked)["request_id"]: values})


def outcomes(stream: ReceivedStream, tool: str) -> list[str]:
    return [
        event.outcome for event in stream.events if isinstance(event, ToolFinished) and event.tool == tool
    ]


@contextlib.asynccontextmanager
async def run_shop(
    folder: Path, script: Script, where: Where, generation: Generation
) -> AsyncIterator[Client]:
    """A supervisor with an agent on a server that asks."""
    async with asking_server(generation, "stdio", folder) as server, open_sessions(folder) as sessions:
        tools = await sessions.tools("desk", server, RUN_ALL)
        async with (
            place_agent(agent("shop", script, *tools), where) as placed,
            supervisor(DELEGATING, agents=[placed]) as client,
        ):
            yield client


# --- several questions ---------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_each_question_of_a_result_is_asked_and_each_answer_reaches_its_own(
    tmp_path: Path, where: Where
) -> None:
    item = uuid.uuid4().hex
    async with run_shop(tmp_path, calling("book", item), where, "2.x") as client:
        stream = await ask_until_paused(client)
        texts = [read_form(stream)["response"]]
        assert list_calls(tmp_path) == [item]
        for answer in ANSWERS[:2]:
            stream = await fill_in(client, stream, answer)
            assert stream.last.state == "input-required"
            texts.append(read_form(stream)["response"])
        assert list_calls(tmp_path) == [item] * 2  # both answers went with one call
        assert list_orders(tmp_path) == []
        done = await fill_in(client, stream, ANSWERS[2])
    known = {"when": {"day": 3}, "where": {"place": "Oslo"}}
    assert texts == ["Where?", "Which day?", f"Book {item}, {json.dumps(known)}?"]
    assert done.answer == f"So: {receipt(item, sure={'yes': True}, **known)}"
    assert list_calls(tmp_path) == [item] * 3
    assert list_orders(tmp_path) == [item]
    assert outcomes(done, "book") == ["ok"]


async def test_a_refusal_is_the_answer_of_its_question_alone(tmp_path: Path) -> None:
    async with run_shop(tmp_path, calling("book", "tea"), "in-process", "2.x") as client:
        stream = await ask_until_paused(client)
        stream = await fill_in(client, stream, {"type": "reject"})
        stream = await fill_in(client, stream, {"day": 3})
        done = await fill_in(client, stream, {"type": "cancel"})
    assert done.answer == f"So: {receipt('tea', sure='cancel', when={'day': 3}, where='decline')}"


# --- addresses without which a server refuses -----------------------------------------------------


@pytest.mark.sample(2)
@pytest.mark.parametrize("generation", GENERATIONS)
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_a_refused_call_is_made_again_when_people_have_opened_every_address(
    tmp_path: Path, where: Where, generation: Generation
) -> None:
    item = uuid.uuid4().hex
    async with run_shop(tmp_path, calling("open_vault", item), where, generation) as client:
        stream = await ask_until_paused(client)
        for door in ("outer", "inner"):
            text = read_form(stream)["response"]
            assert text.startswith(f"Open the {door} door.\n\nOpen this address at {door}.example yourself")
            assert text.endswith(f"https://{door}.example/door?for={item}")
            assert list_calls(tmp_path) == [item]
            open_door(tmp_path, door)
            stream = await fill_in(client, stream, GO_ON)
    assert stream.answer == f"So: {receipt(item)}"
    assert list_calls(tmp_path) == [item] * 2
    assert outcomes(stream, "open_vault") == ["ok"]


async def test_only_what_is_still_closed_is_asked_again(tmp_path: Path) -> None:
    async with run_shop(tmp_path, calling("open_vault", "gold"), "in-process", "2.x") as client:
        stream = await ask_until_paused(client)
        open_door(tmp_path, "outer")
        for _ in range(2):  # says so of the inner one, too, where nobody has been
            stream = await fill_in(client, stream, GO_ON)
        assert read_form(stream)["response"].startswith("Open the inner door.")
        assert list_calls(tmp_path) == ["gold"] * 2
        open_door(tmp_path, "inner")
        done = await fill_in(client, stream, GO_ON)
    assert done.answer == f"So: {receipt('gold')}"
    assert list_calls(tmp_path) == ["gold"] * 3


@pytest.mark.parametrize("refusal", [{"done": False}, {"type": "reject"}, {"type": "cancel"}])
async def test_a_call_whose_address_a_person_declines_is_not_made_again(
    tmp_path: Path, refusal: dict[str, Any]
) -> None:
    async with run_shop(tmp_path, calling("open_vault", "gold"), "in-process", "before 2.0") as client:
        stream = await ask_until_paused(client)
        stream = await fill_in(client, stream, GO_ON)
        done = await fill_in(client, stream, refusal)
    assert "A person declined what the server asked for before the call." in done.answer
    assert list_calls(tmp_path) == ["gold"]
    assert outcomes(done, "open_vault") == ["error"]


async def test_without_people_the_refusal_is_the_result(tmp_path: Path) -> None:
    async with asking_server("2.x", "stdio", tmp_path) as server, open_sessions(tmp_path) as sessions:
        tool = by_name(await sessions.tools("desk", server))["open_vault"]
        with pytest.raises(McpToolFailed, match="URL elicitations required"):
            await tool.ainvoke({"item": "gold"})


# --- a server that is killed while people think ---------------------------------------------------


def write_shop(folder: Path, server: McpServer) -> None:
    definition: dict[str, Any] = {"url": server.url}
    if server.command is not None:
        definition = {"command": server.command, "args": list(server.args), "env": dict(server.env)}
    write_agent_definition(folder / "agents", "shop", definition, tools={"allow": ["*"]})


class ShopProcesses:
    """The supervisor as a process, with the agent in it or as a service beside it."""

    def __init__(self, folder: Path, model: ModelServer, server: McpServer, where: Where) -> None:
        self._folder = folder
        self._where = where
        self._port = free_port()
        self._env = {**model_of(model), "AGENTS_CONFIG": str(folder / "agents"), "MCP_SANDBOX": "off"}
        write_shop(folder, server)
        if where == "remote":
            self._env |= {"DISTRIBUTED_AGENTS": "shop", "SHOP_AGENT_URL": f"http://127.0.0.1:{self._port}/"}

    @contextlib.asynccontextmanager
    async def run(self) -> AsyncIterator[tuple[Client, list[Program]]]:
        async with contextlib.AsyncExitStack() as stack:
            programs: list[Program] = []
            if self._where == "remote":
                service = run_server_process(
                    "caipe",
                    "agent",
                    "shop",
                    "--port",
                    str(self._port),
                    **self._env,
                    CAIPE_HOME=self._home("service"),
                )
                programs.append((await stack.enter_async_context(service))[0])
            supervisor = run_server_process(
                "caipe", "serve", "--port", "0", **self._env, CAIPE_HOME=self._home("supervisor")
            )
            program, client = await stack.enter_async_context(supervisor)
            yield client, [*programs, program]

    def _home(self, name: str) -> str:
        return str(self._folder / f"home-{name}")


async def kill(programs: list[Program]) -> None:
    for program in programs:
        program.send_signal(signal.SIGKILL)
    await asyncio.gather(*(program.wait_for_exit() for program in programs))


async def book_with_kills(
    folder: Path, where: Where, transport: Transport, kills: tuple[int, ...]
) -> tuple[str, ReceivedStream]:
    """Books something; before these answers, by their number, all processes are killed."""
    item = uuid.uuid4().hex
    casting = CastingByTools(DELEGATING, calling("book", item))
    async with asking_server("2.x", transport, folder) as server, serve_openai(casting) as model:
        processes = ShopProcesses(folder, model, server, where)
        async with contextlib.AsyncExitStack() as stack:
            client, programs = await stack.enter_async_context(processes.run())
            stream = await ask_until_paused(client)
            for number, answer in enumerate(ANSWERS):
                if number in kills:
                    await kill(programs)
                    client, programs = await stack.enter_async_context(processes.run())
                stream = await fill_in(client, stream, answer)
    return item, stream


def check_booking(folder: Path, item: str, stream: ReceivedStream, more_calls: int = 0) -> None:
    """`more_calls`: those of a server that was restarted, and has to hear earlier answers again."""
    answers = {"sure": {"yes": True}, "when": {"day": 3}, "where": {"place": "Oslo"}}
    assert stream.answer == f"So: {receipt(item, **answers)}"
    assert list_orders(folder) == [item]
    assert list_calls(folder) == [item] * (3 + more_calls)
    assert outcomes(stream, "book") == ["ok"]
    assert stream.last.state == "completed"


async def test_a_server_killed_before_the_second_answer_goes_on_with_both(tmp_path: Path) -> None:
    """A server on stdio dies with ours, and does not take the state of its first process back."""
    item, stream = await book_with_kills(tmp_path, "in-process", "stdio", (1,))
    check_booking(tmp_path, item, stream, more_calls=1)


async def test_a_restarted_server_that_asks_something_else_gets_new_answers(tmp_path: Path) -> None:
    casting = CastingByTools(DELEGATING, calling("book", "tea"))
    async with asking_server("2.x", "stdio", tmp_path) as server, OPENAI.serve(casting) as model:
        write_shop(tmp_path, server)
        async with run_supervisor(tmp_path, model) as client:
            stream = await ask_until_paused(client)
        change_question(tmp_path)
        async with run_supervisor(tmp_path, model) as client:
            texts = [read_form(stream)["response"]]
            for answer in (*ANSWERS[:2], {"place": "Bergen"}, {"day": 4}, {"yes": True}):
                stream = await fill_in(client, stream, answer)
                texts.append(read_form(stream)["response"] if stream.last.state == "input-required" else "")
    known = {"when": {"day": 4}, "where": {"place": "Bergen"}}
    question = f"Book tea, {json.dumps(known)}?"
    assert texts == ["Where?", "Which day?", "Where exactly?", "Which day?", question, ""]
    assert stream.answer == f"So: {receipt('tea', sure={'yes': True}, **known)}"
    assert list_orders(tmp_path) == ["tea"]


@pytest.mark.full
@pytest.mark.parametrize(("kills", "more_calls"), [((0,), 1), ((2,), 2), ((0, 1, 2), 3)], ids=str)
@pytest.mark.parametrize("transport", ["stdio", "http"])
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_servers_killed_while_any_question_waits_lose_no_answer_and_repeat_none(
    tmp_path: Path, where: Where, transport: Transport, kills: tuple[int, ...], more_calls: int
) -> None:
    item, stream = await book_with_kills(tmp_path, where, transport, kills)
    check_booking(tmp_path, item, stream, more_calls if transport == "stdio" else 0)


@pytest.mark.full
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_a_call_that_was_held_open_by_a_killed_server_is_unknown_and_not_repeated(
    tmp_path: Path, where: Where
) -> None:
    """The protocol before 2026-07-28: the answer belongs to a request that nobody holds any more."""
    item = uuid.uuid4().hex
    casting = CastingByTools(DELEGATING, calling("order", item))
    async with asking_server("before 2.0", "http", tmp_path) as server, serve_openai(casting) as model:
        processes = ShopProcesses(tmp_path, model, server, where)
        async with processes.run() as (client, programs):
            asked = await ask_until_paused(client)
            await kill(programs)
        async with processes.run() as (client, _):
            done = await send_answers(client, asked, {request_ids(asked)[0]: {"size": "Large", "count": 2}})
    assert outcomes(done, "order") == ["unknown"]
    assert list_orders(tmp_path) == []
    assert list_calls(tmp_path) == [item]


@pytest.mark.full
@pytest.mark.parametrize("generation", GENERATIONS)
async def test_a_server_killed_while_a_person_is_elsewhere_calls_again_after_their_word(
    tmp_path: Path, generation: Generation
) -> None:
    item = uuid.uuid4().hex
    casting = CastingByTools(DELEGATING, calling("open_vault", item))
    async with asking_server(generation, "stdio", tmp_path) as server, serve_openai(casting) as model:
        processes = ShopProcesses(tmp_path, model, server, "in-process")
        async with processes.run() as (client, programs):
            stream = await ask_until_paused(client)
            open_door(tmp_path, "outer")
            stream = await fill_in(client, stream, GO_ON)
            await kill(programs)
        async with processes.run() as (client, _):
            open_door(tmp_path, "inner")
            done = await fill_in(client, stream, GO_ON)
    assert done.answer == f"So: {receipt(item)}"
    assert list_calls(tmp_path) == [item] * 2
