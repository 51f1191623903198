"""What a workflow is: named steps as people write them in a file, each a form, one tool of an agent, or an order in words."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from ai_platform_engineering.core.events import SUPERVISOR, FieldType, Form, InputField
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.templates import (
    OPENING,
    BadTemplate,
    MissingValue,
    Placeholder,
    TemplateScope,
    fill,
    fill_text,
    references,
    texts_in,
)

INPUT = "input"  # the step that a workflow's own form is
RESULTS = "results"  # in a template: what the steps before gave
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_STEP = re.compile(r"[a-z][a-z0-9_-]*")
_FIELD = re.compile(r"[A-Za-z_][\w-]*")

Known = dict[
    str, frozenset[str] | None
]  # what a template may name: a form with its fields, or a step whose value is not known yet


class _Written(BaseModel):
    """What people write in a file: a key that does not exist is a mistake."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class FieldSpec(_Written):
    """A field of a form; the keys are those of `InputField` without their prefix."""

    name: str
    label: str | None = None
    description: str | None = None
    type: FieldType = "text"
    values: tuple[str, ...] | None = None
    default: JsonValue = None
    required: bool = True
    placeholder: str | None = None
    pattern: str | None = None
    minimum: float | None = None
    maximum: float | None = None
    min_length: int | None = Field(default=None, ge=0)
    max_length: int | None = Field(default=None, ge=1)

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not _FIELD.fullmatch(name):
            raise ValueError("`name` is made of letters, digits, _ and -, and starts with a letter")
        return name

    @field_validator("pattern")
    @classmethod
    def _is_a_pattern(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as error:
            raise ValueError(f"`pattern` is no regular expression: {error.msg}") from None
        return pattern

    @model_validator(mode="after")
    def _can_be_answered(self) -> "FieldSpec":
        if self.type in ("select", "multiselect") and not self.values:
            raise ValueError(f"`values` is missing: a {self.type} needs what can be chosen")
        if self.default is not None and not self._default_is_template():
            _, wrong = check_form(Form(fields=(self._field(),)), {self.name: self.default})
            if wrong:
                raise ValueError(f"`default`: {wrong[self.name]}")
        return self

    def _default_is_template(self) -> bool:
        return isinstance(self.default, str) and OPENING in self.default

    def _field(self) -> InputField:
        """The field by its rules alone: without what is filled in, and not required."""
        return InputField(
            field_name=self.name,
            field_label=self.label,
            field_type=self.type,
            field_values=self.values,
            required=False,
            placeholder=self.placeholder,
            pattern=self.pattern,
            minimum=self.minimum,
            maximum=self.maximum,
            min_length=self.min_length,
            max_length=self.max_length,
        )

    def templates(self) -> Iterator[tuple[str, str]]:
        if self.description:
            yield "description", self.description
        if self._default_is_template():
            yield "default", str(self.default)

    def asked(self, scope: TemplateScope, given: JsonValue) -> InputField:
        """The field for a person, with the value that is known already; one that does not fit is left out. Raises MissingValue."""
        field = self._field()
        filled = {
            "field_description": None if self.description is None else fill_text(self.description, scope),
            "default_value": _fitting(field, self._default(scope)),
            "required": self.required,
            "value": _fitting(field, given),
        }
        return InputField.model_validate({**field.model_dump(), **filled})

    def _default(self, scope: TemplateScope) -> JsonValue:
        try:
            if isinstance(self.default, str):
                return fill(self.default, scope)
            return self.default
        except MissingValue:  # no default is no harm: a person fills it in
            return None


def _fitting(field: InputField, value: JsonValue) -> JsonValue:
    good, _ = check_form(Form(fields=(field,)), {field.field_name: value})
    return good.get(field.field_name)


class FormSpec(_Written):
    title: str | None = None
    description: str | None = None
    response: str = ""
    fields: tuple[FieldSpec, ...]

    @model_validator(mode="after")
    def _is_unambiguous(self) -> "FormSpec":
        names = [field.name for field in self.fields]
        if not names:
            raise ValueError("`fields` is empty")
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"`fields`: the name `{twice[0]}` is taken twice")
        return self

    def templates(self) -> Iterator[tuple[str, str]]:
        yield from (
            (key, text) for key in ("title", "description", "response") if (text := getattr(self, key))
        )
        for field in self.fields:
            yield from ((f"field `{field.name}`, `{key}`", text) for key, text in field.templates())


