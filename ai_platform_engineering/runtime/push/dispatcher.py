"""Delivers queued push notifications: in order for each receiver and task, again later when it failed.

It reads the run log as any client does, so no run waits for a receiver. What is not delivered stays queued in
the log, and the next start goes on with it."""

import asyncio
import contextlib
import logging
import random
from collections import Counter
from datetime import UTC, datetime, timedelta

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.push_settings import PushSettings
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.net.url_policy import FetchFailed, FetchRefused
from ai_platform_engineering.runtime.log.push_store import DueNotification, PushConfig
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.push.notification_headers import build_headers
from ai_platform_engineering.runtime.push.payloads import render_body
from ai_platform_engineering.runtime.push.receiver_client import NotificationFailed, ReceiverClient
from ai_platform_engineering.runtime.server.signing_keys import SigningKeys

log = logging.getLogger(__name__)

_MAX_WAIT_SECONDS = 60.0  # the clock of the machine may be set
_STORAGE_RETRY_SECONDS = 5.0


class PushDispatcher:
    """A task that starts deliveries when they are due, so many at once and so many to one host."""

    def __init__(
        self,
        run_log: RunLog,
        settings: PushSettings,
        client: ReceiverClient,
        keys: SigningKeys,
        issuer: str,
    ) -> None:
        """`issuer`: the address of this server, for the signatures."""
        self._log = run_log
        self._store = run_log.push
        self._settings = settings
        self._client = client
        self._keys = keys
        self._issuer = issuer
        self._task: asyncio.Task[None] | None = None
        self._deliveries: dict[int, asyncio.Task[None]] = {}  # by the number of their config
        self._hosts: Counter[str] = Counter()

    def start(self) -> None:
        self._task = asyncio.create_task(self._run(), name="push notifications")

    async def stop(self) -> None:
        """Breaks off what is being sent: it is sent again after the next start."""
        tasks = [*self._deliveries.values()]
        if self._task is not None:
            tasks.append(self._task)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            try:
                looked_at = datetime.now(UTC)
                await self._start_due()
                await self._wait(looked_at)
            except Exception as error:  # noqa: BLE001 - the next attempt may work
                log.error("push notifications are not delivered: %s", format_traceback(error))
                await asyncio.sleep(_STORAGE_RETRY_SECONDS)

    async def _start_due(self) -> None:
        """Starts deliveries until nothing is due that may be sent now."""
        while len(self._deliveries) < self._settings.connections:
            due = await self._store.find_due(
                busy_configs=list(self._deliveries),
                busy_hosts=[host for host in self._hosts if self._is_busy(host)],
                limit=self._settings.connections - len(self._deliveries),
            )
            if not due:
                return
            for notification in due:
                if not self._is_busy(notification.config.target.host):
                    self._begin(notification)

    async def _wait(self, looked_at: datetime) -> None:
        """Waits for something new, for the end of a delivery, or until something is due that was not then."""
        seconds = _MAX_WAIT_SECONDS
        due_at = await self._store.next_due_at(looked_at)
        if due_at is not None:
            seconds = min(seconds, max(0.0, (due_at - datetime.now(UTC)).total_seconds()))
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._store.wait_for_change()

    def _is_busy(self, host: str) -> bool:
        return self._hosts[host] >= self._settings.connections_per_host

    def _begin(self, notification: DueNotification) -> None:
        config = notification.config
        self._hosts[config.target.host] += 1
        task = asyncio.create_task(self._deliver(notification), name=f"push:{config.run_id}")
        self._deliveries[config.number] = task
        task.add_done_callback(lambda _: self._end(config))

    def _end(self, config: PushConfig) -> None:
        host = config.target.host
        del self._deliveries[config.number]
        self._hosts[host] -= 1
        if not self._hosts[host]:
            del self._hosts[host]
        self._store.wake()

    async def _deliver(self, notification: DueNotification) -> None:
        """Sends a notification and stores what came of it."""
        run_id = notification.config.run_id
        try:
            problem = await self._find_problem(notification)
            if problem is None or self._give_up(notification, problem):
                await self._store.remove(notification)
            else:
                delay = self._delay(notification.attempts)
                await self._store.postpone(notification, datetime.now(UTC) + timedelta(seconds=delay))
        except Exception as error:  # noqa: BLE001 - it stays queued, and is not tried in a loop
            log.error(
                "task %s: what came of a notification is not stored: %s", run_id, format_traceback(error)
            )
            await asyncio.sleep(_STORAGE_RETRY_SECONDS)

    async def _find_problem(self, notification: DueNotification) -> CaipeError | None:
        """Sends a notification; why that failed."""
        run_id = notification.config.run_id
        try:
            await self._send(notification)
        except (NotificationFailed, FetchFailed, FetchRefused) as error:
            return error
        except Exception as error:  # noqa: BLE001 - its text may hold a secret; other notifications go on
            log.error("task %s: a notification was not sent: %s", run_id, format_traceback(error))
            return NotificationFailed("it could not be made")
        log.debug("task %s: its receiver was told that it is %s", run_id, notification.state)
        return None

    async def _send(self, notification: DueNotification) -> None:
        target = notification.config.target
        row = await self._log.get(notification.config.run_id)
        if row is None:
            return  # it is deleted, and what waited for it goes with it
        body = await render_body(self._log, row, notification, self._settings.max_bytes)
        headers = build_headers(notification, body, self._keys.notification_key, self._issuer)
        await self._client.post(target.url, headers, body)

    def _give_up(self, notification: DueNotification, problem: CaipeError) -> bool:
        """Whether there is no further attempt. The log names the host alone: a path may hold a secret."""
        age = (datetime.now(UTC) - notification.queued_at).total_seconds()
        attempts = notification.attempts + 1
        is_last = attempts >= self._settings.attempts or age >= self._settings.max_age_seconds
        gives_up = is_last or isinstance(problem, FetchRefused)
        config = notification.config
        log.log(
            logging.WARNING if gives_up else logging.INFO,
            "task %s: %s was not told that it is %s, attempt %d%s: %s",
            config.run_id,
            config.target.host,
            notification.state,
            attempts,
            ", the last one" if gives_up else "",
            problem,
        )
        return gives_up

    def _delay(self, failures: int) -> float:
        """Seconds until the next attempt: twice as long each time, and not all at the same moment."""
        longest = self._settings.max_retry_seconds
        seconds = min(longest, self._settings.retry_seconds * 2.0 ** min(failures, 30))
        return seconds * random.uniform(0.8, 1.0)
