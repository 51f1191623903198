"""Stored rows of the bot: turns of threads, and messages that somebody wrote."""

import json
import logging
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, NamedTuple, TypeVar

from pydantic import TypeAdapter, ValidationError

from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.stream_progress import StreamProgress

log = logging.getLogger(__name__)

T = TypeVar("T")
TurnState = Literal["open", "done"]


class ThreadKey(NamedTuple):
    """A thread of the workspace."""

    channel: str
    thread_ts: str


@dataclass(frozen=True, slots=True)
class TurnRow:
    """A question in a thread: `order` is the message for the supervisor, `drawn` is what Slack has of the
    answer.

    The message is kept so that it can be sent again, the same one each time.
    """

    turn_id: str
    team: str
    channel: str
    thread_ts: str
    user: str
    principal: str
    order: Mapping[str, Any]
    task_id: str | None = None
    state: TurnState = "open"
    drawn: StreamProgress = field(default_factory=StreamProgress)

    @property
    def question_ts(self) -> str:
        return self.turn_id.partition(":")[2].partition(":")[0]

    @property
    def owner(self) -> str:
        return thread_owner(self.team, self.channel, self.thread_ts)

    @property
    def thread(self) -> ThreadKey:
        return ThreadKey(self.channel, self.thread_ts)


_TURN_ADAPTER: TypeAdapter[TurnRow] = TypeAdapter(TurnRow)
_MESSAGE_ADAPTER: TypeAdapter[SlackMessage] = TypeAdapter(SlackMessage)


def thread_owner(team: str, channel: str, thread_ts: str) -> str:
    """The owner and context id of a thread's conversation; made of the thread's ids, so it is never lost."""
    return f"slack:{team}:{channel}:{thread_ts}"


def find_thread(message: SlackMessage) -> ThreadKey:
    return ThreadKey(message.channel, message.thread_ts)


def serialize_turn(row: TurnRow) -> str:
    return json.dumps({**asdict(row), "order": dict(row.order)})


def serialize_message(message: SlackMessage) -> str:
    return json.dumps(asdict(message))


def parse_turn(serialized: str) -> TurnRow | None:
    return _parse_stored(_TURN_ADAPTER, serialized)


def parse_message_row(serialized: str) -> SlackMessage | None:
    return _parse_stored(_MESSAGE_ADAPTER, serialized)


def _parse_stored(adapter: TypeAdapter[T], serialized: str) -> T | None:
    """The stored object; fields of other versions are ignored. None when it cannot be read."""
    try:
        return adapter.validate_python(clean_json(json.loads(serialized)))
    except ValidationError as error:
        # One row must not keep the bot from the others; it stays for a version that can read it.
        fields = ", ".join(".".join(map(str, problem["loc"])) for problem in error.errors())
        log.error("a stored row of the bot cannot be read and is skipped: %s", fields)
        return None
