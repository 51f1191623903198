"""What the bot sends to the supervisor for a turn, and how it waits for one that cannot be reached."""

from collections.abc import Iterator, Mapping
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, OutgoingMessage, Unreachable
from ai_platform_engineering.core.events import FilePart
from ai_platform_engineering.integrations.slack_bot.clock import Clock
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow

_RETRY_DELAYS = (1.0, 2.0, 5.0, 10.0, 30.0)


def build_message(row: TurnRow) -> OutgoingMessage:
    """The message for the supervisor, the same one each time it is sent."""
    order = row.order
    return OutgoingMessage(
        str(order["message_id"]),
        str(order.get("text") or ""),
        context_id=row.owner,
        files=tuple(FilePart.model_validate(file) for file in order.get("files") or ()),
        scope=order.get("scope"),
    )


async def fetch_task(supervisor: A2AClient, row: TurnRow, clock: Clock) -> Mapping[str, Any]:
    """The task of a turn; waits for a supervisor that cannot be reached."""
    client = supervisor.on_behalf_of(row.principal, row.owner)
    delays = retry_delays()
    while True:
        try:
            return await client.call("GetTask", {"id": row.task_id})
        except Unreachable:
            await clock.sleep(next(delays))


def retry_delays() -> Iterator[float]:
    """Seconds to wait while the supervisor cannot be reached; without end."""
    yield from _RETRY_DELAYS
    while True:
        yield _RETRY_DELAYS[-1]
