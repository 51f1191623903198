"""One connection to a server from its start to its end, owned by one task: a session must be closed by the task that opened it."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.mcp_client.server import (
    DeliveryUnknownError,
    McpLimits,
    McpUnavailable,
    NotDeliveredError,
    OutgoingRequest,
    ProgressCallback,
    RequestRejectedError,
    SecretRedactor,
)
from ai_platform_engineering.mcp_client.server_process import OrphanReaper
from ai_platform_engineering.mcp_client.tool_types import ToolList, ToolResult

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.protocol import ProtocolSession

log = logging.getLogger(__name__)

_PING_WITHIN = 5.0
_NOTICE_WITHIN = 5.0
_DRAIN_WITHIN = 1.0
_CLOSE_WITHIN = 10.0
_LOOK_AGAIN = 1.0
_STOPPING = "it is being closed"

AnswerT = TypeVar("AnswerT")


class CallTimeoutError(Exception):
    """No answer in time; the server may still be at work."""


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """What every connection of a process has in common."""

    limits: McpLimits
    environment: Mapping[str, str]
    guard: OrphanReaper


class BackgroundTasks:
    """Work on the side that ends with its owner."""

    def __init__(self) -> None:
        self._running: set[asyncio.Task[Any]] = set()

    def spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._running.add(task)
        task.add_done_callback(self._done)
        return task

    async def aclose(self) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self._running.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("mcp: %s", format_traceback(error))


class McpConnection:
    """Starts at once. Can be used while `usable`; a retired one ends when its last call has."""

    def __init__(
        self,
        name: str,
        server: McpServer,
        around: ConnectionContext,
        ready: Callable[["McpConnection"], None],
    ) -> None:
        loop = asyncio.get_running_loop()
        self._name = name
        self._server = server
        self._around = around
        self._ready = ready
        self._opened: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._closing: asyncio.Future[None] = loop.create_future()
        self._wire: ProtocolSession | None = None
        self._retired = False
        self._reason: str | None = None
        self._calls = 0
        self._used = self._began = loop.time()
        self._check: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()
        self.tools_changed = asyncio.Event()
        """Set when the server has said so, and at the end."""
        self.failure: str | None = None
        self.since = datetime.now(UTC)
        self.retry_at = 0.0
        self._owner = asyncio.create_task(self._own(), name=f"mcp {name}")

    # --- state -------------------------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        return self._wire is not None and not self._wire.closed.done() and not self._lost.done()

    @property
    def is_starting(self) -> bool:
        return not self._opened.done()

    @property
    def is_usable(self) -> bool:
        """New calls may be given to it, now or when it has started."""
        return not self._retired and (self.is_starting or self.is_open)

    @property
    def is_closed(self) -> bool:
        """It serves nobody any more; its process may still be ending."""
        return self._lost.done()

    @property
    def has_ended(self) -> bool:
        return self._owner.done()

    async def wait_until_open(self) -> None:
        """Waits for the start. Raises McpUnavailable."""
        await asyncio.shield(self._opened)
        if self._check is not None:  # a call got no answer: whether anybody is there is being found out
            await asyncio.wait({self._check})

    # --- use ---------------------------------------------------------------------------------------------------------

    async def call(
        self, tool: str, arguments: Mapping[str, Any], report: ProgressCallback | None
    ) -> ToolResult:
        sent, limits = OutgoingRequest(), self._around.limits
        ends_at = asyncio.get_running_loop().time() + limits.longest_call
        within = asyncio.timeout(limits.call)

        def reported(done: float, total: float | None, text: str | None) -> None:
            with contextlib.suppress(RuntimeError):  # a sign of life; it may come too late
                within.reschedule(min(asyncio.get_running_loop().time() + limits.call, ends_at))
            if report is not None:
                report(done, total, text)

        return await self._asked(self._open_wire().call(tool, arguments, sent, reported), sent, within)

    async def list_tools(self) -> ToolList:
        sent = OutgoingRequest()
        return await self._asked(
            self._open_wire().list_tools(sent), sent, asyncio.timeout(self._around.limits.connect)
        )

    def check_alive(self) -> None:
        """A call got no answer: if the server does not answer at all, no new call is given to it."""
        if self.is_open and (self._check is None or self._check.done()):
            self._check = self._tasks.spawn(self._ping())

    def retire(self, reason: str) -> None:
        self._retired, self._reason = True, reason
        self._close_if_done()

    async def aclose(self) -> None:
        """Ends the connection and its process; calls under way fail."""
        if not self._closing.done():
            self._closing.set_result(None)
        if not self._opened.done():
            self._owner.cancel()
        await asyncio.wait({self._owner}, timeout=_CLOSE_WITHIN)
        if not self._owner.done():
            self._owner.cancel()
            await asyncio.wait({self._owner}, timeout=_CLOSE_WITHIN)

    def _open_wire(self) -> "ProtocolSession":
        if self._wire is None:
            raise NotDeliveredError("the connection was lost")
        return self._wire

    async def _asked(
        self, asking: Coroutine[Any, Any, AnswerT], sent: OutgoingRequest, within: asyncio.Timeout
    ) -> AnswerT:
        """The answer; or Unseen, Broken, Refused or TimedOut. In a task of its own: a breaking transport cancels whoever waits in it."""
        wire = self._open_wire()
        task = asyncio.create_task(asking)
        waiting: set[asyncio.Future[Any]] = {task, self._lost}
        self._calls += 1
        try:
            async with within:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        except TimeoutError:
            self._withdraw(wire, sent, "no answer in time")
            raise CallTimeoutError("no answer in time") from None
        except asyncio.CancelledError:
            self._withdraw(wire, sent, "the caller has gone")
            raise
        finally:
            self._calls -= 1
            self._used = asyncio.get_running_loop().time()
            if not task.done() and wire.drop_answer(sent):
                task.cancel()
            task.add_done_callback(_forget)
            self._close_if_done()
        if not task.done() or task.cancelled():
            raise wire.connection_lost_error(sent)
        return task.result()

    def _withdraw(self, wire: "ProtocolSession", sent: OutgoingRequest, reason: str) -> None:
        async def tell() -> None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_NOTICE_WITHIN):
                    await wire.send_cancellation(sent, reason)

        if self.is_open:
            self._tasks.spawn(tell())

    async def _ping(self) -> None:
        sent = OutgoingRequest()
        try:
            await self._asked(
                self._open_wire().ping(sent),
                sent,
                asyncio.timeout(min(_PING_WITHIN, self._around.limits.call)),
            )
        except (CallTimeoutError, DeliveryUnknownError, NotDeliveredError):
            self.retire("it does not answer any more")
        except RequestRejectedError:
            pass  # an answer, whatever it says

    def _close_if_done(self) -> None:
        if self._retired and self._calls == 0 and not self._closing.done():
            self._closing.set_result(None)

    # --- the owner ---------------------------------------------------------------------------------------------------

    async def _own(self) -> None:
        try:
            library = await asyncio.to_thread(_library)
            self._began, around = asyncio.get_running_loop().time(), self._around
            opening = library.open_protocol_session(
                self._server, name=self._name, limits=around.limits, environment=around.environment, guard=around.guard,
                veil=SecretRedactor(self._server), tools_changed=self.tools_changed.set,
            )  # fmt: skip
            async with opening as wire:
                # Told before the process is ended, which may take seconds.
                self._end(await self._serve(wire))
                await self._tasks.aclose()
        except asyncio.CancelledError:
            self._end(_STOPPING)
            current = asyncio.current_task()
            if current is not None and current.cancelling():
                raise
        except OSError as error:
            self._end(str(error) if error.errno is None else f"it cannot be started: {error.strerror}")
        except Exception as error:  # noqa: BLE001 - whatever breaks in a transport ends this connection and nothing else
            log.debug("mcp %s: %s", self._name, format_traceback(error))
            self._end(
                "the connection was lost"
                if self._wire is not None
                else f"it cannot be reached ({_root(error)})"
            )
        finally:
            await self._tasks.aclose()

    async def _serve(self, wire: "ProtocolSession") -> str | None:
        """Initializes the session and keeps it until it ends; why it ended, if that was not our wish."""
        seconds = self._around.limits.connect
        try:
            async with asyncio.timeout(seconds):
                await wire.initialize()
        except TimeoutError:
            why = await wire.explain_failure()
            return f"it did not answer in {seconds:g} seconds" + (f"; {why}" if why else "")
        except (NotDeliveredError, DeliveryUnknownError, RequestRejectedError) as error:
            return await wire.explain_failure() or str(error)
        self._wire = wire
        self._opened.set_result(None)
        self.since = datetime.now(UTC)
        self._ready(self)
        if await self._kept(wire):
            return self._reason
        with contextlib.suppress(TimeoutError):  # so that whoever waits gets the answer that was already sent
            await asyncio.wait_for(wire.drained.wait(), _DRAIN_WITHIN)
        return await wire.explain_failure()

    async def _kept(self, wire: "ProtocolSession") -> bool:
        """Waits until the session is lost (False), or is to be closed or has been idle for long (True)."""
        loop, idle = asyncio.get_running_loop(), self._around.limits.idle
        while not wire.closed.done() and not self._closing.done():
            left = self._used + idle - loop.time()
            if idle > 0 and left <= 0 and self._calls == 0:
                log.debug("mcp %s: closed, it was not used for %g seconds", self._name, idle)
                self._retired = True
                return True
            if idle <= 0:
                within = None
            elif left > 0:
                within = left
            else:
                within = _LOOK_AGAIN
            await asyncio.wait(
                {wire.closed, self._closing}, timeout=within, return_when=asyncio.FIRST_COMPLETED
            )
        return not wire.closed.done()

    def _end(self, reason: str | None) -> None:
        if self._lost.done():
            return
        loop = asyncio.get_running_loop()
        self.failure, self.since = reason, datetime.now(UTC)
        self._lost.set_result(None)
        self.tools_changed.set()
        if not self._opened.done():
            # A start that failed fast may be tried again soon, one that took long not: at most a third of the time is spent on trying.
            self.retry_at = loop.time() + min(self._around.limits.backoff, 2 * (loop.time() - self._began))
            self._opened.set_exception(McpUnavailable(self._name, reason or _STOPPING))
            self._opened.exception()  # nobody may be waiting for it
        if reason and reason != _STOPPING:
            log.warning("mcp %s: %s", self._name, reason)


def _library() -> ModuleType:
    """Loads the MCP library, which takes a second: in a thread, so that nobody waits for it."""
    from ai_platform_engineering.mcp_client import protocol

    return protocol


def _root(error: BaseException) -> str:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return type(error).__name__


def _forget(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        task.exception()
