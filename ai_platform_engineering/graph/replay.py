"""A takeover after a crash: the stored messages are translated again, and the log is made to agree. The state
decides.

What the state has and the log lacks is emitted; texts that the log has and the state lacks are discarded.
Calls without a result are left to the graph, which makes them again.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from langchain_core.messages import AIMessage, ToolMessage

from ai_platform_engineering.core.events import AnyEvent, TextDiscarded
from ai_platform_engineering.graph.stored_graph import StoredGraph
from ai_platform_engineering.graph.text_streams import Namespace
from ai_platform_engineering.graph.translator import Translator


class Replay:
    """Feeds the stored messages of a run to its translator, which goes on with the live stream afterwards."""

    def __init__(self, translator: Translator, graphs: Sequence[StoredGraph]) -> None:
        """`graphs` are all graphs of the run, the root graph first."""
        self._translator = translator
        self._pending = list(graphs)
        self._stored_calls: dict[
            str, tuple[Namespace, Mapping[str, Any]]
        ] = {}  # by id, as the model made them
        self._message_ids: set[str] = set()

    def events(self) -> Iterator[AnyEvent]:
        while self._pending:
            for event in self._replay_graph(self._pending.pop(0)):
                unseen = self._translator.emitted.unseen(event)
                if unseen is not None:
                    yield unseen
        yield from self._discard_lost_texts()
        self._translator.texts.reserve(self._translator.emitted.message_ids())

    def _replay_graph(self, graph: StoredGraph) -> Iterator[AnyEvent]:
        """The texts and calls of a graph, in order; a delegation's own events come before its end."""
        yield from self._start_delegation(graph)
        if self._translator.calls.is_inside_tool(graph.ns):
            return
        for message in graph.messages:
            if isinstance(message, AIMessage):
                yield from self._replay_message(graph, message)
            elif isinstance(message, ToolMessage):
                yield from self._replay_result(graph, message)

    def _start_delegation(self, graph: StoredGraph) -> Iterator[AnyEvent]:
        """Starts the delegation that a sub-agent's graph works on, unless its result was already replayed."""
        calls = self._translator.calls
        if not graph.call_id or calls.delegation(graph.ns) is not None:
            return
        ns, raw_call = self._stored_calls.get(graph.call_id.partition("#")[0], ((), None))
        if raw_call is None:
            return
        call = self._translator.register(ns, raw_call["id"], raw_call["name"], raw_call["args"])
        calls.enter(graph.ns, call)
        yield from self._translator.start(ns, call)

    def _replay_message(self, graph: StoredGraph, message: AIMessage) -> Iterator[AnyEvent]:
        self._message_ids |= {str(message.id), f"{message.id}:answer"}
        for raw_call in message.tool_calls:
            base_id = self._translator.calls.base_id(graph.ns, raw_call["id"] or "")
            self._stored_calls[base_id] = (graph.ns, raw_call)
        yield from self._translator.end_message(graph.ns, message)
        # An earlier call of the answer tool did not fit the schema.
        if not graph.ns and message is graph.last_ai_message():
            yield from self._translator.end_stored_answer(message)

    def _replay_result(self, graph: StoredGraph, message: ToolMessage) -> Iterator[AnyEvent]:
        translator = self._translator
        base_id = translator.calls.base_id(graph.ns, message.tool_call_id)
        _, raw_call = self._stored_calls.get(base_id, (graph.ns, None))
        if raw_call is None or translator.is_silent(raw_call["name"]):
            return
        call = translator.register(graph.ns, message.tool_call_id, raw_call["name"], raw_call["args"])
        yield from translator.start(graph.ns, call)
        for inner in [other for other in self._pending if other.call_id == call.call_id]:
            self._pending.remove(inner)
            if translator.calls.delegation(inner.ns) is None:
                translator.calls.enter(inner.ns, call)
            yield from self._replay_graph(inner)
        yield from translator.finish(graph.ns, message)

    def _discard_lost_texts(self) -> Iterator[AnyEvent]:
        """Takes back the texts that are in no stored state: their model call is made again."""
        ended_calls = self._translator.emitted.ended_call_ids()
        for span in self._translator.emitted.transcript.spans:
            if span.message_id.partition("#")[0] in self._message_ids:
                continue
            is_remote = span.parent_call is not None and span.message_id.startswith(f"{span.parent_call}/")
            if is_remote or span.parent_call in ended_calls:
                continue  # a remote agent is followed on; the text of a delegation that is over stays
            yield TextDiscarded(
                message_id=span.message_id, reason="crash", agent=span.agent, parent_call=span.parent_call
            )
