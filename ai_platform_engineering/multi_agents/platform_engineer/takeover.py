"""A run whose process died goes on: what its graphs had stored, and what the graph must be given now."""

from collections.abc import Sequence
from typing import Any

from langchain_core.messages import AnyMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command

from ai_platform_engineering.multi_agents.platform_engineer.delegation import CALL
from ai_platform_engineering.multi_agents.platform_engineer.middleware.limits import current_turn
from ai_platform_engineering.runtime.log import PendingRequest
from ai_platform_engineering.runtime.storage.fenced import RUN
from ai_platform_engineering.utils.interrupts import request_id_of
from ai_platform_engineering.utils.restore import RestoredGraph
from ai_platform_engineering.utils.visible_text import visible


async def stored_graphs(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, run_id: str, namespaces: Sequence[str]
) -> list[RestoredGraph]:
    """The run's own graphs: the root, then sub-agents. Empty when nothing of this run was stored."""
    found: list[RestoredGraph] = []
    for ns in ["", *sorted(set(namespaces) - {""})]:
        at: RunnableConfig = {"configurable": {**config["configurable"], "checkpoint_ns": ns}}
        stored = await saver.aget_tuple(at)
        if stored is None or stored.metadata.get(RUN) != run_id:
            if not ns:
                return []
            continue
        call_id = str(stored.metadata.get(CALL) or "") if ns else None
        found.append(RestoredGraph(tuple(ns.split("|")) if ns else (), call_id, tuple(current_turn(_messages(stored)))))
    return found


def structured_text(values: Any) -> str | None:
    """The text of a structured answer that the state holds."""
    response = values.get("structured_response")
    return visible(str(getattr(response, "content", ""))) if response is not None else None


def answers_to(run_id: str, interrupts: Sequence[Any], requests: Sequence[PendingRequest]) -> Command[Any] | None:
    """What people had said before the crash and the graph has not taken in."""
    told = {request.request_id: request.answer for request in requests if request.status in ("claimed", "resolved")}
    by_id = {interrupt.id: request_id_of(run_id, interrupt.id) for interrupt in interrupts}
    values = {interrupt_id: told[request_id] for interrupt_id, request_id in by_id.items() if request_id in told}
    return Command(resume=values) if values else None


def _messages(stored: CheckpointTuple) -> list[AnyMessage]:
    """The messages of a checkpoint, with those of tasks that had finished after it: they are not run again."""
    found: list[AnyMessage] = list(stored.checkpoint["channel_values"].get("messages") or [])
    known = {message.id for message in found}
    for _, channel, value in stored.pending_writes or ():
        if channel == "messages":
            found += [one for one in (value if isinstance(value, list) else [value]) if one.id is None or one.id not in known]
    return found
