"""Message metadata: typed notes that travel with a message and are not shown to the model.

This module alone knows the keys of our notes in `additional_kwargs`. Checkpoints store them: neither the keys
nor the fields can be renamed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, cast

from pydantic import JsonValue

from ai_platform_engineering.core.events import ToolOutcome
from ai_platform_engineering.core.named_targets import NamedTargets
from ai_platform_engineering.core.run_budget import RunBudget, RunUsage
from ai_platform_engineering.core.run_scope import RunScope
from ai_platform_engineering.core.untrusted_content import UntrustedContent
from ai_platform_engineering.core.workflow_actions import DirectToolCall
from ai_platform_engineering.core.workflows import Workflow

# On questions.
_DIRECT_CALL = "call"
_SCOPE = "scope"
_WORKFLOW = "workflow"  # the one to start; on other messages the one that begins with the message
_UNTRUSTED = "untrusted"  # what the sender had read before it wrote the question
_BUDGET = "budget"  # of a delegation
# On messages in place of the model's.
_WORKFLOW_STEP = "workflow_step"
_FAILED_STEPS = "workflow_failed"
_DIRECT_CALLS = "ordered_calls"
# On the model's messages.
_LEFT_OUT = "calls_left_out"
_MODEL_CALLS = "model_calls"
_UNREPORTED_TOKENS = "unreported_tokens"
# On tool results.
_OUTCOME = "outcome"
_PLAIN_TEXT = "plain"
_SKILL = "skill"
_SKILL_FILE = "skill_file"
_SAME_CALL = "same_call"
_USAGE = "usage"
_RESULT_SOURCE = "source"
_FOUND_TOOLS = "found_tools"
_STORED_RESULT = "stored_result"
_STORED_IMAGES = "stored_images"

_NEEDS_MODEL: Mapping[str, Any] = {"words": True}


class Message(Protocol):
    """The part of a LangChain message that holds its metadata."""

    @property
    def additional_kwargs(self) -> dict[str, Any]: ...


# --- questions ----------------------------------------------------------------------------------------------


def read_scope(question: Message) -> RunScope:
    """The scope of a question, or one without restrictions."""
    return RunScope.model_validate(question.additional_kwargs.get(_SCOPE) or {})


def scope_metadata(scope: RunScope) -> dict[str, Any]:
    return {_SCOPE: scope.model_dump(mode="json", exclude_none=True)}


@dataclass(frozen=True, slots=True)
class DirectCallNote:
    """How an agent answers a question: with one tool, without its model; or only with a language model."""

    call: DirectToolCall | None = (
        None  # None: the text needs a language model, the embedded router would guess
    )

    @classmethod
    def of(cls, question: Message) -> "DirectCallNote | None":
        return cls.from_data(question.additional_kwargs.get(_DIRECT_CALL))

    @classmethod
    def from_data(cls, data: Any) -> "DirectCallNote | None":
        """The note in the form in which delegations and A2A messages carry it."""
        if not isinstance(data, Mapping):
            return None
        if not data.get("tool"):
            return cls()
        targets = NamedTargets.from_data(data.get("targets"))
        return cls(DirectToolCall(str(data["tool"]), data.get("arguments") or {}, targets))

    def to_data(self) -> dict[str, Any]:
        if self.call is None:
            return dict(_NEEDS_MODEL)
        data: dict[str, Any] = {"tool": self.call.tool, "arguments": self.call.arguments}
        if self.call.defined_targets != NamedTargets():
            data["targets"] = self.call.defined_targets.to_data(str(self.call.arguments))
        return data

    def to_metadata(self) -> dict[str, Any]:
        return {_DIRECT_CALL: self.to_data()}


@dataclass(frozen=True, slots=True)
class WorkflowRequest:
    """The workflow that a question starts, with values for its form."""

    name: str
    values: Mapping[str, JsonValue]

    @classmethod
    def of(cls, question: Message) -> "WorkflowRequest | None":
        data = question.additional_kwargs.get(_WORKFLOW)
        if not isinstance(data, Mapping):
            return None
        return cls(str(data.get("name")), data.get("values") or {})

    def to_metadata(self) -> dict[str, Any]:
        return {_WORKFLOW: {"name": self.name, "values": self.values}}


def read_untrusted_content(question: Message) -> UntrustedContent | None:
    """The untrusted content that a delegating model had read; None for a question of a person's."""
    return UntrustedContent.from_data(question.additional_kwargs.get(_UNTRUSTED))


def untrusted_metadata(content: UntrustedContent) -> dict[str, Any]:
    return {_UNTRUSTED: content.to_data()}


def read_budget(question: Message) -> RunBudget | None:
    """The part of the run's budget that a delegation got; None for a question of a person's."""
    return RunBudget.from_data(question.additional_kwargs.get(_BUDGET))


