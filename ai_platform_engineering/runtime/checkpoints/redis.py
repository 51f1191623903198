"""Checkpoints and store in Redis or Valkey: RedisSaver if the server has modules, else ValkeySaver."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from ai_platform_engineering.core.errors import ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.databases.database_clients import import_optional
from ai_platform_engineering.databases.database_failures import unavailable
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOptions,
    CheckpointBackend,
    OpenBackend,
)
from ai_platform_engineering.runtime.checkpoints.redis_store import RedisStore
from ai_platform_engineering.runtime.checkpoints.serializer import CheckpointSerializer

_MAX_CONNECTIONS = 50
_TIMEOUT_SECONDS = 30.0


async def check_redis(choice: DatabaseChoice, options: BackendOptions) -> None:
    """Asks the server which modules it has: they decide which packages are needed."""
    if await _has_modules(choice, options):
        _import_redis(choice)
    else:
        _import_valkey(choice)


async def open_redis(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    if await _has_modules(choice, options):
        return await _open_with_modules(choice, options, stack)
    return await _open_without_modules(choice, options, stack)


async def _has_modules(choice: DatabaseChoice, options: BackendOptions) -> bool:
    """Whether the server has the modules of RedisSaver; Valkey's search module lacks some of it."""
    library = _import_any_client(choice)
    async with AsyncExitStack() as stack:
        client = _open_client(library, choice, options, stack)
        try:
            async with asyncio.timeout(options.timeout_seconds):
                await client.ping()
                return await _answers_modules(client, library)
        # Two libraries with the same classes, and errors of the system between them.
        except Exception as error:  # noqa: BLE001
            raise unavailable(choice.label, error, f"Check {choice.variable}.") from None


async def _answers_modules(client: Any, library: Any) -> bool:
    try:
        await client.execute_command("FT._LIST")
        await client.execute_command("JSON.GET", "caipe:none")
        return "valkey_version" not in await client.info("server")
    except library.ResponseError:
        return False


async def _open_with_modules(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    library = _import_redis(choice)
    from ai_platform_engineering.runtime.checkpoints.redis_saver import RedisSaver

    client = _open_client(library, choice, options, stack)
    ttl = None
    if options.ttl_minutes:
        ttl = {"default_ttl": options.ttl_minutes, "refresh_on_read": True}
    saver = RedisSaver(client, ttl)
    try:
        await saver.asetup()
    except import_optional("redisvl.exceptions", "redis", choice).RedisVLError:
        await saver.asetup()  # another replica created the index at the same moment

    return OpenBackend(saver, RedisStore(client), saver.prune_thread)


async def _open_without_modules(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    library = _import_valkey(choice)
    from ai_platform_engineering.runtime.checkpoints.valkey_saver import ValkeySaver

    client = _open_client(library, choice, options, stack)
    ttl_seconds = options.ttl_minutes * 60 if options.ttl_minutes else None
    saver = ValkeySaver(client, ttl=ttl_seconds, serde=CheckpointSerializer())
    return OpenBackend(saver, RedisStore(client), saver.prune_thread)


def _import_redis(choice: DatabaseChoice) -> Any:
    """The client library of Redis, once the packages for a server with modules are there."""
    import_optional("langgraph.checkpoint.redis.aio", "redis", choice)
    return import_optional("redis.asyncio", "redis", choice)


def _import_valkey(choice: DatabaseChoice) -> Any:
    """The client library of Valkey, once the packages for a server without modules are there."""
    import_optional("langgraph_checkpoint_aws.checkpoint.valkey", "valkey", choice)
    return import_optional("valkey.asyncio", "valkey", choice)


def _import_any_client(choice: DatabaseChoice) -> Any:
    """The client library of Redis or of Valkey: they have the same calls, and one is enough for the check."""
    # With neither, nobody can ask the server which one it needs.
    extras = "redis,valkey"
    try:
        return import_optional("redis.asyncio", extras, choice)
    except DatabaseUnavailable:
        return import_optional("valkey.asyncio", extras, choice)


def _open_client(library: Any, choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> Any:
    """A client that waits for a free connection: the savers' own pools fail under many conversations."""
    try:
        pool = library.BlockingConnectionPool.from_url(
            choice.address,
            max_connections=_MAX_CONNECTIONS,
            timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=options.timeout_seconds,
            socket_timeout=_TIMEOUT_SECONDS,
            health_check_interval=30,
        )
    except ValueError:
        # Without the cause: its text quotes the address.
        raise ConfigurationError(f"{choice.variable} is not an address of a Redis server.") from None
    client_class = getattr(library, "Redis", None) or library.Valkey
    client = client_class(connection_pool=pool)
    stack.push_async_callback(pool.disconnect)
    stack.push_async_callback(client.aclose)
    return client


REDIS = CheckpointBackend(check_redis, open_redis)
