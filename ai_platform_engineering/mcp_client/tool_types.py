"""Tool specs, tool lists and tool results of MCP servers; read leniently, since servers differ."""

import json
import logging
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from ai_platform_engineering.core.call_targets import TARGET_KINDS, TARGETS_META_KEY, TargetKind

log = logging.getLogger(__name__)

HINT_NAMES = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_NO_OUTPUT = "(no output)"
_MAX_PROMPT_NAME_CHARS = 60
_MAX_PROMPT_ARGUMENTS = 10
_NOT_IN_PROMPT_NAMES = re.compile(r"[^\w.:/-]")


class ToolSpec(BaseModel):
    """A tool as its server describes it.

    The output schema is left out: it may be longer than all the rest and helps no model.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1)
    title: str | None = None
    description: str | None = None
    inputSchema: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    annotations: dict[str, Any] | None = None
    # Of the tool's `_meta`: which arguments say where a call goes. It can only restrict the tool.
    targets: dict[str, TargetKind] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _read_targets(cls, data: Any) -> Any:
        if not isinstance(data, Mapping):
            return data
        meta = data.get("_meta")
        kinds = data.get("targets")  # as the cache has it
        if isinstance(meta, Mapping):
            kinds = meta.get(TARGETS_META_KEY)
        targets = {}
        if isinstance(kinds, Mapping):
            targets = {name: kind for name, kind in kinds.items() if str(kind) in TARGET_KINDS}
        return {**data, "targets": targets}

    @property
    def hints(self) -> dict[str, bool]:
        hints = dict[str, bool]()
        for name in HINT_NAMES:
            value = (self.annotations or {}).get(name)
            if isinstance(value, bool):
                hints[name] = value
        return hints

    @property
    def is_repeatable(self) -> bool:
        """Whether a second call does no harm, by the server's own hints."""
        return self.hints.get("readOnlyHint", False) or self.hints.get("idempotentHint", False)


class PromptSpec(BaseModel):
    """A prompt by its name and the names of its arguments; what else a server says of it is not kept."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str
    arguments: tuple[str, ...] = ()

    @classmethod
    def from_server(cls, prompt: Mapping[str, Any]) -> "PromptSpec":
        names = list[str]()
        arguments = prompt.get("arguments")
        if isinstance(arguments, Sequence):
            for argument in arguments[:_MAX_PROMPT_ARGUMENTS]:
                if isinstance(argument, Mapping):
                    names.append(_clean_prompt_name(argument.get("name")))
        return cls(name=str(prompt["name"]), arguments=tuple(names))

    def describe(self) -> str:
        return f"{_clean_prompt_name(self.name)}({', '.join(self.arguments)})"


class ServerOffer(BaseModel):
    """What a server offers besides tools."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    has_resources: bool = False
    prompts: tuple[PromptSpec, ...] = ()


class ToolList(BaseModel):
    """The tools of a server, with its version and instructions; stored in the cache."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server: str = ""
    version: str = ""
    protocol: str = ""
    """The version of MCP that was agreed on."""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()
    offer: ServerOffer = ServerOffer()

    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True)
class ResultImage:
    """An image in a result, as the server sent it: nobody has looked at its data yet.

    `data`: in base64. `description`: the line that stands for it in a text."""

    mime_type: str
    data: str
    description: str


ResultPart = str | ResultImage


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The result of a call: texts and images for the model, structured content if any, and whether it
    failed."""

    parts: tuple[ResultPart, ...]
    structured: Any = None
    failed: bool = False

    @property
    def text(self) -> str:
        """All of it as a text, with descriptions in place of images."""
        return "\n".join(part if isinstance(part, str) else part.description for part in self.parts)

    @property
    def has_images(self) -> bool:
        return any(isinstance(part, ResultImage) for part in self.parts)

    def redacted(self, redact: Callable[[str], str]) -> "ToolResult":
        """The result without what must not be read in its texts."""
        return replace(self, parts=tuple(_redact_part(part, redact) for part in self.parts))


