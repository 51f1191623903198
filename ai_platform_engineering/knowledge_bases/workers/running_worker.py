"""One running process of a worker: calls go to its input, replies and log lines come from its output."""

import asyncio
import contextlib
import itertools
import logging
import os
import signal
import sys
from collections import deque
from collections.abc import Mapping
from typing import Any, Literal

from ai_platform_engineering.core.display_text import remove_controls
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.knowledge_bases.workers.frames import (
    HEADER,
    BadFrame,
    Frame,
    Reply,
    decode_frame,
    decode_header,
    encode_frame,
)
from ai_platform_engineering.knowledge_bases.workers.worker_errors import (
    PASSED_ON,
    WorkerDied,
    WorkerFailed,
)
from ai_platform_engineering.knowledge_bases.workers.worker_kinds import WorkerKind

log = logging.getLogger(__name__)

CallName = Literal["open", "search", "update", "embed", "embed_query", "read", "links", "close"]

_READ_AHEAD_BYTES = 256 * 1024
_MAX_LOG_LINES = 200  # of one process
_MAX_LOG_CHARS = 500
_STDERR_LINES = 5  # that are told when it dies
_EXIT_SECONDS = 2.0
_LOG_LEVELS = frozenset({logging.DEBUG, logging.INFO, logging.WARNING, logging.ERROR})


