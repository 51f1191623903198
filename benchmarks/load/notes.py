"""How a process tells another one through an engine that runs have new events: NOTIFY, Redis Streams, NATS.

A note is a list of `[run, number]`, or of `[run, number, time, body]` where the engine carries the events.
The rows in PostgreSQL are the truth: a note that cannot be sent is dropped after `SEND_SECONDS`.
"""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import psycopg

SEND_SECONDS = 0.25
RETRY_SECONDS = 0.2
CHANNEL = "notes"
STREAM_LENGTH = 10_000

Note = list[Any]


class Sender(Protocol):
    """Tells others what a transaction stored."""

    in_transaction: bool  # whether the note is part of the transaction, or is sent after it

    async def send(self, connection: psycopg.AsyncConnection[Any], notes: Sequence[Note]) -> None: ...


class NoSender:
    """For readers that poll."""

    in_transaction = False

    async def send(self, connection: psycopg.AsyncConnection[Any], notes: Sequence[Note]) -> None:
        pass


class PostgresSender:
    in_transaction = True

    async def send(self, connection: psycopg.AsyncConnection[Any], notes: Sequence[Note]) -> None:
        await connection.execute("SELECT pg_notify(%s, %s)", (CHANNEL, json.dumps(notes)))


class RedisSender:
    """One stream of bounded length for all runs."""

    in_transaction = False

    def __init__(self, url: str) -> None:
        import redis.asyncio
        import redis.exceptions

        self._errors = (redis.exceptions.RedisError, OSError)
        self._client = redis.asyncio.Redis.from_url(url, socket_timeout=SEND_SECONDS)

    async def send(self, connection: psycopg.AsyncConnection[Any], notes: Sequence[Note]) -> None:
        with contextlib.suppress(*self._errors):
            await self._client.xadd(
                CHANNEL, {"notes": json.dumps(notes)}, maxlen=STREAM_LENGTH, approximate=True
            )


class NatsSender:
    """One subject for all runs, at most once."""

    in_transaction = False

    def __init__(self, url: str) -> None:
        import nats.errors

        self._url = url
        self._errors = (nats.errors.Error, OSError, TimeoutError)
        self._client: Any = None

    async def send(self, connection: psycopg.AsyncConnection[Any], notes: Sequence[Note]) -> None:
        with contextlib.suppress(*self._errors):
            if self._client is None:
                self._client = await _connect_nats(self._url)
            await self._client.publish(CHANNEL, json.dumps(notes).encode())
            await self._client.flush(timeout=SEND_SECONDS)


Receive = Callable[[Sequence[Note]], None]
Change = Callable[[bool], None]  # whether notes are received now


async def listen_nowhere(url: str, receive: Receive, change: Change) -> None:
    await asyncio.Event().wait()


async def listen_postgres(url: str, receive: Receive, change: Change) -> None:
    while True:
        with contextlib.suppress(psycopg.Error):
            async with await psycopg.AsyncConnection.connect(
                url, autocommit=True, application_name="listener", connect_timeout=2
            ) as connection:
                await connection.execute(f"LISTEN {CHANNEL}")
                change(True)
                async for notification in connection.notifies():
                    receive(json.loads(notification.payload))
        change(False)
        await asyncio.sleep(RETRY_SECONDS)


async def listen_redis(url: str, receive: Receive, change: Change) -> None:
    import redis.asyncio
    import redis.exceptions

    while True:
        client = redis.asyncio.Redis.from_url(url)
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            last_id: Any = "0"
            if newest := await client.xrevrange(CHANNEL, count=1):
                last_id = newest[0][0]
            change(True)
            async for fields in _read_stream(client, last_id):
                receive(json.loads(fields[b"notes"]))
        change(False)
        with contextlib.suppress(redis.exceptions.RedisError, OSError):
            await client.aclose()
        await asyncio.sleep(RETRY_SECONDS)


async def _read_stream(client: Any, last_id: Any) -> AsyncIterator[dict[bytes, bytes]]:
    while True:
        for _, entries in await client.xread({CHANNEL: last_id}, block=1000, count=1000) or ():
            for entry_id, fields in entries:
                last_id = entry_id
                yield fields


async def listen_nats(url: str, receive: Receive, change: Change) -> None:
    import nats.errors

    while True:
        with contextlib.suppress(nats.errors.Error, OSError, TimeoutError):
            closed = asyncio.Event()
            client = await _connect_nats(url, closed)
            subscription = await client.subscribe(CHANNEL)
            await client.flush()
            change(True)
            await _receive_until(closed, subscription, receive)
            with contextlib.suppress(nats.errors.Error, OSError):
                await client.close()
        change(False)
        await asyncio.sleep(RETRY_SECONDS)


async def _receive_until(closed: asyncio.Event, subscription: Any, receive: Receive) -> None:
    async def forward() -> None:
        async for message in subscription.messages:
            receive(json.loads(message.data))

    forwarding = asyncio.create_task(forward())
    await closed.wait()
    forwarding.cancel()
    await asyncio.gather(forwarding, return_exceptions=True)


async def _connect_nats(url: str, disconnected: asyncio.Event | None = None) -> Any:
    import nats

    async def note_disconnect() -> None:
        if disconnected is not None:
            disconnected.set()

    async def ignore(error: Exception) -> None:
        pass

    return await nats.connect(
        url,
        connect_timeout=1,
        reconnect_time_wait=RETRY_SECONDS,
        max_reconnect_attempts=1 if disconnected else -1,
        disconnected_cb=note_disconnect,
        error_cb=ignore,
    )


SENDERS: dict[str, Callable[[str], Sender]] = {
    "polling": lambda url: NoSender(),
    "postgres": lambda url: PostgresSender(),
    "redis": RedisSender,
    "nats": NatsSender,
}
LISTENERS = {
    "polling": listen_nowhere,
    "postgres": listen_postgres,
    "redis": listen_redis,
    "nats": listen_nats,
}
