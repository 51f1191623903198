"""The run that a graph works for, as the metadata of the graph's configuration names it."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.runtime.checkpoints.fenced_saver import EPOCH_KEY, RUN_ID_KEY


@dataclass(frozen=True, slots=True)
class RunMetadata:
    """The id of the run and its epoch; empty outside of a run."""

    run_id: str = ""
    epoch: int = 0

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> "RunMetadata":
        metadata: Mapping[str, Any] = config.get("metadata") or {}
        return cls(str(metadata.get(RUN_ID_KEY) or ""), int(metadata.get(EPOCH_KEY) or 0))
