"""The `git` program, restricted: fetches one commit into a bare repository and reads its files.

Nothing is checked out, so no hook, filter, submodule or link of the repository ever has an effect."""

import asyncio
import contextlib
import os
import re
import shutil
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.net.git_process import (
    GitLimits,
    GitTooLarge,
    collect_output,
    kill_process,
    limit_process,
)

# What git needs of our environment: not our keys, and no configuration, which could name programs to run.
_PASSED_VARIABLES = (
    "PATH HOME USER LOGNAME TMPDIR SSH_AUTH_SOCK SYSTEMROOT "
    "HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy"
).split()
_FIXED_VARIABLES = {
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_CONFIG_NOSYSTEM": "1",
    "GIT_CONFIG_GLOBAL": os.devnull,
    "GIT_ATTR_NOSYSTEM": "1",
    "GIT_SSH_COMMAND": "ssh -o BatchMode=yes -o ConnectTimeout=20 -o ClearAllForwardings=yes",
    "GIT_LFS_SKIP_SMUDGE": "1",
    "LC_ALL": "C",
}
_GIT_CONFIG = {
    "core.hooksPath": os.devnull,
    "core.askPass": "",
    "core.fsmonitor": "false",
    "credential.helper": "",
    "protocol.ext.allow": "never",
    "http.followRedirects": "false",  # where a redirect leads was not checked
    "http.lowSpeedLimit": "1000",
    "http.lowSpeedTime": "60",
    "fetch.recurseSubmodules": "false",
    "fetch.unpackLimit": "1",  # one file for what is fetched, whose size is limited
    "core.bigFileThreshold": "8m",  # larger files are not taken into memory
    "pack.threads": "1",
    "gc.autoDetach": "false",
    "maintenance.autoDetach": "false",
}
_FAILURE_REASONS = (
    (
        r"could not read (user|pass)|authentication failed|terminal prompts disabled|\b40[13]\b",
        "it does not exist, or needs credentials",
    ),
    (
        r"permission denied|publickey|host key verification",
        "ssh was not let in; the host must be known and a key must be loaded",
    ),
    (r"couldn't find remote ref|not our ref|unadvertised object", "it has no such branch, tag or commit"),
    (r"redirect|error: 30\d", "its address redirects; give the one it leads to"),
    (r"dubious ownership", "it belongs to another user of this machine"),
    (
        r"not found|does not exist|does not appear to be a git repository|\b404\b",
        "there is no repository at this address",
    ),
    (r"certificate|ssl", "its certificate is not trusted here"),
    (
        r"could not resolve|failed to connect|timed out|unable to access|connection",
        "its server cannot be reached",
    ),
)
_HEAD_REF = "refs/caipe/head"
_FETCH = (
    "fetch",
    "--quiet",
    "--depth=1",
    "--no-tags",
    "--no-recurse-submodules",
    "--force",
    "--no-write-fetch-head",
)


@dataclass(frozen=True, slots=True)
class GitTreeEntry:
    """A file of a commit, from `git ls-tree`; `kind` is blob, link or submodule."""

    kind: str
    object_id: str
    size: int
    path: str