class WorkflowStep(_Written):
    """One of: a form; `agent` and `tool`; `agent` and `prompt`; `prompt` alone, which is for the supervisor's own model."""

    name: str
    title: str = ""
    form: FormSpec | None = None
    agent: str = SUPERVISOR
    tool: str | None = None
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    prompt: str | None = None
    when: str | None = None  # a template; the step is left out when it gives nothing or false
    on_error: Literal["stop", "continue"] = "stop"

    @model_validator(mode="after")
    def _is_one_thing(self) -> "WorkflowStep":
        what = [key for key in ("form", "tool", "prompt") if getattr(self, key) is not None]
        if len(what) != 1:
            raise ValueError(
                f"it needs exactly one of `form`, `tool` and `prompt`, and has {' and '.join(what) or 'none'}"
            )
        if self.form and (self.agent != SUPERVISOR or self.arguments):
            raise ValueError("`form` asks a person: it goes without `agent` and `arguments`")
        if self.tool is not None and (not self.tool or self.agent == SUPERVISOR):
            raise ValueError("`tool` is one tool of an agent: it needs an `agent`")
        if self.arguments and self.tool is None:
            raise ValueError("`arguments` go with `tool`")
        if self.prompt is not None and not self.prompt.strip():
            raise ValueError("`prompt` is empty")
        if not _STEP.fullmatch(self.agent):
            raise ValueError("`agent` is the name of an agent: a-z, 0-9, _ and -, starting with a letter")
        return self

    @property
    def display_title(self) -> str:
        """The title, for people."""
        return self.title or self.name.replace("-", " ").replace("_", " ").capitalize()

    def build_form(self, scope: TemplateScope, given: Mapping[str, JsonValue]) -> Form:
        """The step's form for a person, with what is known already as values. Raises MissingValue."""
        form = self.form or FormSpec.model_construct(fields=())
        return Form(
            title=fill_text(form.title, scope) if form.title else self.display_title,
            description=None if form.description is None else fill_text(form.description, scope),
            response=fill_text(form.response, scope),
            fields=tuple(field.asked(scope, given.get(field.name)) for field in form.fields),
        )

    def templates(self) -> Iterator[tuple[str, str]]:
        """Every text that is filled in, with where it stands."""
        yield from ((key, text) for key in ("when", "prompt") if (text := getattr(self, key)))
        yield from texts_in(self.arguments, "arguments")
        if self.form:
            yield from self.form.templates()


class Workflow(_Written):
    name: str
    title: str = Field(min_length=1)
    description: str
    phrases: tuple[str, ...] = ()
    form: FormSpec | None = None
    steps: tuple[WorkflowStep, ...] = ()
    answer: str | None = None

    @field_validator("name")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not _NAME.fullmatch(name):
            raise ValueError("`name` is made of a-z, 0-9 and -, and starts with a letter or a digit")
        return name

    @model_validator(mode="after")
    def _holds_together(self) -> "Workflow":
        problems = list(self._problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def sequence(self) -> tuple[WorkflowStep, ...]:
        """All steps in order; the workflow's own form is the first, named `input`."""
        if self.form is None:
            return self.steps
        return WorkflowStep(name=INPUT, title=self.form.title or self.title, form=self.form), *self.steps

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents it needs, besides the supervisor."""
        return tuple(dict.fromkeys(step.agent for step in self.steps if step.agent != SUPERVISOR))

    def _problems(self) -> Iterator[str]:
        if not self.form and not self.steps:
            yield "it needs a `form` or `steps`"
        known: Known = {RESULTS: None}
        if self.form:
            yield from _unknown(self.form.templates(), "the form", {})  # nothing comes before it
            known[INPUT] = _fields(self.form)
        for step in self.steps:
            yield from _misnamed(step.name, known)
            yield from _unknown(step.templates(), f"step `{step.name}`", known)
            known.setdefault(step.name, _fields(step.form))
        if self.answer:
            yield from _unknown([("answer", self.answer)], "", known)


def _fields(form: FormSpec | None) -> frozenset[str] | None:
    if form:
        return frozenset(field.name for field in form.fields)
    return None


def _misnamed(name: str, known: Known) -> Iterator[str]:
    if name == INPUT:
        yield f"step `{INPUT}`: the name is that of the workflow's own `form`; choose another"
    elif name == RESULTS:
        yield f"step `{RESULTS}`: the name means what all steps gave; choose another"
    elif not _STEP.fullmatch(name):
        yield f"step `{name}`: `name` is made of a-z, 0-9, _ and -, and starts with a letter"
    elif name in known:
        yield f"step `{name}`: the name is taken by a step before it"


def _unknown(templates: Iterable[tuple[str, str]], owner: str, known: Known) -> Iterator[str]:
    for where, text in templates:
        place = ", ".join(filter(None, (owner, where if where.startswith("field ") else f"`{where}`")))
        try:
            yield from (f"{place}: {wrong}" for found in references(text) if (wrong := _wrong(found, known)))
        except BadTemplate as error:
            yield f"{place}: {error}"


def _wrong(reference: Placeholder, known: Known) -> str:
    """Why the placeholder can never be filled; empty when it may be."""
    if reference.name not in known:
        return f"`{reference}` names no form and no step before it; there are {_listed(known)}"
    fields = known[reference.name]
    if fields is not None and reference.path and reference.path[0] not in fields:
        return f"`{reference}`: the form has no such field; its fields are {_listed(fields)}"
    return ""


def _listed(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
