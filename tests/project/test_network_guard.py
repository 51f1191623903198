"""The guard refuses what leaves this machine, wherever it is tried, and a test cannot hide the attempt."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest
import uvloop

from network_guard import NetworkForbidden, is_local_host
from tests.conftest import ROOT, need, remove_outside_settings, take_violations

BEYOND = "192.0.2.1"  # reserved for documentation: even without the guard nobody would answer


@pytest.mark.parametrize(
    "host",
    [None, "", "localhost", "LOCALHOST.", "127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", b"localhost"],
)
def test_this_machine_is_allowed(host: object) -> None:
    assert is_local_host(host)


@pytest.mark.parametrize(
    "host",
    [
        BEYOND,
        "10.0.0.1",
        "0.0.0.0",
        "::",
        "2001:db8::1",
        "::ffff:192.0.2.1",
        "example.com",
        "127.0.0.1.example.com",
        b"example.com",
    ],
)
def test_everything_else_is_not(host: object) -> None:
    assert not is_local_host(host)


def test_a_connection_on_loopback_works() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as server,
        socket.create_connection(("localhost", server.getsockname()[1])) as client,
    ):
        assert client.getpeername()[0] == "127.0.0.1"
    assert take_violations() == []


def test_a_unix_socket_works(tmp_path: Path) -> None:
    path = str(tmp_path / "s")
    with socket.socket(socket.AF_UNIX) as server, socket.socket(socket.AF_UNIX) as client:
        server.bind(path)
        server.listen()
        client.connect(path)
    assert take_violations() == []


def test_a_connection_beyond_is_refused_and_written_down() -> None:
    with pytest.raises(NetworkForbidden, match=BEYOND):
        socket.create_connection((BEYOND, 9), timeout=1)
    assert take_violations() == [f"socket.connect to {BEYOND}:9 refused: tests stay on this machine"]


def test_a_datagram_beyond_is_refused() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, pytest.raises(NetworkForbidden):
        sock.sendto(b"x", (BEYOND, 9))
    assert len(take_violations()) == 1


def test_a_name_is_not_looked_up() -> None:
    with pytest.raises(NetworkForbidden):
        socket.getaddrinfo("example.com", 443)
    assert take_violations() == ["socket.getaddrinfo to example.com:443 refused: tests stay on this machine"]


@pytest.mark.parametrize("factory", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize("host", [BEYOND, "example.com"])
def test_no_event_loop_gets_past_it(factory: object, host: str) -> None:
    async def connect() -> None:
        await asyncio.wait_for(asyncio.open_connection(host, 9), 5)

    with asyncio.Runner(loop_factory=factory) as runner, pytest.raises(NetworkForbidden):  # type: ignore[arg-type]
        runner.run(connect())
    assert len(take_violations()) == 1


def test_uvloop_still_connects_on_loopback() -> None:
    async def connect() -> None:
        server = await asyncio.start_server(lambda _reader, writer: writer.close(), "127.0.0.1", 0)
        async with server:
            _, writer = await asyncio.open_connection("localhost", server.sockets[0].getsockname()[1])
            writer.close()
            await writer.wait_closed()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(connect())
    assert take_violations() == []


SWALLOWS = f"""
import socket
try:
    socket.create_connection(({BEYOND!r}, 9), timeout=1)
except Exception:
    print("swallowed")
"""


@pytest.mark.parametrize("inherit", [True, False])
def test_a_process_that_swallows_the_refusal_is_still_seen(
    inherit: bool, guarded_environment: dict[str, str]
) -> None:
    environment = None if inherit else guarded_environment
    done = subprocess.run(
        [sys.executable, "-c", SWALLOWS],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout == "swallowed\n"
    assert len(take_violations()) == 1


TESTS_THAT_SWALLOW = f"""
import contextlib, socket, subprocess, sys
import pytest

def test_in_process():
    with contextlib.suppress(Exception):
        socket.create_connection(({BEYOND!r}, 9), timeout=1)

def test_in_a_child():
    subprocess.run([sys.executable, "-c", {SWALLOWS!r}], check=True)

@pytest.fixture
def nosy():
    yield
    with contextlib.suppress(Exception):
        socket.getaddrinfo("example.com", 80)

def test_in_a_teardown(nosy):
    pass

def test_innocent():
    pass
"""


def test_swallowing_fails_the_test(tmp_path: Path) -> None:
    (tmp_path / "test_swallow.py").write_text(TESTS_THAT_SWALLOW)
    options = ["-p", "tests.conftest", "-p", "no:cacheprovider", f"--rootdir={tmp_path}", "-c", "/dev/null"]
    command = [sys.executable, "-m", "pytest", *options, str(tmp_path)]
    bare = {**os.environ, "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}  # half the time
    done = subprocess.run(
        command, cwd=ROOT, env=bare, capture_output=True, text=True, timeout=100, check=False
    )
    assert done.returncode == 1, done.stdout + done.stderr
    assert "2 failed, 2 passed, 1 error" in done.stdout
    assert "network guard, in the teardown of this test" in done.stdout
    assert take_violations() == []  # they were the inner run's


def test_variables_of_ours_and_of_providers_are_removed() -> None:
    ours = [
        "LLM_MODEL",
        "OPENAI_API_KEY",
        "https_proxy",
        "HTTPS_PROXY",
        "A2A_PORT",
        "ENABLE_JIRA",
        "EXTERNAL_URL",
    ]
    environ = dict.fromkeys([*ours, "PATH", "CI"], "x")
    remove_outside_settings(environ)
    assert set(environ) == {"PATH", "CI"}


def test_each_test_has_a_folder_of_its_own(tmp_path: Path) -> None:
    assert Path.cwd() == tmp_path
    assert not list(tmp_path.iterdir())


def test_a_missing_service_fails_in_ci_and_skips_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    need("postgres", True, "unused")
    monkeypatch.setenv("CI", "true")
    with pytest.raises(pytest.fail.Exception, match="postgres is needed in CI: not installed"):
        need("postgres", False, "not installed")
    monkeypatch.delenv("CI")
    with pytest.raises(pytest.skip.Exception, match="not installed"):
        need("postgres", False, "not installed")
