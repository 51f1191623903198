"""MCP servers on stdio: one session for many calls, and servers that die, hang, lie or change."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest
import uvloop
from langchain_core.tools import BaseTool

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.mcp_client import orphan_reaper
from ai_platform_engineering.mcp_client.mcp_errors import (
    McpCallLost,
    McpToolFailed,
    McpToolGone,
    McpUnavailable,
)
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool
from tests.support.clocks import advance_clock
from tests.support.fakes.mcp_servers import (
    LONG,
    by_name,
    list_processes,
    list_server_pids,
    open_sessions,
    raw_stdio_server,
    run_python_script,
    sdk_stdio_server,
    until,
)


async def who(tool: Any) -> dict[str, Any]:
    identity: dict[str, Any] = json.loads(await tool.ainvoke({}))
    return identity


# --- one session ----------------------------------------------------------------------------------


async def test_a_server_is_started_once_for_everybody_with_its_credentials(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tool_lists = await asyncio.gather(
            *(sessions.tools(f"agent{number}", raw_stdio_server()) for number in range(3))
        )
        other = await sessions.tools("other", raw_stdio_server(API_TOKEN="another"))
        identities = [await who(by_name(tools)["who"]) for tools in [*tool_lists, other]]
        assert len({identity["token"] for identity in identities[:3]}) == 1
        assert identities[3]["token"] != identities[0]["token"]
        assert len(list_server_pids(tmp_path)) == 2


async def test_nothing_starts_before_it_is_needed(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        assert sessions.cached_tools("raw", raw_stdio_server()) is None
        assert sessions.state("raw", raw_stdio_server()).status == "not started"
        assert list_processes(tmp_path) == {}


async def test_a_hundred_parallel_calls_are_not_mixed_up(tmp_path: Path) -> None:
    values = [uuid.uuid4().hex for _ in range(100)]
    async with open_sessions(tmp_path) as sessions:
        echo = by_name(await sessions.tools("raw", raw_stdio_server()))["echo"]
        assert await asyncio.gather(*(echo.ainvoke({"value": value}) for value in values)) == values
        assert len(list_server_pids(tmp_path)) == 1


async def test_a_server_of_the_protocols_own_library(tmp_path: Path) -> None:
    number = random.randrange(10**6)
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("real", sdk_stdio_server()))
        assert await tools["double"].ainvoke({"number": number}) == str(2 * number)
        values = [uuid.uuid4().hex for _ in range(100)]
        assert await asyncio.gather(*(tools["echo"].ainvoke({"value": value}) for value in values)) == values
        [picture] = await tools["picture"].ainvoke({})
        assert picture["extras"]["description"] == "[image: image/png, 90 bytes]"
        with pytest.raises(McpToolFailed, match="not today"):
            await tools["fail"].ainvoke({"text": "not today"})
        state = sessions.state("real", sdk_stdio_server())
        assert (state.status, state.tools) == ("ready", 8)


async def test_large_values_pass_both_ways(tmp_path: Path) -> None:
    value = uuid.uuid4().hex * 60_000
    async with open_sessions(tmp_path) as sessions:
        echo = by_name(await sessions.tools("raw", raw_stdio_server()))["echo"]
        assert await asyncio.gather(echo.ainvoke({"value": value}), echo.ainvoke({"value": value[1:]})) == [
            value,
            value[1:],
        ]


async def test_an_unused_session_is_closed_and_opened_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    idle_limit = 10 * LONG
    async with open_sessions(tmp_path, idle=idle_limit) as sessions:
        tool = by_name(await sessions.tools("raw", raw_stdio_server()))["who"]
        first = await who(tool)
        advance_clock(monkeypatch, idle_limit)
        await until(lambda: not list_server_pids(tmp_path), "the end of the idle server")
        assert sessions.state("raw", raw_stdio_server()).status == "not started"
        assert (await who(tool))["token"] != first["token"]


# --- checks ---------------------------------------------------------------------------------------


async def test_a_check_starts_a_server_and_ends_it_and_its_tools_are_known(tmp_path: Path) -> None:
    server = raw_stdio_server(marks=tmp_path)
    async with open_sessions(tmp_path, cache_dir=tmp_path / "cache") as sessions:
        await sessions.check("raw", server)
        assert list_server_pids(tmp_path) == []
        assert sessions.state("raw", server).status == "not started"
        assert "who" in by_name(sessions.cached_tools("raw", server) or [])
        assert sessions.failed_checks({"raw": server}) == {}
        await until(lambda: list((tmp_path / "cache").glob("tools-*")), "the list on disk")
    assert len(list(tmp_path.glob("pid-*"))) == 1


async def test_a_check_leaves_a_server_alone_that_somebody_uses(tmp_path: Path) -> None:
    server = raw_stdio_server()
    async with open_sessions(tmp_path) as sessions:
        tool = by_name(await sessions.tools("raw", server))["who"]
        first = await who(tool)
        await sessions.check("raw", server)
        assert list_server_pids(tmp_path) == [first["pid"]]
        assert await who(tool) == first


async def test_whoever_needs_a_server_during_its_check_keeps_it(tmp_path: Path) -> None:
    server = raw_stdio_server("--start-delay", "0.5", marks=tmp_path)
    async with open_sessions(tmp_path) as sessions:
        checking = asyncio.create_task(sessions.check("raw", server))
        await until(lambda: sessions.state("raw", server).status == "starting", "the start")
        tool = by_name(await sessions.tools("raw", server))["who"]
        await checking
        assert list_server_pids(tmp_path) == [(await who(tool))["pid"]]
    assert len(list(tmp_path.glob("pid-*"))) == 1


async def test_a_failed_check_is_forgotten_when_the_server_starts_after_all(tmp_path: Path) -> None:
    program = tmp_path / "server"
    program.write_text("#!/bin/sh\nexit 3\n")
    program.chmod(0o755)
    server = McpServer(command=str(program))
    async with open_sessions(tmp_path) as sessions:
        with pytest.raises(McpUnavailable, match="it exited with code 3"):
            await sessions.check("shaky", server)
        assert sessions.failed_checks({"shaky": server}) == {"shaky": "it exited with code 3"}
        good = raw_stdio_server()
        program.write_text(f"#!/bin/sh\nexec {good.command} {' '.join(good.args)}\n")
        assert await sessions.tools("shaky", server)
        assert sessions.failed_checks({"shaky": server}) == {}


# --- servers that die -----------------------------------------------------------------------------


async def test_a_killed_server_is_back_with_the_next_call(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tool = by_name(await sessions.tools("raw", raw_stdio_server()))["who"]
        first = await who(tool)
        os.kill(first["pid"], signal.SIGKILL)
        await until(
            lambda: sessions.state("raw", raw_stdio_server()).reason == "it was ended by signal 9",
            "notice of the death",
        )
        assert sessions.state("raw", raw_stdio_server()).status == "failed"
        second = await who(tool)
        assert second["token"] != first["token"]
        assert sessions.state("raw", raw_stdio_server()).status == "ready"
        assert list_server_pids(tmp_path) == [second["pid"]]


async def test_a_server_that_dies_in_a_call_fails_that_call_and_serves_the_next(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(marks=tmp_path)))
        waiting = asyncio.create_task(tools["hang"].ainvoke({}))
        await until((tmp_path / "hanging").exists)
        with pytest.raises(McpCallLost, match="Whether it took effect is unknown"):
            await tools["die"].ainvoke({})
        with pytest.raises(McpCallLost):
            await waiting
        assert len(await who(tools["who"])) == 2


async def test_a_call_that_does_no_harm_is_repeated_when_the_server_dies_in_it(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(marks=tmp_path)))
        first = await who(tools["who"])
        waiting = asyncio.create_task(tools["hang_once"].ainvoke({}))
        await until((tmp_path / "hung").exists)
        os.kill(first["pid"], signal.SIGKILL)
        assert await waiting == (await who(tools["who"]))["token"]


async def test_a_request_that_a_dead_server_never_read_is_repeated(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(marks=tmp_path)))
        first = await who(tools["who"])
        stalled = asyncio.create_task(tools["stall"].ainvoke({"seconds": 60}))
        await until((tmp_path / "stalled").exists)
        second = asyncio.create_task(who(tools["who"]))  # not marked as harmless, and provably not begun
        await asyncio.sleep(0.05)
        os.kill(first["pid"], signal.SIGKILL)
        assert (await second)["token"] != first["token"]
        with pytest.raises(McpCallLost):
            await stalled


async def test_the_last_answer_of_a_server_counts(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        for _ in range(5):
            assert await tools["last_words"].ainvoke({}) == "last_words"
            await until(
                lambda: sessions.state("raw", raw_stdio_server()).status == "failed", "notice of the end"
            )


@pytest.mark.parametrize(
    ("server", "reason"),
    [
        (raw_stdio_server("--exit", "no licence found"), "it exited with code 3: no licence found"),
        (
            McpServer(command="there-is-no-such-program"),
            "the program there-is-no-such-program is not installed, or not on the PATH",
        ),
        (McpServer(command="sh", cwd="nowhere"), "its folder nowhere does not exist"),
        (McpServer(command="sh", args=("-c", "exec true")), "it exited with code 0"),
    ],
)
async def test_a_server_that_does_not_start_says_why(tmp_path: Path, server: McpServer, reason: str) -> None:
    async with open_sessions(tmp_path) as sessions:
        with pytest.raises(McpUnavailable) as error:
            await sessions.tools("broken", server)
        assert str(error.value) == f"The tool server broken is not available: {reason}"
        state = sessions.state("broken", server)
        assert (state.status, state.reason) == ("failed", reason)
        assert state.since is not None


async def test_a_broken_server_costs_only_its_own_tools(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    servers = {
        "good": raw_stdio_server(),
        "gone": raw_stdio_server("--exit", "bad luck"),
        "mute": raw_stdio_server("--hang", marks=tmp_path),
        "mad": raw_stdio_server("--garbage", "some"),
    }
    async with open_sessions(tmp_path) as sessions:
        # The good one is not held up by the mute one, which takes as long as it may.
        good = asyncio.create_task(sessions.tools("good", servers["good"]))
        together = asyncio.create_task(sessions.agent_tools(servers))
        assert len(await who(by_name(await good)["who"])) == 2
        await until(lambda: sessions.state("gone", servers["gone"]).status == "failed", "the early end")
        await until(lambda: "mcp mad: it writes something else" in caplog.text, "the garbage")
        await until(lambda: list(tmp_path.glob("pid-*")), "the start of the mute one")
        assert not together.done()
        advance_clock(monkeypatch, LONG)
        agent_tools = await together
        assert {tool.metadata["server"] for tool in agent_tools.tools if tool.metadata} == {"good"}
        assert agent_tools.instructions == {"good": "Ask anything."}
        assert agent_tools.problems == {
            "gone": "it exited with code 3: bad luck",
            "mute": f"it did not answer in {LONG:g} seconds",
            "mad": f"it did not answer in {LONG:g} seconds; what it writes to its output is not MCP",
        }
        assert {state.server: state.status for state in sessions.states()} == {
            "good": "ready", "gone": "failed", "mute": "failed", "mad": "failed",
        }  # fmt: skip


async def test_a_server_that_took_long_to_fail_is_left_alone_for_a_while(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = raw_stdio_server("--hang", marks=tmp_path)
    async with open_sessions(tmp_path) as sessions:
        starting = asyncio.create_task(sessions.tools("mute", server))
        await until(lambda: list(tmp_path.glob("pid-*")), "the start")
        advance_clock(monkeypatch, LONG)
        with pytest.raises(McpUnavailable):
            await starting
        for _ in range(3):
            with pytest.raises(
                McpUnavailable,
                match=rf"it did not answer in {LONG:g} seconds; the next attempt is possible in \d+ seconds",
            ):
                await sessions.tools("mute", server)
        assert len(list(tmp_path.glob("pid-*"))) == 1


# --- servers that are slow or hang ----------------------------------------------------------------


async def test_everybody_waits_for_one_slow_start(tmp_path: Path) -> None:
    server = raw_stdio_server("--start-delay", "0.5")
    async with open_sessions(tmp_path) as sessions:
        listings = [asyncio.create_task(sessions.tools("slow", server)) for _ in range(5)]
        await until(lambda: sessions.state("slow", server).status == "starting")
        listings[0].cancel()  # one that gives up does not end it for the others
        tool_lists = await asyncio.gather(*listings[1:])
        assert {tuple(by_name(tools)) for tools in tool_lists} == {tuple(by_name(tool_lists[0]))}
        assert len(list_server_pids(tmp_path)) == 1


async def test_a_call_that_hangs_is_given_up_and_disturbs_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(marks=tmp_path)))
        first = await who(tools["who"])
        hanging = asyncio.create_task(tools["hang"].ainvoke({}))
        await until((tmp_path / "hanging").exists)
        # In progress when the other one is given up, and for longer than that one had: it keeps reporting
        # progress.
        counting = asyncio.create_task(tools["count"].ainvoke({"to": 100_000, "every": 0.01}))
        await wait_for_progress(tmp_path, tools)
        advance_clock(monkeypatch, 0.6 * LONG)
        await wait_for_progress(tmp_path, tools)
        advance_clock(monkeypatch, 0.6 * LONG)
        with pytest.raises(McpCallLost, match=f"gave no answer in {LONG:g} seconds"):
            await hanging
        (tmp_path / "enough").touch()
        assert await counting == "with progress"
        assert (await who(tools["who"])) == first
        assert json.loads(await tools["withdrawn"].ainvoke({})) == ["caller cancelled"]


async def wait_for_progress(marks: Path, tools: dict[str, BaseTool]) -> None:
    """Waits until the call of `count` has reported progress, and we have read it."""
    before = len(list(marks.glob("counted-*")))
    await until(lambda: len(list(marks.glob("counted-*"))) > before, "progress")
    await who(tools["who"])  # answered later, so read later


async def test_a_server_that_answers_nobody_is_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(marks=tmp_path)))
        first = await who(tools["who"])
        stalled = asyncio.create_task(tools["stall"].ainvoke({"seconds": 600}))
        await until((tmp_path / "stalled").exists)
        advance_clock(monkeypatch, LONG)
        with pytest.raises(McpCallLost):
            await stalled
        again = asyncio.create_task(who(tools["who"]))
        await asyncio.sleep(0.01)  # the server is being pinged
        advance_clock(monkeypatch, LONG)
        assert (await again)["token"] != first["token"]
        await until(lambda: first["pid"] not in list_server_pids(tmp_path), "the end of the stalled server")


async def test_a_cancelled_caller_is_gone_at_once_and_the_server_is_told(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(marks=tmp_path)))
        calls = [asyncio.create_task(tools["hang"].ainvoke({})) for _ in range(2)]
        await until((tmp_path / "hanging").exists)
        calls[0].cancel()
        with pytest.raises(asyncio.CancelledError):
            await calls[0]
        assert not calls[1].done()
        for _ in range(1000):
            if cancellations := json.loads(await tools["withdrawn"].ainvoke({})):
                break
        assert cancellations == ["caller cancelled"]
        calls[1].cancel()


def test_answers_to_cancelled_calls_disturb_no_other(tmp_path: Path) -> None:
    async def main() -> None:
        async with open_sessions(tmp_path) as sessions:
            tools = by_name(await sessions.tools("raw", raw_stdio_server()))

            async def impatient() -> None:
                for _ in range(40):
                    call = asyncio.create_task(tools["echo"].ainvoke({"value": "x"}))
                    await asyncio.wait({call}, timeout=random.random() * 0.05)  # as long as the answer takes
                    call.cancel()
                    await asyncio.gather(call, return_exceptions=True)

            async def patient() -> None:
                for _ in range(40):
                    value = uuid.uuid4().hex
                    assert await tools["echo"].ainvoke({"value": value}) == value

            first = await who(tools["who"])
            await asyncio.gather(*(impatient() for _ in range(10)), *(patient() for _ in range(5)))
            assert await who(tools["who"]) == first

    uvloop.run(main())  # where the library's session breaks most easily; it is also what the server runs on


# --- servers that lie -----------------------------------------------------------------------------


async def test_other_lines_between_the_messages_are_skipped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG")
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("noisy", raw_stdio_server("--noise")))
        values = [uuid.uuid4().hex for _ in range(20)]
        assert await asyncio.gather(*(tools["echo"].ainvoke({"value": value}) for value in values)) == values
    assert "mcp noisy: it writes something else than MCP to its output" in caplog.text
    assert "unheard" not in caplog.text
    assert "a line for people" not in caplog.text


async def test_endless_garbage_ends_the_attempt(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        with pytest.raises(McpUnavailable, match="what it writes to its output is not MCP"):
            await sessions.tools("mad", raw_stdio_server("--garbage", "endless"))


@pytest.mark.parametrize(
    ("limits", "reason"),
    [
        ({"message_values": 5_000}, "It has too many values: 5000 are the most"),
        ({"message_bytes": 50_000}, "It is larger than 50000 bytes"),
    ],
)
async def test_an_answer_that_would_cost_too_much_is_not_read(
    tmp_path: Path, limits: dict[str, int], reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    result = {"content": [], "structuredContent": {"x": [[], [], [], []] * 5_000}}
    async with open_sessions(tmp_path, **limits) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        with pytest.raises(McpCallLost, match="was lost while reply was running"):
            await tools["reply"].ainvoke({"result": result})
        assert f"mcp raw: what it sent is not read. {reason}" in caplog.text
        assert await tools["echo"].ainvoke({"value": "started again"}) == "started again"


async def test_answers_that_are_failures(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        words = uuid.uuid4().hex
        for name in ("fail", "refuse"):
            with pytest.raises(McpToolFailed) as error:
                await tools[name].ainvoke({"text": f"no {words}"})
            assert str(error.value) == f"no {words}"
            assert isinstance(error.value, CaipeError)
        with pytest.raises(McpToolFailed, match="its answer is not valid MCP"):
            await tools["nonsense"].ainvoke({})
        assert len(await who(tools["who"])) == 2


# --- servers that change --------------------------------------------------------------------------


async def test_a_changed_list_of_tools_is_noticed(tmp_path: Path) -> None:
    async with open_sessions(tmp_path, cache_dir=tmp_path / "cache") as sessions:
        servers = {"raw": raw_stdio_server()}
        before = by_name((await sessions.agent_tools(servers)).tools)
        revision = sessions.revision(servers)
        await before["change"].ainvoke({"add": ["brand_new"], "remove": ["echo"]})
        await until(lambda: sessions.revision(servers) != revision, "notice of the change")
        after = by_name((await sessions.agent_tools(servers)).tools)
        assert after.keys() ^ before.keys() == {"brand_new", "echo"}
        assert await after["brand_new"].ainvoke({}) == "brand_new"
        with pytest.raises(
            McpToolGone, match=r"The tool server raw no longer has a tool echo\. Its tools are now: who, "
        ):
            await before["echo"].ainvoke({"value": "x"})


async def test_a_tool_that_vanished_without_a_word_is_explained(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        await tools["change"].ainvoke({"remove": ["who"], "quietly": True})
        with pytest.raises(McpToolGone, match="no longer has a tool who"):
            await tools["who"].ainvoke({})


# --- the end --------------------------------------------------------------------------------------


async def test_closing_ends_stubborn_servers_and_their_children_and_calls_under_way(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(
            await sessions.tools("stubborn", raw_stdio_server("--stubborn", "--helper", marks=tmp_path))
        )
        calls = [asyncio.create_task(tools["hang"].ainvoke({})) for _ in range(3)]
        starting = asyncio.create_task(sessions.tools("mute", raw_stdio_server("--hang", "--stubborn")))
        await until((tmp_path / "hanging").exists)
        await until(lambda: len(list_server_pids(tmp_path)) == 3, "all processes")
    for call in calls:
        with pytest.raises(McpCallLost):
            await call
    with pytest.raises(McpUnavailable):
        await starting
    with pytest.raises(McpUnavailable, match="the system is being stopped"):
        await tools["who"].ainvoke({})


# Forks one process per way to die, so that the libraries are loaded once. Each starts an ordinary server, one
# that neither the end of its input nor SIGTERM ends and that has a child, and one that has not answered yet.
PARENTS = """
import asyncio, os, sys
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client import protocol
from ai_platform_engineering.mcp_client import orphan_reaper
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

