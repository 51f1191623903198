"""A tool call under way whose server may ask people before it answers."""

import asyncio
import contextlib
from typing import Any

from ai_platform_engineering.mcp_client.connection_context import (
    McpLimits,
    OutgoingRequest,
    ProgressCallback,
)
from ai_platform_engineering.mcp_client.elicitation import ElicitationAnswer, ServerQuestion

CANCELLED = ElicitationAnswer(action="cancel")


class OpenCall:
    """The request of a tool call, the task that awaits its answer, and the question that it waits for."""

    def __init__(self, tool: str, run_id: str | None, limits: McpLimits) -> None:
        """`run_id`: of the run that can ask people; None if nobody can be asked."""
        self.tool = tool
        self.run_id = run_id
        self._limits = limits
        self._on_progress: ProgressCallback | None = None
        self._latest_end = 0.0
        self.request = OutgoingRequest()
        self.timeout: asyncio.Timeout | None = None
        self.task: asyncio.Task[Any] | None = None
        self.asked_count = 0
        self._asked = asyncio.Event()
        self._question: ServerQuestion | None = None
        self._answer: asyncio.Future[ElicitationAnswer] | None = None
        self._one_at_a_time = asyncio.Lock()

    @property
    def question(self) -> ServerQuestion | None:
        """The question that waits for an answer."""
        return self._question

    async def wait_for_question(self) -> None:
        await self._asked.wait()

    async def ask(self, question: ServerQuestion, seconds: float) -> ElicitationAnswer:
        """Waits until somebody gives the answer, but no longer than this: then it is cancelled."""
        async with self._one_at_a_time:
            self.asked_count += 1
            self._question = question
            self._answer = asyncio.get_running_loop().create_future()
            self._asked.set()
            try:
                async with asyncio.timeout(seconds):
                    return await self._answer
            except TimeoutError:
                return CANCELLED
            finally:
                self._question = None
                self._answer = None
                self._asked.clear()

    def answer(self, answer: ElicitationAnswer) -> bool:
        """Gives the answer to the question; False if it no longer waits for one."""
        if self._answer is None or self._answer.done():
            return False
        self._asked.clear()
        self._answer.set_result(answer)
        return True

    def follow(self, on_progress: ProgressCallback | None) -> None:
        """Begins to wait for the answer, from now on."""
        self._on_progress = on_progress
        self._latest_end = asyncio.get_running_loop().time() + self._limits.longest_call

    def report_progress(self, done: float, total: float | None, text: str | None) -> None:
        """Tells the progress, and gives the call more time: its server has shown a sign of life."""
        now = asyncio.get_running_loop().time()
        if self.timeout is not None:
            with contextlib.suppress(RuntimeError):  # progress may come too late
                self.timeout.reschedule(min(now + self._limits.call, self._latest_end))
        if self._on_progress is not None:
            self._on_progress(done, total, text)


class OpenCalls:
    """The tool calls of a session that are under way, oldest first."""

    def __init__(self) -> None:
        self._calls: list[OpenCall] = []

    def add(self, call: OpenCall) -> None:
        self._calls.append(call)

    def remove(self, call: OpenCall) -> None:
        with contextlib.suppress(ValueError):
            self._calls.remove(call)

    def find(self, request: OutgoingRequest | None) -> OpenCall | None:
        """The call that a question belongs to, if somebody can be asked.

        Over HTTP that is the request whose stream brought it. On stdio nothing says so: then the question is
        asked only where all calls are of one run, since another run's people must not see it.
        """
        for call in self._calls:
            if call.request is request:
                return call if call.run_id else None
        run_ids = {call.run_id for call in self._calls}
        if len(run_ids) != 1 or None in run_ids:
            return None
        return self._calls[-1]
