"""What a server offers besides tools: resources and prompts, as bounded text."""

import asyncio
import contextlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any

from mcp import types
from pydantic import BaseModel, Field

from ai_platform_engineering.mcp_client.connection_context import OutgoingRequest
from ai_platform_engineering.mcp_client.mcp_errors import RequestRejectedError
from ai_platform_engineering.mcp_client.secret_redactor import SecretRedactor
from ai_platform_engineering.mcp_client.tool_types import (
    PromptSpec,
    ResultImage,
    ServerOffer,
    ToolResult,
    describe_resource,
    read_block,
    render_block,
)

MAX_ITEMS = 100
MAX_TEXT_CHARS = 20_000
_OFFER_TIMEOUT = 5.0
_MAX_PROMPTS = 50
_MAX_PROMPT_NAME_CHARS = 200
_INPUT_REQUIRED = "input_required"


class _Page(BaseModel):
    """A page of a list, read leniently."""

    resources: list[Any] = Field(default_factory=list)
    resourceTemplates: list[Any] = Field(default_factory=list)
    prompts: list[Any] = Field(default_factory=list)
    nextCursor: str | None = None


class _Contents(BaseModel):
    resultType: str | None = None
    contents: list[Any] = Field(default_factory=list)
    messages: list[Any] = Field(default_factory=list)
    description: str | None = None


Send = Callable[[Any, type[Any], OutgoingRequest], Awaitable[Any]]


class ServerFeatures:
    """The resources and prompts of a session's server."""

    def __init__(
        self,
        send: Send,
        capabilities: Callable[[], types.ServerCapabilities | None],
        redactor: SecretRedactor,
    ) -> None:
        self._send = send
        self._capabilities = capabilities
        self._redactor = redactor

    async def read_offer(self, request: OutgoingRequest) -> ServerOffer:
        """Whether there are resources, and which prompts; a server that does not say it in time has none."""
        capabilities = self._capabilities()
        offer = ServerOffer()
        if capabilities is None:
            return offer
        with contextlib.suppress(RequestRejectedError, TimeoutError):
            async with asyncio.timeout(_OFFER_TIMEOUT):
                if capabilities.resources is not None:
                    offer = offer.model_copy(update={"has_resources": await self._has_resources(request)})
                if capabilities.prompts is not None:
                    offer = offer.model_copy(update={"prompts": await self._list_prompts(request)})
        return offer

    async def list_resources(self, request: OutgoingRequest, cursor: str | None) -> str:
        """A page of resources, and with the first one the templates."""
        page = await self._list(types.ListResourcesRequest, request, cursor)
        lines = [f"- {describe_resource(resource)}" for resource in _mappings(page.resources)]
        if cursor is None:
            templates = await self._list_templates(request)
            lines += [f"- template: {describe_resource(template)}" for template in templates]
        text = "\n".join(lines[:MAX_ITEMS]) or "There are no resources."
        if len(lines) > MAX_ITEMS:
            text += f"\n[{len(lines) - MAX_ITEMS} more are not shown]"
        text = self._cut(text, 0)
        if page.nextCursor:
            text += f"\n[more with cursor {json.dumps(page.nextCursor)}]"
        return text

    async def read_resource(self, request: OutgoingRequest, uri: str, offset: int) -> ToolResult:
        """The text of a resource, from a character on, and its images; what is neither is described."""
        params = types.ReadResourceRequestParams(uri=uri)
        answer: _Contents = await self._send(types.ReadResourceRequest(params=params), _Contents, request)
        _refuse_questions(answer)
        blocks = [{"type": "resource", "resource": content} for content in _mappings(answer.contents)]
        parts = list(filter(None, map(read_block, blocks)))
        images = [part for part in parts if isinstance(part, ResultImage)]
        text = "\n".join(part for part in parts if isinstance(part, str))
        if text or not images:
            text = self._cut(text or "The resource is empty.", offset)
        return ToolResult((*filter(None, [text]), *images)).redacted(self._redactor.redact)

    async def get_prompt(self, request: OutgoingRequest, name: str, arguments: Mapping[str, str]) -> str:
        """The messages of a prompt, as text."""
        params = types.GetPromptRequestParams(name=name, arguments=dict(arguments))
        answer: _Contents = await self._send(types.GetPromptRequest(params=params), _Contents, request)
        _refuse_questions(answer)
        texts = list[str]()
        for message in _mappings(answer.messages):
            content = message.get("content")
            if isinstance(content, Mapping):
                texts.append(f"{message.get('role')}: {render_block(content)}")
        return self._cut("\n\n".join(texts) or "The prompt is empty.", 0)

    async def _has_resources(self, request: OutgoingRequest) -> bool:
        page = await self._list(types.ListResourcesRequest, request, None)
        if page.resources:
            return True
        return bool(await self._list_templates(request))

    async def _list_templates(self, request: OutgoingRequest) -> list[Mapping[str, Any]]:
        try:
            page = await self._list(types.ListResourceTemplatesRequest, request, None)
        except RequestRejectedError:  # many servers have none
            return []
        templates = list[Mapping[str, Any]]()
        for template in _mappings(page.resourceTemplates):
            templates.append({**template, "uri": template.get("uriTemplate")})
        return templates

    async def _list_prompts(self, request: OutgoingRequest) -> tuple[PromptSpec, ...]:
        page = await self._list(types.ListPromptsRequest, request, None)
        prompts = list[PromptSpec]()
        for prompt in _mappings(page.prompts[:_MAX_PROMPTS]):
            name = prompt.get("name")
            if isinstance(name, str) and 0 < len(name) <= _MAX_PROMPT_NAME_CHARS:
                prompts.append(PromptSpec.from_server(prompt))
        return tuple(prompts)

    async def _list(self, kind: type[Any], request: OutgoingRequest, cursor: str | None) -> _Page:
        params = None
        if cursor:
            params = types.PaginatedRequestParams(cursor=cursor)
        page: _Page = await self._send(kind(params=params), _Page, request)
        return page

    def _cut(self, text: str, offset: int) -> str:
        clean_text = self._redactor.redact(text)
        part = clean_text[offset : offset + MAX_TEXT_CHARS]
        end = offset + len(part)
        if end < len(clean_text):
            part += f"\n[{len(clean_text)} characters in all; more with offset {end}]"
        return part


def _mappings(values: list[Any]) -> Iterator[Mapping[str, Any]]:
    return (value for value in values if isinstance(value, Mapping))


def _refuse_questions(answer: _Contents) -> None:
    if answer.resultType == _INPUT_REQUIRED:
        raise RequestRejectedError("it asks people before it shows this, which only tools may do")