OPTIONS = (), ("--stubborn", "--helper"), ("--hang", "--sign")

async def main(arguments):
    sessions = McpSessionPool(environment={**os.environ, "HOME": os.getcwd(), "TMPDIR": os.getcwd()})
    mute_sign = os.path.abspath("mute")
    options = *OPTIONS[:2], (*OPTIONS[2], mute_sign)
    servers = [McpServer(command=sys.executable, args=(*arguments, *more)) for more in options]
    plain, stubborn, mute = servers
    await asyncio.gather(sessions.tools("plain", plain), sessions.tools("stubborn", stubborn))
    starting = asyncio.create_task(sessions.tools("mute", mute))
    while not os.path.exists("mute"):
        await asyncio.sleep(0.01)
    with open("ready.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("ready.new", "ready")
    while not os.path.exists("exception"):
        await asyncio.sleep(0.01)
    raise RuntimeError("on purpose")

folders = sys.argv[1].split(":")
for folder in folders:
    if os.fork() == 0:
        os.chdir(folder)
        if "uvloop" in folder:
            import uvloop
            uvloop.run(main(sys.argv[2:]))
        else:
            asyncio.run(main(sys.argv[2:]))
        os._exit(0)
for _ in folders:
    os.wait()
"""
DEATHS = ("asyncio-SIGKILL", "uvloop-SIGKILL", "asyncio-SIGTERM", "asyncio-SIGINT", "uvloop-exception")


async def test_whatever_ends_us_no_server_is_left(tmp_path: Path) -> None:
    folders = [tmp_path / death for death in DEATHS]
    for folder in folders:
        folder.mkdir()
    with run_python_script(PARENTS, tmp_path, ":".join(map(str, folders)), *raw_stdio_server().args):
        for folder in folders:
            await until((folder / "ready").exists, f"the start for {folder.name}")
            assert len(list_server_pids(folder)) == 4
            death = folder.name.partition("-")[2]
            if death == "exception":
                (folder / death).touch()
            else:
                os.kill(int((folder / "ready").read_text()), signal.Signals[death])
        for folder in folders:
            await until(
                lambda folder=folder: not list_processes(folder),
                f"the end of all processes after {folder.name}",
            )


def test_a_server_that_we_could_not_register_any_more_is_ended_too(tmp_path: Path) -> None:
    """We may be killed between the start of a server and the moment in which we know its process."""
    reaper = subprocess.Popen([sys.executable, "-I", "-S", orphan_reaper.__file__], stdin=subprocess.PIPE)
    mark, other = uuid.uuid4().hex, uuid.uuid4().hex
    started = [
        subprocess.Popen(
            ["sleep", "600"],
            env={"PATH": os.environ["PATH"], orphan_reaper.MARK_VARIABLE: process_mark},
            start_new_session=True,
        )
        for process_mark in (mark, other)
    ]
    try:
        assert reaper.stdin is not None
        reaper.stdin.write(f"?{other}\n+{started[1].pid} {other}\n-{started[1].pid}\n?{mark}\n".encode())
        reaper.stdin.close()
        assert started[0].wait(timeout=LONG) == -signal.SIGTERM
        reaper.wait(timeout=LONG)
        assert (
            started[1].poll() is None
        )  # it was said to have ended: whoever has its number now is a stranger
    finally:
        for process in started:
            process.kill()
            process.wait()


# --- what goes in and out -------------------------------------------------------------------------


async def test_a_server_gets_its_own_variables_and_none_of_our_keys(tmp_path: Path) -> None:
    ours = {
        "OPENAI_API_KEY": uuid.uuid4().hex,
        "A2A_AUTH_SHARED_KEY": uuid.uuid4().hex,
        "HTTPS_PROXY": "http://proxy:3128",
        "LC_ALL": "C",
    }
    async with open_sessions(tmp_path, environment=ours) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(REGION="here")))
        environment = json.loads(await tools["environment"].ainvoke({}))
    assert environment.keys() - {"LC_CTYPE", "CAIPE_MCP_START"} == {
        "PATH",
        "HOME",
        "TMPDIR",
        "HTTPS_PROXY",
        "LC_ALL",
        "REGION",
    }
    assert environment["REGION"] == "here"


async def test_secrets_of_a_server_reach_neither_log_nor_error_nor_model(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    caplog.set_level("DEBUG")
    token, password = uuid.uuid4().hex, uuid.uuid4().hex
    env = {"API_TOKEN": token, "DB_URL": f"postgres://me:{password}@db/x", "PLACE": "an ordinary value"}
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server(**env)))
        environment = await tools["environment"].ainvoke({})
        assert "an ordinary value" in environment
        assert "***" in environment
        await tools["say"].ainvoke({"text": f"using {token}\nand {password}\n"})
        with pytest.raises(McpToolFailed) as error:
            await tools["fail"].ainvoke({"text": f"{token} was refused"})
        assert str(error.value) == "*** was refused"
        option = uuid.uuid4().hex
        with pytest.raises(McpUnavailable, match=r"it exited with code 3: bad token \*\*\* or \*\*\*"):
            await sessions.tools(
                "raw",
                raw_stdio_server("--exit", f"bad token {token} or {option}", "--api-token", option, **env),
            )
        await until(lambda: "mcp raw says: using ***" in caplog.text, "the log")
        assert token not in environment + caplog.text + repr(sessions.states())
        assert password not in environment + caplog.text
    assert capfd.readouterr() == ("", "")


async def test_a_chatty_server_does_not_fill_the_log(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("DEBUG", logger="ai_platform_engineering")
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        await tools["say"].ainvoke({"text": "blah\n" * 5000 + "x" * 100_000 + "\n\x1b[31mred\n"})
        await until(lambda: "says more, which is left out" in caplog.text, "the log")
    assert len([record for record in caplog.records if "says" in record.message]) <= 201
    assert max(len(record.message) for record in caplog.records) < 600


async def test_sessions_end_with_an_error_of_ours_after_a_failed_start(tmp_path: Path) -> None:
    sessions = McpSessionPool(environment={})
    with pytest.raises(McpUnavailable, match="not on the PATH"):
        await sessions.tools("lost", McpServer(command="sh"))
    await sessions.aclose()
