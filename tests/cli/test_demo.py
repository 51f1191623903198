"""`caipe demo` as a process: what it prints, what it starts, and that it leaves nothing behind."""

import os
import re
import signal
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from ai_platform_engineering.agents.installed_commands import agent_home
from ai_platform_engineering.core.server_address import ServerAddress
from ai_platform_engineering.demo.estate.control_api import ControlAddress
from tests.conftest import need
from tests.support.knowledge import wait_until
from tests.support.processes import CommandResult, Program, run_command, start_command
from tests.support.real_servers import SERVERS_HOME

pytestmark = pytest.mark.full

QUESTION = "why is checkout failing?"
SIGNATURE = "Scripted investigation of the demo, no language model"


@asynccontextmanager
async def demo_process(home: Path, *options: str, **env: str) -> AsyncIterator[tuple[Program, str]]:
    """The demo on a free port, with the tool servers that its home has; yields its address, too."""
    arguments = ("demo", "--no-install", "--port", "0", *options)
    async with start_command("caipe", *arguments, env={"CAIPE_HOME": str(home), **env}) as program:
        match = await program.wait_for_stderr(r"serving on (http://\S+)")
        yield program, match[1]


async def caipe(home: Path, url: str, *arguments: str) -> CommandResult:
    return await run_command("caipe", *arguments, env={"CAIPE_HOME": str(home), "CAIPE_URL": url})


async def test_it_says_what_to_do_first_answers_and_ends_at_an_interrupt_with_nothing_left(
    tmp_path: Path,
) -> None:
    real_token = "a-token-of-a-real-system"
    environment = {
        "GITHUB_TOKEN": real_token,
        "SLACK_BOT_TOKEN": real_token,
        "DATABASE_URL": "postgresql://x",
    }
    async with demo_process(tmp_path, "--seed", "7", **environment) as (program, url):
        server = ServerAddress.read(tmp_path / "demo")
        assert server is not None
        # Only our own server is installed everywhere.
        answer = await caipe(tmp_path, url, "ask", QUESTION)
        status = await caipe(tmp_path, url, "demo", "status")
        agents = await caipe(tmp_path, url, "ask", "what can you do?")
        program.send_signal(signal.SIGINT)
        done = await program.wait_for_exit()
        await wait_until(lambda: not ServerAddress("", server.pid).is_running)

    assert done.code == 0, program.err
    assert "The demo goes on without Argo CD" in done.out
    for line in (
        url,
        "systems    github",
        QUESTION,
        "roll back checkout",
        "demo fault argocd --errors",
        "Ctrl-C",
    ):
        assert line in done.out
    assert "GitHub: commit" in answer.out, answer.err
    assert "Argo CD: its agent is not there" in answer.out
    assert SIGNATURE in answer.out
    assert "scripted investigator" in answer.err  # the notice
    assert (status.code, url in status.out) == (0, True)
    assert agents.code == 0
    assert ControlAddress.load(tmp_path / "demo") is None
    assert not (tmp_path / "demo" / "stand-ins").exists()
    for text in (done.out, program.err, answer.err):
        assert real_token not in text
        assert "Traceback" not in text


async def test_a_killed_supervisor_is_started_again_and_everything_ends_with_the_command(
    tmp_path: Path,
) -> None:
    async with demo_process(tmp_path) as (program, url):
        first = ServerAddress.read(tmp_path / "demo")
        assert first is not None
        os.kill(first.pid, signal.SIGKILL)
        await program.wait_for_stderr(r"was killed(?s:.*)serving on http://\S+")
        second = ServerAddress.read(tmp_path / "demo")
        assert second is not None
        status = await caipe(tmp_path, url, "demo", "status")
        program.send_signal(signal.SIGKILL)  # the command itself cannot say good-bye
        await wait_until(lambda: not ServerAddress("", second.pid).is_running)
        await wait_until(lambda: ControlAddress.load(tmp_path / "demo") is None)
    assert second.url == first.url == url
    assert second.pid != first.pid
    assert status.code == 0


@pytest.mark.timeout(600)
async def test_the_story_without_a_model_on_the_real_tool_servers(tmp_path: Path) -> None:
    installed = all(agent_home(SERVERS_HOME, name).is_dir() for name in ("argocd", "jira", "kubernetes"))
    need("tool servers", installed, "install them with `make servers`")
    (tmp_path / "agents").symlink_to(SERVERS_HOME / "agents")
    environment = {"ENABLE_RAG": "true", "RAG_EMBEDDINGS": "off"}
    async with demo_process(tmp_path, "--seed", "11", **environment) as (program, url):
        answer = await caipe(tmp_path, url, "ask", QUESTION)
        match = re.search(r"context (\S+)\)", answer.err)
        assert match, answer.err
        follow_up = ("ask", "--context", match[1])
        ticket = await approve(tmp_path, url, await caipe(tmp_path, url, *follow_up, "create a ticket"))
        order = await caipe(tmp_path, url, *follow_up, "roll back checkout")
        degraded = await caipe(tmp_path, url, "demo", "status")
        rollback = await approve(tmp_path, url, order)
        healthy = await caipe(tmp_path, url, "demo", "status")
        await caipe(tmp_path, url, "demo", "reset")
        await caipe(tmp_path, url, "demo", "fault", "all", "--errors", "0.2", "--latency", "2")
        await caipe(tmp_path, url, "demo", "fault", "argocd", "--errors", "1")
        blind = await caipe(tmp_path, url, "ask", QUESTION)
        program.send_signal(signal.SIGINT)
        done = await program.wait_for_exit()

    assert re.search(r"requires the setting `\w+`,\s+which its deployment does not set", answer.out), (
        answer.out
    )
    for system in ("Argo CD", "Kubernetes", "GitHub", "Jira", "Confluence"):
        assert f"- {system}: " in answer.out
    assert re.search(r"STORE-\d+\S* was created", ticket.out), ticket.out + ticket.err
    assert "checkout       Degraded" in degraded.out
    assert "checkout       Healthy" in healthy.out
    assert "before: Degraded" in rollback.out
    assert "now: Healthy" in rollback.out
    missing = blind.out.partition("What I could not see")[2]
    assert "Argo CD: the application" in missing, blind.out
    assert SIGNATURE in blind.out
    assert re.search(r"runbooks   \d+ in the knowledge base", done.out)
    assert done.code == 0


async def approve(home: Path, url: str, paused: CommandResult) -> CommandResult:
    match = re.search(r"caipe approve (\w+)", paused.err)
    assert match, paused.err
    return await caipe(home, url, "approve", match[1])
