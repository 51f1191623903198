"""The events of a run: the only definition of what a run stores and streams."""

import math
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeGuard

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    TypeAdapter,
)

from ai_platform_engineering.core.decisions import APPROVE, EDIT, REJECT
from ai_platform_engineering.core.storable_text import clean_text

SUPERVISOR = "supervisor"
_DEEPEST = 100  # Python's own JSON and pydantic give up on deeper values


def clean_json(value: Any, depth: int = 0) -> JsonValue:
    """The value as plain JSON: what JSON cannot say becomes text, so every event can be stored and sent."""
    if value is None or isinstance(value, bool | int):
        return value
    if isinstance(value, str):
        return clean_text(value)
    if isinstance(value, float):
        if math.isfinite(value):
            return value
        return str(value)
    if isinstance(value, Mapping | list | tuple) and depth >= _DEEPEST:
        return "[too deep]"
    if isinstance(value, Mapping):
        return {clean_text(str(key)): clean_json(item, depth + 1) for key, item in value.items()}
    if isinstance(value, Sequence) and not isinstance(value, bytes | bytearray):
        return [clean_json(item, depth + 1) for item in value]
    return clean_text(str(value))


def _finite_or_none(value: float | None) -> float | None:
    if value is not None and math.isfinite(value):
        return value
    return None


def _clean_if_text(value: Any) -> Any:
    if isinstance(value, str):
        return clean_text(value)
    return value


Text = Annotated[str, BeforeValidator(_clean_if_text)]  # before: pydantic itself refuses lone surrogates
Json = Annotated[JsonValue, BeforeValidator(clean_json)]
JsonObject = Annotated[dict[str, JsonValue], BeforeValidator(clean_json)]
Amount = Annotated[float | None, AfterValidator(_finite_or_none)]  # JSON has no infinity


