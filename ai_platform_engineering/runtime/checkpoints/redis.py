"""Checkpoints and store in Redis or Valkey: RedisSaver if the server has modules, else ValkeySaver."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend, import_optional
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice
from ai_platform_engineering.runtime.checkpoints.redis_store import RedisStore

_MAX_CONNECTIONS = 50
_TIMEOUT_SECONDS = 30.0


async def open_redis(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    if await _has_modules(choice, options):
        return await _open_with_modules(choice, options, stack)
    return await _open_without_modules(choice, options, stack)


async def _has_modules(choice: DatabaseChoice, options: BackendOptions) -> bool:
    """Whether the server has the modules of RedisSaver; Valkey's search module lacks some of it."""
    library = _import_any_client()
    async with AsyncExitStack() as stack:
        client = _open_client(library, choice, options, stack)
        async with asyncio.timeout(options.timeout_seconds):
            await client.ping()
            try:
                await client.execute_command("FT._LIST")
                await client.execute_command("JSON.GET", "caipe:none")
                return "valkey_version" not in await client.info("server")
            except library.ResponseError:
                return False


async def _open_with_modules(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    library = import_optional("redis.asyncio", "redis")
    import_optional("langgraph.checkpoint.redis.aio", "redis")
    from ai_platform_engineering.runtime.checkpoints.redis_saver import RedisSaver

    client = _open_client(library, choice, options, stack)
    ttl = None
    if options.ttl_minutes:
        ttl = {"default_ttl": options.ttl_minutes, "refresh_on_read": True}
    saver = RedisSaver(redis_client=client, ttl=ttl)
    try:
        await saver.asetup()
    except import_optional("redisvl.exceptions", "redis").RedisVLError:
        await saver.asetup()  # another replica created the index at the same moment

    return OpenBackend(saver, RedisStore(client), saver.prune_thread)


async def _open_without_modules(
    choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    library = import_optional("valkey.asyncio", "valkey")
    import_optional("langgraph_checkpoint_aws.checkpoint.valkey", "valkey")
    from ai_platform_engineering.runtime.checkpoints.valkey_saver import ValkeySaver

    client = _open_client(library, choice, options, stack)
    ttl_seconds = options.ttl_minutes * 60 if options.ttl_minutes else None
    saver = ValkeySaver(client, ttl=ttl_seconds)
    return OpenBackend(saver, RedisStore(client), saver.prune_thread)


def _import_any_client() -> Any:
    """The client library of Redis or of Valkey: they have the same calls, and one is enough for the check."""
    try:
        return import_optional("redis.asyncio", "redis")
    except ConfigurationError:
        return import_optional("valkey.asyncio", "valkey")


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
