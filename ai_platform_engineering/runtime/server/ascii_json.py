"""JSON responses in ASCII."""

import asyncio
import json
from collections.abc import Mapping
from typing import Any, Self

from starlette.responses import JSONResponse

_PIECE_DEPTH = 3  # a response, its list of tasks, a task


class AsciiJSONResponse(JSONResponse):
    """A JSON response with ASCII only: some clients split lines at U+0085, U+2028 or U+2029."""

    def render(self, content: Any) -> bytes:
        return _dump(content).encode()

    @classmethod
    async def create(cls, content: Any, headers: Mapping[str, str], *, is_large: bool) -> Self:
        """The response; large content is rendered in a thread, in pieces, since rendering holds the
        interpreter's lock."""
        if not is_large:
            return cls(content, headers=headers)
        response = cls(None, headers=headers)
        response.body = await asyncio.to_thread(_dump_in_pieces, content)
        response.headers["content-length"] = str(len(response.body))
        return response


def _dump(content: Any) -> str:
    return json.dumps(content, allow_nan=False, separators=(",", ":"))


def _dump_in_pieces(content: Any) -> bytes:
    return _join_pieces(content, _PIECE_DEPTH).encode()


def _join_pieces(value: Any, depth: int) -> str:
    if depth and isinstance(value, dict):
        fields = [f"{_dump(name)}:{_join_pieces(item, depth - 1)}" for name, item in value.items()]
        return "{" + ",".join(fields) + "}"
    if depth and isinstance(value, list):
        return "[" + ",".join(_join_pieces(item, depth - 1) for item in value) + "]"
    return _dump(value)
