"""The sandbox of tool servers: bubblewrap, where it works on this machine.

A server in it sees no other process, a file system that it cannot change, and none of the folders in which
people and this product keep secrets; what its definition names is put back, for reading.
"""

import asyncio
import contextlib
import logging
import os
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Literal

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.env_files import ENV_FILE_VARIABLE, is_own_checkout
from ai_platform_engineering.core.setting_types import SandboxMode
from ai_platform_engineering.mcp_client.program_folders import find_program_folders, is_script
from ai_platform_engineering.mcp_client.server_environment import OWN_PACKAGE_FOLDER, is_own_server

log = logging.getLogger(__name__)

_PROGRAM = "bwrap"
_PROBE_TIMEOUT = 10.0
_ISOLATION = (
    "--die-with-parent",
    "--unshare-user-try",
    "--unshare-pid",
    "--unshare-ipc",
    "--unshare-uts",
    "--unshare-cgroup-try",
    "--cap-drop",
    "ALL",
)
_FILE_SYSTEM = ("--ro-bind", "/", "/", "--dev", "/dev", "--proc", "/proc")
# Homes, other programs' temporary files, and the sockets and secrets of services.
_ALWAYS_HIDDEN = ("/tmp", "/var/tmp", "/run", "/home", "/root")
# A working folder of ours that is one of these is not hidden as a whole: programs are there.
_SYSTEM_FOLDERS = frozenset(map(Path, "/ /bin /etc /lib /lib64 /opt /sbin /usr /var".split()))
_NAME_SERVICE_FILE = Path("/etc/resolv.conf")  # often a link into /run
_CERTIFICATE_VARIABLES = (
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "NODE_EXTRA_CA_CERTS",
)

# A hidden folder is an empty one in memory, which a server can write to.
_FOLDER_BYTES = str(64 * 1024 * 1024)

_Access = Literal["hidden", "read", "write"]


class _SandboxRules:
    """What becomes of each path; of two, the deeper one decides."""

    def __init__(self, hidden: Iterable[Path]) -> None:
        self._hidden = frozenset(hidden)
        self._access: dict[Path, _Access] = dict.fromkeys(self._hidden, "hidden")

    def imply(self, path: Path) -> None:
        """Shows a path again for reading, unless that would open a whole hidden folder."""
        target = path.resolve()
        opens_hidden = any(entry == target or target in entry.parents for entry in self._hidden)
        if not opens_hidden:
            self.show(path, "read")

    def show(self, path: Path, access: Literal["read", "write"]) -> None:
        """Shows a path again under its own name, and where it is a link also under that of its target."""
        for name in {path, path.resolve()}:
            is_visible = self._hidden.isdisjoint((name, *name.parents))
            if access == "write" or not is_visible:
                self._access[name] = access

    def to_arguments(self) -> Iterator[str]:
        for path in sorted(self._access, key=lambda path: len(path.parts)):
            if not path.exists():
                continue
            match self._access[path]:
                case "hidden":
                    yield from _hide(path)
                case "read":
                    yield from ("--ro-bind", str(path.resolve()), str(path))
                case "write":
                    yield from ("--bind", str(path.resolve()), str(path))


