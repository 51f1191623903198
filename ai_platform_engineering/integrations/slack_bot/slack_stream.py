"""One turn in a thread: Slack's streams where they can be had, else messages that are updated.

What is to be seen is given as a whole (`View`), what Slack has is remembered, and the difference is sent. So nothing is lost when a call
fails, and what is no longer true, or of which nobody knows whether Slack has it, is taken back and sent again.
"""

import asyncio
import contextlib
import logging
import zlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ai_platform_engineering.integrations.slack_bot.blocks import (
    Block,
    Chunk,
    TaskCard,
    ThreadView,
    fits_one_message,
    markdown,
    notification_text,
    progress_blocks,
)
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter, wait_for_first
from ai_platform_engineering.integrations.slack_bot.stream_text import StreamBuffer, TextSegment
from ai_platform_engineering.integrations.slack_bot.thread_messages import (
    EXPIRED,
    GONE,
    TOO_LONG,
    StreamingUnavailable,
    ThreadMessages,
)
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackError, retry_delay

log = logging.getLogger(__name__)

MAX_STREAM_AGE = 240.0  # seconds; Slack ends a stream after about five minutes, whatever it is sent
_UPDATE_EVERY = 1.2
_STOP_GRACE = 1.0  # seconds in which a stream that is gone may turn out to have been stopped by a person
_MOST_TROUBLES = 30  # calls in a row that Slack breaks off; about a quarter of an hour


class DeliveryFailed(Exception):
    """The bot cannot write where it was asked; the text is Slack's word."""


@dataclass(frozen=True, slots=True)
class OpenMessage:
    """One message: `start` is where its text begins in the whole."""

    ts: str
    start: int
    streams: bool
    born: float


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """What must outlive the process: the message that is being written, what the ones before it hold, and whether one may have come into
    being that nobody knows of."""

    part: OpenMessage | None = None
    start: int = 0  # where the text of the next message begins
    digest: int = 0  # of the text up to there
    opening: bool = False
    ended: bool = False  # what stands below the last message is there
    posted: tuple[str, ...] = ()  # every message of the turn
    starts: tuple[int, ...] = ()  # where the text of each begins
    known: tuple[TaskCard, ...] = ()  # as the finished messages show them


@dataclass(frozen=True, slots=True)
class MessageFooter:
    """How a stretch of a turn ends: what stands below its last message."""

    blocks: Sequence[Block] = ()
    metadata: Mapping[str, Any] | None = None
    session_status: str = "active"