class GitRepository:
    """A bare git repository in a folder of ours.

    `secret_settings` of git reach it by the environment: everybody on the machine can read a command."""

    def __init__(
        self,
        folder: Path,
        variables: Mapping[str, str],
        *,
        limits: GitLimits | None = None,
        secret_settings: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._limits = limits or GitLimits()
        self._program = shutil.which("git", path=variables.get("PATH"))
        passed = {name: variables[name] for name in _PASSED_VARIABLES if name in variables}
        self._environment = {**passed, **_FIXED_VARIABLES}
        certificates = variables.get("SSL_CERT_FILE")
        if certificates:
            self._environment["GIT_SSL_CAINFO"] = certificates
        self._secrets = _build_secret_variables(secret_settings or {})

    async def fetch(self, url: str, ref: str, *, protocol: str, settings: Mapping[str, str]) -> str:
        """Fetches the newest commit of a branch or tag over `protocol`, without history; returns its id.

        Raises SourceUnavailable; of a repository that is too large nothing is left.
        """
        is_new = not (self._folder / "HEAD").exists()
        try:
            return await self._fetch_commit(url, ref, protocol, settings)
        except GitTooLarge:
            await self._remove_folder()
            if is_new:
                raise
        # Earlier commits may have filled it.
        try:
            return await self._fetch_commit(url, ref, protocol, settings)
        except GitTooLarge:
            await self._remove_folder()
            raise

    async def _fetch_commit(self, url: str, ref: str, protocol: str, settings: Mapping[str, str]) -> str:
        if not (self._folder / "HEAD").exists():
            create_private_folder(self._folder)
            await self._run("init", "--bare", "--quiet", "--template=", str(self._folder), inside=False)
        await self._run(*_FETCH, "--", url, f"+{ref}:{_HEAD_REF}", settings=settings, protocol=protocol)
        commit = await self._run("rev-parse", "--verify", f"{_HEAD_REF}^{{commit}}")
        return commit.decode().strip()

    async def _remove_folder(self) -> None:
        await asyncio.to_thread(shutil.rmtree, self._folder, ignore_errors=True)

    async def entries(self, commit: str, folder: str) -> list[GitTreeEntry]:
        """The files of a commit, below the folder if one is named."""
        arguments = ["ls-tree", "-r", "-z", "-l", "--full-tree", "--", commit]
        if folder:
            arguments.append(folder)
        output = await self._run(*arguments)
        return [_parse_entry(line) for line in output.split(b"\0") if line]

    @contextlib.asynccontextmanager
    async def reader(self) -> AsyncIterator["GitBlobReader"]:
        """A reader of file contents by object id, over one `git cat-file` process."""
        process = await self._start("cat-file", "--batch", stdin=asyncio.subprocess.PIPE)
        try:
            yield GitBlobReader(process)
        finally:
            await kill_process(process)

    async def _run(
        self,
        *arguments: str,
        inside: bool = True,
        settings: Mapping[str, str] | None = None,
        protocol: str = "none",
    ) -> bytes:
        process = await self._start(*arguments, inside=inside, settings=settings, protocol=protocol)
        result = await collect_output(process, self._limits, self._folder)
        if result.code:
            reason = _describe_failure(result.errors)
            raise SourceUnavailable(f"The repository cannot be read: {reason}.")
        return result.output

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
        command = [self._program]
        for name, value in {**_GIT_CONFIG, **(settings or {})}.items():
            command += ["-c", f"{name}={value}"]
        if inside:
            command.append(f"--git-dir={self._folder}")
        stderr = asyncio.subprocess.DEVNULL  # with a pipe on stdin nobody reads it
        if stdin == asyncio.subprocess.DEVNULL:
            stderr = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command,
            *arguments,
            stdin=stdin,
            stdout=asyncio.subprocess.PIPE,
            stderr=stderr,
            env={**self._environment, **self._secrets, "GIT_ALLOW_PROTOCOL": protocol},
            cwd=self._folder,
            start_new_session=True,
        )
        limit_process(process.pid, self._limits)
        return process


@dataclass(frozen=True, slots=True)
class GitBlobReader:
    """Reads the contents of files from a `git cat-file --batch` process."""

    process: asyncio.subprocess.Process

    async def read(self, object_id: str) -> bytes:
        """The content of an object. Raises SourceUnavailable."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(f"{object_id}\n".encode())
            await self.process.stdin.drain()
            header = (await self.process.stdout.readuntil(b"\n")).split()
            content = await self.process.stdout.readexactly(int(header[2]) + 1)
        except (OSError, asyncio.IncompleteReadError, IndexError, ValueError):
            raise SourceUnavailable(
                "The fetched repository is damaged; remove it from the cache and try again."
            ) from None
        return content[:-1]


def _build_secret_variables(settings: Mapping[str, str]) -> dict[str, str]:
    if not settings:
        return {}
    variables = {"GIT_CONFIG_COUNT": str(len(settings))}
    for number, (name, value) in enumerate(settings.items()):
        variables[f"GIT_CONFIG_KEY_{number}"] = name
        variables[f"GIT_CONFIG_VALUE_{number}"] = value
    return variables


def _parse_entry(line: bytes) -> GitTreeEntry:
    fields, _, path = line.partition(b"\t")
    mode, object_type, object_id, size = fields.split()
    if mode == b"120000":
        kind = "link"
    elif object_type == b"commit":
        kind = "submodule"
    else:
        kind = "blob"
    size_in_bytes = int(size) if size.isdigit() else 0
    return GitTreeEntry(kind, object_id.decode(), size_in_bytes, path.decode("utf-8", "replace"))


def _describe_failure(errors: str) -> str:
    """Why git failed, in our words: its own may name private paths and addresses."""
    for pattern, reason in _FAILURE_REASONS:
        if re.search(pattern, errors.lower()):
            return reason
    return "git failed"
