"""An MCP server on stdio with tools of all annotations; it writes down each call before it answers.

    python mcp_notes.py CALLS_FILE

Standard library only, so that it starts at once. A call is a line of JSON in the file, which shows what
really arrived.
"""

import json
import sys
from pathlib import Path
from typing import Any

_NOTE = {"type": "object", "properties": {"note": {"type": "string"}}, "required": ["note"]}
_HINTS: dict[str, dict[str, Any] | None] = {
    "read_note": {"readOnlyHint": True},
    "add_note": {"destructiveHint": False},
    "drop_note": {"destructiveHint": True},
    "move_note": {},
    "touch_note": None,
    "hold_note": None,
}
TOOLS = [
    {
        "name": name,
        "description": f"{name}.",
        "inputSchema": _NOTE,
        **({} if hints is None else {"annotations": hints}),
    }
    for name, hints in _HINTS.items()
]


def _call_tool(calls: Path, name: str, arguments: dict[str, Any]) -> dict[str, Any] | None:
    """The result; the first call of `hold_note` gets none."""
    before = calls.read_text(encoding="utf-8") if calls.exists() else ""
    with calls.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"tool": name, **arguments}) + "\n")
    if name == "hold_note" and name not in before:
        return None
    return {"content": [{"type": "text", "text": json.dumps({"done": f"{name} {arguments.get('note')}"})}]}


def _result(calls: Path, request: dict[str, Any]) -> dict[str, Any] | None:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            about = {"name": "notes", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return _call_tool(calls, params["name"], params.get("arguments") or {})
        case _:
            return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" not in request or "method" not in request:
            continue
        result = _result(Path(sys.argv[1]), request)
        if result is not None:
            sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
            sys.stdout.flush()
