"""Shipped agents with their real tool servers on the estate, through the supervisor.

Each module of `tests/demo/isolated` runs in a network namespace with loopback alone, with everything that it
starts: the servers are no Python programs that our guard could be put into.
"""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.agents.installed_commands import missing_commands
from tests.conftest import GUARD_FOLDER, ROOT, need
from tests.support.fakes.mcp_servers import list_processes
from tests.support.real_servers import SERVERS_HOME, find_isolation

pytestmark = [pytest.mark.full, pytest.mark.timeout(900)]

_SECONDS = 850.0


@pytest.mark.parametrize("agent", ["argocd", "github", "kubernetes", "pagerduty"])
def test_an_agent_reads_and_changes_the_estate_with_its_real_server(agent: str, tmp_path: Path) -> None:
    need_server(agent)
    isolation = find_isolation()
    need("bwrap", isolation is not None, "a network namespace without a way out")
    module = ROOT / "tests" / "demo" / "isolated" / f"{agent}_on_estate.py"
    command = [*(isolation or []), sys.executable, "-m", "pytest", "-q", "-n", "0", "-p", "no:cacheprovider"]
    done = subprocess.run(
        [*command, "-m", "full", "--basetemp", str(tmp_path / "tests"), str(module)],
        check=False,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env={
            "PATH": os.environ["PATH"],
            "HOME": str(tmp_path),
            "CI": os.environ.get("CI", ""),
            "PYTHONPATH": f"{ROOT}{os.pathsep}{GUARD_FOLDER}",
        },
        timeout=_SECONDS,
    )
    assert done.returncode == 0, done.stdout[-20_000:] + done.stderr[-5_000:]
    assert " passed" in done.stdout
    assert list_processes(tmp_path) == {}


def need_server(agent: str) -> None:
    entry = load_catalog({}, agents_config=None).get(agent)
    assert entry is not None
    missing = missing_commands(entry.definition, SERVERS_HOME)
    if missing and agent == "pagerduty":
        pytest.skip("pagerduty-mcp needs Python 3.12, and `make servers` found none that runs")
    need(", ".join(missing), not missing, "`make servers` installs it")
