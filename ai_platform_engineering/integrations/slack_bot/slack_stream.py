"""One turn in a thread, drawn with Slack's streams or, where there are none, with messages that are updated.

The caller sets all that is to be seen (`ThreadView`); the stream remembers what Slack has, and sends the
difference. So nothing is lost when a call fails. What is no longer true, or may not have been delivered, is
deleted and sent again.
"""

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from ai_platform_engineering.integrations.slack_bot.blocks import Block, Chunk, fits_one_message
from ai_platform_engineering.integrations.slack_bot.clock import wait_for_first
from ai_platform_engineering.integrations.slack_bot.delivery_retries import DeliveryFailed, DeliveryRetries
from ai_platform_engineering.integrations.slack_bot.message_content import (
    build_chunks,
    build_posted_message,
    build_repaired_message,
    close_cards,
    footer_notification,
)
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from ai_platform_engineering.integrations.slack_bot.stream_progress import (
    MessageFooter,
    OpenMessage,
    SentContent,
    StreamProgress,
    text_digest,
)
from ai_platform_engineering.integrations.slack_bot.stream_text import StreamBuffer, TextSegment
from ai_platform_engineering.integrations.slack_bot.thread_messages import (
    STREAM_ENDED,
    THREAD_GONE,
    TOO_LONG,
    StreamingUnavailable,
    ThreadMessages,
)
from ai_platform_engineering.integrations.slack_bot.thread_view import TaskCard, ThreadView
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackError

log = logging.getLogger(__name__)

MAX_STREAM_AGE = 240.0  # seconds; Slack ends a stream after about five minutes, whatever it is sent
_UPDATE_INTERVAL = 1.2
_STOP_GRACE = 1.0  # seconds in which a stream that has ended may turn out to have been stopped by a person


