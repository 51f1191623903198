"""A run whose process died goes on: what its graphs had stored, and what the graph must be given now."""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, Interrupt

from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.forms import is_declined, next_request_id
from ai_platform_engineering.graph.citations import RetrievedSources
from ai_platform_engineering.graph.interrupts import InterruptRequest, interrupt_requests
from ai_platform_engineering.graph.stored_graph import StoredGraph
from ai_platform_engineering.multi_agents.platform_engineer.delegation import DELEGATION_CALL
from ai_platform_engineering.multi_agents.platform_engineer.middleware.call_limits import current_turn
from ai_platform_engineering.runtime.checkpoints.fenced_saver import RUN_ID_KEY
from ai_platform_engineering.runtime.log.run_log import PendingRequest

_INTERRUPT = "__interrupt__"  # the channel to which LangGraph writes what a task asks


async def stored_graphs(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, run_id: str, namespaces: Sequence[str]
) -> list[StoredGraph]:
    """The run's own graphs: the root, then sub-agents. Empty when nothing of this run was stored."""
    found: list[StoredGraph] = []
    for ns in ["", *sorted(set(namespaces) - {""})]:
        at: RunnableConfig = {"configurable": {**config["configurable"], "checkpoint_ns": ns}}
        stored = await saver.aget_tuple(at)
        if stored is None or stored.metadata.get(RUN_ID_KEY) != run_id:
            if not ns:
                return []
            continue
        call_id = str(stored.metadata.get(DELEGATION_CALL) or "") if ns else None
        found.append(
            StoredGraph(tuple(ns.split("|")) if ns else (), call_id, tuple(current_turn(_messages(stored))))
        )
    return found


async def open_interrupts(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    interrupts: Sequence[Interrupt[Any]],
    namespaces: Sequence[str],
) -> list[Interrupt[Any]]:
    """Those that are still asked. An agent stores its next question before the graph around it does: an answer to the one that the outer
    graph still knows would be taken for the next one."""
    asked: dict[str, dict[str, list[str]]] = {}  # namespace -> task -> the interrupts that it told
    for ns in {"", *namespaces}:
        stored = await saver.aget_tuple({"configurable": {**config["configurable"], "checkpoint_ns": ns}})
        writes = (stored.pending_writes if stored is not None else None) or ()
        asked[ns] = {
            task_id: [one.id for one in value] for task_id, channel, value in writes if channel == _INTERRUPT
        }
    innermost = [
        ids
        for ns, tasks in asked.items()
        for task_id, ids in tasks.items()
        if not _inside(ns, task_id, asked)
    ]
    known = {interrupt_id for ids in innermost for interrupt_id in ids}
    return [interrupt for interrupt in interrupts if interrupt.id in known]


def _inside(ns: str, task_id: str, asked: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """The graphs that ran in the task and ask something themselves."""
    depth = len(ns.split("|")) if ns else 0
    within = [
        other for other in asked if asked[other] and other.startswith(f"{ns}|" if ns else "") and other != ns
    ]
    return [other for other in within if other.split("|")[depth].partition(":")[2] == task_id]


def retrieved(messages: Sequence[AnyMessage], knowledge_tools: Collection[str]) -> RetrievedSources:
    """What the current question has retrieved, by the messages that the state holds."""
    sources = RetrievedSources()
    for message in current_turn(messages):
        if isinstance(message, ToolMessage):
            sources.add_result(message.text, knowledge=message.name in knowledge_tools)
    return sources


def answers_to(
    run_id: str, interrupts: Sequence[Any], requests: Sequence[PendingRequest]
) -> Command[Any] | None:
    """What people have said and the graph has not taken in."""
    known = {request.request_id: request for request in requests}
    values: dict[str, Any] = {}
    for interrupt in interrupts:
        for question in interrupt_requests(run_id, interrupt):
            request = _answered(question, known)
            if request is None:
                continue
            if question.key is None:
                values[interrupt.id] = _answer_of(request)
            else:
                values.setdefault(interrupt.id, {})[question.key] = _answer_of(request)
    if values:
        return Command(resume=values)
    return None


def _answered(question: InterruptRequest, known: Mapping[str, PendingRequest]) -> PendingRequest | None:
    """The answer to a question that is asked now. A place that asks a second time does so under the same first id: only what was asked
    there last counts, and an answer that was told before the process died only to the question that it answered."""
    request_id, last = question.first_id, None
    while request_id in known:
        last, request_id = known[request_id], next_request_id(request_id)
    if last is None or last.status == "claimed":
        return last
    if last.status == "resolved" and _undated(last.event.asked) == _undated(question.asked):
        return last
    return None


def _answer_of(request: PendingRequest) -> Any:
    """What the place that asked is told: a decision says whose it is."""
    asked, answer = request.event.asked, request.answer
    if isinstance(answer, dict) and (isinstance(asked, Approval) or is_declined(asked, answer)):
        return {**answer, "by": request.by}
    return answer


def _undated(asked: Form | Approval) -> Form | Approval:
    return asked.model_copy(update={"expires_at": None})


def _messages(stored: CheckpointTuple) -> list[AnyMessage]:
    """The messages of a checkpoint, with those of tasks that had finished after it: they are not run again."""
    found: list[AnyMessage] = list(stored.checkpoint["channel_values"].get("messages") or [])
    known = {message.id for message in found}
    for _, channel, value in stored.pending_writes or ():
        if channel == "messages":
            found += [
                one
                for one in (value if isinstance(value, list) else [value])
                if one.id is None or one.id not in known
            ]
    return found
