"""An MCP server on stdio whose tools are those of a file, whatever it holds now; each call is written down.

    python mcp_shifty.py TOOLS.json CALLS.txt

The tool `announce` says that the tools have changed. Standard library only.
"""

import json
import sys
from pathlib import Path
from typing import Any

TOOLS, CALLS = map(Path, sys.argv[1:3])


def send(message: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
    sys.stdout.flush()


def answer(request: dict[str, Any]) -> dict[str, Any]:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            return {
                "protocolVersion": params["protocolVersion"],
                "capabilities": {"tools": {"listChanged": True}},
                "serverInfo": {"name": "shifty", "version": "1"},
            }
        case "tools/list":
            return {"tools": json.loads(TOOLS.read_text())}
        case "tools/call":
            name = params["name"]
            with CALLS.open("a") as file:
                file.write(f"{name}\n")
            if name == "announce":
                send({"method": "notifications/tools/list_changed"})
            return {"content": [{"type": "text", "text": f"{name} is done"}]}
        case _:
            return {}


for line in sys.stdin:
    message = json.loads(line)
    if "id" in message:
        send({"id": message["id"], "result": answer(message)})