class SlackStream:
    def __init__(
        self,
        messages: ThreadMessages,
        progress: StreamProgress,
        save_progress: Callable[[StreamProgress], Awaitable[None]],
        is_known: Callable[[str], Awaitable[bool]],
        *,
        max_age: float = MAX_STREAM_AGE,
        stop_block: Block | None = None,
        streaming: bool = True,
    ) -> None:
        """`save_progress` stores what another process needs to go on, `is_known` says whether a message of
        the bot belongs to another turn, `stop_block` is for posted messages, which have no stop button of
        Slack's.
        """
        self._messages = messages
        self._progress = progress
        self._save_progress = save_progress
        self._is_known = is_known
        self._max_age = max_age
        self._stop_blocks = [] if stop_block is None else [stop_block]
        self._buffer = StreamBuffer(progress.start)
        self._sent = SentContent()
        self._view = ThreadView()
        self._sent_cards = {card.card_id: card for card in progress.known}  # of all messages
        self._can_stream = streaming
        self._view_changed = asyncio.Event()
        self.user_stopped = asyncio.Event()
        self.thread_gone = False
        self._finishing = False  # no message is opened only to repeat cards that are still open
        self._session_status_sent = False
        self._retries = DeliveryRetries(messages.slack.rate_limiter.clock)
        self._flushed_at = -1e9
        self._lock = asyncio.Lock()

    @property
    def rate_limiter(self) -> RateLimiter:
        return self._messages.slack.rate_limiter

    def set_view(self, view: ThreadView) -> None:
        """Sets what the thread shows from now on."""
        if view != self._view:
            self._view = view
            self._view_changed.set()

    async def run(self) -> None:
        """Sends what has changed, within the rate limit of all streams, until cancelled.

        Raises DeliveryFailed.
        """
        with self.rate_limiter.count_stream():
            while True:
                await self._wait_for_change()
                next_flush = self._flushed_at + self._flush_interval()
                await self.rate_limiter.clock.sleep(max(0.0, next_flush - self._now()))
                await self.flush()

    async def _wait_for_change(self) -> None:
        """Waits for something to send, or until the stream is too old to go on."""
        message = self._progress.part
        if message is None or not message.streams:
            await self._view_changed.wait()
            return
        seconds_left = message.born + self._max_age - self._now() + 0.1
        await wait_for_first(self._view_changed.wait(), self.rate_limiter.clock.sleep(max(0.0, seconds_left)))

    def _flush_interval(self) -> float:
        message = self._progress.part
        if message is None or message.streams:
            return self.rate_limiter.flush_interval("chat.appendStream")
        return max(self.rate_limiter.flush_interval("chat.update"), _UPDATE_INTERVAL)

    def _now(self) -> float:
        return self.rate_limiter.clock.now()

    async def flush(self) -> None:
        """Sends everything that Slack does not have yet. Raises DeliveryFailed."""
        async with self._lock:
            self._view_changed.clear()
            await self._try(self._flush)
            self._flushed_at = self._now()

    async def _flush(self) -> None:
        if self.thread_gone or self.user_stopped.is_set():
            return
        await self._recover()
        await self._retract_changed_text()
        while not self.user_stopped.is_set() and await self._send_next():
            pass

    async def cancel_run(self, running: asyncio.Task[None]) -> None:
        """Cancels the task of `run`, between two calls: the outcome of a cancelled call would not be known.

        Raises DeliveryFailed.
        """
        try:
            await self._lock.acquire()
            self._lock.release()
        finally:  # when this wait is cancelled too, the run ends in a call, and the next process finds out
            running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def finish(self, view: ThreadView, footer: MessageFooter) -> bool:
        """Sends the rest and ends the message; whether Slack got the session status with it.

        Raises DeliveryFailed.
        """
        self.set_view(footer.select_cards(view))
        self._finishing = True
        self._session_status_sent = False
        self._buffer.complete = True
        try:
            await self.flush()
            async with self._lock:
                if not (self.thread_gone or self._progress.ended):
                    await self._try(lambda: self._close(footer))
        finally:
            self._finishing = False
            self._buffer.complete = False
        return self._session_status_sent

    async def _try(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except SlackError as error:
            if error.reason not in THREAD_GONE:
                raise DeliveryFailed(str(error)) from None
            log.info("the thread is gone; nothing more is written to it")
            self.thread_gone = True
        except DeliveryUnknown as error:
            raise DeliveryFailed(str(error)) from None

    # --- the difference between the view and what Slack has -------------------------------------------------

    async def _recover(self) -> None:
        """After a restart, goes on with the message of the process before."""
        if self._progress.opening:
            await self._remove_unknown_messages()
        message = self._progress.part
        if message is not None and message.streams and self._sent.is_empty:
            await self._end_stream(message)

    async def _end_stream(self, message: OpenMessage) -> None:
        """Goes on with a stream as a message that is updated: nobody knows how much of it Slack has."""
        if message.ts not in await self._messages.list_own():
            await self._discard(message)  # the process before has deleted it, and died before it noted that
            return
        await self._messages.stop_stream(message.ts)
        await self._save(replace(self._progress, part=replace(message, streams=False)))
        self._buffer.sent = message.start

    async def _retract_changed_text(self) -> None:
        """Goes back to the beginning of the message that holds text which is no longer in the view."""
        first_text = not self._buffer.text
        unchanged = self._buffer.set_text(self._view.text)
        if first_text and text_digest(self._view.text[: self._progress.start]) != self._progress.digest:
            unchanged = 0  # the text changed while no process was running
        if unchanged is None:
            return
        message = self._progress.part
        if unchanged < self._progress.start:
            await self._remove_finished_messages(unchanged)
        elif message is not None and message.streams:
            await self._discard(message)
        elif message is not None:
            self._buffer.sent = message.start
            self._sent.characters = 0
            if len(self._buffer.text) == message.start:  # there is no other text in its place yet
                await self._append(message, "", (), None)

    async def _remove_finished_messages(self, unchanged: int) -> None:
        """Deletes the finished message in which the text differs, and all below it."""
        ends = (*self._progress.starts[1:], len(self._buffer.text) + 1)
        first = next((index for index, end in enumerate(ends) if end > unchanged), 0)
        for ts in self._progress.posted[first:]:
            await self._messages.remove(ts)
        self._buffer.sent = (*self._progress.starts, 0)[first]
        self._sent = SentContent()
        self._sent_cards = {}
        posted = self._progress.posted[:first]
        starts = self._progress.starts[:first]
        await self._save(StreamProgress(start=self._buffer.sent, posted=posted, starts=starts))

    async def _send_next(self) -> bool:
        """Sends as much as one call takes; False when there is nothing to send."""
        message = self._progress.part
        if message is not None and message.streams and self._now() - message.born > self._max_age:
            await self._end_message()
            message = None
        segment = self._buffer.next_segment(self._sent.characters, opens=self._sent.characters == 0)
        cards = [card for card in self._view.cards if self._is_new(card, opens=message is None)]
        title = ""
        if self._view.title != self._sent.title:
            title = self._view.title
        if segment is None and not cards and (message is None or not title):
            return False
        if segment is not None and segment.full and not segment.text:  # no text fits into this message
            await self._end_message()
            return True
        try:
            if message is None:
                await self._open(title, cards, segment)
            else:
                await self._append(message, title, cards, segment)
        except SlackError as error:
            return await self._handle_refusal(error, message)
        except DeliveryUnknown as error:
            await self._retries.wait(error)
            await self._undo_unknown_delivery(message)
            return True
        self._retries.reset()
        self._sent.add(title, cards, segment)
        self._sent_cards |= {card.card_id: card for card in cards}
        if segment is not None:
            self._buffer.sent = segment.end
            if segment.full:
                await self._end_message()
        return True

    def _is_new(self, card: TaskCard, *, opens: bool) -> bool:
        """Whether to send a card: it changed, or it is open and begins a new message."""
        if card.card_id in self._sent.cards:
            return self._sent.cards[card.card_id] != card
        if opens and card.is_open and not self._finishing:
            return True
        return self._sent_cards.get(card.card_id) != card

    # --- messages -------------------------------------------------------------------------------------------

    async def _open(self, title: str, cards: Sequence[TaskCard], segment: TextSegment | None) -> None:
        await self._save(replace(self._progress, opening=True, ended=False))
        start = self._buffer.sent
        text = ""
        if segment is not None:
            start = segment.start
            text = segment.text
        ts = await self._start_stream(build_chunks(title, cards, segment))
        streams = ts is not None
        if ts is None:
            ts = await self._messages.post(*build_posted_message(self._view, text, self._stop_blocks))
        message = OpenMessage(ts, start, streams, self._now())
        await self._save(replace(self._progress.add_message(ts, start), part=message, start=start))

    async def _start_stream(self, chunks: Sequence[Chunk]) -> str | None:
        """The ts of a new stream; None where a message has to be posted instead."""
        if not self._can_stream:
            return None
        try:
            return await self._messages.start_stream(chunks, planned=bool(self._view.title))
        except StreamingUnavailable:
            self._can_stream = False
            return None

    async def _append(
        self, message: OpenMessage, title: str, cards: Sequence[TaskCard], segment: TextSegment | None
    ) -> None:
        if message.streams:
            await self._messages.append_stream(message.ts, build_chunks(title, cards, segment))
            return
        end = self._buffer.sent
        if segment is not None:
            end = segment.end
        text = self._buffer.render_range(message.start, end)
        await self._messages.update(message.ts, *build_posted_message(self._view, text, self._stop_blocks))

    async def _end_message(self) -> None:
        """Ends the current message; a new one goes on with the text."""
        message = self._progress.part
        fence = self._buffer.closing_fence()
        chunks = self._sent.complete_open_cards("continues below")
        if fence and self._sent.characters:
            chunks.append({"type": "markdown_text", "text": fence})
        if message is not None:
            ended = message.streams and await self._messages.stop_stream(message.ts, chunks=chunks)
            if not ended:
                await self._repair(message, MessageFooter())
        await self._begin_next_message()

    async def _close(self, footer: MessageFooter) -> None:
        message = self._progress.part
        has_footer = False
        if message is not None and message.streams:
            has_footer = await self._close_stream(message, footer)
        elif message is not None:
            has_footer = await self._close_post(message, footer)
        await self._begin_next_message(ended=has_footer and bool(footer.blocks))
        if footer.blocks and not has_footer:
            await self._post_footer(footer)

    async def _close_stream(self, message: OpenMessage, footer: MessageFooter) -> bool:
        self._session_status_sent = await self._messages.stop_stream(
            message.ts,
            chunks=close_cards(self._sent, self._view),
            blocks=footer.blocks,
            metadata=footer.metadata,
            session_status=footer.session_status,
        )
        is_unfinished = not self._session_status_sent or self._sent.has_open_cards
        if is_unfinished and not self.user_stopped.is_set():
            await self._repair(message, footer if self._session_status_sent else MessageFooter())
        return self._session_status_sent

    async def _close_post(self, message: OpenMessage, footer: MessageFooter) -> bool:
        text = self._buffer.render_range(message.start, self._buffer.sent)
        notification, blocks = build_posted_message(self._view, text, footer.blocks)
        if fits_one_message(blocks):
            try:
                await self._messages.update(message.ts, notification, blocks, footer.metadata)
                return True
            except SlackError as error:
                if error.reason not in TOO_LONG:
                    raise
        await self._messages.update(message.ts, *build_posted_message(self._view, text))
        return False

    async def _post_footer(self, footer: MessageFooter) -> None:
        """Posts the footer as a message of its own: the message above cannot hold it, or is not there."""
        notification = footer_notification(footer)
        while not self._progress.ended:
            await self._save(replace(self._progress, opening=True))
            try:
                ts = await self._messages.post(notification, footer.blocks, footer.metadata)
                added = self._progress.add_message(ts, self._progress.start)
                await self._save(replace(added, ended=True))
            except DeliveryUnknown as error:
                await self._retries.wait(error)
                await self._remove_unknown_messages()

    async def _handle_refusal(self, error: SlackError, message: OpenMessage | None) -> bool:
        """Whether to go on after a refusal, with a new message. Raises the error when that would not help."""
        if error.reason in TOO_LONG and message is not None and not self._sent.is_empty:
            await self._end_message()
            return True
        if error.reason in TOO_LONG and self._buffer.shrink_limits():
            return True
        if error.reason != STREAM_ENDED or message is None:
            raise error
        expected_end = self._now() - message.born >= self._max_age
        if not expected_end and await self._wait_for_user_stop():
            return False
        await self._repair(message, MessageFooter())
        await self._begin_next_message()
        return True

    async def _wait_for_user_stop(self) -> bool:
        """Whether a person has stopped the stream; Slack says so after it has ended it."""
        await wait_for_first(self.user_stopped.wait(), self.rate_limiter.clock.sleep(_STOP_GRACE))
        return self.user_stopped.is_set()

    async def _repair(self, message: OpenMessage, footer: MessageFooter) -> None:
        """Updates an ended stream whose cards are still open: it would look unfinished for ever."""
        text = self._buffer.render_range(message.start, self._buffer.sent)
        notification, blocks = build_repaired_message(self._sent, self._view, text, footer)
        if not blocks or not fits_one_message(blocks):
            return
        try:
            await self._messages.update(message.ts, notification, blocks, footer.metadata)
        except (SlackError, DeliveryUnknown) as error:
            log.info("%s", error)

    async def _undo_unknown_delivery(self, message: OpenMessage | None) -> None:
        """Deletes a message whose content is not known; an update is harmless, since it is done again."""
        if message is None:
            await self._remove_unknown_messages()
        elif message.streams:
            await self._discard(message)

    async def _discard(self, message: OpenMessage) -> None:
        """Deletes the current message, to send its content again."""
        await self._messages.remove(message.ts)
        self._buffer.sent = message.start
        self._sent = SentContent()
        self._sent_cards = {card.card_id: card for card in self._progress.known}
        await self._save(self._progress.remove_open_message())

    async def _remove_unknown_messages(self) -> None:
        """Deletes messages that were posted without this process learning of it."""

        async def is_known(ts: str) -> bool:
            return ts in self._progress.posted or await self._is_known(ts)

        await self._messages.remove_unknown(is_known)
        await self._save(replace(self._progress, opening=False))

    async def _begin_next_message(self, *, ended: bool = False) -> None:
        self._sent = SentContent()
        cards = tuple(self._sent_cards.values())
        await self._save(
            replace(self._progress, part=None, start=self._buffer.sent, known=cards, ended=ended)
        )

    async def _save(self, progress: StreamProgress) -> None:
        if self._buffer.text:
            progress = replace(progress, digest=text_digest(self._buffer.text[: progress.start]))
        if progress != self._progress:
            self._progress = progress
            await self._save_progress(progress)
