"""What `caipe serve` has imported when it is ready: a package that is needed later, or never, delays the
start and takes memory."""

import asyncio
import sys
from pathlib import Path

import httpx

from tests.conftest import ROOT
from tests.support.knowledge import wait_until
from tests.support.processes import TIMEOUT, process_environment

# SQLAlchemy and gRPC come with the A2A SDK's request handlers, wherever they are installed; the SDK's client
# brings its own queues; the others are loaded for the first request, document or connection that needs them.
NOT_AT_START = {
    "sqlalchemy",
    "grpc",
    "a2a.server.tasks",
    "a2a.server.request_handlers",
    "a2a.server.agent_execution",
    "fastapi",
    "mcp",
    "openai",
    "anthropic",
    "numpy",
    "lxml",
    "slack_sdk",
    "prompt_toolkit",
}

# The command, with a thread that tells on request which modules its process has imported.
SERVE = """
import sys, threading, time
from pathlib import Path
from ai_platform_engineering.cli.main import main

def tell(folder):
    while not (folder / "tell").exists():
        time.sleep(0.02)
    (folder / "told.new").write_text("\\n".join(list(sys.modules)))
    (folder / "told.new").rename(folder / "told")

threading.Thread(target=tell, args=(Path(sys.argv.pop()),), daemon=True).start()
main(["serve"])
"""


async def test_a_server_that_is_ready_has_imported_nothing_that_is_needed_later(
    tmp_path: Path, unused_tcp_port: int
) -> None:
    variables = {"A2A_PORT": str(unused_tcp_port), "CAIPE_HOME": str(tmp_path / "home")}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", SERVE, str(tmp_path), env=process_environment(variables), cwd=ROOT
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{unused_tcp_port}", timeout=TIMEOUT) as http:
            await wait_until(lambda: _is_ready(http))
        (tmp_path / "tell").touch()
        await wait_until((tmp_path / "told").exists)
    finally:
        process.kill()
        await process.wait()
    modules = set((tmp_path / "told").read_text(encoding="utf-8").splitlines())
    assert "ai_platform_engineering.multi_agents.platform_engineer.deep_agent" in modules
    assert modules & NOT_AT_START == set()


async def _is_ready(http: httpx.AsyncClient) -> bool:
    try:
        return (await http.get("/ready")).status_code == 200
    except httpx.TransportError:  # it has just been started
        return False