class Sandbox:
    """Runs commands of tool servers in bubblewrap, as the setting says."""

    def __init__(
        self, mode: SandboxMode, environment: Mapping[str, str], private_paths: Sequence[Path] = ()
    ) -> None:
        """`private_paths` are folders and files of ours that no server may see."""
        self._mode = mode
        self._environment = environment
        self._private_paths = tuple(private_paths)
        self._program: str | None = None
        self._problem: str | None = None
        self._probed = False
        self._probe_lock = asyncio.Lock()

    async def is_used(self) -> bool:
        """Whether servers run in it; the machine is tried once. Raises OSError when it is required."""
        if self._mode == "off":
            return False
        async with self._probe_lock:
            if not self._probed:
                await self._probe()
                self._probed = True
        if self._problem is None:
            return True
        if self._mode == "required":
            raise OSError(
                f"MCP_SANDBOX=required, and the sandbox cannot be used: {self._problem}."
                " Install bubblewrap and allow user namespaces, or set MCP_SANDBOX to auto"
            )
        return False

    @property
    def problem(self) -> str | None:
        """Why the sandbox cannot be used; None when it can, or was not tried yet."""
        return self._problem

    def wrap(self, server: McpServer, command: Sequence[str], working_folder: Path) -> list[str]:
        """The command that runs a server's command in the sandbox."""
        assert self._program is not None
        rules = self._build_rules(server, Path(command[0]), working_folder)
        network = () if server.sandbox.network else ("--unshare-net",)
        folder = server.cwd or str(working_folder)
        return [
            self._program,
            *_ISOLATION,
            *network,
            *_FILE_SYSTEM,
            *rules.to_arguments(),
            "--chdir",
            folder,
            "--",
            *command,
        ]

    async def _probe(self) -> None:
        search_path = self._environment.get("PATH")
        self._program = await asyncio.to_thread(shutil.which, _PROGRAM, path=search_path)
        if self._program is None:
            self._problem = f"the program {_PROGRAM} is not installed"
        else:
            self._problem = await _try_sandbox(self._program, self._environment)
        if self._problem and self._mode == "auto":
            log.info("mcp: tool servers run without a sandbox: %s", self._problem)

    def _build_rules(self, server: McpServer, program: Path, working_folder: Path) -> _SandboxRules:
        rules = _SandboxRules(self._list_hidden())
        for path in _list_needed(server, program, self._environment):
            rules.imply(path)
        for text in server.sandbox.read:
            rules.show(Path(text).absolute(), "read")
        for text in server.sandbox.write:
            rules.show(Path(text).absolute(), "write")
        rules.show(working_folder, "write")
        return rules

    def _list_hidden(self) -> Iterator[Path]:
        yield from (Path(name).resolve() for name in _ALWAYS_HIDDEN)
        home = self._environment.get("HOME")
        if home and Path(home).resolve() not in _SYSTEM_FOLDERS:
            yield Path(home).resolve()
        with contextlib.suppress(FileNotFoundError):  # our folder may have been removed
            own_folder = Path.cwd()
            if own_folder not in _SYSTEM_FOLDERS:
                yield own_folder
            yield own_folder / ".env"
        if is_own_checkout(OWN_PACKAGE_FOLDER.parent):
            # Not of an installed package: there it would be below the environment that a server needs.
            yield OWN_PACKAGE_FOLDER.parent / ".env"
        named_file = self._environment.get(ENV_FILE_VARIABLE, "").strip()
        if named_file:
            yield Path(named_file).resolve()
        yield from (path.resolve() for path in self._private_paths)


def _hide(path: Path) -> tuple[str, ...]:
    if path.is_dir():
        return ("--size", _FOLDER_BYTES, "--tmpfs", str(path))
    return ("--ro-bind", os.devnull, str(path))


def _list_needed(server: McpServer, program: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """What a server needs by its definition: its program, and the files and folders that it names."""
    yield from find_program_folders(program)
    if is_own_server(server):
        yield OWN_PACKAGE_FOLDER
    if server.cwd is not None:
        yield Path(server.cwd).absolute()
    for path in _find_paths(argument.rpartition("=")[2] for argument in server.args):
        yield path
        if path.is_file() and is_script(path):
            yield path.parent
    yield from _find_paths(_split_lists(server.env.values()))
    own_values = (environment.get(name, "") for name in _CERTIFICATE_VARIABLES)
    yield from _find_paths(own_values)
    yield _NAME_SERVICE_FILE.resolve()


def _split_lists(values: Iterable[str]) -> Iterator[str]:
    for value in values:
        yield from value.split(os.pathsep)


def _find_paths(texts: Iterable[str]) -> Iterator[Path]:
    """The texts that are absolute paths of something that exists."""
    for text in texts:
        if text.startswith("/") and "\0" not in text and Path(text).exists():
            yield Path(text)


async def _try_sandbox(program: str, environment: Mapping[str, str]) -> str | None:
    """Why the sandbox does not work on this machine; None when it does."""
    hiding = ("--size", _FOLDER_BYTES, "--tmpfs", _ALWAYS_HIDDEN[0])
    command = [program, *_ISOLATION, *_FILE_SYSTEM, *hiding, "--", "/bin/sh", "-c", ":"]
    try:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.DEVNULL,
            stderr=asyncio.subprocess.PIPE,
            env={"PATH": environment.get("PATH", "")},
        )
    except OSError as error:
        return f"{program} cannot be started: {error.strerror}"
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT):
            _, errors = await process.communicate()
    except TimeoutError:
        process.kill()
        await process.wait()
        return f"{program} did not finish within {_PROBE_TIMEOUT:g} seconds"
    if process.returncode == 0:
        return None
    lines = errors.decode(errors="replace").strip().splitlines()
    return lines[-1][:200] if lines else f"{program} exited with code {process.returncode}"