@dataclass(slots=True)
class _Sent:
    """Of the message that is being written."""

    used: int = 0
    title: str = ""
    cards: dict[str, TaskCard] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        return not (self.used or self.title or self.cards)

    def closing(self, output: str) -> list[Chunk]:
        """A step that is open in a finished message looks like a fault."""
        return [
            replace(card, status="complete", output=output).to_chunk()
            for card in self.cards.values()
            if card.is_open
        ]


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
        """`keep` stores what must outlive the process, `is_known` says whether a message of the bot belongs to something else, and
        `stop_block` is for messages that have no button of Slack's own."""
        self._messages = messages
        self._drawn = progress
        self._keep = save_progress
        self._is_known = is_known
        self._max_age, self._stop_block = max_age, stop_block
        self._buffer = StreamBuffer(progress.start)
        self._sent = _Sent()
        self._view = ThreadView()
        self._known = {card.card_id: card for card in progress.known}
        self._can_stream = streaming
        self._changed, self.user_stopped = asyncio.Event(), asyncio.Event()
        self.thread_gone = False  # the thread
        self._ending = False  # no message is opened only to repeat what is still open
        self._session_told = False
        self._troubles = 0  # calls in a row that were broken off
        self._flushed_at = -1e9
        self._lock = asyncio.Lock()

    @property
    def rate_limiter(self) -> RateLimiter:
        return self._messages.slack.rate_limiter

    def set_view(self, view: ThreadView) -> None:
        """What is to be seen from now on."""
        if view != self._view:
            self._view = view
            self._changed.set()

    async def run(self) -> None:
        """Sends what has gathered, at the pace of all streams, until it is cancelled. Raises Undeliverable."""
        with self.rate_limiter.count_stream():
            while True:
                await self._anything()
                await self.rate_limiter.clock.sleep(
                    max(0.0, self._flushed_at + self._interval() - self.rate_limiter.clock.now())
                )
                await self.flush()

    async def _anything(self) -> None:
        """Waits for something to send, or until the message is too old to go on."""
        part = self._drawn.part
        if part is None or not part.streams:
            await self._changed.wait()
            return
        await wait_for_first(
            self._changed.wait(),
            self.rate_limiter.clock.sleep(
                max(0.0, part.born + self._max_age - self.rate_limiter.clock.now() + 0.1)
            ),
        )

    def _interval(self) -> float:
        posts = self._drawn.part is not None and not self._drawn.part.streams
        if posts:
            return max(self.rate_limiter.flush_interval("chat.update"), _UPDATE_EVERY)
        return self.rate_limiter.flush_interval("chat.appendStream")

    async def flush(self) -> None:
        """Sends everything that Slack does not have yet. Raises Undeliverable."""
        async with self._lock:
            self._changed.clear()
            await self._tried(self._flush)
            self._flushed_at = self.rate_limiter.clock.now()

    async def _flush(self) -> None:
        if self.thread_gone or self.user_stopped.is_set():
            return
        await self._recover()
        await self._take_back()
        while not self.user_stopped.is_set() and await self._step():
            pass

    async def cancel_run(self, running: asyncio.Task[None]) -> None:
        """Stops `run`, and never in the middle of a call, whose outcome would not be known. Raises Undeliverable."""
        try:
            await self._lock.acquire()
            self._lock.release()
        finally:  # who is not given the time for it, ends in the middle: the next process finds out
            running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await running

    async def finish(self, view: ThreadView, ending: MessageFooter) -> bool:
        """Sends the rest and ends the message; whether Slack was told the session's state with it. Raises Undeliverable."""
        self.set_view(view)
        self._ending = True
        self._session_told = False
        self._buffer.complete = True
        try:
            await self.flush()
            async with self._lock:
                if not (self.thread_gone or self._drawn.ended):
                    await self._tried(lambda: self._close(ending))
        finally:
            self._ending = self._buffer.complete = False
        return self._session_told

    async def _tried(self, work: Callable[[], Awaitable[None]]) -> None:
        try:
            await work()
        except SlackError as error:
            if error.reason not in GONE:
                raise DeliveryFailed(str(error)) from None
            log.info("the thread is gone; nothing more is written to it")
            self.thread_gone = True
        except DeliveryUnknown as error:
            raise DeliveryFailed(str(error)) from None

    # --- what is to be seen against what Slack has ----------------------------------------------------------------------

    async def _recover(self) -> None:
        """After a restart: a stream is taken back and sent again, since nobody knows how much of it Slack has."""
        if self._drawn.opening:
            await self._sweep()
        part = self._drawn.part
        if part is not None and part.streams and self._sent.nothing:
            await self._discard(part)

    async def _take_back(self) -> None:
        """When what was sent is no longer true: back to the beginning of the message that holds it."""
        unseen = not self._buffer.text
        still_true = self._buffer.set_text(self._view.text)
        if (
            unseen and _digest(self._view.text[: self._drawn.start]) != self._drawn.digest
        ):  # it changed while nobody was there to see it
            still_true = 0
        part = self._drawn.part
        if still_true is None:
            return
        if still_true < self._drawn.start:
            await self._begin_anew(still_true)
        elif part is not None and part.streams:
            await self._discard(part)
        elif part is not None:
            self._buffer.sent, self._sent.used = part.start, 0
            if len(self._buffer.text) == part.start:  # nothing stands in its place yet
                await self._append(part, "", (), None)

    async def _begin_anew(self, still_true: int) -> None:
        """It stands in a finished message: that one and all below it are taken back."""
        ends = (*self._drawn.starts[1:], len(self._buffer.text) + 1)
        kept = next((number for number, end in enumerate(ends) if end > still_true), 0)
        for ts in self._drawn.posted[kept:]:
            await self._messages.remove(ts)
        self._buffer.sent = (*self._drawn.starts, 0)[kept]
        self._sent, self._known = _Sent(), {}
        posted, starts = self._drawn.posted[:kept], self._drawn.starts[:kept]
        await self._store(StreamProgress(start=self._buffer.sent, posted=posted, starts=starts))

    async def _step(self) -> bool:
        """Sends one message's worth; false when there is nothing to send."""
        part = self._drawn.part
        if part is not None and part.streams and self.rate_limiter.clock.now() - part.born > self._max_age:
            await self._hand_on()
            part = None
        piece = self._buffer.next_segment(self._sent.used, opens=self._sent.used == 0)
        cards = [card for card in self._view.cards if self._is_new(card, opens=part is None)]
        title = self._view.title if self._view.title != self._sent.title else ""
        if piece is None and not cards and not (title and part is not None):
            return False
        if piece is not None and piece.full and not piece.text:  # nothing of it belongs there
            await self._hand_on()
            return True
        try:
            await (
                self._open(title, cards, piece) if part is None else self._append(part, title, cards, piece)
            )
        except SlackError as error:
            return await self._mended(error, part)
        except DeliveryUnknown as error:
            await self._trouble(error)
            await self._unsure(part)
            return True
        self._troubles = 0
        self._note(title, cards, piece)
        if piece is not None and piece.full:
            await self._hand_on()
        return True

    def _is_new(self, card: TaskCard, *, opens: bool) -> bool:
        """In a new message: what is still open, and what has changed since the one before."""
        if card.card_id in self._sent.cards:
            return self._sent.cards[card.card_id] != card
        return (opens and card.is_open and not self._ending) or self._known.get(card.card_id) != card

    def _note(self, title: str, cards: Sequence[TaskCard], piece: TextSegment | None) -> None:
        self._sent.title = title or self._sent.title
        for card in cards:
            self._sent.cards[card.card_id] = self._known[card.card_id] = card
        if piece is not None:
            self._buffer.sent = piece.end
            self._sent.used += len(piece.text)

    # --- messages ---------------------------------------------------------------------------------------------------------

    async def _open(self, title: str, cards: Sequence[TaskCard], piece: TextSegment | None) -> None:
        await self._store(replace(self._drawn, opening=True, ended=False))
        start, ts = piece.start if piece else self._buffer.sent, None
        if self._can_stream:
            try:
                ts = await self._messages.start_stream(
                    _chunks(title, cards, piece), planned=bool(self._view.title)
                )
            except StreamingUnavailable:
                self._can_stream = False
        streams = ts is not None
        if ts is None:
            ts = await self._messages.post(*self._shown(piece.text if piece else ""))
        part = OpenMessage(ts, start, streams, self.rate_limiter.clock.now())
        await self._store(replace(self._has(ts, start), part=part, start=start))

    def _has(self, ts: str, start: int) -> StreamProgress:
        return replace(
            self._drawn, opening=False, posted=(*self._drawn.posted, ts), starts=(*self._drawn.starts, start)
        )

    async def _append(
        self, part: OpenMessage, title: str, cards: Sequence[TaskCard], piece: TextSegment | None
    ) -> None:
        if part.streams:
            await self._messages.append_stream(part.ts, _chunks(title, cards, piece))
            return
        text = self._buffer.render_range(part.start, piece.end if piece else self._buffer.sent)
        await self._messages.update(part.ts, *self._shown(text))

    def _shown(
        self, text: str, blocks: Sequence[Block] = (), *, last: bool = False
    ) -> tuple[str, list[Block]]:
        """A posted message: its notification and its blocks."""
        shown = [*progress_blocks(self._view), *([markdown(text)] if text.strip() else []), *blocks]
        if not last and self._stop_block is not None:
            shown.append(self._stop_block)
        said = notification_text(text) or self._view.title or "Working on it."
        return said, shown or [markdown(said)]

    async def _hand_on(self) -> None:
        """Ends the message; what comes next stands in a new one."""
        part, fence = self._drawn.part, self._buffer.closing_fence()
        last = [
            *self._sent.closing("continues below"),
            *([{"type": "markdown_text", "text": fence}] if fence and self._sent.used else []),
        ]
        if part is not None and not (part.streams and await self._messages.stop_stream(part.ts, chunks=last)):
            await self._repair(part)
        await self._next_part()

    async def _close(self, ending: MessageFooter) -> None:
        part, below = self._drawn.part, False
        if part is not None:
            below = await (self._end_stream(part, ending) if part.streams else self._end_post(part, ending))
        await self._next_part(ended=below and bool(ending.blocks))
        if ending.blocks and not below:
            await self._say(ending)

    async def _end_stream(self, part: OpenMessage, ending: MessageFooter) -> bool:
        given: dict[str, Any] = {
            "blocks": list(ending.blocks),
            "metadata": ending.metadata,
            "session_status": ending.session_status,
        }
        self._session_told = await self._messages.stop_stream(part.ts, chunks=self._last_cards(), **given)
        if not self._session_told and not self.user_stopped.is_set():
            await self._repair(part)
        return self._session_told

    async def _end_post(self, part: OpenMessage, ending: MessageFooter) -> bool:
        text = self._buffer.render_range(part.start, self._buffer.sent)
        said, shown = self._shown(text, ending.blocks, last=True)
        if fits_one_message(shown):
            try:
                await self._messages.update(part.ts, said, shown, ending.metadata)
                return True
            except SlackError as error:
                if error.reason not in TOO_LONG:
                    raise
        await self._messages.update(part.ts, *self._shown(text, last=True))
        return False

    def _last_cards(self) -> list[Chunk]:
        """What the message shows as open, as it is in the end; what is still open then waits for people."""
        now = {card.card_id: card for card in self._view.cards}
        dropped = {
            key: replace(card, status="complete", output="no longer planned")
            for key, card in self._sent.cards.items()
        }
        shown = [now.get(key, dropped[key]) for key, card in self._sent.cards.items() if card.is_open]
        return [
            (
                replace(card, status="complete", output="waits for an answer") if card.is_open else card
            ).to_chunk()
            for card in shown
        ]

    async def _say(self, ending: MessageFooter) -> None:
        """What should have stood below a message that is not there, as one of its own."""
        parts = [
            part for block in ending.blocks for part in (block.get("text") or {}, *block.get("elements", ()))
        ]
        said = next(
            (notification_text(part["text"]) for part in parts if isinstance(part.get("text"), str)), "Done."
        )
        while not self._drawn.ended:
            await self._store(replace(self._drawn, opening=True))
            try:
                ts = await self._messages.post(said, ending.blocks, ending.metadata)
                await self._store(replace(self._has(ts, self._drawn.start), ended=True))
            except DeliveryUnknown as error:
                await self._trouble(error)
                await self._sweep()

    # --- when it goes wrong -----------------------------------------------------------------------------------------------

    async def _mended(self, error: SlackError, part: OpenMessage | None) -> bool:
        """Whether to go on after a refusal, with a new message. Raises the error again when that would not help."""
        if error.reason in TOO_LONG and part is not None and not self._sent.nothing:
            await self._hand_on()
            return True
        if error.reason in TOO_LONG and self._buffer.shrink_limits():
            return True
        if error.reason != EXPIRED or part is None:
            raise error
        if self.rate_limiter.clock.now() - part.born < self._max_age and await self._stopped_by_a_person():
            return False
        await self._repair(part)
        await self._next_part()
        return True

    async def _stopped_by_a_person(self) -> bool:
        await wait_for_first(self.user_stopped.wait(), self.rate_limiter.clock.sleep(_STOP_GRACE))
        return self.user_stopped.is_set()

    async def _repair(self, part: OpenMessage) -> None:
        """A stream that Slack has ended by itself looks unfinished for ever: it gets what it held as an ordinary message."""
        text = self._buffer.render_range(part.start, self._buffer.sent)
        now = {card.card_id: card for card in self._view.cards if not card.is_open}
        cards = [now.get(key, card) for key, card in self._sent.cards.items()]
        held = ThreadView(
            title=self._sent.title,
            cards=tuple(replace(card, status="complete") if card.is_open else card for card in cards),
        )
        if blocks := [*progress_blocks(held), *([markdown(text)] if text.strip() else [])]:
            try:
                await self._messages.update(part.ts, notification_text(text) or "Continues below.", blocks)
            except (SlackError, DeliveryUnknown) as error:
                log.info("%s", error)

    async def _trouble(self, error: DeliveryUnknown) -> None:
        """Waits a while, longer each time. Raises the error when there is no end to it."""
        if self._troubles >= _MOST_TROUBLES:
            raise error
        log.info("%s What it was about is sent again.", error)
        await self.rate_limiter.clock.sleep(retry_delay(self._troubles))
        self._troubles += 1

    async def _unsure(self, part: OpenMessage | None) -> None:
        """A message of which nobody knows what it holds is taken back; an update is simply done again."""
        if part is None:
            await self._sweep()
        elif part.streams:
            await self._discard(part)

    async def _discard(self, part: OpenMessage) -> None:
        await self._messages.remove(part.ts)
        self._buffer.sent, self._sent = part.start, _Sent()
        self._known = {card.card_id: card for card in self._drawn.known}
        left = [
            (ts, start)
            for ts, start in zip(self._drawn.posted, self._drawn.starts, strict=True)
            if ts != part.ts
        ]
        posted, starts = tuple(ts for ts, _ in left), tuple(start for _, start in left)
        await self._store(replace(self._drawn, part=None, start=part.start, posted=posted, starts=starts))

    async def _sweep(self) -> None:
        """Removes a message of ours that came into being without our learning of it."""

        async def is_known(ts: str) -> bool:
            return ts in self._drawn.posted or await self._is_known(ts)

        await self._messages.remove_unknown(is_known)
        await self._store(replace(self._drawn, opening=False))

    async def _next_part(self, *, ended: bool = False) -> None:
        self._sent = _Sent()
        await self._store(
            replace(
                self._drawn,
                part=None,
                start=self._buffer.sent,
                known=tuple(self._known.values()),
                ended=ended,
            )
        )

    async def _store(self, drawn: StreamProgress) -> None:
        if self._buffer.text:
            drawn = replace(drawn, digest=_digest(self._buffer.text[: drawn.start]))
        if drawn != self._drawn:
            self._drawn = drawn
            await self._keep(drawn)


def _digest(text: str) -> int:
    return zlib.crc32(text.encode(errors="surrogatepass"))


def _chunks(title: str, cards: Sequence[TaskCard], piece: TextSegment | None) -> list[Chunk]:
    return [
        *([{"type": "plan_update", "title": title}] if title else []),
        *(card.to_chunk() for card in cards),
        *([{"type": "markdown_text", "text": piece.text}] if piece else []),
    ]
