"""Tool servers that look for our secrets: in our process, in our folders, in other processes."""

import asyncio
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import uuid
import venv
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.core import process_protection
from ai_platform_engineering.core.agent_definition import SandboxAccess
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.mcp_client.mcp_errors import McpUnavailable
from ai_platform_engineering.mcp_client.sandbox import Sandbox
from tests.conftest import ROOT, need
from tests.support.fakes.mcp_servers import (
    FAKES,
    by_name,
    child_test_environment,
    list_processes,
    network_guard_environment,
    open_sessions,
    raw_stdio_server,
    run_python_script,
    until,
)
from tests.support.processes import BIN, invoke_caipe, process_environment

NOBODY = 65534
THIEF = FAKES / "mcp_thief.py"
# Our process: it has a key in its environment, a `.env` in its folder, and a tool server.
PARENT = """
import asyncio, json, os, sys
from pathlib import Path
from ai_platform_engineering.core.agent_definition import McpServer, SandboxAccess
from ai_platform_engineering.core.process_protection import forbid_inspection
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

options = json.loads(sys.argv[1])

async def main():
    sessions = McpSessionPool(
        environment=dict(os.environ), sandbox=options["sandbox"], private_paths=[Path(options["home"])]
    )
    server = McpServer(
        command=sys.executable,
        args=("-S", options["thief"]),
        env=options["env"],
        sandbox=SandboxAccess(**options["access"]),
    )
    results = []
    try:
        tools = {tool.name: tool for tool in await sessions.tools("thief", server)}
        for name, arguments in options["calls"]:
            results.append(await tools[name].ainvoke(arguments))
    finally:
        await sessions.aclose()
    print(json.dumps(results))

if options["protected"] and not forbid_inspection():
    sys.exit("this system cannot protect a process")
asyncio.run(main())
"""
# The same attack by an ordinary child process; it must work, or its failure elsewhere would mean nothing.
UNPROTECTED_PARENT = """
import json, subprocess, sys
request = {"id": 1, "method": "tools/call", "params": {"name": "loot"}}
thief = [sys.executable, "-S", json.loads(sys.argv[1])["thief"]]
answer = subprocess.run(thief, input=json.dumps(request), stdout=subprocess.PIPE, text=True).stdout
print(json.dumps([json.loads(answer)["result"]["content"][0]["text"]]))
"""
# The protection alone, without a launcher or a sandbox, for a user without capabilities.
PROTECTED_USER = """
import subprocess
assert forbid_inspection()
print(subprocess.run(["sh", "-c", "cat /proc/$PPID/environ"], capture_output=True))
"""


@pytest.fixture
async def sandbox() -> None:
    """A machine with a sandbox that works."""
    probe = Sandbox("auto", os.environ)
    works = await probe.is_used()
    need("bubblewrap", works, probe.problem or "tool servers are put into it")


class Estate:
    """A user's machine: a home with keys, the product's home, a project with a `.env`; a canary in each."""

    def __init__(self, folder: Path) -> None:
        self.canary = uuid.uuid4().hex
        self.home = folder / "home"
        self.caipe_home = self.home / ".caipe"
        self.project = folder / "project"
        self.key = self.home / ".ssh" / "id_ed25519"
        self.dotenv = self.project / ".env"
        self.database = self.caipe_home / "caipe.db"
        self.kubeconfig = self.home / ".kube" / "config"
        for file in (self.key, self.dotenv, self.database):
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"KEY={self.canary}\n")
        self.kubeconfig.parent.mkdir()
        self.kubeconfig.write_text("clusters: mine")

    @property
    def secret_files(self) -> list[str]:
        return [str(self.key), str(self.dotenv), str(self.database)]

    async def run(
        self,
        *calls: tuple[str, dict[str, Any]],
        sandbox: str,
        protected: bool = False,
        parent: str = PARENT,
        env: dict[str, str] | None = None,
        **access: Any,
    ) -> list[str]:
        """What a tool server of ours answers to these calls."""
        options = {
            "sandbox": sandbox,
            "protected": protected,
            "home": str(self.caipe_home),
            "thief": str(THIEF),
            "env": env or {},
            "access": access,
            "calls": calls,
        }
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-c",
            parent,
            json.dumps(options),
            stdout=asyncio.subprocess.PIPE,
            env={
                **child_test_environment(self.home),
                **network_guard_environment(),
                "PYTHONPATH": os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]),
                "OPENAI_API_KEY": self.canary,
            },
            cwd=self.project,
        )
        output, _ = await process.communicate()
        assert process.returncode == 0
        results: list[str] = json.loads(output)
        return results

    def is_in(self, loot: str) -> bool:
        return self.canary in loot or self.canary[::-1] in loot


