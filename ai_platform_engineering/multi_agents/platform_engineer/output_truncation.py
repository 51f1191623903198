"""Truncates the output of a tool: a text, a list of content blocks, or data that becomes a text."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.messages import ToolMessage
from langchain_core.tools.base import TOOL_MESSAGE_BLOCK_TYPES

TRUNCATED = "[Output truncated]"

# Blocks whose data is no text: half an image is none.
_BINARY_TYPES = frozenset({"file", "image", "image_url"})


def truncate_output(output: Any, max_chars: int) -> Any:
    """The output as it is, or its first `max_chars` characters followed by `TRUNCATED`.

    The texts of content blocks count together, and so do the data of blocks without a text.
    """
    if isinstance(output, ToolMessage):
        return output.model_copy(update={"content": truncate_output(output.content, max_chars)})
    if isinstance(output, str):
        return _truncate_text(output, max_chars)
    if _is_block_list(output):
        return _truncate_blocks(output, max_chars)
    text = _to_json(output)  # as LangChain shows it to the model
    if len(text) <= max_chars:
        return output
    return _truncate_text(text, max_chars)


def _is_block_list(output: Any) -> bool:
    if not isinstance(output, Sequence) or not output:
        return False
    return all(isinstance(block, str) or _block_type(block) in TOOL_MESSAGE_BLOCK_TYPES for block in output)


def _block_type(block: Any) -> str:
    if not isinstance(block, Mapping):
        return ""
    return str(block.get("type") or "")


def _truncate_blocks(blocks: Sequence[Any], max_chars: int) -> Sequence[Any]:
    """The blocks as they are, or those that fit, the last one cut."""
    remaining_chars = max_chars
    remaining_binary = max_chars
    kept_blocks: list[Any] = []
    for block in blocks:
        if _block_type(block) in _BINARY_TYPES:
            remaining_binary -= len(_to_json(block))
            if remaining_binary < 0:
                return [*kept_blocks, _text_block(TRUNCATED)]
            kept_blocks.append(block)
            continue
        text = _read_text(block)
        if len(text) > remaining_chars:
            return [*kept_blocks, _text_block(_truncate_text(text, remaining_chars))]
        remaining_chars -= len(text)
        # Between other blocks a text is a block, too: LangChain turns a list with bare texts into JSON.
        kept_blocks.append(_text_block(block) if isinstance(block, str) else block)
    return blocks


def _read_text(block: Any) -> str:
    """The text of a block; all of a block that keeps its texts deeper, such as a search result."""
    if isinstance(block, str):
        return block
    text = block.get("text")
    if isinstance(text, str):
        return text
    return _to_json(block)


def _text_block(text: str) -> dict[str, str]:
    return {"type": "text", "text": text}


def _to_json(value: Any) -> str:
    try:
        return json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(value)


def _truncate_text(text: str, max_chars: int) -> str:
    if len(text) <= max_chars:
        return text
    return f"{text[:max_chars]}\n{TRUNCATED}"
