"""Elicitation: what an MCP server asks people during a tool call, as forms of ours, and their answers."""

from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field

from ai_platform_engineering.core.decisions import CANCEL, DECISION_KEY
from ai_platform_engineering.core.events import FieldType, Form, InputField, Json, clean_json
from ai_platform_engineering.core.forms import is_declined
from ai_platform_engineering.core.text_patterns import UnsupportedPattern, check_pattern
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor

MAX_QUESTIONS = 20  # of one call, over all its rounds
_MAX_FIELDS = 50
_MAX_CHOICES = 200
_MAX_MESSAGE_CHARS = 4000
_MAX_LABEL_CHARS = 300
_MAX_URL_CHARS = 4000
_CONFIRM_FIELD = "done"
_FORMATS: Mapping[str, FieldType] = {"email": "email", "uri": "url", "date": "date"}
_FORMAT_HINTS = {"date-time": "2026-01-31T12:00:00Z"}

ElicitationAction = Literal["accept", "decline", "cancel"]


class ServerQuestion(BaseModel):
    """One elicitation of a server, as a form."""

    model_config = ConfigDict(frozen=True)

    form: Form
    key: str = ""
    """Its name in a result that requires input."""
    is_link: bool = False
    """The person is asked to open an address; what happens there does not pass through us."""
    choices: dict[str, dict[str, Json]] = Field(default_factory=dict)
    """By field: the value of each choice that the server shows under another title."""


class ElicitationAnswer(BaseModel):
    """A person's answer in the protocol's terms; `content` is that of an accepted form."""

    model_config = ConfigDict(frozen=True)

    action: ElicitationAction
    content: dict[str, Json] | None = None


class CallPause(BaseModel):
    """What a tool call waits for; stored in the journal, so that a restart does not lose it."""

    model_config = ConfigDict(frozen=True)

    questions: tuple[ServerQuestion, ...]
    kind: Literal["open", "retry", "repeat"]
    """Open: the server waits with the call. Retry: the call is sent again with the answers. Repeat: it is
    sent again as it was, once people have been where the server sent them."""
    request_state: str | None = None
    """What a retry gives back to the server; its own text."""
    asked_before: int = 0
    """How many questions of this call were answered in earlier rounds."""
    earlier: tuple[ServerQuestion, ...] = ()
    """These questions, for a server that has lost their answers; without those before a crash in the call."""


class AnsweredQuestion(NamedTuple):
    """A question and what a person has answered."""

    question: ServerQuestion
    answer: ElicitationAnswer


class CallPaused(Exception):
    """A tool call waits for people; nobody knows its result yet."""

    def __init__(self, pause: CallPause) -> None:
        super().__init__("The tool call waits for an answer.")
        self.pause = pause


@dataclass(frozen=True, slots=True)
class ResumableCall:
    """A tool call whose server may ask people: who made it, and what it waited for, with the answers."""

    key: str
    """The call's key, the same when its graph is resumed."""
    run_id: str
    is_repeatable: bool
    """A second call does no harm."""
    asked_count: int = 0
    """How many of its questions were answered so far."""
    pause: CallPause | None = None
    answers: tuple[ElicitationAnswer, ...] = ()
    earlier: tuple[AnsweredQuestion, ...] = ()
    """The questions of earlier rounds."""

    @property
    def answered(self) -> tuple[AnsweredQuestion, ...]:
        """All questions of the call that were answered."""
        if self.pause is None:
            return self.earlier
        pairs = zip(self.pause.questions, self.answers, strict=True)
        return (*self.earlier, *(AnsweredQuestion(question, answer) for question, answer in pairs))


resumable_call: ContextVar[ResumableCall | None] = ContextVar("resumable_call", default=None)
"""The tool call that runs in this context; without one nobody can be asked, and servers are told so."""


def read_question(
    server: str, tool: str, params: Mapping[str, Any], redactor: SecretRedactor, key: str = ""
) -> ServerQuestion | None:
    """The form for the parameters of `elicitation/create`; None for what cannot be asked."""
    message = redactor.redact(str(params.get("message") or ""))[:_MAX_MESSAGE_CHARS]
    title = f"{server} asks, for {tool}"
    if params.get("mode") == "url":
        return _read_link(title, message, str(params.get("url") or ""), key)
    schema = params.get("requestedSchema")
    if not isinstance(schema, Mapping):
        return None
    properties = schema.get("properties")
    if not isinstance(properties, Mapping) or len(properties) > _MAX_FIELDS:
        return None
    required = schema.get("required")
    if not isinstance(required, Sequence):
        required = ()
    choices = dict[str, dict[str, Json]]()
    fields = list[InputField]()
    for name, definition in properties.items():
        if not isinstance(definition, Mapping):
            return None
        titles = _read_choices(definition)
        if titles:
            choices[name] = titles
        fields.append(_read_field(str(name), definition, titles, is_required=name in required))
    if not fields:
        fields = [_CONFIRMATION]
    form = Form(title=title, response=message, fields=tuple(fields))
    return ServerQuestion(form=form, key=key, choices=choices)


