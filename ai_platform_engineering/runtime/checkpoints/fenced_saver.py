"""The graph's checkpointer behind the run log: a run that has another owner stores nothing, and the log knows where its state is."""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import (
    BaseCheckpointSaver,
    ChannelVersions,
    Checkpoint,
    CheckpointMetadata,
    CheckpointTuple,
)
from langgraph.checkpoint.serde.base import SerializerProtocol

from ai_platform_engineering.core.errors import Fenced
from ai_platform_engineering.runtime.log.run_log import Marker, RunLog

RUN_ID_KEY = "query_id"
EPOCH_KEY = "epoch"
OWNER_KEY = "owner"
PRINCIPAL_KEY = "principal"  # of a run, in the metadata of its graph's configuration


class FencedSaver(BaseCheckpointSaver[Any]):
    """`inner` is asked at each call: it may be opened after the graph was built. What belongs to no run passes."""

    def __init__(self, inner: Callable[[], BaseCheckpointSaver[Any]], log: RunLog) -> None:
        self._inner, self._log = inner, log
        self._known: set[tuple[str, int, str]] = set()

    @property
    def serde(self) -> SerializerProtocol:  # type: ignore[override]
        return self._inner().serde

    @property
    def config_specs(self) -> list[Any]:
        return self._inner().config_specs

    def get_next_version(self, current: Any, channel: None) -> Any:
        return self._inner().get_next_version(current, channel)

    async def aget_tuple(self, config: RunnableConfig) -> CheckpointTuple | None:
        return await self._inner().aget_tuple(config)

    async def alist(
        self,
        config: RunnableConfig | None,
        *,
        filter: dict[str, Any] | None = None,
        before: RunnableConfig | None = None,
        limit: int | None = None,
    ) -> AsyncIterator[CheckpointTuple]:
        async for found in self._inner().alist(config, filter=filter, before=before, limit=limit):
            yield found

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        ns = str((config.get("configurable") or {}).get("checkpoint_ns") or "")
        await self._check({**(config.get("metadata") or {}), **metadata}, ns, checkpoint["id"])
        return await self._inner().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._check(config.get("metadata") or {}, None, "")
        await self._inner().aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._inner().adelete_thread(thread_id)

    async def _check(self, metadata: Any, ns: str | None, checkpoint_id: str) -> None:
        """Raises Fenced. The first checkpoint of a namespace is noted in the log, so that a takeover finds it."""
        run_id, epoch = metadata.get(RUN_ID_KEY), metadata.get(EPOCH_KEY)
        if not run_id or not isinstance(epoch, int):
            return
        if ns is not None and (run_id, epoch, ns) not in self._known:
            await self._log.append(run_id, epoch, (), (Marker(ns, checkpoint_id),))
            self._known.add((run_id, epoch, ns))
            return
        row = await self._log.get(run_id)
        if row is None or row.epoch != epoch:
            raise Fenced("The run has another owner now.")

    def forget(self, run_id: str) -> None:
        """The run is over."""
        self._known = {known for known in self._known if known[0] != run_id}
