"""Conversations in memory: nothing is left when the process ends."""

from contextlib import AsyncExitStack

from langgraph.checkpoint.memory import InMemorySaver
from langgraph.store.memory import InMemoryStore

from ai_platform_engineering.runtime.checkpoints.backend import BackendOptions, OpenBackend
from ai_platform_engineering.runtime.checkpoints.database_choice import DatabaseChoice


async def open_memory(choice: DatabaseChoice, terms: BackendOptions, stack: AsyncExitStack) -> OpenBackend:
    saver = InMemorySaver()

    async def prune(thread_id: str, idle: bool) -> None:
        _prune(saver, thread_id, idle)

    return OpenBackend(saver, InMemoryStore(), prune)


def _prune(saver: InMemorySaver, thread_id: str, idle: bool) -> None:
    """Keeps the newest checkpoint of each namespace, its writes, and the values it refers to."""
    if thread_id not in saver.storage:
        return
    namespaces = saver.storage[thread_id]
    for namespace in list(namespaces):
        if idle and namespace:
            del namespaces[namespace]
        elif namespaces[namespace]:
            newest = max(namespaces[namespace])
            namespaces[namespace] = {newest: namespaces[namespace][newest]}
    for key in [
        key for key in saver.writes if key[0] == thread_id and key[2] not in namespaces.get(key[1], {})
    ]:
        del saver.writes[key]
    used = {
        (thread_id, namespace, channel, version)
        for namespace, kept in namespaces.items()
        for checkpoint, *_ in kept.values()
        for channel, version in saver.serde.loads_typed(checkpoint)["channel_versions"].items()
    }
    for blob in [blob for blob in saver.blobs if blob[0] == thread_id and blob not in used]:
        del saver.blobs[blob]