def read_answer(question: ServerQuestion, values: Mapping[str, Any]) -> ElicitationAnswer:
    """A person's values, or their refusal, in the protocol's terms."""
    if is_declined(question.form, values):
        action: ElicitationAction = "cancel" if values.get(DECISION_KEY) == CANCEL else "decline"
        return ElicitationAnswer(action=action)
    if question.form.fields == (_CONFIRMATION,):
        if values.get(_CONFIRM_FIELD) is not True:
            return ElicitationAnswer(action="decline")
        return ElicitationAnswer(action="accept", content=None if question.is_link else {})
    content = {name: _to_server_value(question, name, value) for name, value in values.items()}
    return ElicitationAnswer(action="accept", content=content)


_CONFIRMATION = InputField(
    field_name=_CONFIRM_FIELD,
    field_label="Done",
    field_type="boolean",
    field_description="Yes to go on; no declines.",
)


def _read_link(title: str, message: str, url: str, key: str) -> ServerQuestion | None:
    """The form for an address. Nothing of ours ever opens it."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    if parts.scheme not in ("http", "https") or not parts.hostname or len(url) > _MAX_URL_CHARS:
        return None
    text = f"{message}\n\nOpen this address at {parts.hostname} yourself, if you trust it:\n{url}"
    form = Form(title=title, response=text, fields=(_CONFIRMATION,))
    return ServerQuestion(form=form, key=key, is_link=True)


def _read_choices(definition: Mapping[str, Any]) -> dict[str, Json]:
    """The choices of a field: the text that people see, and the server's value."""
    items = definition.get("items")
    if definition.get("type") == "array" and isinstance(items, Mapping):
        definition = items
    return dict(list(_iterate_choices(definition))[:_MAX_CHOICES])


def _iterate_choices(definition: Mapping[str, Any]) -> Iterator[tuple[str, Json]]:
    options = definition.get("oneOf") or definition.get("anyOf")
    if isinstance(options, Sequence):
        for option in options:
            if isinstance(option, Mapping) and isinstance(option.get("const"), str):
                yield str(option.get("title") or option["const"])[:_MAX_LABEL_CHARS], option["const"]
        return
    values = definition.get("enum")
    if not isinstance(values, Sequence):
        return
    names = definition.get("enumNames")
    if not isinstance(names, Sequence) or len(names) != len(values) or len(set(map(str, names))) < len(names):
        names = values
    for name, value in zip(names, values, strict=True):
        yield str(name)[:_MAX_LABEL_CHARS], str(value)


def _read_field(
    name: str, definition: Mapping[str, Any], choices: Mapping[str, Json], *, is_required: bool
) -> InputField:
    kind = definition.get("type")
    text_format = str(definition.get("format") or "")
    default = clean_json(definition.get("default"))
    titles = {str(value): title for title, value in choices.items()}
    if isinstance(default, list):
        default = [titles.get(str(value), str(value)) for value in default]
    elif default is not None and choices:
        default = titles.get(str(default))
    return InputField(
        field_name=name,
        field_label=_cut(definition.get("title")),
        field_description=_cut(definition.get("description")),
        field_type=_find_type(kind, text_format, is_choice=bool(choices)),
        field_values=tuple(choices) or None,
        value=default,
        required=is_required,
        placeholder=_FORMAT_HINTS.get(text_format),
        pattern=_read_pattern(definition.get("pattern")),
        minimum=_read_number(definition.get("minimum")),
        maximum=_read_number(definition.get("maximum")),
        min_length=_read_length(definition.get("minLength")),
        max_length=_read_length(definition.get("maxLength")),
    )


def _find_type(kind: Any, text_format: str, *, is_choice: bool) -> FieldType:
    if is_choice:
        return "multiselect" if kind == "array" else "select"
    match kind:
        case "boolean" | "integer" | "number":
            field_type: FieldType = kind
            return field_type
        case _:
            return _FORMATS.get(text_format, "text")


def _cut(text: Any) -> str | None:
    if not isinstance(text, str) or not text:
        return None
    return text[:_MAX_LABEL_CHARS]


def _read_pattern(pattern: Any) -> str | None:
    """The pattern of whole texts, if we can check it; the server checks the value in any case."""
    if not isinstance(pattern, str) or "|" in pattern:
        return None
    if not pattern.startswith("^") or not pattern.endswith("$") or pattern.endswith("\\$"):
        return None
    whole_pattern = pattern[1:-1]
    try:
        check_pattern(whole_pattern)
    except UnsupportedPattern:
        return None
    return whole_pattern


def _read_number(value: Any) -> float | None:
    if isinstance(value, int | float) and not isinstance(value, bool):
        return float(value)
    return None


def _read_length(value: Any) -> int | None:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    return None


def _to_server_value(question: ServerQuestion, name: str, value: Json) -> Json:
    """The value as the server defined it: its own in place of the title of a choice."""
    choices = question.choices.get(name)
    if not choices:
        return value
    if isinstance(value, list):
        return [choices.get(str(item), item) for item in value]
    return choices.get(str(value), value)
