"""The `CAIPEAgentResponse` tool: an agent asks a person with a form, and goes on with the values."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, get_args

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse
from langchain.tools import BaseTool, tool
from langgraph.types import interrupt
from pydantic import BaseModel, BeforeValidator, Field, field_validator, model_validator

from ai_platform_engineering.core.decisions import MESSAGE_KEY
from ai_platform_engineering.core.events import (
    FREE_TEXT_FIELD,
    FieldType,
    Form,
    InputField,
    Json,
    JsonObject,
    Text,
)
from ai_platform_engineering.core.forms import is_declined
from ai_platform_engineering.core.text_patterns import check_pattern
from ai_platform_engineering.core.tool_traits import USER_INPUT_TOOL, mark_as_own
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import ModelCallHandler
from ai_platform_engineering.multi_agents.platform_engineer.middleware.model_requests import remove_tool

_DESCRIPTION = (
    "Ask the person you work for, with a form, for values that you need and cannot find out yourself. Ask "
    "for everything at\n"
    "once, with the choices you know. The result holds the values by field name. Never ask for passwords, "
    "tokens or keys: what is filled in is\n"
    "stored and shown. Not for approvals: tools that need one ask by themselves."
)

DECLINED = "declined"  # the key of the reason, in place of values
_MAX_FIELDS = 50  # nobody fills in more, and every pattern costs time
_TYPES = frozenset(get_args(FieldType))


def _replace_unknown_type(field_type: Any) -> Any:
    if field_type in _TYPES:
        return field_type
    return "text"


# A form's field as the model writes it; a type that cannot be answered becomes a text. The model would read a
# docstring.
class FormFieldArguments(InputField):
    field_name: Text = Field(description="The key of the value in the result.")
    field_label: Text | None = Field(None, description="What the person reads beside the field.")
    field_type: Annotated[FieldType, BeforeValidator(_replace_unknown_type)] = "text"
    field_values: tuple[Text, ...] | None = Field(
        None, description="The choices of a select or a multiselect."
    )
    value: Json = Field(None, description="What you know already; the person sees it filled in.")
    pattern: Text | None = Field(None, description="A regular expression that the whole text must match.")

    @model_validator(mode="before")
    @classmethod
    def _replace_empty_choice(cls, fields: Any) -> Any:
        if not isinstance(fields, Mapping) or fields.get("field_values"):
            return fields
        if fields.get("field_type") in ("select", "multiselect"):
            return {**fields, "field_type": "text"}
        return fields

    @field_validator("pattern")
    @classmethod
    def _can_be_matched(cls, pattern: str | None) -> str | None:
        if pattern:
            check_pattern(pattern)
        return pattern


class UserInputArguments(BaseModel):
    response: str = Field("", description="What you say to the person: what you need, and what for.")
    input_title: str | None = Field(None, description="The form's title, in a few words.")
    input_description: str | None = None
    input_fields: list[FormFieldArguments] = Field(
        default_factory=list, description="Empty to ask for an answer in plain words.", max_length=_MAX_FIELDS
    )


def ask_person(form: Form) -> JsonObject:
    """Interrupts the graph, and returns the values that a person filled in, or `{"declined": reason}`.

    The interrupted node runs again from its start: nothing with an effect may stand before the call.
    """
    values: Mapping[str, Any] = interrupt(form.model_dump(mode="json"))
    if is_declined(form, values):
        return {DECLINED: values.get(MESSAGE_KEY) or "The person does not want to answer."}
    return dict(values)


@tool(USER_INPUT_TOOL, args_schema=UserInputArguments, description=_DESCRIPTION)
async def ask_with_form(
    response: str = "",
    input_title: str | None = None,
    input_description: str | None = None,
    input_fields: Sequence[FormFieldArguments] = (),
) -> str:
    fields = tuple(InputField.model_validate(field.model_dump()) for field in input_fields)
    form = Form(
        title=input_title,
        description=input_description,
        response=response,
        fields=fields or (FREE_TEXT_FIELD,),
    )
    return json.dumps(ask_person(form), ensure_ascii=False)


mark_as_own(ask_with_form)


class UserInputMiddleware(AgentMiddleware):
    """Adds the tool. `offered`: the model sees it; the embedded router would not know how to use it."""

    tools: Sequence[BaseTool] = (ask_with_form,)

    def __init__(self, *, offered: bool = True) -> None:
        super().__init__()
        self._offered = offered

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        if not self._offered:
            request = remove_tool(request, USER_INPUT_TOOL)
        return await handler(request)
