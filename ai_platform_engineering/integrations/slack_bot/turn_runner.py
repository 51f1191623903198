"""Runs turns: sends a question to the supervisor and draws the events of its run, also after a restart."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass, field, replace
from functools import partial

from ai_platform_engineering.a2a.client import (
    A2AClient,
    ClientConversation,
    CredentialsRefused,
    RequestRefused,
    Unreachable,
)
from ai_platform_engineering.a2a.codec import SEQ_KEY, decode_snapshot
from ai_platform_engineering.core.events import AnyEvent, InputResolved, Notice, Paused, is_terminal
from ai_platform_engineering.core.transcript import PendingInput, Transcript
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.integrations.slack_bot.active_turn import ActiveTurn
from ai_platform_engineering.integrations.slack_bot.blocks import (
    ending_blocks,
    error_blocks,
    stop_button,
)
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.clock import Clock, wait_then_cancel
from ai_platform_engineering.integrations.slack_bot.delivery_retries import DeliveryFailed
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.session_status import (
    announce_turn,
    send_direct_message,
    set_session_status,
)
from ai_platform_engineering.integrations.slack_bot.slack_stream import MAX_STREAM_AGE, SlackStream
from ai_platform_engineering.integrations.slack_bot.stream_progress import (
    SUSPENDED,
    MessageFooter,
    StreamProgress,
)
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadTaken
from ai_platform_engineering.integrations.slack_bot.thread_leases import ThreadLeases
from ai_platform_engineering.integrations.slack_bot.thread_messages import (
    THREAD_GONE,
    SlackThread,
    ThreadMessages,
)
from ai_platform_engineering.integrations.slack_bot.thread_view import TaskCard, build_view
from ai_platform_engineering.integrations.slack_bot.turn_requests import (
    build_message,
    fetch_task,
    retry_delays,
)
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey, TurnRow
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackApi, SlackError

log = logging.getLogger(__name__)

_MAX_UNSENT_SECONDS = 120.0  # for a question that the supervisor does not have yet
_AWAY = TaskCard("caipe-away", "The supervisor cannot be reached. I will keep trying.", "in_progress")
_BACK = replace(_AWAY, title="The supervisor was unreachable for a while.", status="complete")
_NOT_SENT = "The supervisor cannot be reached, so your question was not accepted. Try again later."
_NOT_AUTHORIZED = "The supervisor does not let me act for you. Whoever runs me can fix it:"
_DELEGATE_KEY = "A2A_AUTH_DELEGATE_KEY must be set to the same key for the supervisor and for the bot."
_UNEXPECTED = "Something went wrong while I was writing this. See the bot's log."


class _AnsweredOtherTurn(Exception):
    """The message was an answer to a request of another turn."""


@dataclass(slots=True)
class TurnRunner:
    slack: SlackApi
    supervisor: A2AClient
    store: BotStore
    requests: SlackInputRequests
    leases: ThreadLeases
    max_stream_age: float = MAX_STREAM_AGE
    streaming: bool = True  # else messages are posted and updated
    on_idle: Callable[[ThreadKey], None] = field(default=lambda _: None)  # after the last turn of a thread
    # A notice may say that agents need a sign-in of the person; the names are of those that it may be about.
    on_notice: Callable[[TurnRow, frozenset[str]], None] = field(default=lambda _, __: None)
    _active: dict[str, ActiveTurn] = field(default_factory=dict)
    _closing: bool = False

    async def start(self, row: TurnRow) -> None:
        """Runs a new turn in the background, here or in the process that holds its thread."""
        is_here = await self.store.add_turn(row)
        if is_here and not self._closing:  # else another process runs it
            self.leases.add(row.thread)
            self._spawn(row)

    async def resume(self, thread: ThreadKey) -> None:
        """Goes on with the open turns of a thread that another process has left, or stored for this one."""
        for row in await self.store.list_open_turns(*thread):
            if row.turn_id not in self._active and not self._closing:
                self._spawn(row)
        await self.apply_stops()

    @property
    def is_closing(self) -> bool:
        return self._closing

    def is_active(self, turn_id: str) -> bool:
        return turn_id in self._active

    def is_drawing(self, thread: ThreadKey) -> bool:
        """Whether the thread has a turn that has not ended."""
        return any(turn.row.thread == thread for turn in self._active.values())

    def lose(self, thread: ThreadKey) -> None:
        """Stops drawing in a thread that another process has taken."""
        for turn in self._active.values():
            if turn.row.thread == thread and turn.task is not None:
                turn.task.cancel()

    async def close(self) -> None:
        """Stops drawing; the runs go on, and another process draws them."""
        self._closing = True
        tasks = [turn.task for turn in self._active.values() if turn.task is not None]
        for task in tasks:
            task.cancel()
        await wait_then_cancel(self._clock, tasks)

    # --- stopping -------------------------------------------------------------------------------------------

    async def stop(self, channel: str, thread_ts: str, principal: str, turn_id: str | None = None) -> bool:
        """Cancels the runs of a thread, or the one of a turn, whichever process draws them; whether there
        was one."""
        stopped = False
        for row in await self.store.list_open_turns(channel, thread_ts):
            if turn_id not in (None, row.turn_id):
                continue
            stopped = True
            turn = self._active.get(row.turn_id)
            if turn is not None:
                _mark_stopped(turn, principal)
                row = turn.row
            await self.store.record_stop(row.turn_id, principal)
            await self._cancel_run(row, principal)
        return stopped

    async def stop_here(self, turn_id: str, principal: str) -> None:
        """Stops a turn of this process, which another process was told to stop."""
        turn = self._active.get(turn_id)
        if turn is None or turn.stopped_by is not None:
            return
        _mark_stopped(turn, principal)
        await self._cancel_run(turn.row, principal)

    async def apply_stops(self) -> None:
        """Stops the turns that others were told to stop, whether or not this process has heard of it."""
        turn_ids = [turn_id for turn_id, turn in self._active.items() if turn.stopped_by is None]
        for turn_id, principal in (await self.store.find_stops(turn_ids)).items():
            await self.stop_here(turn_id, principal)

    async def _cancel_run(self, row: TurnRow, principal: str) -> None:
        if row.task_id is not None:  # otherwise it is cancelled when its task id is known
            with contextlib.suppress(RequestRefused):  # it ended by itself in the meantime
                await self.supervisor.on_behalf_of(principal, row.owner).cancel(row.task_id)

    @property
    def _clock(self) -> Clock:
        return self.slack.rate_limiter.clock

    # --- turns in the background ----------------------------------------------------------------------------

    def _spawn(self, row: TurnRow) -> None:
        # A new question, even if another process has taken it: nothing is shown of it yet.
        is_new = row.task_id is None and row.drawn == StreamProgress()
        thread = SlackThread(row.team, row.channel, row.thread_ts, row.user, row.question_ts)
        slack = replace(self.slack, before_call=partial(self.leases.wait_until_valid, row.thread))
        messages = ThreadMessages(slack, thread)
        turn = ActiveTurn(row, messages, self._create_stream(row, messages), self._last_turn(row))
        self._active[row.turn_id] = turn
        turn.task = asyncio.create_task(self._run(turn, is_new=is_new), name=f"turn:{row.turn_id}")
        turn.task.add_done_callback(lambda _: self._remove(turn))

    def _last_turn(self, row: TurnRow) -> ActiveTurn | None:
        """The last active turn of the same thread."""
        for turn in reversed(self._active.values()):
            if turn.row.thread == row.thread:
                return turn
        return None

    def _remove(self, turn: ActiveTurn) -> None:
        turn.release()
        self._active.pop(turn.row.turn_id, None)
        if not self._closing:
            self.on_idle(turn.row.thread)

    def _create_stream(self, row: TurnRow, messages: ThreadMessages) -> SlackStream:
        async def save_progress(progress: StreamProgress) -> None:
            turn = self._active[row.turn_id]
            await self._save(turn, replace(turn.row, drawn=progress))

        async def is_known(ts: str) -> bool:
            return await self.store.is_posted(row.channel, ts)

        return SlackStream(
            messages,
            row.drawn,
            save_progress,
            is_known,
            max_age=self.max_stream_age,
            stop_block=stop_button(row.turn_id),
            streaming=self.streaming,
        )

    async def _save(self, turn: ActiveTurn, row: TurnRow) -> None:
        turn.row = row
        await self.store.save_turn(row)

    async def _mark_done(self, turn: ActiveTurn) -> None:
        await self._save(turn, replace(turn.row, state="done"))

    async def _run(self, turn: ActiveTurn, *, is_new: bool) -> None:
        try:
            await self._run_to_outcome(turn, is_new=is_new)
        except ThreadTaken:
            log.info("turn %s goes on in another process", turn.row.turn_id)
        except StorageFailed as error:  # it stays open, and is resumed when the database is back
            log.warning("turn %s: %s", turn.row.turn_id, error)

    async def _run_to_outcome(self, turn: ActiveTurn, *, is_new: bool) -> None:
        turn_id = turn.row.turn_id
        try:
            if is_new:  # at the same time as the question is sent
                turn.status_task = asyncio.create_task(announce_turn(turn.messages.slack, turn.row))
                turn.status_task.add_done_callback(_retrieve_exception)
            await self._run_to_end(turn)
            await self._mark_done(turn)
        except (ThreadTaken, StorageFailed):
            raise
        except _AnsweredOtherTurn:
            await self.store.delete_turn(turn_id)
        except (DeliveryFailed, SlackError, DeliveryUnknown) as error:
            log.error("turn %s: %s", turn_id, error)
            await self._mark_done(turn)
            if not isinstance(error, SlackError) or error.reason not in THREAD_GONE:
                await send_direct_message(self.slack, turn.row, str(error))
        except Exception as error:
            log.exception("turn %s broke: %s", turn_id, type(error).__name__)
            await self._mark_done(turn)
            with contextlib.suppress(SlackError, DeliveryUnknown):
                ts = await turn.messages.post(_UNEXPECTED, error_blocks(_UNEXPECTED, turn_id, None))
                await self.store.record_posted(turn.row.channel, ts)

    # --- one turn -------------------------------------------------------------------------------------------

    async def _run_to_end(self, turn: ActiveTurn) -> None:
        """Draws a turn from the question, or from where the process before was, to its end."""
        conversation = ClientConversation(turn.row.owner)
        transcript = Transcript()
        try:
            if turn.row.task_id is not None:
                transcript = await self._load_transcript(turn, conversation)
                turn.seq = conversation.seq
                await turn.wait_for_previous()
            if transcript.state == "input-required":
                await self._pause(turn, transcript)
            elif turn.seq and not transcript.has_ended:  # the next event may take long
                turn.show(build_view(transcript))
            if not transcript.has_ended:

                def show() -> None:
                    turn.show(build_view(transcript, turn.status_card))

                async with contextlib.aclosing(self._read_events(turn, conversation, show)) as events:
                    async for event in events:
                        await turn.wait_for_previous()
                        before = transcript
                        transcript = transcript.apply(event)
                        turn.seq = conversation.seq
                        await self._handle_event(turn, event, before, transcript)
        except CredentialsRefused as error:
            log.error("turn %s was refused: %s %s", turn.row.turn_id, error, _DELEGATE_KEY)
            transcript = _fail(transcript, f"{_NOT_AUTHORIZED} {_DELEGATE_KEY}")
        except RequestRefused as error:
            log.warning("turn %s was refused: %s", turn.row.turn_id, error)
            transcript = _fail(transcript, str(error))
        except Unreachable as error:
            log.warning("turn %s: %s", turn.row.turn_id, error)
            transcript = _fail(transcript, _NOT_SENT)
        finally:
            await turn.stop_drawing()
        await turn.wait_for_previous()
        await self._finish(turn, transcript)

    async def _handle_event(
        self, turn: ActiveTurn, event: AnyEvent, before: Transcript, transcript: Transcript
    ) -> None:
        if isinstance(event, Paused):
            await turn.stop_drawing()
            await self._pause(turn, transcript)
            return
        if isinstance(event, InputResolved):
            await self._mark_resolved(turn, event, before, self._clock.now())
        if isinstance(event, Notice):
            self.on_notice(turn.row, _list_agents(event, transcript))
        if not is_terminal(event):
            turn.show(build_view(transcript, turn.status_card))

    async def _mark_resolved(
        self, turn: ActiveTurn, event: InputResolved, before: Transcript, at: float
    ) -> None:
        request = _find_request(before, event.request_id)
        await self.requests.mark_resolved(turn.row, turn.messages, event, request, at)

    async def _load_transcript(self, turn: ActiveTurn, conversation: ClientConversation) -> Transcript:
        """The transcript of a task up to now; waits for a supervisor that cannot be reached."""
        task = await fetch_task(self.supervisor, turn.row, self._clock)
        conversation.task_id = turn.row.task_id
        conversation.seq = int(task["metadata"][SEQ_KEY])
        conversation.last_event_id = str(conversation.seq)
        transcript = Transcript()
        for _, at, event in decode_snapshot(task):
            if isinstance(event, InputResolved):
                await self._mark_resolved(turn, event, transcript, at.timestamp())
            transcript = transcript.apply(event)
        return transcript

    async def _read_events(
        self, turn: ActiveTurn, conversation: ClientConversation, show: Callable[[], None]
    ) -> AsyncGenerator[AnyEvent]:
        """The events of the run until its end; waits for a supervisor that cannot be reached for a while."""
        client = self.supervisor.on_behalf_of(turn.row.principal, turn.row.owner)
        away_since: float | None = None
        delays = retry_delays()

        async def on_task_id(task_id: str) -> None:
            await self._record_task_id(turn, task_id)

        conversation.on_task_id = on_task_id
        await self._wait_to_send(turn)
        while True:
            if conversation.task_id:
                source = client.follow(conversation.task_id, conversation)
            else:
                source = client.send(build_message(turn.row), conversation)
            try:
                async with contextlib.aclosing(source) as events:
                    async for event in events:
                        if away_since is not None:
                            away_since = None
                            delays = retry_delays()
                            turn.status_card = _BACK
                            show()
                        yield event
                        if is_terminal(event):
                            return
            except Unreachable:
                if away_since is None:
                    away_since = self._clock.now()
                if conversation.task_id is None and self._clock.now() - away_since > _MAX_UNSENT_SECONDS:
                    raise
                turn.status_card = _AWAY
                await turn.wait_until_announced()
                show()
                await self._clock.sleep(next(delays))

    async def _record_task_id(self, turn: ActiveTurn, task_id: str) -> None:
        """Stores the task of a turn. Raises _AnsweredOtherTurn when another turn shows it."""
        other = await self.store.find_turn_of_task(task_id)
        if other is not None and other.turn_id != turn.row.turn_id:
            raise _AnsweredOtherTurn
        await self._save(turn, replace(turn.row, task_id=task_id))
        turn.sent.set()
        if turn.stopped_by is not None:
            await self._cancel_run(turn.row, turn.stopped_by)

    async def _wait_to_send(self, turn: ActiveTurn) -> None:
        """Waits for the question before it: the supervisor gets the questions of a thread in order."""
        if turn.row.task_id is not None:
            turn.sent.set()
        elif turn.previous is not None:
            await turn.previous.sent.wait()

    async def _pause(self, turn: ActiveTurn, transcript: Transcript) -> None:
        """Ends the message, and posts the requests that the run waits for."""
        view = build_view(transcript, turn.status_card)
        has_session_status = await turn.stream.finish(view, MessageFooter(session_status=SUSPENDED))
        if not turn.stream.thread_gone:
            await self.requests.post_requests(turn.row, turn.messages, transcript, turn.seq)
        if not has_session_status:
            await set_session_status(turn.messages.slack, turn.row, SUSPENDED)
        turn.idle.set()

    async def _finish(self, turn: ActiveTurn, transcript: Transcript) -> None:
        row = turn.row
        if transcript.state != "canceled":
            turn.stream.user_stopped.clear()  # the answer came before the stop
        payload = {"task_id": row.task_id or "", "trace_id": transcript.trace_id or ""}
        footer = MessageFooter(
            ending_blocks(transcript, row.turn_id, row.task_id),
            {"event_type": "caipe_turn", "event_payload": payload},
        )
        has_session_status = await turn.stream.finish(build_view(transcript, turn.status_card), footer)
        await self.requests.close_open(row, turn.messages)
        if not has_session_status:
            await set_session_status(turn.messages.slack, row, "active")


def _mark_stopped(turn: ActiveTurn, principal: str) -> None:
    turn.stopped_by = principal
    turn.stream.user_stopped.set()


def _retrieve_exception(task: asyncio.Task[None]) -> None:
    """So that asyncio does not report it when nobody waits for the task."""
    if not task.cancelled():
        task.exception()


def _list_agents(notice: Notice, transcript: Transcript) -> frozenset[str]:
    """The agent of a notice, and those that work for the run."""
    delegated = {call.tool for call in transcript.calls if call.delegates}
    return frozenset({notice.agent, *delegated})


def _fail(transcript: Transcript, error: str) -> Transcript:
    return replace(transcript, state="failed", error=error, retryable=True)


def _find_request(transcript: Transcript, request_id: str) -> PendingInput | None:
    for request in transcript.requests:
        if request.request_id == request_id:
            return request
    return None
