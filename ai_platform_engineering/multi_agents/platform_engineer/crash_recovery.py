"""Going on after a pause or a crash: what the graphs of a run had stored, and the command to resume."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any

from langchain_core.messages import AnyMessage, ToolMessage
from langchain_core.runnables import RunnableConfig
from langgraph.checkpoint.base import BaseCheckpointSaver, CheckpointTuple
from langgraph.types import Command, Interrupt

from ai_platform_engineering.core.decisions import PERSON_KEY
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.forms import is_declined, next_request_id
from ai_platform_engineering.core.plan import PlanState
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.graph.citations import RetrievedSources
from ai_platform_engineering.graph.interrupts import InterruptRequest, interrupt_requests
from ai_platform_engineering.graph.stored_graph import StoredGraph
from ai_platform_engineering.multi_agents.platform_engineer.middleware.planning import reduce_plan
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import current_turn
from ai_platform_engineering.runtime.log.log_rows import PendingRequest

_INTERRUPT_CHANNEL = "__interrupt__"  # LangGraph writes the interrupts of a task to it
_EARLIER_RESULTS = 50  # of earlier questions, newest first: reading them delays the answer

_InterruptIds = dict[str, list[str]]  # by task


async def read_stored_graphs(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, run_id: str, namespaces: Sequence[str]
) -> list[StoredGraph]:
    """The stored graphs of the run: the root, then sub-agents. Empty when nothing of this run was stored."""
    root = await _read_checkpoint(saver, config, "")
    if root is None or _read_context(root).run_id != run_id:
        return []
    graphs = [StoredGraph((), None, tuple(current_turn(_read_messages(root))))]
    for namespace in sorted(set(namespaces) - {""}):
        checkpoint = await _read_checkpoint(saver, config, namespace)
        if checkpoint is None:
            continue
        context = _read_context(checkpoint)
        if context.run_id != run_id:
            continue
        messages = tuple(current_turn(_read_messages(checkpoint)))
        graphs.append(StoredGraph(tuple(namespace.split("|")), context.delegation_call, messages))
    return graphs


async def read_stored_plan(saver: BaseCheckpointSaver[Any], config: RunnableConfig) -> PlanState:
    """The plan of the root graph, with the changes of tasks that finished after its last checkpoint."""
    checkpoint = await _read_checkpoint(saver, config, "")
    if checkpoint is None:
        return PlanState()
    plan: Mapping[str, Any] = checkpoint.checkpoint["channel_values"].get("plan") or {}
    for _, channel, changes in checkpoint.pending_writes or ():
        if channel == "plan":
            plan = reduce_plan(plan, changes)
    return PlanState.model_validate(plan)


async def find_open_interrupts(
    saver: BaseCheckpointSaver[Any],
    config: RunnableConfig,
    interrupts: Sequence[Interrupt[Any]],
    namespaces: Sequence[str],
) -> list[Interrupt[Any]]:
    """The interrupts that still wait for an answer.

    A sub-agent stores its next interrupt before the outer graph does. The one that the outer graph still has
    is then answered already, and another answer to it would be taken for the sub-agent's next one.
    """
    stored: dict[str, _InterruptIds] = {}  # by namespace
    for namespace in {"", *namespaces}:
        stored[namespace] = _read_interrupt_ids(await _read_checkpoint(saver, config, namespace))
    open_ids: set[str] = set()
    for namespace, interrupt_ids in stored.items():
        for task_id, ids in interrupt_ids.items():
            if not _has_inner_interrupts(namespace, task_id, stored):
                open_ids.update(ids)
    return [interrupt for interrupt in interrupts if interrupt.id in open_ids]


def _read_interrupt_ids(checkpoint: CheckpointTuple | None) -> _InterruptIds:
    if checkpoint is None:
        return {}
    interrupt_ids: _InterruptIds = {}
    for task_id, channel, value in checkpoint.pending_writes or ():
        if channel == _INTERRUPT_CHANNEL:
            interrupt_ids[task_id] = [interrupt.id for interrupt in value]
    return interrupt_ids


def _has_inner_interrupts(namespace: str, task_id: str, stored: Mapping[str, _InterruptIds]) -> bool:
    """Whether a graph that ran inside the task has interrupts itself."""
    prefix = f"{namespace}|" if namespace else ""
    depth = namespace.count("|") + 1 if namespace else 0
    for other, interrupt_ids in stored.items():
        if other == namespace or not interrupt_ids or not other.startswith(prefix):
            continue
        # A part of a namespace is the node's name and the task's id.
        if other.split("|")[depth].partition(":")[2] == task_id:
            return True
    return False


async def read_stored_messages(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig
) -> Sequence[AnyMessage]:
    """The messages of the conversation so far."""
    root = await _read_checkpoint(saver, config, "")
    if root is None:
        return ()
    return _read_messages(root)


def collect_sources(messages: Sequence[AnyMessage], knowledge_tools: Collection[str]) -> RetrievedSources:
    """The sources that an answer may cite, from the tool results in the messages: what the current question
    has retrieved, and the documents of earlier ones, of which a follow-up may still speak."""
    sources = RetrievedSources()
    turn = current_turn(messages)
    for message in turn:
        if isinstance(message, ToolMessage):
            sources.add_result(message.text, knowledge=message.name in knowledge_tools)
    earlier = 0
    for message in reversed(messages[: len(messages) - len(turn)]):
        if isinstance(message, ToolMessage) and message.name in knowledge_tools:
            sources.add_result(message.text, knowledge=True)
            earlier += 1
            if earlier == _EARLIER_RESULTS:
                break
    return sources


def build_resume_command(
    run_id: str, interrupts: Sequence[Any], requests: Sequence[PendingRequest]
) -> Command[Any] | None:
    """The command with the answers that the graph has not received yet; None when there are none."""
    requests_by_id = {request.request_id: request for request in requests}
    values: dict[str, Any] = {}
    for interrupt in interrupts:
        for interrupt_request in interrupt_requests(run_id, interrupt):
            request = _find_answered_request(interrupt_request, requests_by_id)
            if request is None:
                continue
            if interrupt_request.key is None:
                values[interrupt.id] = _read_answer(request)
            else:
                values.setdefault(interrupt.id, {})[interrupt_request.key] = _read_answer(request)
    if not values:
        return None
    return Command(resume=values)


def _find_answered_request(
    interrupt_request: InterruptRequest, requests: Mapping[str, PendingRequest]
) -> PendingRequest | None:
    """The answered request that belongs to an interrupt of now.

    A node that asks several times uses ids that follow from the same first one: only its last request counts.
    An answer that was reported before the process died counts only for the form or approval that it answered.
    """
    request_id = interrupt_request.first_id
    last: PendingRequest | None = None
    while request_id in requests:
        last = requests[request_id]
        request_id = next_request_id(request_id)
    if last is None or last.status == "claimed":
        return last
    if last.status != "resolved":
        return None
    if _without_expiry(last.event.asked) != _without_expiry(interrupt_request.asked):
        return None
    return last


def _read_answer(request: PendingRequest) -> Any:
    """The value for the interrupted node. A decision, also to decline a form, names the person."""
    answer = request.answer
    if not isinstance(answer, dict):
        return answer
    if isinstance(request.event.asked, Approval) or is_declined(request.event.asked, answer):
        return {**answer, PERSON_KEY: request.by}
    return answer


def _without_expiry(request: Form | Approval) -> Form | Approval:
    return request.model_copy(update={"expires_at": None})


async def _read_checkpoint(
    saver: BaseCheckpointSaver[Any], config: RunnableConfig, namespace: str
) -> CheckpointTuple | None:
    context = replace(RunContext.from_config(config), checkpoint_ns=namespace)
    return await saver.aget_tuple({"configurable": context.to_configurable()})


def _read_context(checkpoint: CheckpointTuple) -> RunContext:
    return RunContext.from_checkpoint_metadata(checkpoint.metadata)


def _read_messages(checkpoint: CheckpointTuple) -> list[AnyMessage]:
    """The messages of a checkpoint, with those of tasks that finished after it and do not run again."""
    messages: list[AnyMessage] = list(checkpoint.checkpoint["channel_values"].get("messages") or [])
    stored_ids = {message.id for message in messages}
    for _, channel, value in checkpoint.pending_writes or ():
        if channel != "messages":
            continue
        written: list[AnyMessage] = value if isinstance(value, list) else [value]
        for message in written:
            if message.id is None or message.id not in stored_ids:
                messages.append(message)
    return messages
