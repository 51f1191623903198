"""Tools for what a server offers besides its own tools: reading its resources, and using its prompts."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from ai_platform_engineering.mcp_client.tool_types import (
    PromptSpec,
    ServerOffer,
    ToolList,
    ToolResult,
    ToolSpec,
)

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.session import McpSession

FeatureKind = Literal["list_resources", "read_resource", "get_prompt"]

_READ_ONLY = {"readOnlyHint": True, "idempotentHint": True, "destructiveHint": False}


class FeatureSpec(ToolSpec):
    """A tool of ours for a feature of a server."""

    feature: FeatureKind


def list_feature_specs(server: str, offer: ServerOffer) -> tuple[FeatureSpec, ...]:
    """The tools for what the server offers. The texts are ours: a server writes no instructions there."""
    specs = list[FeatureSpec]()
    if offer.has_resources:
        specs += [_list_resources_spec(server), _read_resource_spec(server)]
    if offer.prompts:
        specs.append(_get_prompt_spec(server, offer.prompts))
    return tuple(specs)


def list_all_specs(server: str, tool_list: ToolList) -> tuple[ToolSpec, ...]:
    """The server's tools, and ours for its features; a tool of the server keeps its name."""
    names = set(tool_list.tool_names())
    features = [spec for spec in list_feature_specs(server, tool_list.offer) if spec.name not in names]
    return (*tool_list.tools, *features)


async def use_feature(session: "McpSession", spec: FeatureSpec, arguments: Mapping[str, Any]) -> ToolResult:
    """The content of a resource, a list of them, or a prompt."""
    match spec.feature:
        case "list_resources":
            cursor = arguments.get("cursor") or None
            text = await session.fetch(lambda to, request: to.features.list_resources(request, cursor))
            return ToolResult((text,))
        case "read_resource":
            uri = str(arguments.get("uri") or "")
            offset = max(0, int(arguments.get("offset") or 0))
            return await session.fetch(lambda to, request: to.features.read_resource(request, uri, offset))
        case "get_prompt":
            name = str(arguments.get("name") or "")
            prompt_arguments = arguments.get("arguments")
            values = dict[str, str]()
            if isinstance(prompt_arguments, Mapping):
                values = {str(key): str(value) for key, value in prompt_arguments.items()}
            text = await session.fetch(lambda to, request: to.features.get_prompt(request, name, values))
            return ToolResult((text,))


def _list_resources_spec(server: str) -> FeatureSpec:
    properties = {"cursor": {"type": "string", "description": "Of the page before, for the next one."}}
    return FeatureSpec(
        name="list_resources",
        feature="list_resources",
        description=f"List the resources (documents and data) of the tool server {server}, with their URIs.",
        inputSchema={"type": "object", "properties": properties},
        annotations=_READ_ONLY,
    )


def _read_resource_spec(server: str) -> FeatureSpec:
    properties = {
        "uri": {"type": "string", "description": "As list_resources or a result gives it."},
        "offset": {"type": "integer", "minimum": 0, "description": "The first character, in a long text."},
    }
    return FeatureSpec(
        name="read_resource",
        feature="read_resource",
        description=f"Read a resource of the tool server {server}.",
        inputSchema={"type": "object", "properties": properties, "required": ["uri"]},
        annotations=_READ_ONLY,
    )


def _get_prompt_spec(server: str, prompts: Sequence[PromptSpec]) -> FeatureSpec:
    names = ", ".join(prompt.describe() for prompt in prompts)
    properties = {
        "name": {"type": "string", "enum": [prompt.name for prompt in prompts]},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    }
    return FeatureSpec(
        name="get_prompt",
        feature="get_prompt",
        description=f"Get a prompt that the tool server {server} has prepared: {names}.",
        inputSchema={"type": "object", "properties": properties, "required": ["name"]},
        annotations=_READ_ONLY,
    )
