"""A turn that is being drawn in its thread."""

import asyncio
from dataclasses import dataclass, field

from ai_platform_engineering.integrations.slack_bot.slack_stream import SlackStream
from ai_platform_engineering.integrations.slack_bot.thread_messages import ThreadMessages
from ai_platform_engineering.integrations.slack_bot.thread_view import TaskCard, ThreadView
from ai_platform_engineering.integrations.slack_bot.turn_rows import TurnRow


@dataclass(slots=True)
class ActiveTurn:
    row: TurnRow
    messages: ThreadMessages
    stream: SlackStream
    previous: "ActiveTurn | None" = None  # the turn before it in its thread, until that one is idle
    task: asyncio.Task[None] | None = None
    status_task: asyncio.Task[None] | None = None
    flush_task: asyncio.Task[None] | None = None
    stopped_by: str | None = None
    seq: int = 0  # of the last event that was drawn
    status_card: TaskCard | None = None  # what only the bot knows: the supervisor is away
    sent: asyncio.Event = field(default_factory=asyncio.Event)  # the supervisor has the question
    idle: asyncio.Event = field(default_factory=asyncio.Event)  # nothing is drawn: it has ended, or is paused

    async def wait_until_announced(self) -> None:
        """Waits until Slack shows a status: one that comes after the first text would be a second message."""
        if self.status_task is not None:
            await self.status_task

    async def wait_for_previous(self) -> None:
        """Waits until the turn before it is idle: answers are in the order of their questions."""
        await self.wait_until_announced()
        if self.previous is not None:
            await self.previous.idle.wait()
            self.previous = None

    def show(self, view: ThreadView) -> None:
        """Shows a view from now on. Raises what has broken the stream."""
        if self.flush_task is not None and self.flush_task.done():
            self.flush_task.result()
        self.idle.clear()
        self.stream.set_view(view)
        if self.flush_task is None:
            self.flush_task = asyncio.create_task(self.stream.run())

    async def stop_drawing(self) -> None:
        flush_task = self.flush_task
        self.flush_task = None
        if flush_task is not None:
            await self.stream.cancel_run(flush_task)

    def release(self) -> None:
        """Lets those go on who wait for this turn: it is over."""
        self.sent.set()
        self.idle.set()
        if self.status_task is not None:
            self.status_task.cancel()
