"""A model's stream as its provider's client would give it, with what arrived together merged.

An idle process finds one token in the socket and hands it on at once. A busy one pauses a little and finds
many, and everything behind it - conversion, callbacks, graph, log - pays once for them.
"""

import asyncio
import json
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import suppress
from types import TracebackType
from typing import Any, Generic, Self, TypeVar

import httpx2
import orjson

from ai_platform_engineering.core.errors import ModelAnswerTooLarge
from ai_platform_engineering.core.model_streams import ModelStreamSettings
from ai_platform_engineering.models.model_http import body_of
from ai_platform_engineering.models.sse_reader import SseEvent, SseReader

ItemT = TypeVar("ItemT")

_DRAIN_SECONDS = 0.1  # for the end of the body behind the last event; without it the connection is closed

# A turn of the event loop that takes so long means that the process is busy; a stream then waits for some
# turns before it reads on, so that more tokens have arrived and are paid for once.
_BUSY_SECONDS = 0.002
_TURNS = 8
_MAX_PAUSE_SECONDS = 0.1
_PROMPT_READS = 3  # without a pause behind them: the beginning of an answer is waited for


class MergedStream(ABC, Generic[ItemT]):
    """An asynchronous iterator over the items of a streaming response.

    A subclass makes items of events: it keeps back what can be merged with the next event, and `flush` hands
    it out when no more events have arrived.
    """

    def __init__(self, response: httpx2.Response, settings: ModelStreamSettings) -> None:
        self._response = response
        self._body = body_of(response)
        self._reader = SseReader(settings.max_event_bytes, settings.max_event_values)
        self._items: list[ItemT] = []
        self._ended = False

    @abstractmethod
    def _add(self, event: SseEvent) -> None:
        """Appends the items of an event to `_items`, or keeps it back; sets `_ended` after the last one."""

    @abstractmethod
    def _flush(self) -> None:
        """Appends what was kept back to `_items`."""

    async def _receive(self) -> bytes:
        """The bytes that have arrived; nothing at the end of the body."""
        return await self._body.read()

    async def __aiter__(self) -> AsyncIterator[ItemT]:
        reads = 0
        try:
            while not self._ended and (arrived := await self._receive()):
                failure = self._convert(arrived)
                items = self._items
                self._items = []
                for item in items:
                    yield item
                if failure is not None:
                    raise failure
                reads += 1
                if reads >= _PROMPT_READS:
                    await pause_while_busy()
            if self._ended:
                await self._drain()
        finally:
            await self._response.aclose()

    def _convert(self, arrived: bytes) -> Exception | None:
        """Makes items of the bytes. An error counts after the items before it."""
        failure = None
        try:
            for event in self._reader.feed(arrived):
                self._add(event)
                if self._ended:
                    break
        except Exception as error:  # noqa: BLE001 - raised by the caller
            failure = error
        self._flush()
        return failure

    async def _drain(self) -> None:
        """Reads the body to its end, so that the connection can be used again."""
        with suppress(httpx2.RequestError, ModelAnswerTooLarge, TimeoutError):
            async with asyncio.timeout(_DRAIN_SECONDS):
                while await self._body.read():
                    pass

    async def close(self) -> None:
        await self._response.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()


async def pause_while_busy() -> None:
    """Waits for some turns of the event loop if they take long; in an idle process for one short turn."""
    loop = asyncio.get_running_loop()
    start = loop.time()
    await asyncio.sleep(0)
    turn_seconds = loop.time() - start
    if turn_seconds >= _BUSY_SECONDS:
        await asyncio.sleep(min(_MAX_PAUSE_SECONDS, _TURNS * turn_seconds))


def parse_json(data: bytes) -> Any:
    """The value of a JSON text, as Python's own parser reads it. Raises what that raises."""
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        # It takes lone surrogates and NaN, and its errors are those that the providers' clients raise.
        return json.loads(data.decode())
