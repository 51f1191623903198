"""RedisSaver: LangGraph's saver for Redis with modules, corrected."""

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import CheckpointTuple
from langgraph.checkpoint.redis.aio import AsyncRedisSaver
from langgraph.checkpoint.redis.util import EMPTY_STRING_SENTINEL
from redisvl.query import FilterQuery  # type: ignore[import-untyped]
from redisvl.query.filter import Tag  # type: ignore[import-untyped]

from ai_platform_engineering.runtime.checkpoints.redis_serializer import (
    RedisCheckpointSerializer,
    is_constructor,
)

_MAX_RESULTS = 10_000


class RedisSaver(AsyncRedisSaver):
    """LangGraph's saver with pruning and our list of types; a thread's history leaves out its sub-graphs."""

    def __init__(self, client: Any, ttl: dict[str, Any] | None) -> None:
        super().__init__(redis_client=client, ttl=ttl)
        self.serde = self._serializer = RedisCheckpointSerializer()

    def _recursive_deserialize(self, obj: Any) -> Any:
        if is_constructor(obj):
            # The library would log a refusal, and go on with the raw value.
            return self._serializer.construct(obj)
        return super()._recursive_deserialize(obj)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        # The library reads the empty namespace as any namespace.
        is_root = config is not None and config.get("configurable", {}).get("checkpoint_ns") == ""
        library_limit = None if is_root else limit
        count = 0
        async for checkpoint in super().alist(config, filter=filter, before=before, limit=library_limit):
            if is_root and checkpoint.config["configurable"]["checkpoint_ns"]:
                continue
            if count == limit:
                return
            count += 1
            yield checkpoint

    async def prune_thread(self, thread_id: str, idle: bool) -> None:
        """Keeps the newest checkpoint of each namespace; in an idle thread none of sub-graphs."""
        if idle:
            await self._delete_subgraphs(thread_id)
        await self.aprune([thread_id])

    async def _delete_subgraphs(self, thread_id: str) -> None:
        assert self._key_registry
        is_subgraph = (Tag("thread_id") == thread_id) & (Tag("checkpoint_ns") != EMPTY_STRING_SENTINEL)
        query = FilterQuery(
            filter_expression=is_subgraph,
            return_fields=["checkpoint_ns", "checkpoint_id"],
            num_results=_MAX_RESULTS,
        )
        keys: set[str] = {document.id for document in (await self.checkpoint_writes_index.search(query)).docs}
        for document in (await self.checkpoints_index.search(query)).docs:
            namespace = document.checkpoint_ns
            keys.add(document.id)
            keys.add(self._make_redis_checkpoint_latest_key(thread_id, namespace))
            keys.add(
                self._key_registry.make_write_keys_zset_key(thread_id, namespace, document.checkpoint_id)
            )
        if keys:
            await self._redis.delete(*keys)
