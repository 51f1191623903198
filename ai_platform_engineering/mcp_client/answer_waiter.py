"""Waits for the answers to a connection's requests, and knows how many are open."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from ai_platform_engineering.mcp_client.background_tasks import BackgroundTasks
from ai_platform_engineering.mcp_client.connection_context import OutgoingRequest
from ai_platform_engineering.mcp_client.mcp_errors import CallTimeoutError

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.protocol import ProtocolSession

AnswerT = TypeVar("AnswerT")


class QuestionAsked(Exception):
    """The server asks people before it answers; the request stays open."""


class AnswerWaiter:
    """The open requests of a connection. `on_end` is called whenever one has ended."""

    def __init__(
        self, lost: asyncio.Future[None], tasks: BackgroundTasks, on_end: Callable[[], None]
    ) -> None:
        self._lost = lost
        self._tasks = tasks
        self._on_end = on_end
        self.open_count = 0
        self.last_used_at = asyncio.get_running_loop().time()

    async def wait(
        self,
        session: "ProtocolSession",
        task: asyncio.Task[AnswerT],
        request: OutgoingRequest,
        timeout: asyncio.Timeout,
        question: asyncio.Task[None] | None = None,
    ) -> AnswerT:
        """The answer to a request. Raises McpRequestError, and QuestionAsked when `question` ends first.

        It is awaited in a task of its own: a breaking transport cancels whoever waits in it.
        """
        awaited: set[asyncio.Future[Any]] = {task, self._lost}
        if question is not None:
            awaited.add(question)
        self.open_count += 1
        try:
            async with timeout:
                await asyncio.wait(awaited, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self._abandon(task)
            raise CallTimeoutError("no answer in time") from None
        except asyncio.CancelledError:
            self._abandon(task)
            raise
        else:
            if question is not None and question.done() and not task.done() and not self._lost.done():
                self._leave_open(task)
                raise QuestionAsked
        finally:
            self._note_end()
        if not task.done():
            self._abandon(task)
            raise session.connection_lost_error(request)
        if task.cancelled():
            raise session.connection_lost_error(request)
        return task.result()

    def _abandon(self, task: asyncio.Task[Any]) -> None:
        """Cancels a request; the library tells the server that nobody waits for it any more."""
        task.add_done_callback(_retrieve_exception)
        if not task.done():
            task.cancel()
            self._tasks.adopt(task)

    def _leave_open(self, task: asyncio.Task[Any]) -> None:
        """Lets a request wait for people, and the connection with it."""
        self.open_count += 1
        task.add_done_callback(lambda _: self._note_end())
        task.add_done_callback(_retrieve_exception)

    def _note_end(self) -> None:
        self.open_count -= 1
        self.last_used_at = asyncio.get_running_loop().time()
        self._on_end()


def _retrieve_exception(task: asyncio.Task[Any]) -> None:
    """Marks the exception of a task as retrieved, so that asyncio does not log it."""
    if not task.cancelled():
        task.exception()
