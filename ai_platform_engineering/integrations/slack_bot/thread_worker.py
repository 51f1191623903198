"""Works on the threads that this process holds: resumes their turns, and handles their messages in order."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.event_tasks import EventTasks
from ai_platform_engineering.integrations.slack_bot.incoming_messages import SlackMessage
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadHolders, ThreadTaken
from ai_platform_engineering.integrations.slack_bot.thread_leases import ThreadLeases
from ai_platform_engineering.integrations.slack_bot.turn_rows import ThreadKey
from ai_platform_engineering.integrations.slack_bot.turn_runner import TurnRunner

log = logging.getLogger(__name__)


@dataclass(slots=True)
class ThreadWorker:
    store: BotStore
    holders: ThreadHolders
    leases: ThreadLeases
    turns: TurnRunner
    tasks: EventTasks
    handle: Callable[[SlackMessage], Awaitable[None]]  # a message of a held thread
    _locks: WeakValueDictionary[ThreadKey, asyncio.Lock] = field(default_factory=WeakValueDictionary)
    _unreadable: set[ThreadKey] = field(default_factory=set)  # with messages of another version

    def begin(self, thread: ThreadKey) -> None:
        """Begins with what is to be done in a thread that this process holds."""
        self.leases.add(thread)
        self._unreadable.discard(thread)
        self.tasks.spawn(self._work_on(thread))

    def begin_again(self, thread: ThreadKey) -> None:
        """The same when it has not begun: nobody may have told this process of the work."""
        is_busy = thread in self._locks and self._locks[thread].locked()
        if not is_busy and thread not in self._unreadable:
            self.begin(thread)

    def release_when_idle(self, thread: ThreadKey) -> None:
        self.tasks.spawn(self._work_on(thread))

    def lose(self, thread: ThreadKey) -> None:
        """Ends the work on a thread that another process has."""
        self.leases.remove(thread)
        self.turns.lose(thread)

    async def _work_on(self, thread: ThreadKey) -> None:
        async with self._locks.setdefault(thread, asyncio.Lock()):
            while self.leases.is_held(thread):
                await self.turns.resume(thread)
                messages = await self.store.list_unhandled(thread)
                for message in messages:
                    await self._handle(message)
                if messages:
                    continue  # others may have come
                if self.turns.is_drawing(thread) or self.turns.is_closing:
                    return  # an open turn is no work for a process that draws no more
                if await self.holders.release(thread):
                    self.leases.remove(thread)
                elif not await self._has_news(thread):
                    self._unreadable.add(thread)
                    return

    async def _has_news(self, thread: ThreadKey) -> bool:
        """Whether there is work after all, which came while the thread was to be released."""
        if await self.store.list_unhandled(thread):
            return True
        return bool(await self.store.list_open_turns(*thread))

    async def _handle(self, message: SlackMessage) -> None:
        try:
            await self.handle(message)
        except (StorageFailed, ThreadTaken):
            raise  # it stays for later, or for another process
        except CaipeError as error:
            log.warning("%s", error)
        except Exception as error:
            log.exception("a message could not be handled: %s", type(error).__name__)
        await self.store.mark_handled(message)  # after a failure, too: it would fail again
