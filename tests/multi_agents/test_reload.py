"""SIGHUP: the supervisor's process reads `.env` and AGENTS_CONFIG again; what runs finishes as it began,
the next question is new.
"""

import asyncio
import contextlib
import os
import random
import signal
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.support.agent_services import (
    CastingByTools,
    model_of,
    read_readiness,
    run_agent_service,
    run_server_process,
    write_agent_definition,
)
from tests.support.fakes.mcp_servers import list_server_pids, until
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Book, Call, Casting, Gate, Say, Script, Turn, unique_pieces
from tests.support.harness import Client, Frame, ReceivedStream, agent
from tests.support.processes import Program, run_command

USED = "the configuration was reloaded; new questions use it"
NOT_USED = "the new configuration is not used"
DOUBLE = Script(Turn(Call("double", {"number": 21})), Turn(Say("{{tool:double}}")))


class Files:
    """The `.env` in CAIPE_HOME, and the definitions in the supervisor's folder."""

    def __init__(self, folder: Path, model: OpenAIServer) -> None:
        self.folder, self.agents = folder, folder / "agents"
        self.lines = {**model_of(model), "AGENTS_CONFIG": "agents", "AGENT_CHECK_TIMEOUT_SECONDS": "60"}
        self.env_file = Path(os.environ["CAIPE_HOME"]) / ".env"
        self.env_file.parent.mkdir(exist_ok=True)
        self.agents.mkdir()
        self.write()

    def write(self, **more: str) -> None:
        text = "".join(f"{name}={value}\n" for name, value in {**self.lines, **more}.items())
        self.env_file.write_text(text)


@contextlib.asynccontextmanager
async def supervisor(folder: Path, casting: Casting) -> AsyncIterator[tuple[Files, Program, Client]]:
    async with serve_openai(casting) as model:
        files = Files(folder, model)
        write_agent_definition(files.agents, "sums")
        async with run_server_process("caipe", "serve", TMPDIR=str(folder)) as (process, client):
            yield files, process, client


async def reload(process: Program, log_line: str = USED) -> None:
    """Sends the signal and waits until the program has told what came of it."""
    before = process.err.count(log_line)
    process.send_signal(signal.SIGHUP)
    await process.wait_for_stderr(f"(?s)(?:{log_line}.*?){{{before + 1}}}")


def delegates(name: str, description: str = "{{user}}") -> Script:
    return Script(
        Turn(Call("task", {"description": description, "subagent_type": name})),
        Turn(Say(f"{{{{tool:{name}}}}}")),
    )


async def component(client: Client, name: str) -> dict[str, Any] | None:
    report: dict[str, Any] | None = (await read_readiness(client))["components"].get(f"agent {name}")
    return report


async def skills(client: Client) -> dict[str, list[str]]:
    card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
    return {skill["id"]: skill["tags"] for skill in card["skills"]}


async def test_an_agent_moves_to_a_service_and_back_while_a_run_is_in_the_middle(tmp_path: Path) -> None:
    number = random.randint(10**6, 10**9)
    begin, rest = unique_pieces("held", 2, random.Random())
    gate = Gate()
    work = Script(
        Turn(Call("double", {"number": number})),
        Turn(Say(f"{begin} ", f"{rest} ", "{{tool:double}}"), gate=gate),
        exhausted="error",
    )
    here = Script(Turn(Call("double", {"number": 4})), Turn(Say("{{tool:double}} from here")))
    casting = CastingByTools(delegates("sums"), Book({"^hold$": work, "^here$": here}))
    frames: list[Frame] = []
    begun = asyncio.Event()

    async def first(client: Client) -> ReceivedStream:
        async for frame in client.stream("hold", version="1.0"):
            frames.append(frame)
            if begin in frame.text:
                begun.set()
        return ReceivedStream(frames)

    far = agent("sums", Script(Turn(Say("from afar"))))
    async with supervisor(tmp_path, casting) as (files, process, client), run_agent_service(far) as there:
        running = asyncio.create_task(first(client))
        async with asyncio.timeout(120):
            await begun.wait()
        old = list_server_pids(tmp_path)
        assert len(old) == 1
        assert (await skills(client))["sums"] == ["sums", "in-process"]

        files.write(DISTRIBUTED_AGENTS="sums", SUMS_AGENT_URL=there.url)
        await reload(process)
        assert (await client.ask("new")).answer == "from afar"
        assert (await skills(client))["sums"] == ["sums", "remote", "reachable"]
        assert not running.done()
        assert list_server_pids(tmp_path) == old  # the run in the middle needs it

        for piece in (begin, rest):
            gate.seen(piece)
        stream = await running
        assert stream.answer == f"{begin} {rest} {2 * number}"
        assert len(there.messages()) == 1
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the old tool server")

        files.write()
        await reload(process)
        back = await client.ask("here")
        assert back.answer == "8 from here"
        assert (await skills(client))["sums"] == ["sums", "in-process"]
        now = list_server_pids(tmp_path)
        assert len(now) == 1
        assert now != old
    assert len(there.messages()) == 1
    assert "Traceback" not in process.err


