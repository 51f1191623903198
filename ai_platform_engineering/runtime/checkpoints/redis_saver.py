"""The saver for Redis with modules, made exact: the history of a thread holds nothing of its sub-graphs."""

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.redis.aio import AsyncRedisSaver
from langgraph.checkpoint.redis.util import EMPTY_STRING_SENTINEL
from redisvl.query import FilterQuery  # type: ignore[import-untyped]
from redisvl.query.filter import Tag  # type: ignore[import-untyped]

_MANY = 10_000


class RedisSaver(AsyncRedisSaver):
    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        # The library reads the empty namespace as any namespace.
        root_alone = bool(config) and (config or {}).get("configurable", {}).get("checkpoint_ns") == ""
        left = limit
        async for found in super().alist(
            config, filter=filter, before=before, limit=None if root_alone else limit
        ):
            if root_alone and found.config["configurable"]["checkpoint_ns"]:
                continue
            if left == 0:
                return
            left = left - 1 if left is not None else None
            yield found

    async def prune_thread(self, thread_id: str, idle: bool) -> None:
        """Keeps the newest checkpoint of each namespace; in an idle thread no sub-graph is kept."""
        if idle:
            await self._forget_subgraphs(thread_id)
        await self.aprune([thread_id])

    async def _forget_subgraphs(self, thread_id: str) -> None:
        assert self._key_registry
        of_subgraphs = (Tag("thread_id") == thread_id) & (Tag("checkpoint_ns") != EMPTY_STRING_SENTINEL)
        query = FilterQuery(
            filter_expression=of_subgraphs,
            return_fields=["checkpoint_ns", "checkpoint_id"],
            num_results=_MANY,
        )
        keys: set[str] = {document.id for document in (await self.checkpoint_writes_index.search(query)).docs}
        for document in (await self.checkpoints_index.search(query)).docs:
            place = (thread_id, document.checkpoint_ns)
            registry = self._key_registry.make_write_keys_zset_key(*place, document.checkpoint_id)
            keys |= {document.id, self._make_redis_checkpoint_latest_key(*place), registry}
        if keys:
            await self._redis.delete(*keys)
