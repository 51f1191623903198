"""A checkpointer with fencing: a run that another process has taken over stores nothing.

The run log also learns where the checkpoints of a run begin."""

from collections import OrderedDict
from collections.abc import AsyncIterator, Callable, Collection, Sequence
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
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.runtime.log.log_rows import Marker
from ai_platform_engineering.runtime.log.run_log import RunLog

_MAX_MARKED = 4096  # runs


class FencedSaver(BaseCheckpointSaver[Any]):
    """Checks the epoch of a run before each write; writes of no run are not checked.

    `inner` is called each time: the checkpointer may be opened after the graph was built."""

    def __init__(self, inner: Callable[[], BaseCheckpointSaver[Any]], log: RunLog) -> None:
        self._inner = inner
        self._log = log
        # By run: the epochs and namespaces that have a marker in the log.
        self._marked: OrderedDict[str, set[tuple[int, str]]] = OrderedDict()

    @property
    def serde(self) -> SerializerProtocol:  # type: ignore[override]
        return self._inner().serde

    @property
    def config_specs(self) -> list[Any]:
        return self._inner().config_specs

    def with_allowlist(self, extra_allowlist: Collection[tuple[str, ...]]) -> "FencedSaver":
        """This saver: with LANGGRAPH_STRICT_MSGPACK a graph asks for the types of its schema, too."""
        return self

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
        async for checkpoint in self._inner().alist(config, filter=filter, before=before, limit=limit):
            yield checkpoint

    async def aput(
        self,
        config: RunnableConfig,
        checkpoint: Checkpoint,
        metadata: CheckpointMetadata,
        new_versions: ChannelVersions,
    ) -> RunnableConfig:
        run_metadata = {**(config.get("metadata") or {}), **metadata}
        context = RunContext.from_config({**config, "metadata": run_metadata})
        await self._check_epoch(context, Marker(context.checkpoint_ns or "", checkpoint["id"]))
        return await self._inner().aput(config, checkpoint, metadata, new_versions)

    async def aput_writes(
        self, config: RunnableConfig, writes: Sequence[tuple[str, Any]], task_id: str, task_path: str = ""
    ) -> None:
        await self._check_epoch(RunContext.from_config(config), None)
        await self._inner().aput_writes(config, writes, task_id, task_path)

    async def adelete_thread(self, thread_id: str) -> None:
        await self._inner().adelete_thread(thread_id)

    async def _check_epoch(self, context: RunContext, marker: Marker | None) -> None:
        """Raises Fenced if the run has another epoch now.

        The first checkpoint of a sub-graph is stored as a marker in the log, so that a takeover finds it; it
        looks for that of the root graph in any case."""
        run_id = context.run_id
        epoch = context.epoch
        if not run_id or not epoch:
            return
        if marker is not None and marker.ns and (epoch, marker.ns) not in self._marked.get(run_id, ()):
            await self._log.append(run_id, epoch, (), (marker,))
            self._add_marked(run_id, epoch, marker.ns)
            return
        if getattr(self._inner(), "checks_epoch", False):
            return  # in the transaction of the write
        row = await self._log.get(run_id)
        if row is None or row.epoch != epoch:
            raise Fenced("The run has another owner now.")

    def forget(self, run_id: str) -> None:
        """Drops what is remembered of a run that is over."""
        self._marked.pop(run_id, None)

    def _add_marked(self, run_id: str, epoch: int, ns: str) -> None:
        self._marked.setdefault(run_id, set()).add((epoch, ns))
        if len(self._marked) > _MAX_MARKED:
            self._marked.popitem(last=False)  # its next checkpoint is marked once more