class RunningWorker:
    """A process, from its start to its end. `ended` is set when no reply can come any more."""

    def __init__(self, kind: WorkerKind, process: asyncio.subprocess.Process, redactor: Redactor) -> None:
        self.kind = kind
        self.pid = process.pid
        self.ended = asyncio.Event()
        self._process = process
        self._redactor = redactor
        self._ids = itertools.count(1)
        self._pending: dict[int, asyncio.Future[Reply]] = {}
        self._log_lines = 0
        self._last_stderr_lines: deque[str] = deque(maxlen=_STDERR_LINES)
        self._is_expected_to_end = False
        self._reader = asyncio.create_task(self._read_frames(), name=f"replies of the {kind} worker")
        self._stderr_reader = asyncio.create_task(self._read_stderr(), name=f"stderr of the {kind} worker")

    @classmethod
    async def start(cls, kind: WorkerKind, redactor: Redactor) -> "RunningWorker":
        """Raises OSError."""
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-P",
            "-m",
            __package__,
            kind,
            str(os.getpid()),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            env=_build_environment(),
            cwd="/",
            limit=_READ_AHEAD_BYTES,
        )
        log.debug("the %s worker runs as process %d", kind, process.pid)
        return cls(kind, process, redactor)

    @property
    def call_count(self) -> int:
        """Calls without a reply, those included that nobody waits for any more."""
        return len(self._pending)

    async def call(self, name: CallName, arguments: Mapping[str, Any], body: bytes = b"") -> Reply:
        """Raises WorkerFailed, and what the handler raised if it is an error that is passed on."""
        if self.ended.is_set():
            raise self._died()
        call_id = next(self._ids)
        try:
            pieces = encode_frame(Frame({"id": call_id, "call": name, "arguments": arguments}, body))
        except BadFrame:
            raise WorkerFailed("The request to the knowledge base is too large.") from None
        future: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()
        self._pending[call_id] = future
        assert self._process.stdin is not None
        for piece in pieces:
            self._process.stdin.write(piece)
        try:
            with contextlib.suppress(OSError):  # it has died: the end of its output tells
                await self._process.stdin.drain()
            return await future
        except asyncio.CancelledError:
            future.cancel()
            raise

    async def close(self, seconds: float) -> None:
        """Ends the process in order; what takes longer than so many seconds is killed."""
        self._is_expected_to_end = True
        try:
            with contextlib.suppress(WorkerFailed, TimeoutError):
                async with asyncio.timeout(seconds):
                    await self.call("close", {})
            if self._process.stdin is not None:
                self._process.stdin.close()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_EXIT_SECONDS):
                    await self._process.wait()
        finally:
            await asyncio.shield(self.kill())

    async def kill(self) -> None:
        """Ends the process at once, and the readers of single documents that it has started."""
        self._is_expected_to_end = True
        self._kill_group()
        await asyncio.gather(self._reader, self._stderr_reader, return_exceptions=True)
        await self._process.wait()

    def _kill_group(self) -> None:
        if self._process.returncode is None:
            for end in (os.kill, os.killpg):  # it may not have made its group yet
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    end(self.pid, signal.SIGKILL)

    # --- its output

    async def _read_frames(self) -> None:
        assert self._process.stdout is not None
        reason = ""
        try:
            while True:
                header = await self._process.stdout.readexactly(HEADER.size)
                head_size, body_size = decode_header(header)
                head = await self._process.stdout.readexactly(head_size)
                body = await self._process.stdout.readexactly(body_size)
                self._receive(decode_frame(head, body))
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        except (BadFrame, KeyError, TypeError, ValueError):
            reason = "its output is not what was agreed on"
        finally:
            await self._finish(reason)

    def _receive(self, frame: Frame) -> None:
        if "log" in frame.head:
            self._log_line(frame.head["log"], str(frame.head["message"]))
            return
        future = self._pending.pop(frame.head["id"], None)
        if future is None or future.done():
            return
        if "error" in frame.head:
            future.set_exception(self._to_error(str(frame.head["error"]), str(frame.head["message"])))
            return
        result = frame.head["result"]
        if not isinstance(result, dict):
            raise TypeError("a result is an object")
        future.set_result(Reply(result, frame.body))

    def _to_error(self, code: str, message: str) -> Exception:
        for error_type in PASSED_ON:
            if error_type.code == code:
                return error_type(self._clean(message))
        return WorkerFailed(f"The knowledge base's {self.kind} worker failed ({self._clean(code)[:60]}).")

    async def _finish(self, reason: str) -> None:
        """Lets all who wait know that nothing comes any more."""
        if not self._is_expected_to_end:
            self._kill_group()  # it may have closed its output alone
        exit_code = await self._process.wait()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(self._stderr_reader), _EXIT_SECONDS)
        self.ended.set()
        if not self._is_expected_to_end:
            last_words = " | ".join(self._last_stderr_lines) or "nothing on stderr"
            log.warning(
                "the %s worker of the knowledge base has ended: %s; %s",
                self.kind,
                reason or _explain_exit(exit_code),
                last_words,
            )
        pending = list(self._pending.values())
        self._pending.clear()
        for future in pending:
            if not future.done():
                future.set_exception(self._died())

    def _died(self) -> WorkerDied:
        return WorkerDied(
            f"The knowledge base's {self.kind} worker has ended unexpectedly. Try again in a moment."
        )

    async def _read_stderr(self) -> None:
        assert self._process.stderr is not None
        rest = b""
        while chunk := await self._process.stderr.read(_READ_AHEAD_BYTES):
            *lines, rest = (rest + chunk).split(b"\n")
            rest = rest[-4 * _MAX_LOG_CHARS :]
            for line in lines:
                self._keep_stderr_line(line)
        self._keep_stderr_line(rest)

    def _keep_stderr_line(self, line: bytes) -> None:
        text = self._clean(line[: 4 * _MAX_LOG_CHARS].decode(errors="replace"))
        if text:
            self._last_stderr_lines.append(text)
            self._log_line(logging.DEBUG, text)

    def _log_line(self, level: Any, message: str) -> None:
        """Logs what the process says; a chatty one must not fill the log."""
        self._log_lines += 1
        if self._log_lines <= _MAX_LOG_LINES and level in _LOG_LEVELS:
            log.log(level, "%s worker: %s", self.kind, self._clean(message))

    def _clean(self, text: str) -> str:
        """One line without secrets and control characters, cut to what is logged."""
        return " ".join(remove_controls(self._redactor.redact(text), " ").split())[:_MAX_LOG_CHARS]


def _build_environment() -> dict[str, str]:
    """Our packages, none of our secrets, and one thread where a library would take one for each core."""
    return {
        "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
        "TOKENIZERS_PARALLELISM": "false",
    }


def _explain_exit(exit_code: int) -> str:
    if exit_code < 0:
        return f"by signal {-exit_code}"
    return f"with code {exit_code}"
