"""What Slack has of a turn: the messages that were written, and the content of the current one."""

import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from ai_platform_engineering.integrations.slack_bot.blocks import Block, Chunk
from ai_platform_engineering.integrations.slack_bot.stream_text import TextSegment
from ai_platform_engineering.integrations.slack_bot.thread_view import (
    TaskCard,
    ThreadView,
    build_waiting_view,
)


@dataclass(frozen=True, slots=True)
class OpenMessage:
    """The message that is being written; `start` is the index of its first character in the turn's text."""

    ts: str
    start: int
    streams: bool  # else it is posted and updated
    born: float


@dataclass(frozen=True, slots=True)
class StreamProgress:
    """The messages of a turn; a stored row, so that another process can go on with them."""

    part: OpenMessage | None = None  # the message that is being written
    start: int = 0  # where the text of the next message begins
    digest: int = 0  # of the text up to there
    opening: bool = False  # a message may exist whose ts is not known
    ended: bool = False  # the footer is below the last message
    posted: tuple[str, ...] = ()  # the ts of every message of the turn
    starts: tuple[int, ...] = ()  # where the text of each begins
    known: tuple[TaskCard, ...] = ()  # as the finished messages show them

    def add_message(self, ts: str, start: int) -> "StreamProgress":
        """The progress after Slack has confirmed a new message."""
        return replace(self, opening=False, posted=(*self.posted, ts), starts=(*self.starts, start))

    def remove_open_message(self) -> "StreamProgress":
        """The progress after the message that is being written was deleted."""
        if self.part is None:
            return self
        posted = []
        starts = []
        for ts, start in zip(self.posted, self.starts, strict=True):
            if ts != self.part.ts:
                posted.append(ts)
                starts.append(start)
        return replace(self, part=None, start=self.part.start, posted=tuple(posted), starts=tuple(starts))


SUSPENDED = "suspended"  # the session status of a run that waits for a person


@dataclass(frozen=True, slots=True)
class MessageFooter:
    """What is below the last message of a turn, or of the part of it before a pause."""

    blocks: Sequence[Block] = ()
    metadata: Mapping[str, Any] | None = None
    session_status: str = "active"

    def select_cards(self, view: ThreadView) -> ThreadView:
        """The view as it is shown above this footer."""
        return build_waiting_view(view) if self.session_status == SUSPENDED else view


@dataclass(slots=True)
class SentContent:
    """What was sent of the message that is being written."""

    characters: int = 0
    title: str = ""
    cards: dict[str, TaskCard] = field(default_factory=dict)

    @property
    def has_open_cards(self) -> bool:
        return any(card.is_open for card in self.cards.values())

    @property
    def is_empty(self) -> bool:
        return not (self.characters or self.title or self.cards)

    def add(self, title: str, cards: Sequence[TaskCard], segment: TextSegment | None) -> None:
        """Records what Slack has confirmed."""
        self.title = title or self.title
        for card in cards:
            self.cards[card.card_id] = card
        if segment is not None:
            self.characters += len(segment.text)

    def complete_open_cards(self, output: str) -> list[Chunk]:
        """Chunks that complete the open cards: an open card in a finished message looks like a fault."""
        completed = []
        for card in self.cards.values():
            if card.is_open:
                completed.append(card.complete(output).to_chunk())
        return completed


def text_digest(text: str) -> int:
    """A checksum that tells whether text that was sent has changed since."""
    return zlib.crc32(text.encode(errors="surrogatepass"))
