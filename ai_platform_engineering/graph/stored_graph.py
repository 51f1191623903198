"""The stored state of a graph whose process died."""

from dataclasses import dataclass

from langchain_core.messages import AIMessage, AnyMessage

from ai_platform_engineering.graph.text_streams import Namespace


@dataclass(frozen=True, slots=True)
class StoredGraph:
    """The stored state of one graph of the run.

    `call_id` is the delegation that a sub-agent's graph works on; None for the root graph, empty for a graph
    that a tool runs on its own. `messages` are those of the current question.
    """

    ns: Namespace
    call_id: str | None
    messages: tuple[AnyMessage, ...]

    def last_ai_message(self) -> AIMessage | None:
        for message in reversed(self.messages):
            if isinstance(message, AIMessage):
                return message
        return None
