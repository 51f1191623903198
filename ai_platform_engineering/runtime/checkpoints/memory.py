"""Checkpoints and store in memory: lost when the process ends."""

from contextlib import AsyncExitStack

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from ai_platform_engineering.databases.database_choice import DatabaseChoice
from ai_platform_engineering.runtime.checkpoints.backend import (
    BackendOptions,
    CheckpointBackend,
    OpenBackend,
)
from ai_platform_engineering.runtime.checkpoints.serializer import CheckpointSerializer


async def open_memory(choice: DatabaseChoice, options: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    saver = InMemorySaver(serde=CheckpointSerializer())

    async def prune(thread_id: str, idle: bool) -> None:
        _prune(saver, thread_id, idle)

    return OpenBackend(saver, InMemoryStore(), prune)


async def check_memory(choice: DatabaseChoice, options: BackendOptions) -> None:
    """Memory is always there."""


MEMORY = CheckpointBackend(check_memory, open_memory)


def _prune(saver: InMemorySaver, thread_id: str, idle: bool) -> None:
    """Keeps the newest checkpoint of each namespace, its writes, and the channel values it refers to."""
    if thread_id not in saver.storage:
        return
    namespaces = saver.storage[thread_id]
    for namespace in list(namespaces):
        if idle and namespace:
            del namespaces[namespace]
        elif namespaces[namespace]:
            newest = max(namespaces[namespace])
            namespaces[namespace] = {newest: namespaces[namespace][newest]}
    for write_key in list(saver.writes):
        write_thread, namespace, checkpoint_id = write_key
        if write_thread == thread_id and checkpoint_id not in namespaces.get(namespace, {}):
            del saver.writes[write_key]
    used_blobs = _find_used_blobs(saver, thread_id)
    for blob_key in list(saver.blobs):
        if blob_key[0] == thread_id and blob_key not in used_blobs:
            del saver.blobs[blob_key]


def _find_used_blobs(saver: InMemorySaver, thread_id: str) -> set[tuple[str, str, str, str | int | float]]:
    """The keys of the channel values that the thread's checkpoints refer to."""
    keys: set[tuple[str, str, str, str | int | float]] = set()
    for namespace, checkpoints in saver.storage[thread_id].items():
        for serialized, *_ in checkpoints.values():
            channel_versions = saver.serde.loads_typed(serialized)["channel_versions"]
            for channel, version in channel_versions.items():
                keys.add((thread_id, namespace, channel, version))
    return keys
