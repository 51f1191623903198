"""ValkeySaver: the Valkey saver of langgraph-checkpoint-aws, corrected."""

import json
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
    get_checkpoint_id,
)
from langgraph_checkpoint_aws.checkpoint.valkey import AsyncValkeySaver  # type: ignore[import-untyped]


class ValkeySaver(AsyncValkeySaver):  # type: ignore[misc]
    """A saver for any Redis or Valkey, without modules.

    A lost connection is an error, and each thread has a set with the names of its namespaces."""

    client: Any

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        # The library reads a lost connection as "no checkpoint": a conversation would lose its history.
        thread_id = str(config["configurable"]["thread_id"])
        namespace = config["configurable"].get("checkpoint_ns", "")
        checkpoint_id = get_checkpoint_id(config)
        if not checkpoint_id:
            newest_ids = await self.client.lrange(self._make_thread_key(thread_id, namespace), 0, 0)
            if not newest_ids:
                return None
            checkpoint_id = newest_ids[0].decode()
        checkpoint_key = self._make_checkpoint_key(thread_id, namespace, checkpoint_id)
        writes_key = self._make_writes_key(thread_id, namespace, checkpoint_id)
        serialized, serialized_writes = await self.client.mget(checkpoint_key, writes_key)
        if serialized is None:
            return None
        writes = json.loads(serialized_writes) if serialized_writes else []
        checkpoint: CheckpointTuple = self._deserialize_checkpoint_data(
            json.loads(serialized), writes, thread_id, namespace, checkpoint_id
        )
        return checkpoint

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id = str(config["configurable"]["thread_id"])
        namespace = config["configurable"].get("checkpoint_ns", "")
        if namespace:
            namespaces_key = _namespaces_key(thread_id)
            await self.client.sadd(namespaces_key, namespace)
            if self.ttl:
                await self.client.expire(namespaces_key, int(self.ttl))
        stored_config: RunnableConfig = await super().aput(config, checkpoint, metadata, new_versions)
        return stored_config

    async def adelete_thread(self, thread_id: str) -> None:
        # The library searches keys by a pattern: slow on a full server, and a thread `*` would match all.
        for namespace in await self._list_namespaces(thread_id):
            await self._delete_namespace(thread_id, namespace)
        await self._delete_namespace(thread_id, "")

    async def prune_thread(self, thread_id: str, idle: bool) -> None:
        """Keeps the newest checkpoint of each namespace; in an idle thread none of sub-graphs."""
        for namespace in await self._list_namespaces(thread_id):
            if idle:
                await self._delete_namespace(thread_id, namespace)
            else:
                await self._keep_newest(thread_id, namespace)
        await self._keep_newest(thread_id, "")

    async def _keep_newest(self, thread_id: str, namespace: str) -> None:
        ids = await self._list_ids(thread_id, namespace)
        older_ids = [
            checkpoint_id for checkpoint_id in ids if checkpoint_id != ids[0]
        ]  # a repeated put lists an id twice
        if not older_ids:
            return
        async with self.client.pipeline() as pipeline:
            for checkpoint_id in older_ids:
                pipeline.lrem(self._make_thread_key(thread_id, namespace), 0, checkpoint_id)
            pipeline.delete(*self._data_keys(thread_id, namespace, older_ids))
            await pipeline.execute()

    async def _delete_namespace(self, thread_id: str, namespace: str) -> None:
        ids = await self._list_ids(thread_id, namespace)
        thread_key = self._make_thread_key(thread_id, namespace)
        async with self.client.pipeline() as pipeline:
            pipeline.delete(thread_key, *self._data_keys(thread_id, namespace, ids))
            pipeline.srem(_namespaces_key(thread_id), namespace)
            await pipeline.execute()

    async def _list_ids(self, thread_id: str, namespace: str) -> list[str]:
        """The ids of the namespace's checkpoints, newest first."""
        raw_ids = await self.client.lrange(self._make_thread_key(thread_id, namespace), 0, -1)
        return [raw_id.decode() for raw_id in raw_ids]

    async def _list_namespaces(self, thread_id: str) -> list[str]:
        return [namespace.decode() for namespace in await self.client.smembers(_namespaces_key(thread_id))]

    def _data_keys(self, thread_id: str, namespace: str, ids: list[str]) -> list[str]:
        checkpoints = [
            self._make_checkpoint_key(thread_id, namespace, checkpoint_id) for checkpoint_id in ids
        ]
        return checkpoints + [
            self._make_writes_key(thread_id, namespace, checkpoint_id) for checkpoint_id in ids
        ]


def _namespaces_key(thread_id: str) -> str:
    return f"namespaces:{{{thread_id}}}"
