"""One connection to an MCP server from its start to its end.

It is owned by one task, because a session must be closed by the task that opened it.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Mapping
from datetime import UTC, datetime
from types import ModuleType
from typing import TYPE_CHECKING, Any, TypeVar

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.import_collections import paused_collections
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.mcp_client.answer_waiter import AnswerWaiter, QuestionAsked
from ai_platform_engineering.mcp_client.background_tasks import BackgroundTasks
from ai_platform_engineering.mcp_client.connection_context import (
    ConnectionContext,
    OutgoingRequest,
    ProgressCallback,
)
from ai_platform_engineering.mcp_client.elicitation import (
    CallPause,
    CallPaused,
    ResumableCall,
    ServerQuestion,
)
from ai_platform_engineering.mcp_client.mcp_errors import (
    McpNoSlot,
    McpRequestError,
    McpUnavailable,
    NotDeliveredError,
    RequestRejectedError,
)
from ai_platform_engineering.mcp_client.open_call import OpenCall
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor
from ai_platform_engineering.mcp_client.server_slots import NoServerSlot
from ai_platform_engineering.mcp_client.tool_types import ToolList, ToolResult

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.protocol import ProtocolSession

log = logging.getLogger(__name__)

_PING_TIMEOUT = 5.0
_DRAIN_TIMEOUT = 1.0
_CLOSE_TIMEOUT = 10.0
_BUSY_RECHECK_SECONDS = 1.0  # idle for long, but with calls under way
_STOPPING = "it is being closed"
_LOST = "the connection was lost"

AnswerT = TypeVar("AnswerT")


FetchRequest = Callable[["ProtocolSession", OutgoingRequest], Coroutine[Any, Any, AnswerT]]


class HeldCall(CallPaused):
    """A call that waits for people while its server waits for the answer."""

    def __init__(self, call: OpenCall, question: ServerQuestion, resumable: ResumableCall) -> None:
        super().__init__(CallPause(questions=(question,), kind="open", asked_before=resumable.asked_count))
        self.call = call


class McpConnection:
    """A connection that starts at once.

    It can be used while `is_usable`; a retired one ends when its last call has.
    """

    def __init__(
        self,
        name: str,
        server: McpServer,
        context: ConnectionContext,
        on_ready: Callable[["McpConnection"], None],
        *,
        known_protocol: str = "",
    ) -> None:
        """`known_protocol`: the version of MCP that the server spoke before."""
        loop = asyncio.get_running_loop()
        self._name = name
        self._server = server
        self._context = context
        self._on_ready = on_ready
        self._known_protocol = known_protocol
        self._opened: asyncio.Future[None] = loop.create_future()
        self._lost: asyncio.Future[None] = loop.create_future()
        self._closing: asyncio.Future[None] = loop.create_future()
        self._session: ProtocolSession | None = None
        self._retired = False
        self._retire_reason: str | None = None
        self._started_at = loop.time()
        self._alive_check: asyncio.Task[None] | None = None
        self._tasks = BackgroundTasks()
        self._answers = AnswerWaiter(self._lost, self._tasks, self._close_if_unused)
        self.tools_changed = asyncio.Event()
        """Set when the server has said so, and at the end."""
        self.failure: str | None = None
        self.since = datetime.now(UTC)
        self.retry_at = 0.0
        self._owner_task = asyncio.create_task(self._run(), name=f"mcp {name}")

    # --- state ------------------------------------------------------------------------------------

    @property
    def is_open(self) -> bool:
        if self._session is None or self._lost.done():
            return False
        return not self._session.closed.done()

    @property
    def is_starting(self) -> bool:
        return not self._opened.done()

    @property
    def is_usable(self) -> bool:
        """Whether new calls may be given to it, now or when it has started."""
        return not self._retired and (self.is_starting or self.is_open)

    @property
    def is_closed(self) -> bool:
        """Whether it serves nobody any more; its process may still be ending."""
        return self._lost.done()

    @property
    def idle_since(self) -> float | None:
        """Since when no call is under way, by the clock of the loop; None while one is, or at its end."""
        if self._retired or not self.is_open or self._answers.open_count:
            return None
        return self._answers.last_used_at

    @property
    def has_ended(self) -> bool:
        return self._owner_task.done()

    async def wait_until_open(self) -> None:
        """Waits for the start. Raises McpUnavailable."""
        await asyncio.shield(self._opened)
        if self._alive_check is not None:  # a call got no answer, and the server is being pinged
            await asyncio.wait({self._alive_check})

    # --- use --------------------------------------------------------------------------------------

    async def call(
        self,
        tool: str,
        arguments: Mapping[str, Any],
        on_progress: ProgressCallback | None,
        user: str | None = None,
        resumable: ResumableCall | None = None,
    ) -> ToolResult:
        """Calls a tool. Raises McpRequestError, and CallPaused when its server asks people.

        `user`: who asks, as the server is told.
        """
        call = OpenCall(tool, resumable.run_id if resumable else None, self._context.limits)
        call.follow(on_progress)
        session = self._require_session()
        call.task = asyncio.create_task(session.call(call, arguments, user, resumable))
        return await self._follow_call(call, call.task, resumable)

    async def resume_call(
        self, call: OpenCall, on_progress: ProgressCallback | None, resumable: ResumableCall
    ) -> ToolResult:
        """Goes on with a call that was left open for a person's answer; as `call`."""
        call.follow(on_progress)
        if resumable.answers:
            call.answer(resumable.answers[0])  # if the server no longer waits, its result tells
        assert call.task is not None
        return await self._follow_call(call, call.task, resumable)

    async def _follow_call(
        self, call: OpenCall, task: asyncio.Task[ToolResult], resumable: ResumableCall | None
    ) -> ToolResult:
        while True:
            question = asyncio.create_task(call.wait_for_question())
            call.timeout = asyncio.timeout(self._context.limits.call)
            try:
                return await self._answers.wait(
                    self._require_session(), task, call.request, call.timeout, question
                )
            except QuestionAsked:
                if call.question is not None and resumable is not None:
                    raise HeldCall(call, call.question, resumable) from None
            finally:
                question.cancel()

    async def fetch(self, send: FetchRequest[AnswerT]) -> AnswerT:
        """The answer to another request than a tool call. Raises McpRequestError."""
        request = OutgoingRequest()
        session = self._require_session()
        timeout = asyncio.timeout(self._context.limits.call)
        return await self._answers.wait(
            session, asyncio.create_task(send(session, request)), request, timeout
        )

    async def list_tools(self) -> ToolList:
        """Raises McpRequestError."""
        request = OutgoingRequest()
        session = self._require_session()
        task = asyncio.create_task(session.list_tools(request))
        timeout = asyncio.timeout(self._context.limits.connect)
        return await self._answers.wait(session, task, request, timeout)

    def check_alive(self) -> None:
        """Pings the server after a call without an answer.

        If it does not answer at all, no new call is given to it.
        """
        is_checking = self._alive_check is not None and not self._alive_check.done()
        if self.is_open and not is_checking:
            self._alive_check = self._tasks.spawn(self._ping())

    def retire(self, reason: str) -> None:
        """Takes no new calls; the connection ends with its last call."""
        self._retired = True
        self._retire_reason = reason
        self._close_if_unused()

    async def release(self) -> None:
        """Takes no new calls, and ends like one that was idle for long: nothing is wrong with it."""
        self.close_idle()
        await self.aclose()

    def close_idle(self) -> None:
        """As `release`, without waiting for the end."""
        self._retired = True
        if not self._closing.done():
            self._closing.set_result(None)

    async def aclose(self) -> None:
        """Ends the connection and its process; calls under way fail."""
        if not self._closing.done():
            self._closing.set_result(None)
        if not self._opened.done():
            self._owner_task.cancel()
        await asyncio.wait({self._owner_task}, timeout=_CLOSE_TIMEOUT)
        if not self._owner_task.done():
            self._owner_task.cancel()
            await asyncio.wait({self._owner_task}, timeout=_CLOSE_TIMEOUT)

    def _require_session(self) -> "ProtocolSession":
        if self._session is None:
            raise NotDeliveredError(_LOST)
        return self._session

    async def _ping(self) -> None:
        request = OutgoingRequest()
        timeout = asyncio.timeout(min(_PING_TIMEOUT, self._context.limits.call))
        try:
            session = self._require_session()
            await self._answers.wait(session, asyncio.create_task(session.ping(request)), request, timeout)
        except RequestRejectedError:
            pass  # an answer, whatever it says
        except McpRequestError:
            self.retire("it no longer answers")

    def _close_if_unused(self) -> None:
        if self._retired and self._answers.open_count == 0 and not self._closing.done():
            self._closing.set_result(None)

    # --- the owner task ---------------------------------------------------------------------------

    async def _run(self) -> None:
        """Opens the session, serves it until it ends, and closes it."""
        try:
            protocol = await asyncio.to_thread(_load_protocol)
            self._started_at = asyncio.get_running_loop().time()
            opening = protocol.open_protocol_session(
                self._server,
                name=self._name,
                context=self._context,
                redactor=SecretRedactor(self._server, self._context.tokens),
                on_tools_changed=self.tools_changed.set,
            )
            async with self._hold_slot(), opening as session:
                # The end is noted before the process is ended, which may take seconds.
                self._note_end(await self._serve(session))
                await self._tasks.aclose()
        except asyncio.CancelledError:
            self._note_end(_STOPPING)
            current_task = asyncio.current_task()
            if current_task is not None and current_task.cancelling():
                raise
        except NoServerSlot as error:
            self._started_at = asyncio.get_running_loop().time()  # it has waited: the next start need not
            self._note_end(str(error), McpNoSlot)
        except OSError as error:
            self._note_end(_explain_os_error(error))
        except Exception as error:  # noqa: BLE001 - what breaks in a transport ends only this connection
            log.debug("mcp %s: %s", self._name, format_traceback(error))
            reason = f"it cannot be reached{why_unreachable(error)}"
            if self._session is not None:
                reason = _LOST
            self._note_end(reason)
        finally:
            await self._tasks.aclose()

    def _hold_slot(self) -> contextlib.AbstractAsyncContextManager[None]:
        """The slot that a process of ours needs where their number is limited."""
        slots = self._context.slots
        if slots is None or self._server.command is None:
            return contextlib.nullcontext()
        return slots.hold(self)

    async def _serve(self, session: "ProtocolSession") -> str | None:
        """Initializes the session and keeps it until it ends; why it ended, if we did not end it."""
        seconds = self._context.limits.connect
        try:
            async with asyncio.timeout(seconds):
                await session.initialize(self._known_protocol)
        except TimeoutError:
            explanation = await session.explain_failure()
            if explanation:
                return f"it did not answer in {seconds:g} seconds; {explanation}"
            return f"it did not answer in {seconds:g} seconds"
        except McpRequestError as error:
            return await session.explain_failure() or str(error)
        self._session = session
        # A start may take longer than the limit of an idle connection.
        self._answers.last_used_at = asyncio.get_running_loop().time()
        self._opened.set_result(None)
        self.since = datetime.now(UTC)
        self._on_ready(self)
        self._tasks.spawn(session.watch_tools(self.tools_changed.set))
        await self._wait_for_end(session)
        if not session.closed.done():
            return self._retire_reason
        with contextlib.suppress(TimeoutError):  # so that callers get the answers that were already sent
            await asyncio.wait_for(session.drained.wait(), _DRAIN_TIMEOUT)
        return await session.explain_failure()

    async def _wait_for_end(self, session: "ProtocolSession") -> None:
        """Waits until the session is lost, is to be closed, or has been idle for long."""
        loop = asyncio.get_running_loop()
        idle_limit = self._context.limits.idle
        timeout: float | None = None
        while not session.closed.done() and not self._closing.done():
            if idle_limit > 0:
                timeout = self._answers.last_used_at + idle_limit - loop.time()
                if timeout <= 0 and self._answers.open_count == 0:
                    log.debug("mcp %s: closed, it was not used for %g seconds", self._name, idle_limit)
                    self._retired = True
                    return
                if timeout <= 0:
                    timeout = _BUSY_RECHECK_SECONDS
            ends = {session.closed, self._closing}
            await asyncio.wait(ends, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)

    def _note_end(self, reason: str | None, start_error: type[McpUnavailable] = McpUnavailable) -> None:
        if self._lost.done():
            return
        loop = asyncio.get_running_loop()
        self.failure = reason
        self.since = datetime.now(UTC)
        self._lost.set_result(None)
        self.tools_changed.set()
        if not self._opened.done():
            # A start that failed fast may be tried again soon, one that took long not: at most a third of the
            # time is spent on trying.
            seconds_tried = loop.time() - self._started_at
            self.retry_at = loop.time() + min(self._context.limits.backoff, 2 * seconds_tried)
            self._opened.set_exception(start_error(self._name, reason or _STOPPING))
            self._opened.exception()  # marks it as retrieved: nobody may be waiting for it
        if reason and reason != _STOPPING:
            log.warning("mcp %s: %s", self._name, reason)


def _load_protocol() -> ModuleType:
    """Loads the MCP library, which takes a second: in a thread, so that nobody waits for it."""
    with paused_collections():
        from ai_platform_engineering.mcp_client import protocol

    return protocol


def _explain_os_error(error: OSError) -> str:
    if error.errno is None:
        return str(error)
    return f"it cannot be started: {error.strerror}"
