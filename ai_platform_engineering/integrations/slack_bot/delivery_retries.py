"""Retries of Slack calls of which nobody knows whether they were delivered."""

import logging

from ai_platform_engineering.integrations.slack_bot.clock import Clock
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, retry_delay

log = logging.getLogger(__name__)

_MAX_RETRIES = 30  # in a row; about a quarter of an hour


class DeliveryFailed(Exception):
    """The bot cannot write to the thread; the text is Slack's reason."""


class DeliveryRetries:
    """Counts unknown deliveries in a row, and waits longer after each."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._count = 0

    def reset(self) -> None:
        """To be called after a call that was delivered."""
        self._count = 0

    async def wait(self, error: DeliveryUnknown) -> None:
        """Waits before the next attempt. Raises the error after too many."""
        if self._count >= _MAX_RETRIES:
            raise error
        log.info("%s It will be sent again.", error)
        await self._clock.sleep(retry_delay(self._count))
        self._count += 1