def _redact_part(part: ResultPart, redact: Callable[[str], str]) -> ResultPart:
    if isinstance(part, str):
        return redact(part)
    return replace(part, description=redact(part.description))


def _clean_prompt_name(name: Any) -> str:
    return _NOT_IN_PROMPT_NAMES.sub("_", str(name))[:_MAX_PROMPT_NAME_CHARS]


def read_tool_specs(raw_tools: Sequence[Any], server: str) -> tuple[ToolSpec, ...]:
    """The specs of all tools that are valid; the first of two with one name counts."""
    specs: dict[str, ToolSpec] = {}
    for raw_tool in raw_tools:
        try:
            spec = ToolSpec.model_validate(raw_tool)
        except ValidationError as error:
            log.warning(
                "mcp %s: a tool was left out, its description is not valid: %s",
                server,
                error.errors()[0]["type"],
            )
            continue
        specs.setdefault(spec.name, spec)
    return tuple(specs.values())


def read_tool_result(content: Sequence[Any], structured: Any, *, failed: bool) -> ToolResult:
    """An answer's blocks as texts and images.

    Structured content is written out only when no block has a text, since servers repeat it as text.
    """
    blocks = [block for block in content if isinstance(block, Mapping)]
    parts = list[ResultPart](filter(None, map(read_block, blocks)))
    if structured is not None and not any(map(_read_text, blocks)):
        parts.append(json.dumps(structured, ensure_ascii=False, default=str))
    return ToolResult(tuple(parts) or (_NO_OUTPUT,), structured, failed)


def read_block(block: Mapping[str, Any]) -> ResultPart:
    """A block of content: an image, also one in a resource, as such, and all others as text."""
    media = block
    if block.get("type") == "resource":
        media = _read_resource(block)
    mime_type = str(media.get("mimeType") or "").lower()
    data = media.get("blob") if media is not block else media.get("data")
    if isinstance(data, str) and data and mime_type.startswith("image/"):
        return ResultImage(mime_type, data, render_block(block))
    return render_block(block)


def _read_text(block: Mapping[str, Any]) -> str:
    """The block's own text: of a text block, or of a resource that is embedded as text."""
    text = block.get("text")
    if block.get("type") == "resource":
        text = _read_resource(block).get("text")
    if isinstance(text, str):
        return text
    return ""


def _read_resource(block: Mapping[str, Any]) -> Mapping[str, Any]:
    resource = block.get("resource")
    if isinstance(resource, Mapping):
        return resource
    return {}


def render_block(block: Mapping[str, Any]) -> str:
    """A block of content as text: what is no text is described."""
    match block.get("type"):
        case "text":
            return _read_text(block)
        case "image" | "audio" as kind:
            mime_type = block.get("mimeType") or "unknown type"
            return f"[{kind}: {mime_type}, {_format_size(block.get('data'))}]"
        case "resource_link":
            return f"[resource: {describe_resource(block)}]"
        case "resource":
            resource = _read_resource(block)
            description = f"{describe_resource(resource)}, {_format_size(resource.get('blob'))}"
            return _read_text(block) or f"[resource: {description}]"
        case kind:
            return f"[{kind or 'unknown content'}]"


def describe_resource(resource: Mapping[str, Any]) -> str:
    """A resource in one line: name, URI, type and description."""
    name = resource.get("title") or resource.get("name")
    address = str(resource.get("uri"))
    if name:
        address = f"{name} <{address}>"
    parts = (address, resource.get("mimeType"), resource.get("description"))
    return ", ".join(map(str, filter(None, parts)))


def _format_size(base64: Any) -> str:
    if isinstance(base64, str):
        return f"{count_bytes(base64):,} bytes"
    return "no data"


def count_bytes(base64: str) -> int:
    """How many bytes a text in base64 stands for."""
    return len(base64) * 3 // 4 - base64[-2:].count("=")
