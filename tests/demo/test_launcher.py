"""The launcher serves all stand-ins on one estate; `caipe demo fault`, `status` and `reset` change it."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import httpx
import pytest

from ai_platform_engineering.demo.estate.control_api import CONTROL_FILE, ControlAddress
from ai_platform_engineering.demo.launcher import LaunchedDemo, serve_demo
from ai_platform_engineering.demo.stand_ins import STAND_INS
from tests.support.harness import PLAIN
from tests.support.processes import TIMEOUT, CommandResult, invoke_caipe

NAMES = [stand_in.name for stand_in in STAND_INS]


@asynccontextmanager
async def demo_of(home: Path, seed: int = 3) -> AsyncIterator[LaunchedDemo]:
    async with serve_demo(STAND_INS, seed, home / "demo") as launched:
        yield launched


async def caipe_demo(home: Path, *arguments: str) -> CommandResult:
    return await invoke_caipe("demo", *arguments, env={"CAIPE_HOME": str(home)})


async def argocd_request(demo: LaunchedDemo, method: str, path: str, **more: object) -> httpx.Response:
    variables = demo.variables["argocd"]
    headers = {"Authorization": f"Bearer {variables['ARGOCD_TOKEN']}"}
    url = f"{variables['ARGOCD_API_URL']}/api/v1/applications/checkout{path}"
    async with httpx.AsyncClient(verify=PLAIN, headers=headers) as http:
        return await http.request(method, url, **more)  # type: ignore[arg-type]


async def test_every_stand_in_answers_and_nothing_is_left_at_the_end(tmp_path: Path) -> None:
    async with demo_of(tmp_path) as demo:
        address = ControlAddress.load(tmp_path / "demo")
        assert address is not None
        async with httpx.AsyncClient(verify=PLAIN) as http:
            refused = await http.get(f"{address.url}/status")
        status = await caipe_demo(tmp_path, "status")
        application = await argocd_request(demo, "GET", "")

    assert list(demo.variables) == NAMES
    assert len(demo.runbooks) > 5
    assert len({runbook.id for runbook in demo.runbooks}) == len(demo.runbooks)
    assert refused.status_code == 401
    assert application.json()["status"]["health"]["status"] == "Degraded"
    assert demo.company in status.out
    assert "checkout       Degraded" in status.out
    assert (status.code, "supervisor is not running" in status.out) == (1, True)
    assert list((tmp_path / "demo").iterdir()) == []


async def test_faults_of_a_system_are_switched_on_added_to_listed_and_switched_off(tmp_path: Path) -> None:
    async with demo_of(tmp_path) as demo:
        failing = await caipe_demo(tmp_path, "fault", "argocd", "--errors", "1")
        slow = await caipe_demo(tmp_path, "fault", "argocd", "--latency", "0.01")
        answer = await argocd_request(demo, "GET", "")
        listed = await caipe_demo(tmp_path, "faults")
        everything = await caipe_demo(tmp_path, "fault", "all", "--rate-limit", "30")
        off = await caipe_demo(tmp_path, "fault", "argocd", "--off")
        healed = await argocd_request(demo, "GET", "")

    assert failing.out.split() == ["argocd", "100%", "errors"]
    assert slow.out.split() == ["argocd", "100%", "errors,", "0.01s", "latency"]
    assert answer.status_code == 503
    assert [line.split()[0] for line in listed.out.splitlines()] == NAMES
    assert everything.out.count("at most 30 requests in a minute") == len(NAMES)
    assert off.out.split() == ["argocd", "no", "faults"]
    assert healed.status_code == 200


async def test_a_reset_brings_the_first_state_back_and_switches_faults_off(tmp_path: Path) -> None:
    async with demo_of(tmp_path) as demo:
        history = (await argocd_request(demo, "GET", "")).json()["status"]["history"]
        await argocd_request(demo, "POST", "/sync", json={"revision": history[-2]["revision"]})
        changed = (await argocd_request(demo, "GET", "")).json()["status"]
        await caipe_demo(tmp_path, "fault", "argocd", "--errors", "1")
        done = await caipe_demo(tmp_path, "reset")
        status = (await argocd_request(demo, "GET", "")).json()["status"]

    assert changed["health"]["status"] in ("Progressing", "Healthy")
    assert (done.code, demo.company in done.out) == (0, True)
    assert status["health"]["status"] == "Degraded"
    assert len(status["history"]) == len(history)


RUBBISH = [
    (["fault", "nothing", "--errors", "0.2"], 1, "there are argocd"),
    (["fault", "../status", "--off"], 1, "there are argocd"),
    (["fault", "argocd", "--errors", "5"], 1, "--errors"),
    (["fault", "argocd", "--errors", "nan"], 1, "--errors"),
    (["fault", "argocd", "--latency", "-1"], 1, "--latency"),
    (["fault", "argocd", "--rate-limit", "x"], 2, "--rate-limit"),
    (["fault", "argocd"], 2, "--off"),
    (["fault", "argocd", "--off", "--errors", "1"], 2, "--off"),
    (["fault"], 2, "NAME"),
    (["--seed", "-1"], 2, "--seed"),
    (["--port", "70000"], 2, "--port"),
    (["explode"], 2, "explode"),
]


async def test_what_makes_no_sense_is_refused_in_a_sentence(tmp_path: Path) -> None:
    async with demo_of(tmp_path):
        results = [await caipe_demo(tmp_path, *arguments) for arguments, _, _ in RUBBISH]
        listed = await caipe_demo(tmp_path, "faults")
    for done, (_, code, words) in zip(results, RUBBISH, strict=True):
        output = done.out + done.err
        assert (done.code, words in output, "Traceback" in output) == (code, True, False), output
    assert listed.out.count("no faults") == len(NAMES)


@pytest.mark.parametrize("command", ["faults", "status", "reset"])
async def test_without_a_running_demo_the_commands_say_how_to_start_one(tmp_path: Path, command: str) -> None:
    folder = tmp_path / "demo"
    done = await caipe_demo(tmp_path, command)
    # A file that a killed demo has left behind.
    ControlAddress(url="http://127.0.0.1:9", token="old").save(folder)
    stale = await caipe_demo(tmp_path, command)
    assert (done.code, stale.code) == (1, 1)
    assert "caipe demo" in done.err
    assert "No demo is running" in stale.err


async def test_a_second_demo_and_a_port_in_use_and_a_closed_folder_are_told_before_anything_starts(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    async with demo_of(tmp_path):
        second = await caipe_demo(tmp_path, "--port", "0")
    server = await asyncio.start_server(lambda *_: None, "127.0.0.1", unused_tcp_port)
    async with server:
        busy = await caipe_demo(tmp_path, "--port", str(unused_tcp_port))
    (tmp_path / "file").write_text("no folder")
    closed = await caipe_demo(tmp_path / "file", "--port", "0")
    assert (second.code, "running already" in second.err) == (1, True)
    assert (busy.code, f"port {unused_tcp_port}" in busy.err, "--port" in busy.err) == (1, True, True)
    assert (closed.code, "CAIPE_HOME" in closed.err) == (1, True)
    for done in (second, busy, closed):
        assert "Traceback" not in done.err


async def test_the_process_ends_with_its_stdin_and_removes_its_files(
    guarded_environment: dict[str, str], tmp_path: Path
) -> None:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "ai_platform_engineering.demo",
        "--seed",
        "5",
        "--folder",
        str(tmp_path),
        env=guarded_environment,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        limit=4_000_000,
    )
    assert process.stdout is not None
    assert process.stdin is not None
    async with asyncio.timeout(TIMEOUT):
        line = json.loads(await process.stdout.readline())
        was_running = (tmp_path / CONTROL_FILE).exists()
        process.stdin.close()
        code = await process.wait()
    assert (was_running, code) == (True, 0)
    assert list(line["variables"]) == NAMES
    assert list(tmp_path.iterdir()) == []