@pytest.fixture
def estate(tmp_path: Path) -> Estate:
    return Estate(tmp_path)


async def test_no_key_is_read_from_our_process(estate: Estate) -> None:
    """Also when everything runs as root, as it does in a container: servers have no capabilities."""
    need("/proc", Path("/proc/self/environ").exists(), "the attack reads it")
    [open_loot] = await estate.run(sandbox="off", parent=UNPROTECTED_PARENT)
    assert estate.is_in(open_loot)
    [loot] = await estate.run(("loot", {}), sandbox="off", protected=True)
    assert loot
    assert not estate.is_in(loot)


def test_another_program_of_the_same_user_reads_nothing_of_our_process() -> None:
    """As an ordinary user: root can read every process, and is taken its capabilities above."""
    is_root = os.getuid() == 0
    python = shutil.which("python3", path="/usr/bin:/bin") if is_root else sys.executable
    need("python3", python is not None, "one that a user without rights can start")
    assert python is not None
    canary = uuid.uuid4().hex
    user: dict[str, Any] = {"user": NOBODY, "group": NOBODY, "extra_groups": []} if is_root else {}
    source = Path(process_protection.__file__).read_text()
    outputs: list[str] = []
    for protection in ("", source):
        script = protection + PROTECTED_USER
        if not protection:
            script = script.replace("assert forbid_inspection()", "")
        result = subprocess.run(
            [python, "-I", "-c", script],
            env={"PATH": "/usr/bin:/bin", "KEY": canary},
            cwd="/",
            capture_output=True,
            text=True,
            check=True,
            **user,
        )
        outputs.append(result.stdout)
    assert canary in outputs[0]
    assert canary not in outputs[1]
    assert "Permission denied" in outputs[1]


async def test_nothing_private_is_seen_from_the_sandbox(estate: Estate, sandbox: None) -> None:
    # Our process is left unprotected: the sandbox alone has to hide it.
    [loot] = await estate.run(
        ("loot", {"paths": estate.secret_files}),
        sandbox="required",
    )
    assert loot
    assert not estate.is_in(loot)


async def test_what_the_definition_names_can_be_read_in_the_sandbox_and_nothing_changed(
    estate: Estate, sandbox: None
) -> None:
    kubeconfig = str(estate.kubeconfig)
    notes = estate.home / "notes"
    notes.mkdir()
    results = await estate.run(
        ("loot", {"paths": [kubeconfig, *estate.secret_files]}),
        ("write", {"path": kubeconfig}),
        ("write", {"path": "/etc/caipe-was-here"}),
        ("write", {"path": str(notes / "new")}),
        ("write", {"path": "own"}),
        sandbox="required",
        env={"KUBECONFIG": kubeconfig},
        write=[str(notes)],
    )
    loot = results[0][::-1]
    assert "clusters: mine" in loot
    assert not estate.is_in(loot)
    assert results[1:] == ["no: Read-only file system", "no: Read-only file system", "written", "written"]
    assert (notes / "new").read_text() == "mine"
    assert estate.kubeconfig.read_text() == "clusters: mine"


@pytest.mark.full
async def test_a_whole_home_is_shown_only_when_it_is_named_and_without_our_own_folder(
    estate: Estate, sandbox: None
) -> None:
    paths = {"paths": [*estate.secret_files, str(estate.kubeconfig)]}
    home = {"SOMETHING": str(estate.home)}
    implied, named = [
        *await estate.run(("loot", paths), sandbox="required", env=home),
        *await estate.run(("loot", paths), sandbox="required", read=[str(estate.home)]),
    ]
    assert "clusters" not in implied[::-1]
    assert not estate.is_in(implied)
    assert "clusters" in named[::-1]
    assert str(estate.database) not in named[::-1]


