"""What an MCP server says about its tools and answers to a call, brought into one form; lenient, since servers differ."""

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError

log = logging.getLogger(__name__)

HINT_NAMES = ("readOnlyHint", "destructiveHint", "idempotentHint", "openWorldHint")
_NOTHING = "(no output)"


class ToolSpec(BaseModel):
    """A tool as its server describes it. The output schema is left out: it may be longer than all the rest and helps no model."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    name: str = Field(min_length=1)
    title: str | None = None
    description: str | None = None
    inputSchema: dict[str, Any] = Field(default_factory=lambda: {"type": "object", "properties": {}})
    annotations: dict[str, Any] | None = None

    @property
    def hints(self) -> dict[str, bool]:
        given = self.annotations or {}
        return {hint: given[hint] for hint in HINT_NAMES if isinstance(given.get(hint), bool)}

    @property
    def is_repeatable(self) -> bool:
        """A second call does no harm, the server says."""
        return self.hints.get("readOnlyHint", False) or self.hints.get("idempotentHint", False)


class ToolList(BaseModel):
    """Everything a server offers, with its version: what the cache keeps."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    server: str = ""
    version: str = ""
    instructions: str = ""
    tools: tuple[ToolSpec, ...] = ()

    def tool_names(self) -> tuple[str, ...]:
        return tuple(tool.name for tool in self.tools)


@dataclass(frozen=True, slots=True)
class ToolResult:
    """The one form of every answer: text for the model, the structured content if there was any, and whether it is a failure."""

    text: str
    structured: Any = None
    failed: bool = False


def read_tool_specs(raw: Sequence[Any], server: str) -> tuple[ToolSpec, ...]:
    """The tools that can be read; one broken entry does not cost the others. The first of two with one name counts."""
    specs: dict[str, ToolSpec] = {}
    for entry in raw:
        try:
            spec = ToolSpec.model_validate(entry)
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
    """An answer's blocks as one text; structured content speaks only when no block does, since servers repeat it as text."""
    said = [text for block in content if (text := _words(block))]
    has_text = any(isinstance(block, Mapping) and _text(block) for block in content)
    if structured is not None and not has_text:
        said.append(json.dumps(structured, ensure_ascii=False, default=str))
    return ToolResult("\n".join(said) or _NOTHING, structured, failed)


def _text(block: Mapping[str, Any]) -> str:
    """The block's own text: of a text block, or of a resource that is embedded as text."""
    holder = block.get("resource") if block.get("type") == "resource" else block
    text = holder.get("text") if isinstance(holder, Mapping) else None
    if isinstance(text, str):
        return text
    return ""


def _words(block: Any) -> str:
    if not isinstance(block, Mapping):
        return ""
    match block.get("type"):
        case "text":
            return _text(block)
        case "image" | "audio" as kind:
            return f"[{kind}: {block.get('mimeType') or 'unknown type'}, {_size(block.get('data'))}]"
        case "resource_link":
            return f"[resource: {_named(block)}]"
        case "resource":
            resource = block.get("resource")
            held = resource if isinstance(resource, Mapping) else {}
            return _text(block) or f"[resource: {_named(held)}, {_size(held.get('blob'))}]"
        case kind:
            return f"[{kind or 'unknown content'}]"


def _named(resource: Mapping[str, Any]) -> str:
    name = resource.get("title") or resource.get("name")
    told = [
        f"{name} <{resource.get('uri')}>" if name else str(resource.get("uri")),
        resource.get("mimeType"),
        resource.get("description"),
    ]
    return ", ".join(str(part) for part in told if part)


def _size(base64: Any) -> str:
    if isinstance(base64, str):
        return f"{len(base64) * 3 // 4:,} bytes"
    return "no data"