class FrozenModel(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")


# --- values that events carry -------------------------------------------------------------------------------


class TextPart(FrozenModel):
    type: Literal["text"] = "text"
    text: Text


class DataPart(FrozenModel):
    type: Literal["data"] = "data"
    data: Json


class FilePart(FrozenModel):
    """A text file that a user attached; other files are refused when the message is accepted."""

    type: Literal["file"] = "file"
    name: Text
    media_type: Text
    text: Text


Part = Annotated[TextPart | DataPart | FilePart, Field(discriminator="type")]

StepStatus = Literal["pending", "in_progress", "completed", "failed", "skipped"]


class PlanStep(FrozenModel):
    step_id: Text
    title: Text
    agent: Text
    status: StepStatus = "pending"


class Citation(FrozenModel):
    title: Text
    url: Text | None = None
    document_id: Text | None = None
    # By which the answer's text names it, as `[3]`; None in what was stored before numbers were.
    number: int | None = None


def number_sources(citations: Sequence[Citation]) -> list[tuple[int, Citation]]:
    """The sources of an answer, each with its number: the place in the list where it has none."""
    return [(citation.number or place, citation) for place, citation in enumerate(citations, 1)]


_CACHE_CREATION_DETAILS = ("ephemeral_5m_input_tokens", "ephemeral_1h_input_tokens")


class CachedTokens(NamedTuple):
    """Input tokens that a prompt cache had, and those that it stored."""

    read: int
    created: int

    @classmethod
    def of(cls, usage: Mapping[str, Any]) -> "CachedTokens":
        """From LangChain's `usage_metadata`, or from the fields of a Usage."""
        details = usage.get("input_token_details") or {}
        read = usage.get("cache_read_tokens") or details.get("cache_read") or 0
        created = usage.get("cache_creation_tokens") or details.get("cache_creation")
        if not created:  # Anthropic's are told apart by how long they are stored
            created = sum(details.get(name) or 0 for name in _CACHE_CREATION_DETAILS)
        return cls(int(read), int(created))


class Usage(FrozenModel):
    input_tokens: int = 0
    output_tokens: int = 0
    # Of all agents of the run; None where nobody counted them, as in a third-party agent.
    model_calls: int | None = None
    tool_calls: int | None = None
    # Of the input: what the provider's prompt cache had, and what it stored; None without any.
    cache_read_tokens: int | None = None
    cache_creation_tokens: int | None = None

    def plus(self, more: Mapping[str, Any]) -> "Usage":
        """The sum with the `usage_metadata` of another message, or with the fields of another usage."""
        cache = CachedTokens.of(more)
        return Usage(
            input_tokens=self.input_tokens + int(more.get("input_tokens") or 0),
            output_tokens=self.output_tokens + int(more.get("output_tokens") or 0),
            model_calls=self.model_calls,
            tool_calls=self.tool_calls,
            cache_read_tokens=(self.cache_read_tokens or 0) + cache.read or None,
            cache_creation_tokens=(self.cache_creation_tokens or 0) + cache.created or None,
        )


FieldType = Literal[
    "text", "textarea", "select", "multiselect", "boolean", "integer", "number", "date", "url", "email"
]


class InputField(FrozenModel):
    field_name: Text
    field_label: Text | None = None
    field_description: Text | None = None
    field_type: FieldType = "text"
    field_values: tuple[Text, ...] | None = None
    default_value: Json = None
    required: bool = True
    value: Json = None
    placeholder: Text | None = None
    pattern: Text | None = None
    minimum: Amount = None
    maximum: Amount = None
    min_length: int | None = None
    max_length: int | None = None


FREE_TEXT_FIELD = InputField(field_name="answer", field_label="Answer", field_type="textarea")


class Form(FrozenModel):
    """Values that a person is asked for."""

    type: Literal["form"] = "form"
    title: Text | None = None
    description: Text | None = None
    response: Text = ""
    fields: tuple[InputField, ...] = ()
    expires_at: AwareDatetime | None = None

    @property
    def takes_text(self) -> bool:
        """Whether a plain text answers the form: it has one text field."""
        return len(self.fields) == 1 and self.fields[0].field_type in ("text", "textarea")

    def describe(self) -> str:
        """The form in a few words, for a sentence; a question keeps its mark."""
        return self.title or self.response.strip().rstrip(".:!") or "a form"


Decision = Literal["approve", "edit", "reject"]


class Approval(FrozenModel):
    """A tool call that waits for a person's decision; `digest` is that of the exact call.

    Edited arguments are checked against `arguments_schema`, the part of the tool's schema that is checked.
    """

    type: Literal["approval"] = "approval"
    tool: Text
    arguments: JsonObject
    arguments_schema: JsonObject | None = None
    reason: Text = ""
    allowed: tuple[Decision, ...] = (APPROVE, EDIT, REJECT)
    digest: Text = ""
    expires_at: AwareDatetime | None = None

    @property
    def takes_text(self) -> bool:
        return False  # a decision is never read out of a sentence

    def describe(self) -> str:
        return f"a decision on {self.tool}"


RequestedInput = Annotated[Form | Approval, Field(discriminator="type")]

# --- events -------------------------------------------------------------------------------------------------


class _Event(FrozenModel):
    agent: Text = SUPERVISOR
    parent_call: Text | None = None  # the delegation inside which it happened; None for the supervisor's own


class RunStarted(_Event):
    kind: Literal["run_started"] = "run_started"
    message_id: Text
    parts: tuple[Part, ...]
    owner: Text = ""
    principal: Text = ""
    queued: bool = False  # other questions are before it; a notice says when work begins


class MessageReceived(_Event):
    """A person's message to a run that waits: an answer, or what was taken for one."""

    kind: Literal["message_received"] = "message_received"
    message_id: Text
    parts: tuple[Part, ...]
    principal: Text = ""


class TextDelta(_Event):
    """A piece of a message; `offset` counts the characters before it, so 0 starts the message."""

    kind: Literal["text_delta"] = "text_delta"
    message_id: Text
    offset: int
    text: Text
    step_id: Text | None = None
    slot: Text | None = None  # the first attempt's message id when this message replaces a discarded one


TextRole = Literal["narration", "answer", "delegated"]


class TextEnded(_Event):
    kind: Literal["text_ended"] = "text_ended"
    message_id: Text
    role: TextRole
    slot: Text | None = None


class TextDiscarded(_Event):
    """The message is void: its model call was retried, or was lost in a crash."""

    kind: Literal["text_discarded"] = "text_discarded"
    message_id: Text
    reason: Text = ""
    slot: Text | None = None


class ToolStarted(_Event):
    """`tool` is the called agent's name when the call delegates."""

    kind: Literal["tool_started"] = "tool_started"
    call_id: Text
    tool: Text
    delegates: bool = False
    knowledge: bool = False  # a knowledge base tool: text after it is no echo
    arguments: JsonObject = Field(default_factory=dict)
    step_id: Text | None = None


class ToolProgress(_Event):
    kind: Literal["tool_progress"] = "tool_progress"
    call_id: Text
    tool: Text
    text: Text = ""
    done: Amount = None
    total: Amount = None


ToolOutcome = Literal["ok", "error", "unknown"]


class ToolFinished(_Event):
    kind: Literal["tool_finished"] = "tool_finished"
    call_id: Text
    tool: Text
    delegates: bool = False
    knowledge: bool = False
    outcome: ToolOutcome = "ok"
    error: Text | None = None
    result: Text | None = None  # the beginning of the result, for people; the model got all of it
    step_id: Text | None = None


class PlanUpdated(_Event):
    """Always the whole plan, in order."""

    kind: Literal["plan_updated"] = "plan_updated"
    title: Text = ""
    steps: tuple[PlanStep, ...] = ()


class InputRequested(_Event):
    kind: Literal["input_requested"] = "input_requested"
    request_id: Text
    asked: RequestedInput


Resolution = Literal["answered", "approved", "edited", "rejected", "expired", "withdrawn"]


class InputResolved(_Event):
    kind: Literal["input_resolved"] = "input_resolved"
    request_id: Text
    resolution: Resolution
    by: Text = ""
    value: Json = None


NoticeCode = Literal[
    "offline_model", "fallback", "loop_guard", "queue", "recovery", "retry", "limit", "info", "skill"
]


class Notice(_Event):
    kind: Literal["notice"] = "notice"
    code: NoticeCode
    text: Text
    position: int | None = None  # how many questions are before this run, which has not begun


class Paused(_Event):
    """The run waits for people.

    `wrong` are the errors of the last answer, by request and field. `held` is a text that was no answer: it
    becomes a question when the requests are dropped.
    """

    kind: Literal["paused"] = "paused"
    text: Text
    requests: tuple[Text, ...] = ()
    wrong: dict[str, dict[str, Text]] = Field(default_factory=dict)
    held: Text | None = None


class Answered(_Event):
    kind: Literal["answered"] = "answered"
    text: Text
    trace_id: Text
    data: Json = None
    citations: tuple[Citation, ...] = ()
    usage: Usage | None = None
    message_id: Text | None = None  # of the message with exactly this text, if it was streamed
    slot: Text | None = None


class Failed(_Event):
    kind: Literal["failed"] = "failed"
    message: Text
    trace_id: Text
    code: Text = "internal"
    retryable: bool = True
    partial: Text | None = None
    usage: Usage | None = None


class Cancelled(_Event):
    kind: Literal["cancelled"] = "cancelled"
    trace_id: Text
    by: Text = ""
    partial: Text | None = None
    usage: Usage | None = None


AnyEvent = (
    RunStarted
    | MessageReceived
    | TextDelta
    | TextEnded
    | TextDiscarded
    | ToolStarted
    | ToolProgress
    | ToolFinished
    | PlanUpdated
    | InputRequested
    | InputResolved
    | Notice
    | Paused
    | Answered
    | Failed
    | Cancelled
)
Event = Annotated[AnyEvent, Field(discriminator="kind")]

EVENT_ADAPTER: TypeAdapter[AnyEvent] = TypeAdapter(Event)
PARTS_ADAPTER: TypeAdapter[tuple[TextPart | DataPart | FilePart, ...]] = TypeAdapter(tuple[Part, ...])


TerminalEvent = Answered | Failed | Cancelled


def is_terminal(event: AnyEvent) -> TypeGuard[TerminalEvent]:
    """Whether it is the last event of a run."""
    return isinstance(event, TerminalEvent)


def ends_turn(event: AnyEvent) -> bool:
    """Whether a stream that follows the run closes after it."""
    return is_terminal(event) or isinstance(event, Paused)


class StoredEvent(NamedTuple):
    """An event of a run's log: its number, and when it was stored."""

    seq: int
    stored_at: datetime
    event: AnyEvent
