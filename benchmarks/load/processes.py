"""Servers as processes on loopback ports, and what the kernel says of their CPU and memory."""

import contextlib
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
_START_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Server:
    """A started server; `started` is how many seconds it took until it was ready."""

    port: int
    pid: int
    started: float
    home: Path

    def cpu_seconds(self) -> float:
        """User and system time of the process and its descendants."""
        return sum(_cpu_seconds(pid) for pid in self._processes())

    def resident_mib(self) -> float:
        """Of the process and its descendants."""
        return sum(_resident_mib(pid) for pid in self._processes())

    def own_resident_mib(self) -> float:
        """Of the process alone: workers come and go."""
        return _resident_mib(self.pid)

    def process_count(self) -> int:
        return len(self._processes())

    def descriptor_count(self) -> int:
        return len(list(Path(f"/proc/{self.pid}/fd").iterdir()))

    def _processes(self) -> list[int]:
        pids = [self.pid]
        for pid in pids:
            with contextlib.suppress(OSError):
                for children in Path(f"/proc/{pid}/task").glob("*/children"):
                    pids += [int(child) for child in children.read_text().split()]
        return pids


def _cpu_seconds(pid: int) -> float:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _resident_mib(pid: int) -> float:
    try:
        return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20
    except OSError:
        return 0.0


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


@contextlib.contextmanager
def run_model() -> Iterator[str]:
    """The scripted model; its base URL."""
    with run_model_server() as server:
        yield model_url(server)


@contextlib.contextmanager
def run_model_server() -> Iterator[Server]:
    """The scripted model as a process."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.load.scripted_model", str(port)]
    with run_server(command, port, {}, "/health") as server:
        yield server


def model_url(server: Server) -> str:
    return f"http://127.0.0.1:{server.port}/v1"


@contextlib.contextmanager
def run_round_robin(servers: Sequence[Server]) -> Iterator[Server]:
    """A load balancer in front of the servers, ready when the first one of them is."""
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.load.round_robin", str(port)]
    command += [str(server.port) for server in servers]
    with run_server(command, port, {}, "/ready") as balancer:
        yield balancer


@contextlib.contextmanager
def run_proxy(model_url: str) -> Iterator[Server]:
    port = free_port()
    command = [sys.executable, "-m", "benchmarks.load.plain_proxy", str(port), model_url]
    with run_server(command, port, {}, "/ready") as server:
        yield server


@contextlib.contextmanager
def run_supervisor(
    model_url: str, variables: Mapping[str, str] | None = None, *, home: Path | None = None
) -> Iterator[Server]:
    """`caipe serve` with the scripted model, and limits above what is measured."""
    port = free_port()
    environment = {
        "LLM_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_KEY": "scripted",
        "RUNS_MAX_WORKING": "2000",
        "RUNS_MAX_WORKING_PER_PERSON": "2000",
        "RUN_QUEUE_LIMIT_PER_PERSON": "20000",
        "A2A_MAX_STREAMS": "2000",
        "A2A_MAX_STREAMS_PER_USER": "2000",
        "A2A_MAX_REQUESTS_PER_MINUTE": "1000000",
        "A2A_MAX_CONNECTIONS": "3000",
        **(variables or {}),
    }
    command = [str(Path(sys.executable).with_name("caipe")), "serve", "--port", str(port)]
    with run_server(command, port, environment, "/ready", home=home) as server:
        yield server


@contextlib.contextmanager
def run_agent(name: str, model_url: str, variables: Mapping[str, str]) -> Iterator[Server]:
    """`caipe agent NAME` with the scripted model."""
    port = free_port()
    environment = {
        "LLM_MODEL": "openai:scripted",
        "OPENAI_BASE_URL": model_url,
        "OPENAI_API_KEY": "scripted",
        **variables,
    }
    command = [str(Path(sys.executable).with_name("caipe")), "agent", name, "--port", str(port)]
    with run_server(command, port, environment, "/ready") as server:
        yield server


@contextlib.contextmanager
def run_server(
    command: list[str], port: int, variables: Mapping[str, str], probe: str, *, home: Path | None = None
) -> Iterator[Server]:
    """A process that is ready when the probe answers; it has a folder and an environment of its own."""
    with tempfile.TemporaryDirectory() as folder:
        own_home = home or Path(folder)
        environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(own_home),
            "CAIPE_HOME": str(own_home / "caipe"),
            **variables,
        }
        with (own_home / "server.log").open("ab") as log:
            start = time.perf_counter()
            process = subprocess.Popen(command, env=environment, stdout=log, stderr=log)
            try:
                _wait_until_ready(process, f"http://127.0.0.1:{port}{probe}", own_home / "server.log")
                yield Server(port, process.pid, time.perf_counter() - start, own_home)
            finally:
                process.terminate()
                try:
                    process.wait(30)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()


def _wait_until_ready(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        with contextlib.suppress(OSError, urllib.error.URLError), urllib.request.urlopen(url, timeout=5):
            return
        if process.poll() is not None or time.monotonic() > deadline:
            sys.exit(f"{url} did not become ready:\n{log.read_text()[-2000:]}")
        time.sleep(0.01)