def budget_metadata(budget: RunBudget) -> dict[str, Any]:
    return {_BUDGET: budget.to_data()}


# --- messages in place of the model's -----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class WorkflowStart:
    """The workflow that begins with a message, with its definition: the file may change while it runs."""

    workflow: Workflow
    values: Mapping[str, JsonValue]  # those that the user gave for its form

    @classmethod
    def of(cls, message: Message) -> "WorkflowStart | None":
        data = message.additional_kwargs.get(_WORKFLOW)
        if not isinstance(data, Mapping) or "definition" not in data:
            return None
        return cls(Workflow.model_validate(data["definition"]), data.get("given") or {})

    def to_metadata(self) -> dict[str, Any]:
        return {_WORKFLOW: {"definition": self.workflow.model_dump(mode="json"), "given": dict(self.values)}}


@dataclass(frozen=True, slots=True)
class WorkflowStepNote:
    """The step that a message works on, and steps that failed without being tried, with the reason."""

    step: str | None = None
    failed_steps: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, message: Message) -> "WorkflowStepNote":
        metadata = message.additional_kwargs
        return cls(metadata.get(_WORKFLOW_STEP), metadata.get(_FAILED_STEPS) or {})

    def to_metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if self.step is not None:
            metadata[_WORKFLOW_STEP] = self.step
        if self.failed_steps:
            metadata[_FAILED_STEPS] = dict(self.failed_steps)
        return metadata


def find_direct_call(message: Message, call_id: str | None) -> DirectCallNote | None:
    """The note that a delegating message carries for one of its `task` calls."""
    direct_calls: Mapping[str | None, Any] = message.additional_kwargs.get(_DIRECT_CALLS) or {}
    return DirectCallNote.from_data(direct_calls.get(call_id))


def direct_calls_metadata(direct_calls: Mapping[str, DirectCallNote]) -> dict[str, Any]:
    """The notes for `task` calls of a delegating message, by call id."""
    return {_DIRECT_CALLS: {call_id: note.to_data() for call_id, note in direct_calls.items()}}


@dataclass(frozen=True, slots=True)
class LeftOutCallsNote:
    """How many calls of a model message were over the budget and are not part of it."""

    count: int

    @classmethod
    def of(cls, message: Message) -> "LeftOutCallsNote | None":
        count = message.additional_kwargs.get(_LEFT_OUT)
        if not isinstance(count, int) or count <= 0:
            return None
        return cls(count)

    def to_metadata(self) -> dict[str, Any]:
        return {_LEFT_OUT: self.count}


def read_model_calls(message: Message) -> int:
    """How many calls of a model it took to get a message: one, and those that were made again."""
    count = message.additional_kwargs.get(_MODEL_CALLS)
    if not isinstance(count, int):
        return 1
    return count


def model_calls_metadata(count: int) -> dict[str, Any]:
    return {_MODEL_CALLS: count}


def read_unreported_tokens(message: Message) -> int:
    """The tokens that a message took beyond those of its `usage_metadata`: of attempts that were dropped, and
    an estimate where the provider reported none."""
    count = message.additional_kwargs.get(_UNREPORTED_TOKENS)
    if not isinstance(count, int):
        return 0
    return count


def unreported_tokens_metadata(count: int) -> dict[str, Any]:
    return {_UNREPORTED_TOKENS: count}


# --- tool results -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class ToolResultNote:
    """What a tool result says beyond its status and its text for the model."""

    outcome: ToolOutcome | None = None  # None where the status of the message says it
    plain_text: str | None = None  # the text without what only the model is told

    @classmethod
    def of(cls, result: Message) -> "ToolResultNote":
        metadata = result.additional_kwargs
        return cls(cast(ToolOutcome | None, metadata.get(_OUTCOME)), metadata.get(_PLAIN_TEXT))

    def to_metadata(self) -> dict[str, Any]:
        metadata: dict[str, Any] = {}
        if self.outcome is not None:
            metadata[_OUTCOME] = self.outcome
        if self.plain_text is not None:
            metadata[_PLAIN_TEXT] = self.plain_text
        return metadata


@dataclass(frozen=True, slots=True)
class ResultSource:
    """Where the text of a tool result came from. None for a text of the product's own."""

    untrusted_source: str | None

    @classmethod
    def of(cls, result: Message) -> "ResultSource | None":
        """The source that was noted with the result; None when none was."""
        if _RESULT_SOURCE not in result.additional_kwargs:
            return None
        source = result.additional_kwargs[_RESULT_SOURCE]
        return cls(None if source is None else str(source))

    def to_metadata(self) -> dict[str, Any]:
        return {_RESULT_SOURCE: self.untrusted_source}


