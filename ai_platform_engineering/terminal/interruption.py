"""Ctrl-C while a turn is shown: the first one stops the task on the server, the second one leaves."""

import asyncio
import contextlib
import signal
from collections.abc import AsyncIterator, Callable

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation
from ai_platform_engineering.core.errors import CaipeError

_SECONDS_FOR_ID = 2.0  # a task that was just sent gets its id within this time, and can be stopped


class ChatLeft(Exception):
    """The person leaves the chat while a turn is shown."""


@contextlib.asynccontextmanager
async def interruptible_turn(
    client: A2AClient, conversation: ClientConversation, on_stop: Callable[[], None]
) -> AsyncIterator[None]:
    """Lets Ctrl-C stop the turn. `on_stop` is called when it begins to stop. Raises ChatLeft at the second.

    Without a task on the server there is nothing to stop: the turn ends at once.
    """
    loop = asyncio.get_running_loop()
    turn = asyncio.current_task()
    assert turn is not None
    stopping: list[asyncio.Task[None]] = []
    leaving = False
    has_task = asyncio.Event()

    async def note_task(_: str) -> None:
        has_task.set()

    if conversation.task_id is None:
        conversation.on_task_id = note_task
    else:
        has_task.set()

    def interrupt() -> None:
        nonlocal leaving
        if stopping:
            leaving = True
            turn.cancel()
            return
        on_stop()
        stopping.append(asyncio.create_task(_stop_task(client, conversation, has_task, turn)))

    loop.add_signal_handler(signal.SIGINT, interrupt)
    try:
        yield
    except asyncio.CancelledError:
        if not stopping or turn.uncancel() > 0:
            raise
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        for task in stopping:
            if leaving:
                task.cancel()
        await asyncio.gather(*stopping, return_exceptions=True)
    if leaving:
        raise ChatLeft


async def _stop_task(
    client: A2AClient, conversation: ClientConversation, has_task: asyncio.Event, turn: asyncio.Task[object]
) -> None:
    """Cancels the task, whose stream then ends; without a task, or without a server, the turn itself."""
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(has_task.wait(), _SECONDS_FOR_ID)
    if conversation.task_id is None:
        turn.cancel()
        return
    try:
        await client.cancel(conversation.task_id)
    except CaipeError as error:
        if error.code == "unreachable":
            turn.cancel()  # otherwise it ended by itself in the meantime