async def test_agents_come_and_go_with_their_files_and_variables(tmp_path: Path) -> None:
    book = Book({"^double$": DOUBLE}, default=delegates("more", "double"))
    async with supervisor(tmp_path, book) as (files, process, client):
        assert await component(client, "more") is None
        first = await client.ask("Who?")
        assert first.answer.startswith("There is no agent more.")

        write_agent_definition(files.agents, "more", requires=["MORE_KEY"])
        files.write(MORE_KEY="k-1")
        await reload(process)
        assert (await client.ask("And now?", contextId=first.context_id)).answer == "42"
        assert (await skills(client))["more"] == ["more", "in-process"]
        assert (await component(client, "more") or {})["status"] == "ready"

        files.write()  # the variable is gone
        await reload(process)
        report = await component(client, "more") or {}
        assert (report["status"], "MORE_KEY" in report["message"]) == ("not_configured", True)
        assert "more" not in await skills(client)
        assert (await client.ask("And now?", contextId=first.context_id)).answer.startswith(
            "There is no agent more."
        )

        (files.agents / "more.json").unlink()
        await reload(process)
        assert await component(client, "more") is None
        await until(lambda: list_server_pids(tmp_path) == [], "the end of the tool server")
    assert "k-1" not in process.err


async def test_what_is_wrong_is_told_and_the_old_configuration_stays(tmp_path: Path) -> None:
    book = Book({"^double$": DOUBLE}, default=delegates("sums", "double"))
    async with supervisor(tmp_path, book) as (files, process, client):
        (files.agents / "broken.json").write_text('{"name": ')
        await reload(process, NOT_USED)
        await process.wait_for_stderr(r"not used: [^$]*agents/broken\.json")
        assert (await client.ask("One?")).answer == "42"
        (files.agents / "broken.json").unlink()

        files.write(AGENT_CHECK_SECONDS="soon-7734", OPENAI_BASE_URL="http://127.0.0.1:1/v1")
        await reload(process, NOT_USED)
        await process.wait_for_stderr("AGENT_CHECK_SECONDS")

        files.env_file.write_bytes(b"DISTRIBUTED_AGENTS=caf\xe9\n")
        await reload(process, NOT_USED)
        assert (await component(client, "sums") or {})["placement"] == "in-process"
        assert (await client.ask("Two?")).answer == "42"

        write_agent_definition(files.agents, "more")
        files.write()
        await reload(process)
        assert (await component(client, "more") or {})["status"] == "ready"
        assert (await client.ask("Three?")).answer == "42"
    assert process.err.count(NOT_USED) == 3
    assert "soon-7734" not in process.err
    assert "Traceback" not in process.err


async def test_a_service_reads_its_configuration_again_too(tmp_path: Path) -> None:
    async with serve_openai(Script(Turn(Say("Yes.")))) as model:
        files = Files(tmp_path, model)
        write_agent_definition(files.agents, "sums")
        async with run_server_process("caipe", "agent", "sums") as (process, client):
            write_agent_definition(files.agents, "sums", title="The Sums")
            await reload(process)
            card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
            assert card["name"] == "The Sums"
            files.write(ENABLE_SUMS="false")
            await reload(process, NOT_USED)
            assert (await client.ask("Still there?")).answer == "Yes."


async def test_a_trusted_file_that_somebody_changed_is_not_used(tmp_path: Path) -> None:
    """READ_ONLY was on: a stranger's change neither switches it off nor names another model."""
    async with (
        serve_openai(Script(Turn(Say("Yes.")))) as model,
        serve_openai(Script(Turn(Say("No.")))) as other,
    ):
        lines = {**model_of(model), "READ_ONLY": "true"}
        env_file = tmp_path / ".env"
        env_file.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        assert (await run_command("caipe", "trust")).code == 0
        async with run_server_process("caipe", "serve") as (process, client):
            hostile = {**lines, **model_of(other), "READ_ONLY": "false"}
            env_file.write_text("".join(f"{name}={value}\n" for name, value in hostile.items()))
            await reload(process, NOT_USED)
            assert "caipe trust" in process.err
            assert (await client.ask("Well?")).answer == "Yes."
            refused = await client.http.delete(f"{client.url}v1/facts/x")
            assert refused.status_code == 403
        assert other.requests == []
