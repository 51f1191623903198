"""The Valkey saver, made safe: a lost connection is an error, and a thread knows its own namespaces."""

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
    """Works on any Redis or Valkey, without modules."""

    client: Any

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        # The library answers a lost connection with "no checkpoint": a conversation would begin anew over its own history.
        thread_id, namespace = (
            str(config["configurable"]["thread_id"]),
            config["configurable"].get("checkpoint_ns", ""),
        )
        wanted = get_checkpoint_id(config)
        if not wanted:
            newest = await self.client.lrange(self._make_thread_key(thread_id, namespace), 0, 0)
            if not newest:
                return None
            wanted = newest[0].decode()
        place = (thread_id, namespace, wanted)
        stored, writes = await self.client.mget(
            self._make_checkpoint_key(*place), self._make_writes_key(*place)
        )
        if stored is None:
            return None
        found: CheckpointTuple = self._deserialize_checkpoint_data(
            json.loads(stored), json.loads(writes) if writes else [], *place
        )
        return found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        thread_id, namespace = (
            str(config["configurable"]["thread_id"]),
            config["configurable"].get("checkpoint_ns", ""),
        )
        if namespace:
            known = _namespaces_key(thread_id)
            await self.client.sadd(known, namespace)
            if self.ttl:
                await self.client.expire(known, int(self.ttl))
        stored: RunnableConfig = await super().aput(config, checkpoint, metadata, new_versions)
        return stored

    async def adelete_thread(self, thread_id: str) -> None:
        # The library looks for keys by a pattern: slow on a full server, and a thread named `*` would be every thread.
        for namespace in await self._namespaces(thread_id):
            await self._forget(thread_id, namespace)
        await self._forget(thread_id, "")

    async def prune(self, thread_id: str, idle: bool) -> None:
        """Keeps the newest checkpoint of each namespace; in an idle thread no sub-graph is kept."""
        for namespace in await self._namespaces(thread_id):
            if idle:
                await self._forget(thread_id, namespace)
            else:
                await self._keep_newest(thread_id, namespace)
        await self._keep_newest(thread_id, "")

    async def _keep_newest(self, thread_id: str, namespace: str) -> None:
        newest, *older = await self._ids(thread_id, namespace) or [""]
        older = [
            checkpoint_id for checkpoint_id in older if checkpoint_id != newest
        ]  # a repeated put lists an id twice
        if older:
            async with self.client.pipeline() as together:
                for checkpoint_id in older:
                    together.lrem(self._make_thread_key(thread_id, namespace), 0, checkpoint_id)
                together.delete(*self._data_keys(thread_id, namespace, older))
                await together.execute()

    async def _forget(self, thread_id: str, namespace: str) -> None:
        ids = await self._ids(thread_id, namespace)
        async with self.client.pipeline() as together:
            together.delete(
                self._make_thread_key(thread_id, namespace), *self._data_keys(thread_id, namespace, ids)
            )
            together.srem(_namespaces_key(thread_id), namespace)
            await together.execute()

    async def _ids(self, thread_id: str, namespace: str) -> list[str]:
        return [
            stored.decode()
            for stored in await self.client.lrange(self._make_thread_key(thread_id, namespace), 0, -1)
        ]

    async def _namespaces(self, thread_id: str) -> list[str]:
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
