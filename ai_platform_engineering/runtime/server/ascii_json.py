"""JSON responses in ASCII."""

import json
from typing import Any

from starlette.responses import JSONResponse


class AsciiJSONResponse(JSONResponse):
    """A JSON response with ASCII only: some clients split lines at U+0085, U+2028 or U+2029."""

    def render(self, content: Any) -> bytes:
        return json.dumps(content, allow_nan=False, separators=(",", ":")).encode()
