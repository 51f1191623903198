"""The untrusted content of a conversation, read from the messages that a model has seen.

The messages are stored with the checkpoint, so nothing is forgotten after a pause, a restart or a summary.
"""

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage

from ai_platform_engineering.core.message_metadata import (
    DirectCallNote,
    ResultSource,
    WorkflowRequest,
    WorkflowStart,
    WorkflowStepNote,
    read_untrusted_content,
)
from ai_platform_engineering.core.skills import SkillRegistry
from ai_platform_engineering.core.tool_traits import ToolTraits
from ai_platform_engineering.core.untrusted_content import MAX_WORDS_CHARS, UntrustedContent
from ai_platform_engineering.multi_agents.platform_engineer.turn_messages import (
    find_last_model_message,
    find_question,
)

TRUSTED_ORIGINS = frozenset({"shipped", "folder"})  # skills of the product and of the operator


@dataclass(frozen=True, slots=True)
class ThirdPartyDefinitions:
    """The third parties whose descriptions stand in an agent's prompt: MCP servers, and authors of skills."""

    servers: tuple[str, ...] = ()
    skills: SkillRegistry | None = None

    async def list_sources(self, own_server: str | None = None) -> tuple[str, ...]:
        """The sources. A server's descriptions are believed of its own tools, as its annotations are."""
        sources = [f"the tool descriptions of {name}" for name in self.servers if name != own_server]
        if self.skills is None:
            return tuple(sources)
        for skill in await self.skills.list_usable():
            if skill.origin not in TRUSTED_ORIGINS:
                sources.append(f"the description of the skill {skill.name}")
        return tuple(sources)


def find_result_source(message: ToolMessage) -> str | None:
    """The source of an untrusted result; None for a result of the product's own.

    A result without a note of its source is judged by its tool's name.
    """
    source = ResultSource.of(message)
    if source is not None:
        return source.untrusted_source
    traits = ToolTraits.from_name(message.name or "")
    if traits.is_own and not traits.delegates:
        return None
    return message.name or "a tool"


def read_content(messages: Sequence[AnyMessage]) -> UntrustedContent:
    """The untrusted content in a conversation, with what people said in it."""
    results: list[str] = []
    definitions: list[str] = []
    words: list[str] = []
    for message in messages:
        if isinstance(message, ToolMessage):
            source = find_result_source(message)
            if source is not None:
                results.append(source)
            elif ToolTraits.from_name(message.name or "").asks_person:
                words.append(message.text)
        elif isinstance(message, HumanMessage):
            delegated = read_untrusted_content(message)
            if delegated is None:
                words.append(_read_words(message))
            else:
                results += delegated.results
                definitions += delegated.definitions
                words.append(delegated.words)
    return UntrustedContent(_unique(results), _unique(definitions), _join_words(words))


def read_delegated_content(messages: Sequence[AnyMessage], definitions: Sequence[str]) -> UntrustedContent:
    """The untrusted content behind a delegation; empty for a workflow's step without results of others.

    A workflow delegates what its template says, whatever the model has read.
    """
    if _is_workflow_template(messages):
        return UntrustedContent()
    content = read_content(messages)
    return replace(content, definitions=_unique([*content.definitions, *definitions]))


def read_content_before_call(messages: Sequence[AnyMessage], call_id: str | None) -> UntrustedContent:
    """The untrusted content that could have led to a call.

    A direct tool call was ordered with the question: what the agent has read itself did not lead to it.
    """
    question = find_question(messages)
    if question is not None and call_id == f"{question.id}:call" and DirectCallNote.of(question) is not None:
        return read_untrusted_content(question) or UntrustedContent()
    return read_content(messages)


def _is_workflow_template(messages: Sequence[AnyMessage]) -> bool:
    """Whether a workflow made the last message, for a step that fills in nothing but people's values."""
    last_message = find_last_model_message(messages)
    if last_message is None:
        return False
    step = WorkflowStepNote.of(last_message).step
    for message in reversed(messages):
        start = WorkflowStart.of(message)
        if start is not None:
            return step is not None and not start.workflow.fills_in_results(step)
    return False


def _read_words(question: HumanMessage) -> str:
    """The question, with the values of the workflow or of the direct call that came with it."""
    values: list[Any] = []
    workflow = WorkflowRequest.of(question)
    if workflow is not None:
        values.append(workflow.values)
    direct_call = DirectCallNote.of(question)
    if direct_call is not None and direct_call.call is not None:
        values.append(direct_call.call.arguments)
    texts = [question.text, *(json.dumps(value, ensure_ascii=False) for value in values)]
    return "\n".join(texts)


def _join_words(texts: Sequence[str]) -> str:
    """What people said, the newest first, up to the limit."""
    return "\n".join(reversed(texts))[:MAX_WORDS_CHARS]


def _unique(sources: Sequence[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sources))
