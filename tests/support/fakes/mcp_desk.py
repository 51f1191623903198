"""An MCP server on stdio for agents whose work must be the same wherever they run.

What it finds follows from its seal alone.

Standard library only, so that it starts at once. The seal is a variable: whoever lacks it gets other answers.
"""

import hashlib
import json
import os
import sys
from typing import Any

SEAL = os.environ.get("DESK_SEAL", "")


def _takes(**properties: str) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": {name: {"type": kind} for name, kind in properties.items()},
        "required": list(properties),
    }


_HARMLESS = {"destructiveHint": False}  # it may write, and nobody need be asked
TOOLS = [
    {
        "name": "look",
        "description": "What is there.",
        "inputSchema": _takes(at="string"),
        "annotations": _HARMLESS,
    },
    {
        "name": "walk",
        "description": "Some steps, with progress.",
        "inputSchema": _takes(steps="integer"),
        "annotations": _HARMLESS,
    },
    {
        "name": "fail",
        "description": "A failure.",
        "inputSchema": _takes(text="string"),
        "annotations": _HARMLESS,
    },
]


def found(at: str, seal: str) -> int:
    """What `look` finds; a test knows it too."""
    return int(hashlib.sha256(f"{seal}/{at}".encode()).hexdigest()[:6], 16)


def _send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def _text(content: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], **more}


def _call(params: dict[str, Any]) -> dict[str, Any]:
    arguments = params.get("arguments") or {}
    match params["name"]:
        case "look":
            return _text(f"{arguments['at']}: count={found(arguments['at'], SEAL)}")
        case "walk":
            token = (params.get("_meta") or {}).get("progressToken")
            for step in range(1, arguments["steps"] + 1):
                progress = {
                    "progressToken": token,
                    "progress": step,
                    "total": arguments["steps"],
                    "message": f"step {step}",
                }
                _send({"method": "notifications/progress", "params": progress})
            return _text(f"walked {arguments['steps']}")
        case _:
            return _text(str(arguments.get("text")), isError=True)


def _result(request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            about = {"name": "desk", "version": "1"}
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {}},
                "serverInfo": about,
            }
        case "tools/list":
            return {"tools": TOOLS}
        case "tools/call":
            return _call(params)
        case _:
            return {}


if __name__ == "__main__":
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request and "method" in request:
            _send({"id": request["id"], "result": _result(request)})