async def test_each_server_has_a_private_folder_that_goes_with_it(tmp_path: Path) -> None:
    async with open_sessions(tmp_path) as sessions:
        tools = by_name(await sessions.tools("raw", raw_stdio_server()))
        environment = json.loads(await tools["environment"].ainvoke({}))
        folder = Path(environment["TMPDIR"])
        [pid] = [json.loads(await tools["who"].ainvoke({}))["pid"]]
        assert Path(f"/proc/{pid}/cwd").resolve() == folder
        assert folder.stat().st_mode & 0o077 == 0
        assert os.getsid(pid) == pid != os.getsid(0)
        status = Path(f"/proc/{pid}/status").read_text()
        assert "CapEff:\t0000000000000000" in status
        assert "NoNewPrivs:\t1" in status
        limits = Path(f"/proc/{pid}/limits").read_text()
        assert re.search(r"Max core file size +0 +0 ", limits)
        assert re.search(r"Max open files +4096 +4096 ", limits)
    assert not folder.exists()
    assert list(tmp_path.glob("caipe-mcp-*")) == []


async def test_a_sandbox_that_is_required_and_missing_starts_nothing(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    environment = {"PATH": str(programs)}
    async with open_sessions(tmp_path, environment=environment, sandbox="required") as sessions:
        with pytest.raises(McpUnavailable, match=r"MCP_SANDBOX=required.*bwrap is not installed"):
            await sessions.tools("raw", raw_stdio_server())
    async with open_sessions(tmp_path, environment=environment, sandbox="auto") as sessions:
        assert await sessions.tools("raw", raw_stdio_server())


async def test_a_sandbox_that_does_not_work_here_counts_as_missing(tmp_path: Path) -> None:
    programs = tmp_path / "programs"
    programs.mkdir()
    broken = programs / "bwrap"
    broken.write_text("#!/bin/sh\necho 'bwrap: No permissions to create new namespace' >&2\nexit 1\n")
    broken.chmod(0o755)
    environment = {"PATH": f"{programs}:/usr/bin:/bin"}
    async with open_sessions(tmp_path, environment=environment, sandbox="required") as sessions:
        with pytest.raises(McpUnavailable, match="No permissions to create new namespace"):
            await sessions.tools("raw", raw_stdio_server())


def test_an_unknown_sandbox_mode_is_refused() -> None:
    with pytest.raises(Exception, match="MCP_SANDBOX"):
        Settings.from_variables({"MCP_SANDBOX": "requierd"})


async def test_a_server_of_our_own_finds_the_package_in_the_sandbox(tmp_path: Path, sandbox: None) -> None:
    """Also where the package is in a hidden folder, as a checkout in somebody's home is."""
    netutils = load_catalog({}, agents_config=None).get("netutils")
    assert netutils is not None
    server = netutils.definition.mcp_servers["netutils"]
    async with open_sessions(tmp_path, sandbox="required", private_paths=[ROOT]) as sessions:
        assert "cidr_info" in by_name(await sessions.tools("netutils", server))


_INSTALLED = """
import asyncio, subprocess, sys, tempfile
from pathlib import Path
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.sandbox import OWN_PACKAGE_FOLDER, Sandbox

assert OWN_PACKAGE_FOLDER.is_relative_to(sys.prefix), OWN_PACKAGE_FOLDER
command = [sys.executable, "-c", "print('it runs')"]
sandbox = Sandbox("required", {"HOME": sys.argv[1], "PATH": sys.argv[2]})
assert asyncio.run(sandbox.is_used())
server = McpServer(command=command[0], args=tuple(command[1:]))
with tempfile.TemporaryDirectory() as folder:
    subprocess.run(sandbox.wrap(server, command, Path(folder)))
"""


def test_an_installed_package_starts_its_servers_in_the_sandbox(tmp_path: Path, sandbox: None) -> None:
    """As `uv tool install` and pipx install it: below the home of the user, which the sandbox hides."""
    venv.create(tmp_path / "tool", with_pip=False)
    (site_packages,) = (tmp_path / "tool").glob("lib/python*/site-packages")
    ignored = shutil.ignore_patterns("__pycache__")
    shutil.copytree(
        ROOT / "ai_platform_engineering", site_packages / "ai_platform_engineering", ignore=ignored
    )
    (site_packages / "others.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    python = str(tmp_path / "tool" / "bin" / "python")
    done = subprocess.run(
        [python, "-P", "-c", _INSTALLED, str(tmp_path), os.environ["PATH"]],
        cwd="/",
        env={"PATH": os.environ["PATH"]},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.stdout == "it runs\n", done.stderr


async def test_a_server_in_the_sandbox_says_why_it_ended(tmp_path: Path, sandbox: None) -> None:
    async with open_sessions(tmp_path, sandbox="required") as sessions:
        with pytest.raises(McpUnavailable, match=r"code 3 in the sandbox \(.*\): no licence found"):
            await sessions.tools("raw", raw_stdio_server("--exit", "no licence found"))


async def test_a_server_without_network_in_the_sandbox(tmp_path: Path, sandbox: None) -> None:
    server = raw_stdio_server().model_copy(update={"sandbox": SandboxAccess(network=False)})
    async with open_sessions(tmp_path, sandbox="required") as sessions:
        await sessions.tools("raw", server)
        own_network = os.readlink("/proc/self/ns/net")
        networks = {os.readlink(f"/proc/{pid}/ns/net") for pid in list_processes(tmp_path)}
        assert len(networks - {own_network}) == 1


SANDBOX_PARENT = """
import asyncio, os, sys
from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

async def main():
    sessions = McpSessionPool(environment=dict(os.environ), sandbox="required")
    server = McpServer(command=sys.executable, args=tuple(sys.argv[1:]))
    await sessions.tools("stubborn", server)
    with open("ready.new", "w") as file:
        file.write(str(os.getpid()))
    os.rename("ready.new", "ready")
    await asyncio.sleep(600)

asyncio.run(main())
"""


async def test_whatever_ends_us_no_server_is_left_in_a_sandbox(tmp_path: Path, sandbox: None) -> None:
    arguments = raw_stdio_server("--stubborn", "--helper").args
    with run_python_script(SANDBOX_PARENT, tmp_path, *arguments):
        await until((tmp_path / "ready").exists, "the start")
        assert len(list_processes(tmp_path)) > 3
        os.kill(int((tmp_path / "ready").read_text()), signal.SIGKILL)
        await until(lambda: not list_processes(tmp_path), "the end of all processes")
    assert list(tmp_path.glob("caipe-mcp-*")) == []


async def test_closing_ends_a_stubborn_server_in_the_sandbox(tmp_path: Path, sandbox: None) -> None:
    async with open_sessions(tmp_path, sandbox="required") as sessions:
        assert await sessions.tools("raw", raw_stdio_server("--stubborn", "--helper"))
        assert list_processes(tmp_path)


async def test_the_server_process_is_not_dumpable() -> None:
    """The files of a process in /proc belong to it, unless it is not dumpable: then to root."""
    process = await asyncio.create_subprocess_exec(
        BIN / "caipe",
        "serve",
        env=process_environment({"A2A_PORT": "0", "OPENAI_API_KEY": uuid.uuid4().hex}),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
        group=NOBODY if os.getuid() == 0 else None,
    )
    try:
        assert process.stderr is not None
        async for line in process.stderr:
            if b"serving on" in line:
                break
        owner = Path(f"/proc/{process.pid}/environ").stat()
    finally:
        process.kill()
        await process.communicate()
    assert (owner.st_uid, owner.st_gid) == (0, 0)


async def test_the_doctor_says_whether_there_is_a_sandbox(tmp_path: Path) -> None:
    broken = {"MCP_SANDBOX": "required", "PATH": str(tmp_path)}
    result = await invoke_caipe("doctor", env=broken)
    assert result.code == 1
    assert "No tool server can be started: MCP_SANDBOX=required" in result.out
    result = await invoke_caipe("doctor", env={"MCP_SANDBOX": "auto", "PATH": str(tmp_path)})
    assert "Tool servers run without a sandbox: the program bwrap is not installed." in result.out
