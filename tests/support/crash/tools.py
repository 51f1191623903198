"""The tools of the crash tests as an MCP server on stdio: what they read and write is in a ledger outside,
which also holds them.

    python tools.py LEDGER_PORT

Standard library only, so that it starts at once: it dies with every kill.
"""

import json
import socket
import sys
import threading
from typing import Any

_lock = threading.Lock()
_KEY = {"type": "object", "properties": {"key": {"type": "string"}}, "required": ["key"]}
TOOLS: list[dict[str, Any]] = [
    {"name": "look", "description": "Reads.", "inputSchema": _KEY, "annotations": {"readOnlyHint": True}},
    {
        "name": "keep",
        "description": "Writes, and destroys nothing.",
        "inputSchema": _KEY,
        "annotations": {"destructiveHint": False},
    },
]


def asked(port: int, what: str, key: str) -> str:
    """What the ledger says to it; it may take its time."""
    with socket.create_connection(("127.0.0.1", port)) as connection, connection.makefile("rw") as ledger:
        ledger.write(json.dumps({"what": what, "key": key}) + "\n")
        ledger.flush()
        answer: str = json.loads(ledger.readline())["answer"]
    return answer


def called(port: int, tool: str, key: str) -> str:
    if tool == "look":
        return json.dumps({"seen": asked(port, "look", key)})
    asked(port, "arrive", key)
    receipt = asked(port, "write", key)
    asked(port, "leave", key)
    return json.dumps({"receipt": receipt})


def answer(port: int, request: dict[str, Any]) -> None:
    given = request.get("params") or {}
    if request["method"] == "initialize":
        about = {"name": "crash", "version": "1"}
        result: dict[str, Any] = {
            "protocolVersion": given["protocolVersion"],
            "capabilities": {"tools": {}},
            "serverInfo": about,
        }
    elif request["method"] == "tools/list":
        result = {"tools": TOOLS}
    elif request["method"] == "tools/call":
        result = {
            "content": [{"type": "text", "text": called(port, given["name"], given["arguments"]["key"])}]
        }
    else:
        result = {}
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}) + "\n")
        sys.stdout.flush()


def main(port: int) -> None:
    for line in sys.stdin:
        request = json.loads(line)
        if "id" in request:
            threading.Thread(target=answer, args=(port, request), daemon=True).start()


if __name__ == "__main__":
    main(int(sys.argv[1]))
