"""Processes of the `git` program with limits: on time, on the bytes they write, and on what they say."""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.errors import SourceUnavailable

_WATCH_SECONDS = 0.1
_CHUNK_BYTES = 64 * 1024
_MAX_ERROR_BYTES = 64 * 1024
_MEMORY_BYTES = 2 * 1024 * 1024 * 1024  # beside the repository, which git may map into memory


@dataclass(frozen=True, slots=True)
class GitLimits:
    """How much of a repository is fetched, and for how long."""

    max_bytes: int = 512 * 1024 * 1024
    max_files: int = 100_000
    seconds: float = 900.0

    @property
    def max_output_bytes(self) -> int:
        """Of one command: paths are short, whatever a repository holds."""
        return 1024 * self.max_files + _CHUNK_BYTES


class GitTooLarge(SourceUnavailable):
    """The repository is larger than the limits allow."""


@dataclass(frozen=True, slots=True)
class GitOutput:
    code: int
    output: bytes
    errors: str


def limit_process(pid: int, limits: GitLimits) -> None:
    """Limits a process that has just started, and all that it starts, where the system can do that.

    The kernel ends whoever writes a larger file or takes more memory: a small packet can unfold to gigabytes.
    """
    import resource  # late: not on every system

    if not hasattr(resource, "prlimit"):
        return
    values = {
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_FSIZE: limits.max_bytes,
        resource.RLIMIT_AS: limits.max_bytes + _MEMORY_BYTES,
    }
    for name, value in values.items():
        with contextlib.suppress(OSError, ValueError):
            resource.prlimit(pid, name, (value, value))


async def collect_output(process: asyncio.subprocess.Process, limits: GitLimits, folder: Path) -> GitOutput:
    """Waits for the end of a process and returns what it said. Raises SourceUnavailable.

    It is ended when it takes too long, says too much, or when the folder grows too large.
    """
    work = asyncio.create_task(_read_to_end(process, limits))
    watcher = asyncio.create_task(_watch_folder(folder, limits.max_bytes))
    tasks: set[asyncio.Task[Any]] = {work, watcher}
    try:
        async with asyncio.timeout(limits.seconds):
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise GitTooLarge(_describe_size(limits))
            result = await work
    except TimeoutError:
        raise SourceUnavailable(f"git did not finish within {limits.seconds:g} seconds.") from None
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await kill_process(process)
    # It may have been faster than the watcher, or stopped by the kernel with the last byte that was allowed.
    if _hit_file_limit(result.errors) or await asyncio.to_thread(measure_folder, folder) >= limits.max_bytes:
        raise GitTooLarge(_describe_size(limits))
    return result


async def kill_process(process: asyncio.subprocess.Process) -> None:
    """Ends the process and whatever it has started: the transfer is a process of its own.

    Nobody else may be reading from it.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        # asyncio waits for the end of the pipes, and reads no further while what it has read is not fetched.
        for stream in (process.stdout, process.stderr):
            if stream is not None:
                async for _ in _read_chunks(stream):
                    pass
        await process.wait()


async def _read_to_end(process: asyncio.subprocess.Process, limits: GitLimits) -> GitOutput:
    errors_reader = asyncio.create_task(_read_errors(process))
    try:
        output = await _read_output(process, limits)
        errors = await errors_reader
        return GitOutput(await process.wait(), output, errors)
    finally:
        errors_reader.cancel()
        await asyncio.wait({errors_reader})


async def _read_output(process: asyncio.subprocess.Process, limits: GitLimits) -> bytes:
    assert process.stdout is not None
    output = bytearray()
    files = 0
    async for chunk in _read_chunks(process.stdout):
        output += chunk
        files += chunk.count(b"\0")
        if files > limits.max_files or len(output) > limits.max_output_bytes:
            raise GitTooLarge(
                f"The repository has more than {limits.max_files} files. Name a folder of it,"
                " or raise GIT_MAX_FILES."
            )
    return bytes(output)


async def _read_errors(process: asyncio.subprocess.Process) -> str:
    """The end of what it wrote to stderr; the far end can write there, too."""
    if process.stderr is None:
        return ""
    errors = b""
    async for chunk in _read_chunks(process.stderr):
        errors = (errors + chunk)[-_MAX_ERROR_BYTES:]
    return errors.decode("utf-8", "replace")


async def _read_chunks(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    while chunk := await stream.read(_CHUNK_BYTES):
        yield chunk


async def _watch_folder(folder: Path, max_bytes: int) -> None:
    """Returns when the folder has become too large."""
    while await asyncio.to_thread(measure_folder, folder) <= max_bytes:  # noqa: ASYNC110 - nobody tells it
        await asyncio.sleep(_WATCH_SECONDS)


def measure_folder(folder: Path) -> int:
    """The size of all files below a folder, which may change meanwhile."""
    size = 0
    for path, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                size += os.lstat(os.path.join(path, name)).st_size
    return size


def _hit_file_limit(errors: str) -> bool:
    text = errors.lower()
    return "file too large" in text or f"signal {signal.SIGXFSZ.value}" in text or "file size limit" in text


def _describe_size(limits: GitLimits) -> str:
    megabytes = limits.max_bytes / 1024 / 1024
    return f"The repository is larger than {megabytes:.0f} MB. Raise GIT_MAX_BYTES to fetch it all the same."
