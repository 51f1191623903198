"""Git repositories for tests: made with the program itself, and served over HTTP on a loopback port."""

import asyncio
import contextlib
import gzip
import os
import subprocess
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

_NAME = {
    f"GIT_{role}_{part}": value
    for role in ("AUTHOR", "COMMITTER")
    for part, value in (("NAME", "A Test"), ("EMAIL", "a@b.test"))
}


def git(folder: Path, *arguments: str, text: str = "") -> str:
    """Runs git without anybody's configuration; `text` is its input."""
    env = {
        "PATH": os.environ["PATH"],
        "HOME": str(folder),
        "GIT_CONFIG_NOSYSTEM": "1",
        "GIT_CONFIG_GLOBAL": os.devnull,
        **_NAME,
    }
    return subprocess.run(
        ["git", *arguments], cwd=folder, env=env, check=True, capture_output=True, text=True, input=text
    ).stdout.strip()


def repository(folder: Path, files: Mapping[str, str | bytes]) -> Path:
    """A repository with one commit."""
    folder.mkdir(parents=True)
    git(folder, "init", "--quiet", "--initial-branch=main")
    commit(folder, files)
    return folder


def commit(folder: Path, files: Mapping[str, str | bytes | None]) -> str:
    """One more commit; None removes a file. Gives its id."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content.encode() if isinstance(content, str) else content)
    git(folder, "add", "--all", "--force")
    git(folder, "commit", "--quiet", "--message", "A change.")
    return git(folder, "rev-parse", "HEAD")


@dataclass(slots=True)
class GitServer:
    folder: Path
    port: int = 0
    refuse: str = ""  # a status line, and headers, in the place of an answer
    requests: list[str] = field(default_factory=list)
    released: asyncio.Event | None = None  # answers wait for it

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, asyncio.IncompleteReadError):
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
            self.requests.append(head)
            if self.released is not None:
                await self.released.wait()
            headers = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
            body = await reader.readexactly(int(headers.get("content-length", 0)))
            writer.write(
                await self._said(
                    head.split(" ")[1], gzip.decompress(body) if "content-encoding" in headers else body
                )
            )
            await writer.drain()
        writer.close()

    async def _said(self, path: str, body: bytes) -> bytes:
        if self.refuse:
            return f"HTTP/1.1 {self.refuse}\r\nConnection: close\r\nContent-Length: 0\r\n\r\n".encode()
        first = "info/refs" in path
        process = await asyncio.create_subprocess_exec(
            *(
                "git",
                "upload-pack",
                "--stateless-rpc",
                *(("--advertise-refs",) if first else ()),
                str(self.folder),
            ),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        out, _ = await process.communicate(body)
        kind = "advertisement" if first else "result"
        opening = b"001e# service=git-upload-pack\n0000" if first else b""
        top = f"HTTP/1.1 200 OK\r\nContent-Type: application/x-git-upload-pack-{kind}\r\n"
        top += "Connection: close\r\n\r\n"
        return top.encode() + opening + out


@contextlib.asynccontextmanager
async def git_server(folder: Path) -> AsyncIterator[GitServer]:
    served = GitServer(folder)
    server = await asyncio.start_server(served.answer, "127.0.0.1", 0)
    served.port = server.sockets[0].getsockname()[1]
    try:
        yield served
    finally:
        server.close()
