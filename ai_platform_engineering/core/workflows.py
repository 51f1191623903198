"""What a workflow is: named steps from a file, each one a form, a tool call of an agent, or a prompt."""

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field, JsonValue, field_validator, model_validator

from ai_platform_engineering.core.events import SUPERVISOR, FieldType, Form, InputField
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.templates import (
    PLACEHOLDER_START,
    BadTemplate,
    MissingValue,
    Placeholder,
    TemplateScope,
    fill,
    fill_text,
    find_placeholders,
    iter_texts,
)
from ai_platform_engineering.core.text_patterns import UnsupportedPattern, check_pattern

INPUT = "input"  # the name of the step for the workflow's own form
RESULTS = "results"  # in a template: the results of all steps so far
_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_STEP = re.compile(r"[a-z][a-z0-9_-]*")
_FIELD = re.compile(r"[A-Za-z_][\w-]*")

# What a template may name: a form with its fields, or a step whose value is not known yet.
TemplateNames = dict[str, frozenset[str] | None]


class _WorkflowModel(BaseModel):
    """Part of a workflow file; an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid", hide_input_in_errors=True)


class FieldSpec(_WorkflowModel):
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
        if pattern:
            try:
                check_pattern(pattern)
            except UnsupportedPattern as error:
                raise ValueError(f"`pattern`: {error}") from None
        return pattern

    @model_validator(mode="after")
    def _can_be_answered(self) -> "FieldSpec":
        if self.type in ("select", "multiselect") and not self.values:
            raise ValueError(f"`values` is missing: a {self.type} needs what can be chosen")
        if self.default is not None and not self._default_is_template():
            _, errors = check_form(Form(fields=(self._base_field(),)), {self.name: self.default})
            if errors:
                raise ValueError(f"`default`: {errors[self.name]}")
        return self

    def _default_is_template(self) -> bool:
        return isinstance(self.default, str) and PLACEHOLDER_START in self.default

    def _base_field(self) -> InputField:
        """The field with its rules alone: without values and templates, and not required."""
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

    def to_input_field(self, scope: TemplateScope, value: JsonValue) -> InputField:
        """The field for a person, with a value that is known already; an invalid one is left out.

        Raises MissingValue.
        """
        field = self._base_field()
        description = None
        if self.description is not None:
            description = fill_text(self.description, scope)
        filled = {
            "field_description": description,
            "default_value": _valid_or_none(field, self._fill_default(scope)),
            "required": self.required,
            "value": _valid_or_none(field, value),
        }
        return InputField.model_validate({**field.model_dump(), **filled})

    def _fill_default(self, scope: TemplateScope) -> JsonValue:
        if not isinstance(self.default, str):
            return self.default
        try:
            return fill(self.default, scope)
        except MissingValue:  # no default is no harm: a person fills it in
            return None


def _valid_or_none(field: InputField, value: JsonValue) -> JsonValue:
    valid, _ = check_form(Form(fields=(field,)), {field.field_name: value})
    return valid.get(field.field_name)


class FormSpec(_WorkflowModel):
    title: str | None = None
    description: str | None = None
    response: str = ""
    fields: tuple[FieldSpec, ...]

    @model_validator(mode="after")
    def _is_unambiguous(self) -> "FormSpec":
        names = [field.name for field in self.fields]
        if not names:
            raise ValueError("`fields` is empty")
        duplicates = sorted({name for name in names if names.count(name) > 1})
        if duplicates:
            raise ValueError(f"`fields`: the name `{duplicates[0]}` is taken twice")
        return self

    def templates(self) -> Iterator[tuple[str, str]]:
        yield from _set_texts(self, "title", "description", "response")
        for field in self.fields:
            for key, text in field.templates():
                yield f"field `{field.name}`, `{key}`", text


def _set_texts(model: BaseModel, *keys: str) -> Iterator[tuple[str, str]]:
    """The keys of a model that hold a text, with the text."""
    for key in keys:
        text = getattr(model, key)
        if text:
            yield key, text


class WorkflowStep(_WorkflowModel):
    """A step: a form; `agent` and `tool`; `agent` and `prompt`; or `prompt` for the supervisor's model."""

    name: str
    title: str = ""
    form: FormSpec | None = None
    agent: str = SUPERVISOR
    tool: str | None = None
    arguments: dict[str, JsonValue] = Field(default_factory=dict)
    prompt: str | None = None
    when: str | None = None  # a template; the step is skipped when it gives nothing or false
    on_error: Literal["stop", "continue"] = "stop"

    @model_validator(mode="after")
    def _is_one_thing(self) -> "WorkflowStep":
        kinds = [key for key in ("form", "tool", "prompt") if getattr(self, key) is not None]
        if len(kinds) != 1:
            present = " and ".join(kinds) or "none"
            raise ValueError(f"it needs exactly one of `form`, `tool` and `prompt`, and has {present}")
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

    def build_form(self, scope: TemplateScope, values: Mapping[str, JsonValue]) -> Form:
        """The step's form for a person, with values that are known already. Raises MissingValue."""
        form = self.form or FormSpec.model_construct(fields=())
        title = self.display_title
        if form.title:
            title = fill_text(form.title, scope)
        description = None
        if form.description is not None:
            description = fill_text(form.description, scope)
        return Form(
            title=title,
            description=description,
            response=fill_text(form.response, scope),
            fields=tuple(field.to_input_field(scope, values.get(field.name)) for field in form.fields),
        )

    def templates(self) -> Iterator[tuple[str, str]]:
        """Every template of the step, with its place in the file."""
        yield from _set_texts(self, "when", "prompt")
        yield from iter_texts(self.arguments, "arguments")
        if self.form:
            yield from self.form.templates()


