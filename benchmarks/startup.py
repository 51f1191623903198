"""Start-up time of the server until `/ready` against a bare import of its libraries; its memory at first and
later starts; cost of idle agents.

    .venv/bin/python benchmarks/startup.py [--rounds 7]

Both are whole processes, measured in turn, so their ratio holds on a busy machine. Nothing leaves loopback.
"""

import argparse
import contextlib
import json
import os
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.core.agent_definition import enabling_variable

SERVER = str(Path(sys.executable).parent / "platform-engineer")
LISTING = """
import sys
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
import asyncio, httpx, json
async def main():
    app = build_app(Settings.from_variables({}), {})
    async with httpx.AsyncClient(transport=httpx.ASGITransport(app=app), base_url="http://127.0.0.1") as http:
        assert (await http.get("/ready")).status_code == 200
asyncio.run(main())
ours = ("ai_platform_engineering", "__", "httpx", "httpcore")
names = [n for n in sys.modules if n.split(".")[0] not in sys.stdlib_module_names and not n.startswith(ours)]
print(json.dumps(names))
"""
IMPORTING = """
import importlib, json, sys
for name in json.load(sys.stdin):
    try:
        importlib.import_module(name)
    except Exception:
        pass
"""


WATCHED_SECONDS = 15  # after a first start: the documentation is brought in and embedded


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--rounds", type=int, default=7)
    rounds = options.parse_args().rounds
    with tempfile.TemporaryDirectory() as home:
        names = subprocess.run(
            [sys.executable, "-c", LISTING],
            capture_output=True,
            text=True,
            check=True,
            env=base_environment(home),
        ).stdout
        measure_start(home), measure_imports(names, home)  # bytecode and disk cache
        starts, imports = zip(
            *((measure_start(home), measure_imports(names, home)) for _ in range(rounds)), strict=True
        )
        print(f"libraries loaded when ready: {len(json.loads(names))} modules")
        print(f"start to /ready:  median {statistics.median(starts):.2f} s (best {min(starts):.2f})")
        print(f"bare import:      median {statistics.median(imports):.2f} s (best {min(imports):.2f})")
        medians = statistics.median(starts) / statistics.median(imports)
        print(f"ratio of medians: {medians:.2f} (best to best {min(starts) / min(imports):.2f})")
        print_idle_agents(home)
    with tempfile.TemporaryDirectory() as home:
        print_memory("first start", home)
        print_memory("later start", home)


def print_memory(name: str, home: str) -> None:
    with server(home) as (pid, _):
        ready = memory(pid)
        most = ready
        deadline = time.monotonic() + WATCHED_SECONDS
        while time.monotonic() < deadline:
            most = max(most, memory(pid))
            time.sleep(0.05)
    print(f"memory at a {name}: {ready:.0f} MB when ready, at most {most:.0f} MB in {WATCHED_SECONDS} s")


def measure_start(home: str) -> float:
    began = time.perf_counter()
    with server(home):
        return time.perf_counter() - began


def measure_imports(names: str, home: str) -> float:
    began = time.perf_counter()
    subprocess.run(
        [sys.executable, "-c", IMPORTING], input=names, text=True, check=True, env=base_environment(home)
    )
    return time.perf_counter() - began


def print_idle_agents(home: str) -> None:
    catalog = load_catalog({}, agents_config=None)
    enabled = {enabling_variable(entry.definition.name): "true" for entry in catalog}
    disabled = dict.fromkeys(enabled, "false")
    with server(home, **disabled) as (none, _):
        without = memory(none)
    with server(home, **enabled) as (some, ready_agents):
        with_agents, processes = memory(some), children(some)
    print(
        f"{ready_agents} agents enabled and unused: {with_agents - without:.1f} MB more,"
        f" {processes} processes"
    )


@contextlib.contextmanager
def server(home: str, **variables: str) -> Iterator[tuple[int, int]]:
    """A server that is ready: its process and how many agents it offers."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    environment = {**base_environment(home), "A2A_PORT": str(port), "LOG_LEVEL": "ERROR", **variables}
    process = subprocess.Popen([SERVER], env=environment, stderr=subprocess.DEVNULL)
    try:
        components = wait_until_ready(process, port)
        yield (
            process.pid,
            sum(
                name.startswith("agent ") and component["status"] == "ready"
                for name, component in components.items()
            ),
        )
    finally:
        process.terminate()
        process.wait(20)


def wait_until_ready(process: subprocess.Popen[bytes], port: int) -> dict[str, dict[str, str]]:
    for _ in range(6000):
        assert process.poll() is None, "the server ended"
        with (
            contextlib.suppress(urllib.error.URLError, ConnectionError),
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ready") as answer,
        ):
            return json.load(answer)["components"]
        time.sleep(0.005)
    raise SystemExit("the server is not ready after 30 s")


def base_environment(home: str) -> dict[str, str]:
    return {"PATH": os.environ["PATH"], "HOME": home, "CAIPE_HOME": home}


def memory(pid: int) -> float:
    """Resident memory in MB."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / 1e6


def children(pid: int) -> int:
    return len(Path(f"/proc/{pid}/task/{pid}/children").read_text().split())


if __name__ == "__main__":
    main()
