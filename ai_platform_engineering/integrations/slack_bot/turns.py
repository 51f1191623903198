"""Turns: a question goes to the supervisor, and what comes of it is drawn in its thread until the end, also over a restart."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from ai_platform_engineering.a2a.client import (
    A2AClient,
    ClientConversation,
    CredentialsRefused,
    OutgoingMessage,
    RequestRefused,
    Unreachable,
)
from ai_platform_engineering.a2a.codec import SEQ_KEY, decode_snapshot
from ai_platform_engineering.core.events import AnyEvent, FilePart, InputResolved, Paused, is_terminal
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.integrations.slack_bot import blocks
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore, TurnRow
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.rate_limits import wait_then_cancel
from ai_platform_engineering.integrations.slack_bot.slack_stream import (
    MAX_STREAM_AGE,
    DeliveryFailed,
    MessageFooter,
    SlackStream,
    StreamProgress,
)
from ai_platform_engineering.integrations.slack_bot.thread_messages import GONE, SlackThread, ThreadMessages
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackApi, SlackError

log = logging.getLogger(__name__)

_PAUSES = (1.0, 2.0, 5.0, 10.0, 30.0)  # while the supervisor is away
_PATIENCE = 120.0  # seconds, for a question that the supervisor does not have yet
_AWAY = blocks.TaskCard("caipe-away", "The supervisor cannot be reached. I keep trying.", "in_progress")
_BACK = replace(_AWAY, title="The supervisor was away for a while.", status="complete")
_NOT_SENT = "The supervisor cannot be reached, so your question was not taken in. Try again in a while."
_NOT_LET_IN = "The supervisor does not let me speak for you. Whoever runs me can mend it:"
_KEY = "A2A_AUTH_DELEGATE_KEY must be set to the same key for the supervisor and for the bot."
_UNEXPECTED = "Something went wrong while I was writing this. The bot's log says more."
_OVER = ("completed", "failed", "canceled")
_WORKING = ("is thinking…", ["Reading the question…", "Asking the agents…", "Putting it together…"])


class _Joined(Exception):
    """The message was an answer to what another turn shows."""


@dataclass(slots=True)
class ActiveTurn:
    """A turn that is being drawn."""

    row: TurnRow
    stream: SlackStream
    task: asyncio.Task[None] | None = None
    status_task: asyncio.Task[None] | None = None
    flush_task: asyncio.Task[None] | None = None
    stopped_by: str | None = None
    seq: int = 0  # of the last event that was drawn
    status_card: blocks.TaskCard | None = None  # what the run does not know of
    previous: "ActiveTurn | None" = None  # the turn before it in its thread, until that one is over
    sent: asyncio.Event = field(default_factory=asyncio.Event)  # the supervisor has the question
    idle: asyncio.Event = field(
        default_factory=asyncio.Event
    )  # nothing is drawn: it has ended, or waits for people

    async def wait_until_announced(self) -> None:
        """Slack has been told what goes on: a status that comes later than the first words would be a second message."""
        if self.status_task is not None:
            await self.status_task

    async def wait_for_previous(self) -> None:
        """Answers stand in the order of their questions: waits until the turn before draws no more."""
        await self.wait_until_announced()
        if self.previous is not None:
            await self.previous.idle.wait()
            self.previous = None

    def show(self, view: blocks.ThreadView) -> None:
        """Shows it from now on, while it is being drawn. Raises what has broken the drawing."""
        if self.flush_task is not None and self.flush_task.done():
            self.flush_task.result()
        self.idle.clear()
        self.stream.set_view(view)
        self.flush_task = self.flush_task or asyncio.create_task(self.stream.run())

    async def stop_drawing(self) -> None:
        drawing, self.flush_task = self.flush_task, None
        if drawing is not None:
            await self.stream.cancel_run(drawing)


@dataclass(slots=True)
class TurnRunner:
    slack: SlackApi
    supervisor: A2AClient
    store: BotStore
    requests: SlackInputRequests
    max_stream_age: float = MAX_STREAM_AGE
    streaming: bool = True  # else messages are posted and updated
    _live: dict[str, ActiveTurn] = field(default_factory=dict)
    _closing: bool = False

    async def start(self, row: TurnRow) -> None:
        """Draws a new turn, in the background."""
        await self.store.save_turn(row)
        if not self._closing:  # else the next process draws it
            self._spawn(row, fresh=True)

    async def resume(self) -> int:
        """Goes on with what an earlier process has left."""
        rows = await self.store.list_open_turns()
        for row in rows:
            self._spawn(row, fresh=False)
        return len(rows)

    async def close(self) -> None:
        """Stops drawing; the runs go on, and so does the next process."""
        self._closing = True
        tasks = [live.task for live in self._live.values() if live.task is not None]
        for task in tasks:
            task.cancel()
        await wait_then_cancel(self.slack.rate_limiter.clock, tasks)

    async def stop(self, channel: str, thread_ts: str, principal: str, turn_id: str | None = None) -> bool:
        """Cancels what works in a thread; whether there was something."""
        rows = [
            row
            for row in await self.store.list_open_turns(channel, thread_ts)
            if turn_id in (None, row.turn_id)
        ]
        for row in rows:
            if (live := self._live.get(row.turn_id)) is not None:
                live.stopped_by = principal
                live.stream.user_stopped.set()
            await self._cancel(live.row if live else row, principal)
        return bool(rows)

    async def _cancel(self, row: TurnRow, principal: str) -> None:
        if row.task_id is not None:  # otherwise when it is known
            with contextlib.suppress(RequestRefused):  # it ended by itself in the meantime
                await self.supervisor.on_behalf_of(principal, row.owner).cancel(row.task_id)

    def _spawn(self, row: TurnRow, *, fresh: bool) -> None:
        place = SlackThread(row.team, row.channel, row.thread_ts, row.user, row.question_ts)
        messages = ThreadMessages(self.slack, place)
        others = [
            one
            for one in self._live.values()
            if (one.row.channel, one.row.thread_ts) == (row.channel, row.thread_ts)
        ]
        live = ActiveTurn(row, self._stream(row, messages), previous=others[-1] if others else None)
        self._live[row.turn_id] = live
        live.task = asyncio.create_task(self._work(live, messages, fresh=fresh), name=f"turn:{row.turn_id}")
        live.task.add_done_callback(lambda _: self._ended(live))

    def _ended(self, live: ActiveTurn) -> None:
        live.sent.set()
        live.idle.set()
        if live.status_task is not None:
            live.status_task.cancel()
        self._live.pop(live.row.turn_id, None)

    def _stream(self, row: TurnRow, messages: ThreadMessages) -> SlackStream:
        async def keep(drawn: StreamProgress) -> None:
            await self._save(row.turn_id, drawn=drawn)

        async def is_known(ts: str) -> bool:
            return await self.store.is_posted(row.channel, ts)

        stop = blocks.stop_button(row.turn_id)
        return SlackStream(
            messages,
            row.drawn,
            keep,
            is_known,
            max_age=self.max_stream_age,
            stop_block=stop,
            streaming=self.streaming,
        )

    async def _save(self, turn_id: str, **changes: Any) -> None:
        live = self._live[turn_id]
        live.row = replace(live.row, **changes)
        await self.store.save_turn(live.row)

    async def _work(self, live: ActiveTurn, messages: ThreadMessages, *, fresh: bool) -> None:
        turn_id = live.row.turn_id
        try:
            if fresh:  # while the supervisor already has the question
                live.status_task = asyncio.create_task(self._announce(live.row))
            await self._drawn(live, messages)
            await self._save(turn_id, state="done")
        except _Joined:
            await self.store.delete_turn(turn_id)
        except (DeliveryFailed, SlackError, DeliveryUnknown) as error:
            log.error("turn %s: %s", turn_id, error)
            await self._save(turn_id, state="done")
            if not isinstance(error, SlackError) or error.reason not in GONE:
                await self._tell_directly(live.row, str(error))
        except Exception as error:
            log.exception("turn %s broke: %s", turn_id, type(error).__name__)
            await self._save(turn_id, state="done")
            with contextlib.suppress(SlackError, DeliveryUnknown):
                ts = await messages.post(_UNEXPECTED, blocks.error_blocks(_UNEXPECTED, turn_id, None))
                await self.store.record_posted(live.row.channel, ts)

    # --- one turn -----------------------------------------------------------------------------------------------------

    async def _drawn(self, live: ActiveTurn, messages: ThreadMessages) -> None:
        """From the question, or from where the process before was, to the end."""
        talk, seen = ClientConversation(live.row.owner), Transcript()
        try:
            if live.row.task_id is not None:
                seen = await self._so_far(live.row, messages, talk)
                live.seq = talk.seq
                await live.wait_for_previous()
            if seen.state == "input-required":
                await self._pause(live, messages, seen)
            elif live.seq and seen.state not in _OVER:  # it may be long until something happens
                live.show(blocks.build_view(seen))
            if seen.state not in _OVER:
                async with contextlib.aclosing(
                    self._events(live, talk, lambda: live.show(blocks.build_view(seen, live.status_card)))
                ) as events:
                    async for event in events:
                        await live.wait_for_previous()
                        before = seen
                        seen = seen.apply(event)
                        live.seq = talk.seq
                        await self._draw(live, messages, event, before, seen)
        except CredentialsRefused as error:
            log.error("turn %s was refused: %s %s", live.row.turn_id, error, _KEY)
            seen = replace(seen, state="failed", error=f"{_NOT_LET_IN} {_KEY}", retryable=True)
        except RequestRefused as error:
            log.warning("turn %s was refused: %s", live.row.turn_id, error)
            seen = replace(seen, state="failed", error=str(error), retryable=True)
        except Unreachable as error:
            log.warning("turn %s: %s", live.row.turn_id, error)
            seen = replace(seen, state="failed", error=_NOT_SENT, retryable=True)
        finally:
            await live.stop_drawing()
        await live.wait_for_previous()
        await self._finish(live, messages, seen)

    async def _draw(
        self,
        live: ActiveTurn,
        messages: ThreadMessages,
        event: AnyEvent,
        before: Transcript,
        seen: Transcript,
    ) -> None:
        if isinstance(event, Paused):
            await live.stop_drawing()
            await self._pause(live, messages, seen)
            return
        if isinstance(event, InputResolved):
            asked = next((one for one in before.requests if one.request_id == event.request_id), None)
            await self.requests.mark_resolved(
                live.row, messages, event, asked, self.slack.rate_limiter.clock.now()
            )
        if not is_terminal(event):
            live.show(blocks.build_view(seen, live.status_card))

    async def _so_far(self, row: TurnRow, messages: ThreadMessages, talk: ClientConversation) -> Transcript:
        """What the task had come to while nobody was watching. The supervisor is waited for."""
        client = self.supervisor.on_behalf_of(row.principal, row.owner)
        task = await self._task(client, row)
        talk.task_id, talk.seq = row.task_id, int(task["metadata"][SEQ_KEY])
        talk.last_event_id = str(talk.seq)
        seen = Transcript()
        for _, at, event in decode_snapshot(task):
            if isinstance(event, InputResolved):
                asked = next((one for one in seen.requests if one.request_id == event.request_id), None)
                await self.requests.mark_resolved(row, messages, event, asked, at.timestamp())
            seen = seen.apply(event)
        return seen

    async def _task(self, client: A2AClient, row: TurnRow) -> Mapping[str, Any]:
        pauses = _endless(_PAUSES)
        while True:
            try:
                return await client.call("GetTask", {"id": row.task_id})
            except Unreachable:
                await self.slack.rate_limiter.clock.sleep(next(pauses))

    async def _events(
        self, live: ActiveTurn, talk: ClientConversation, show: Callable[[], None]
    ) -> AsyncGenerator[AnyEvent]:
        """What happens until the end; a supervisor that is away for a while is waited for."""
        client = self.supervisor.on_behalf_of(live.row.principal, live.row.owner)
        clock = self.slack.rate_limiter.clock
        away_since = None
        pauses = _endless(_PAUSES)

        async def named(task_id: str) -> None:
            other = await self.store.find_turn_of_task(task_id)
            if other is not None and other.turn_id != live.row.turn_id:
                raise _Joined
            await self._save(live.row.turn_id, task_id=task_id)
            live.sent.set()
            if live.stopped_by is not None:
                await self._cancel(live.row, live.stopped_by)

        talk.on_task_id = named
        await self._in_order(live)
        while True:
            source = (
                client.follow(talk.task_id, talk)
                if talk.task_id
                else client.send(build_message(live.row), talk)
            )
            try:
                async with contextlib.aclosing(source) as events:  # type: ignore[type-var]
                    async for event in events:
                        if away_since is not None:
                            away_since = None
                            pauses = _endless(_PAUSES)
                            live.status_card = _BACK
                            show()
                        yield event
                        if is_terminal(event):
                            return
            except Unreachable:
                away_since = clock.now() if away_since is None else away_since
                if talk.task_id is None and clock.now() - away_since > _PATIENCE:
                    raise
                live.status_card = _AWAY
                await live.wait_until_announced()
                show()
                await clock.sleep(next(pauses))

    async def _in_order(self, live: ActiveTurn) -> None:
        """The questions of a thread reach the supervisor as they were asked."""
        if live.row.task_id is not None:
            live.sent.set()
        elif live.previous is not None:
            await live.previous.sent.wait()

    async def _pause(self, live: ActiveTurn, messages: ThreadMessages, seen: Transcript) -> None:
        """The run waits for people: the message ends, and each request gets one of its own."""
        streamed = await live.stream.finish(
            blocks.build_view(seen, live.status_card), MessageFooter(session_status="suspended")
        )
        if not live.stream.thread_gone:
            await self.requests.post_requests(live.row, messages, seen, live.seq)
        if not streamed:
            await self._session(live.row, "suspended")
        live.idle.set()

    async def _finish(self, live: ActiveTurn, messages: ThreadMessages, seen: Transcript) -> None:
        row = live.row
        if seen.state != "canceled":
            live.stream.user_stopped.clear()  # the answer was faster
        payload = {"task_id": row.task_id or "", "trace_id": seen.trace_id or ""}
        ending = MessageFooter(
            blocks.ending_blocks(seen, row.turn_id, row.task_id),
            {"event_type": "caipe_turn", "event_payload": payload},
        )
        streamed = await live.stream.finish(blocks.build_view(seen, live.status_card), ending)
        await self.requests.close_open(row, messages)
        if not streamed:
            await self._session(row, "active")

    # --- what Slack shows around it -----------------------------------------------------------------------------------

    async def _announce(self, row: TurnRow) -> None:
        """Slack says that something is going on, with a button to stop it. Where it cannot, the words come without it."""
        title = blocks.truncate(blocks.escape_line(str(row.order.get("text") or "")), 200) or "A question"
        await self._session(row, "processing", title=title, initiator_user_id=row.user)
        status, loading = _WORKING
        thread = {"channel_id": row.channel, "thread_ts": row.thread_ts}
        await self.slack.try_call(
            "assistant.threads.setStatus", {**thread, "status": status, "loading_messages": loading}
        )

    async def _session(self, row: TurnRow, status: str, **more: str) -> None:
        await self.slack.try_call(
            "agents.sessions.setStatus",
            {"channel_id": row.channel, "thread_ts": row.thread_ts, "status": status, **more},
        )

    async def _tell_directly(self, row: TurnRow, reason: str) -> None:
        """Where the bot may not write, the person hears of it in a direct message."""
        advice = (
            "Invite me to the channel, or ask me here."
            if "not_in_channel" in reason
            else "Whoever runs me finds more in my log."
        )
        text = f"I could not answer you in <#{row.channel}>. {blocks.escape_line(reason)} {advice}"
        await self.slack.try_call("chat.postMessage", {"channel": row.user, "text": text})


def build_message(row: TurnRow) -> OutgoingMessage:
    """The message for the supervisor, the same one each time it is sent."""
    given: Mapping[str, Any] = row.order
    files = tuple(FilePart.model_validate(one) for one in given.get("files") or ())
    scope = given.get("scope")
    return OutgoingMessage(
        str(given["message_id"]), str(given.get("text") or ""), context_id=row.owner, files=files, scope=scope
    )


def _endless(pauses: tuple[float, ...]) -> Iterator[float]:
    yield from pauses
    while True:
        yield pauses[-1]
