"""Works on stored results without holding up the server: each command runs in a short process of its own.

A thread could not be stopped, and would hold the interpreter's lock while it parses megabytes of JSON.
"""

import asyncio
import contextlib
import json
import logging
import os
import sys
from typing import Any
from weakref import WeakKeyDictionary

from ai_platform_engineering.core.errors import CaipeError

log = logging.getLogger(__name__)

_PROCESSES = 2  # at once, of all agents; the others wait
_slots: WeakKeyDictionary[asyncio.AbstractEventLoop, asyncio.Semaphore] = WeakKeyDictionary()
# Without the site module, which takes longer to start than the rest; our packages are found all the same.
_START = (
    "import sys; sys.path[:] = sys.argv[2:]; "
    "from ai_platform_engineering.runtime.results.result_worker import main; main(int(sys.argv[1]))"
)
_TIMEOUT = "It took more than {seconds:g} seconds and was stopped. Ask for less."
_FAILED = "The stored result could not be read."


class ResultUnreadable(CaipeError):
    """A query or pattern that cannot be used, or took too long; the text is for the model."""

    code = "result"


class ResultReader:
    """Runs commands on results. `seconds`: for one command, waiting included."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds

    async def describe(self, content: bytes) -> str:
        """The shape of a result in words. Raises ResultUnreadable."""
        return await self._run({"name": "describe"}, content)

    async def query(self, content: bytes, expression: str, max_chars: int) -> str:
        """What a JMESPath expression selects from a JSON result. Raises ResultUnreadable."""
        command = {"name": "query", "expression": expression, "max_chars": max_chars}
        return await self._run(command, content)

    async def grep(self, content: bytes, pattern: str, skip: int, max_chars: int) -> str:
        """The lines that match a pattern, after the first `skip` ones. Raises ResultUnreadable."""
        command = {"name": "grep", "pattern": pattern, "skip": skip, "max_chars": max_chars}
        return await self._run(command, content)

    async def _run(self, command: dict[str, Any], content: bytes) -> str:
        header = json.dumps({**command, "seconds": self._seconds}).encode()
        try:
            async with asyncio.timeout(self._seconds), _find_slots():
                output = await _communicate(header + b"\n" + content)
        except TimeoutError:
            raise ResultUnreadable(_TIMEOUT.format(seconds=self._seconds)) from None
        except OSError as error:
            log.warning("a stored result could not be read: %s", error.strerror)
            raise ResultUnreadable(_FAILED) from None
        try:
            reply = json.loads(output)
        except ValueError:  # killed by a limit, which leaves no words
            raise ResultUnreadable(_TIMEOUT.format(seconds=self._seconds)) from None
        if "refusal" in reply:
            raise ResultUnreadable(reply["refusal"])
        return str(reply["output"])


def _find_slots() -> asyncio.Semaphore:
    """One for all readers: how many processes run at once is a matter of the machine."""
    return _slots.setdefault(asyncio.get_running_loop(), asyncio.Semaphore(_PROCESSES))


async def _communicate(message: bytes) -> bytes:
    """The output of a worker; it is killed with the task that waits for it. Raises OSError."""
    paths = list(filter(None, sys.path))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-I", "-S", "-c", _START, str(os.getpid()), *paths),
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.DEVNULL,
        env={},
        cwd="/",
    )
    try:
        output, _ = await process.communicate(message)
        return output
    finally:
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            await process.wait()
