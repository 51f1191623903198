"""Reading the messages of a graph's state: the question that is worked on, and what happened since."""

from collections.abc import Sequence

from langchain_core.messages import AIMessage, AnyMessage, HumanMessage


def find_question(messages: Sequence[AnyMessage]) -> HumanMessage | None:
    """The last message of a user: the question that the graph works on."""
    for message in reversed(messages):
        if isinstance(message, HumanMessage):
            return message
    return None


def find_last_model_message(messages: Sequence[AnyMessage]) -> AIMessage | None:
    for message in reversed(messages):
        if isinstance(message, AIMessage):
            return message
    return None


def current_turn(messages: Sequence[AnyMessage]) -> Sequence[AnyMessage]:
    """The messages after the last question."""
    for index in range(len(messages) - 1, -1, -1):
        if isinstance(messages[index], HumanMessage):
            return messages[index + 1 :]
    return messages
