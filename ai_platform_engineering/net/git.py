"""The `git` program, kept on a short lead: it fetches one commit into a bare repository and hands out its files. Nothing is checked out,
so no hook, filter, submodule or link of the repository ever has an effect."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ai_platform_engineering.core.errors import SourceUnavailable

# What git needs of our environment: not our keys, and no configuration, which could name programs to run.
_KEPT = (
    *("PATH", "HOME", "USER", "LOGNAME", "TMPDIR", "SSH_AUTH_SOCK", "SYSTEMROOT"),
    *(
        "HTTP_PROXY",
        "HTTPS_PROXY",
        "ALL_PROXY",
        "NO_PROXY",
        "http_proxy",
        "https_proxy",
        "all_proxy",
        "no_proxy",
    ),
)
_OURS = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ClearAllForwardings=yes",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}
_SETTINGS = {
    "core.hooksPath": os.devnull,
    "core.askPass": "",
    "core.fsmonitor": "false",
    "credential.helper": "",
    "protocol.ext.allow": "never",
    "http.followRedirects": "false",  # where a redirect leads was not checked
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
    "fetch.recurseSubmodules": "false",
    "gc.autoDetach": "false",
    "maintenance.autoDetach": "false",
}
_REASONS = (
    (r"could not read (user|pass)|authentication failed|terminal prompts disabled|\b40[13]\b", "it does not exist, or needs credentials"),
    (r"permission denied|publickey|host key verification", "ssh was not let in; the host must be known and a key must be loaded"),
    (r"couldn't find remote ref|not our ref|unadvertised object", "it has no such branch, tag or commit"),
    (r"redirect|error: 30\d", "its address redirects; give the one it leads to"),
    (r"dubious ownership", "it belongs to another user of this machine"),
    (r"not found|does not exist|does not appear to be a git repository|\b404\b", "there is no repository at this address"),
    (r"certificate|ssl", "its certificate is not trusted here"),
    (r"could not resolve|failed to connect|timed out|unable to access|connection", "its server cannot be reached"),
)  # fmt: skip
_HEAD = "refs/caipe/head"


@dataclass(frozen=True, slots=True)
class GitTreeEntry:
    """A file of a commit; `kind` is blob, link or submodule."""

    kind: str
    object_id: str
    size: int
    path: str


class GitRepository:
    """One bare repository in a folder of ours."""

    def __init__(self, folder: Path, variables: Mapping[str, str], *, seconds: float = 900.0) -> None:
        self._folder, self._seconds = folder, seconds
        self._program = shutil.which("git", path=variables.get("PATH"))
        certificates = variables.get("SSL_CERT_FILE")
        self._environment = {name: variables[name] for name in _KEPT if name in variables} | _OURS
        if certificates:
            self._environment["GIT_SSL_CAINFO"] = certificates

    async def fetch(self, url: str, ref: str, *, protocol: str, settings: Mapping[str, str]) -> str:
        """Brings the newest commit of a branch or tag, alone, and gives its id. Only `protocol` is spoken."""
        if not (self._folder / "HEAD").exists():
            self._folder.mkdir(parents=True, exist_ok=True)
            await self._run("init", "--bare", "--quiet", "--template=", str(self._folder), inside=False)
        wanted = (
            "fetch",
            "--quiet",
            "--depth=1",
            "--no-tags",
            "--no-recurse-submodules",
            "--force",
            "--no-write-fetch-head",
        )
        await self._run(*wanted, "--", url, f"+{ref}:{_HEAD}", settings=settings, protocol=protocol)
        return (await self._run("rev-parse", "--verify", f"{_HEAD}^{{commit}}")).decode().strip()

    async def entries(self, commit: str, below: str) -> list[GitTreeEntry]:
        listed = await self._run(
            "ls-tree", "-r", "-z", "-l", "--full-tree", "--", commit, *((below,) if below else ())
        )
        return [_entry(line) for line in listed.split(b"\0") if line]

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator["GitBlobReader"]:
        """Hands out contents by object id, from one process."""
        process = await self._start("cat-file", "--batch", stdin=asyncio.subprocess.PIPE)
        try:
            yield GitBlobReader(process)
        finally:
            await _end(process)

    async def _run(
        self,
        *arguments: str,
        inside: bool = True,
        settings: Mapping[str, str] | None = None,
        protocol: str = "none",
    ) -> bytes:
        process = await self._start(*arguments, inside=inside, settings=settings, protocol=protocol)
        try:
            async with asyncio.timeout(self._seconds):
                out, said = await process.communicate()
        except TimeoutError:
            raise SourceUnavailable(f"git did not finish within {self._seconds:g} seconds.") from None
        finally:
            await _end(process)
        if process.returncode:
            raise SourceUnavailable(
                f"The repository cannot be read: {_reason(said.decode('utf-8', 'replace'))}."
            )
        return out

    async def _start(
        self,
        *arguments: str,
        inside: bool = True,
        settings: Mapping[str, str] | None = None,
        protocol: str = "none",
        stdin: int = asyncio.subprocess.DEVNULL,
    ) -> asyncio.subprocess.Process:
        if self._program is None:
            raise SourceUnavailable("The program git is not installed, or not on the PATH.")
        chosen = [
            part
            for name, value in {**_SETTINGS, **(settings or {})}.items()
            for part in ("-c", f"{name}={value}")
        ]
        place = [f"--git-dir={self._folder}"] if inside else []
        return await asyncio.create_subprocess_exec(
            *(self._program, *chosen, *place, *arguments),
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE
            if stdin == asyncio.subprocess.DEVNULL
            else asyncio.subprocess.DEVNULL,
            env={**self._environment, "GIT_ALLOW_PROTOCOL": protocol},
            cwd=self._folder,
        )


@dataclass(frozen=True, slots=True)
class GitBlobReader:
    process: asyncio.subprocess.Process

    async def read(self, object_id: str) -> bytes:
        """Raises SourceUnavailable."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{object_id}\n".encode())
            await self.process.stdin.drain()
            head = (await self.process.stdout.readuntil(b"\n")).split()
            content = await self.process.stdout.readexactly(int(head[2]) + 1)
        except (OSError, asyncio.IncompleteReadError, IndexError, ValueError):
            raise SourceUnavailable(
                "The fetched repository is damaged; remove it from the cache and try again."
            ) from None
        return content[:-1]


async def _end(process: asyncio.subprocess.Process) -> None:
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await process.communicate()


def _entry(line: bytes) -> GitTreeEntry:
    about, _, path = line.partition(b"\t")
    mode, kind, object_id, size = about.split()
    if mode == b"120000":
        name = "link"
    elif kind == b"commit":
        name = "submodule"
    else:
        name = "blob"
    return GitTreeEntry(
        name, object_id.decode(), int(size) if size.isdigit() else 0, path.decode("utf-8", "replace")
    )


def _reason(said: str) -> str:
    """Why git failed, in our words: its own may name what is inside."""
    lowered = said.lower()
    return next((words for pattern, words in _REASONS if re.search(pattern, lowered)), "git failed")
