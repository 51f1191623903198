"""Conversations in Redis or Valkey: through the module saver where search and JSON run, else through the Valkey saver."""

import asyncio
from contextlib import AsyncExitStack
from typing import Any

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend, import_optional
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice
from ai_platform_engineering.runtime.checkpoints.redis_store import RedisStore

_CONNECTIONS = 50
_PATIENCE = 30.0


async def open_redis(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    if await _has_modules(choice, terms):
        return await _with_modules(choice, terms, stack)
    return await _without_modules(choice, terms, stack)


async def _has_modules(choice: DatabaseChoice, terms: BackendOptions) -> bool:
    """Asks the server; Valkey's search module lacks what the module saver needs."""
    library = _either_library()
    async with AsyncExitStack() as stack:
        client = _client(library, choice, terms, stack)
        async with asyncio.timeout(terms.timeout_seconds):
            await client.ping()
            try:
                await client.execute_command("FT._LIST")
                await client.execute_command("JSON.GET", "caipe:none")
                return "valkey_version" not in await client.info("server")
            except library.ResponseError:
                return False


async def _with_modules(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    library = import_optional("redis.asyncio", "redis")
    import_optional("langgraph.checkpoint.redis.aio", "redis")
    from ai_platform_engineering.runtime.checkpoints.redis_saver import RedisSaver

    client = _client(library, choice, terms, stack)
    ttl = {"default_ttl": terms.ttl_minutes, "refresh_on_read": True} if terms.ttl_minutes else None
    saver = RedisSaver(redis_client=client, ttl=ttl)
    try:
        await saver.asetup()
    except import_optional("redisvl.exceptions", "redis").RedisVLError:
        await saver.asetup()  # another replica made the index in the same moment

    return OpenBackend(saver, RedisStore(client), saver.prune_thread)


async def _without_modules(
    choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack
) -> OpenBackend:
    library = import_optional("valkey.asyncio", "valkey")
    import_optional("langgraph_checkpoint_aws.checkpoint.valkey", "valkey")
    from ai_platform_engineering.runtime.checkpoints.valkey_saver import ValkeySaver

    client = _client(library, choice, terms, stack)
    saver = ValkeySaver(client, ttl=terms.ttl_minutes * 60 if terms.ttl_minutes else None)
    return OpenBackend(saver, RedisStore(client), saver.prune)


def _either_library() -> Any:
    """Redis' client and Valkey's have the same calls; one of them is enough to ask the server."""
    try:
        return import_optional("redis.asyncio", "redis")
    except ConfigurationError:
        return import_optional("valkey.asyncio", "valkey")


def _client(library: Any, choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> Any:
    """A client that waits for a free connection: the savers' own pools fail when many conversations run at once."""
    try:
        pool = library.BlockingConnectionPool.from_url(
            choice.address,
            max_connections=_CONNECTIONS,
            timeout=_PATIENCE,
            socket_connect_timeout=terms.timeout_seconds,
            socket_timeout=_PATIENCE,
            health_check_interval=30,
        )
    except ValueError:
        # Without the cause: its text quotes the address.
        raise ConfigurationError(f"{choice.variable} is not an address of a Redis server.") from None
    client = getattr(library, "Redis", None) or library.Valkey
    made = client(connection_pool=pool)
    stack.push_async_callback(pool.disconnect)
    stack.push_async_callback(made.aclose)
    return made