@dataclass(frozen=True, slots=True)
class FoundToolsNote:
    """The tools that a search has found; they are bound from its result on."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, result: Message) -> "FoundToolsNote | None":
        names = result.additional_kwargs.get(_FOUND_TOOLS)
        if not isinstance(names, list | tuple):
            return None
        return cls(tuple(map(str, names)))

    def to_metadata(self) -> dict[str, Any]:
        return {_FOUND_TOOLS: list(self.names)}


@dataclass(frozen=True, slots=True)
class StoredResultNote:
    """The id under which the run log stores a result that was too long for its message."""

    result_id: str

    @classmethod
    def of(cls, result: Message) -> "StoredResultNote | None":
        result_id = result.additional_kwargs.get(_STORED_RESULT)
        if not isinstance(result_id, str):
            return None
        return cls(result_id)

    def to_metadata(self) -> dict[str, Any]:
        return {_STORED_RESULT: self.result_id}


@dataclass(frozen=True, slots=True)
class StoredImage:
    """An image of a result, and the id under which the run log stores it in base64."""

    result_id: str
    mime_type: str


@dataclass(frozen=True, slots=True)
class StoredImagesNote:
    """The images of a result, in the order of its text, which describes them."""

    images: tuple[StoredImage, ...]

    @classmethod
    def of(cls, result: Message) -> "StoredImagesNote | None":
        data = result.additional_kwargs.get(_STORED_IMAGES)
        if not isinstance(data, list | tuple):
            return None
        return cls(tuple(StoredImage(str(item["id"]), str(item["type"])) for item in data))

    def to_metadata(self) -> dict[str, Any]:
        return {_STORED_IMAGES: [{"id": image.result_id, "type": image.mime_type} for image in self.images]}


@dataclass(frozen=True, slots=True)
class ActiveSkill:
    """A skill that is active from a tool result on. `allowed`: the only tools and agents; empty for all."""

    name: str
    version: str
    allowed: tuple[str, ...] = ()

    @classmethod
    def of(cls, result: Message) -> "ActiveSkill | None":
        data = result.additional_kwargs.get(_SKILL)
        if not isinstance(data, Mapping):
            return None
        return cls(str(data["name"]), str(data["version"]), tuple(data.get("allowed") or ()))

    def to_metadata(self) -> dict[str, Any]:
        return {_SKILL: {"name": self.name, "version": self.version, "allowed": list(self.allowed)}}


@dataclass(frozen=True, slots=True)
class SkillFileNote:
    """The skill file whose text the model sees in place of a tool result, from an offset on."""

    name: str  # of the skill
    version: str
    path: str
    offset: int = 0

    @classmethod
    def of(cls, result: Message) -> "SkillFileNote | None":
        data = result.additional_kwargs.get(_SKILL_FILE)
        if not isinstance(data, Mapping):
            return None
        offset = int(data.get("offset") or 0)
        return cls(str(data["name"]), str(data["version"]), str(data["path"]), offset)

    def to_metadata(self) -> dict[str, Any]:
        return {
            _SKILL_FILE: {
                "name": self.name,
                "version": self.version,
                "path": self.path,
                "offset": self.offset,
            }
        }


@dataclass(frozen=True, slots=True)
class RepeatedCallNote:
    """What the loop guard compares of a call and its result, and why it ends the use of tools."""

    fingerprint: str  # of the call with its result; of a delegation without it
    count: int
    similar_fingerprint: str = ""  # the same without the numbers in its arguments
    source: str = ""  # the tool, or the agent of a delegation
    failed: bool = False
    reason: str = ""  # why no tool may be used from here on, in words for people; empty while they may

    @classmethod
    def of(cls, result: Message) -> "RepeatedCallNote | None":
        data = result.additional_kwargs.get(_SAME_CALL)
        if not isinstance(data, Mapping):
            return None
        return cls(
            str(data["mark"]),
            int(data.get("count", 0)),
            str(data.get("similar") or ""),
            str(data.get("source") or ""),
            bool(data.get("failed")),
            str(data.get("reason") or ""),
        )

    def to_metadata(self) -> dict[str, Any]:
        data: dict[str, Any] = {"mark": self.fingerprint, "count": self.count}
        optional = {
            "similar": self.similar_fingerprint,
            "source": self.source,
            "failed": self.failed,
            "reason": self.reason,
        }
        data.update({name: value for name, value in optional.items() if value})
        return {_SAME_CALL: data}


def read_usage(result: Message) -> RunUsage:
    """What the agent behind the result of a delegation has used."""
    return RunUsage.from_data(result.additional_kwargs.get(_USAGE))


def usage_metadata(usage: RunUsage) -> dict[str, Any]:
    return {_USAGE: usage.to_data()}