class Workflow(_WorkflowModel):
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
    def _is_consistent(self) -> "Workflow":
        problems = list(self._find_problems())
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def sequence(self) -> tuple[WorkflowStep, ...]:
        """All steps in order; the workflow's own form is the first, named `input`."""
        if self.form is None:
            return self.steps
        return WorkflowStep(name=INPUT, title=self.form.title or self.title, form=self.form), *self.steps

    def fills_in_results(self, step_name: str) -> bool:
        """Whether what the step asks for holds results of other steps, not only values of forms."""
        forms = {step.name for step in self.sequence if step.form}
        for step in self.sequence:
            if step.name != step_name:
                continue
            texts = [step.prompt or "", *(text for _, text in iter_texts(step.arguments, "arguments"))]
            names = {placeholder.name for text in texts for placeholder in find_placeholders(text)}
            return not names <= forms
        return True

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents it needs, besides the supervisor."""
        return tuple(dict.fromkeys(step.agent for step in self.steps if step.agent != SUPERVISOR))

    def _find_problems(self) -> Iterator[str]:
        if not self.form and not self.steps:
            yield "it needs a `form` or `steps`"
        names: TemplateNames = {RESULTS: None}
        if self.form:
            yield from _check_templates(self.form.templates(), "the form", {})  # nothing comes before it
            names[INPUT] = _field_names(self.form)
        for step in self.steps:
            yield from _check_step_name(step.name, names)
            yield from _check_templates(step.templates(), f"step `{step.name}`", names)
            names.setdefault(step.name, _field_names(step.form))
        if self.answer:
            yield from _check_templates([("answer", self.answer)], "", names)


def _field_names(form: FormSpec | None) -> frozenset[str] | None:
    if form is None:
        return None
    return frozenset(field.name for field in form.fields)


def _check_step_name(name: str, names: TemplateNames) -> Iterator[str]:
    if name == INPUT:
        yield f"step `{INPUT}`: the name is that of the workflow's own `form`; choose another"
    elif name == RESULTS:
        yield f"step `{RESULTS}`: the name means what all steps gave; choose another"
    elif not _STEP.fullmatch(name):
        yield f"step `{name}`: `name` is made of a-z, 0-9, _ and -, and starts with a letter"
    elif name in names:
        yield f"step `{name}`: the name is taken by a step before it"


def _check_templates(templates: Iterable[tuple[str, str]], owner: str, names: TemplateNames) -> Iterator[str]:
    for key, text in templates:
        place = key if key.startswith("field ") else f"`{key}`"
        if owner:
            place = f"{owner}, {place}"
        try:
            for placeholder in find_placeholders(text):
                problem = _check_placeholder(placeholder, names)
                if problem:
                    yield f"{place}: {problem}"
        except BadTemplate as error:
            yield f"{place}: {error}"


def _check_placeholder(placeholder: Placeholder, names: TemplateNames) -> str:
    """Why the placeholder can never be filled; empty when it may be."""
    if placeholder.name not in names:
        return f"`{placeholder}` names no form and no step before it; there are {_join_names(names)}"
    fields = names[placeholder.name]
    if fields is not None and placeholder.path and placeholder.path[0] not in fields:
        return f"`{placeholder}`: the form has no such field; its fields are {_join_names(fields)}"
    return ""


def _join_names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in sorted(names)) or "none"
