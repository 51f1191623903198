"""An MCP server on stdio written by hand: it starts at once and can misbehave in every way a test wants.

    python mcp_raw.py [--misbehave] …

Standard library only. Its tools answer with random values of their own, so that no answer can be guessed.
"""

import argparse
import json
import os
import random
import secrets
import signal
import sys
import threading
import time
from typing import Any

TOKEN = secrets.token_hex(8)  # of this process: another process is another token
_lock = threading.Lock()
_cancelled: list[Any] = []
_removed: set[str] = set()
_added: set[str] = set()

PNG = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

OPEN = {"type": "object", "properties": {}, "additionalProperties": True}
TOOLS: dict[str, dict[str, Any]] = {
    "echo": {
        "description": "Says it again, after a moment.",
        "inputSchema": {
            "type": "object",
            "properties": {"value": {"type": "string"}},
            "required": ["value"],
            "x-kept": [1, 2],
        },
        "outputSchema": {"type": "object", "properties": {"result": {"type": "string"}}},
        "annotations": {"title": "Echo", "readOnlyHint": True, "openWorldHint": False},
    },
    "who": {"description": "Process id and token.", "inputSchema": OPEN},
    "read_who": {
        "description": "The same, harmless.",
        "inputSchema": OPEN,
        "annotations": {"readOnlyHint": True},
    },
    "hang": {"description": "Never answers.", "inputSchema": OPEN, "annotations": {"destructiveHint": True}},
    "hang_once": {
        "description": "Never answers the first process.",
        "inputSchema": OPEN,
        "annotations": {"idempotentHint": True},
    },
    "stall": {"description": "Stops the whole server for some seconds.", "inputSchema": OPEN},
    "die": {"description": "Ends the process.", "inputSchema": OPEN},
    "fail": {"description": "A failure.", "inputSchema": OPEN},
    "refuse": {"description": "A JSON-RPC error.", "inputSchema": OPEN},
    "nonsense": {"description": "An answer that is no tool result.", "inputSchema": OPEN},
    "reply": {"description": "Returns the result it is given.", "inputSchema": OPEN},
    "count": {"description": "Counts, with progress.", "inputSchema": OPEN},
    "mirror": {"description": "Its arguments.", "inputSchema": OPEN},
    "environment": {"description": "Its variables.", "inputSchema": OPEN},
    "say": {"description": "Writes to stderr.", "inputSchema": OPEN},
    "withdrawn": {"description": "Requests that were cancelled.", "inputSchema": OPEN},
    "change": {"description": "Adds and removes tools.", "inputSchema": OPEN},
    "last_words": {"description": "Answers and ends.", "inputSchema": OPEN},
    "odd.name/with spaces": {"inputSchema": OPEN},
}


def send(message: dict[str, Any]) -> None:
    with _lock:
        sys.stdout.write(json.dumps({"jsonrpc": "2.0", **message}) + "\n")
        sys.stdout.flush()


def text(content: str, **more: Any) -> dict[str, Any]:
    return {"content": [{"type": "text", "text": content}], **more}


def list_tools() -> list[Any]:
    tools: list[Any] = [{"name": name, **tool} for name, tool in TOOLS.items() if name not in _removed]
    tools += [{"name": name, "inputSchema": OPEN} for name in sorted(_added)]
    return [*tools, {"description": "has no name"}]


def page(cursor: str | None) -> dict[str, Any]:
    """Two pages, since clients tend to forget the second."""
    tools = list_tools()
    half = 5
    return {"tools": tools[half:]} if cursor else {"tools": tools[:half], "nextCursor": "more"}


def call(
    name: str, arguments: dict[str, Any], request: dict[str, Any], options: argparse.Namespace
) -> dict[str, Any] | None:
    exists = (name in TOOLS and name not in _removed) or name in _added
    if not exists:
        return text(f"Unknown tool: {name}", isError=True)
    match name:
        case "echo":
            time.sleep(random.random() * 0.05)
            return text(arguments["value"])
        case "who" | "read_who":
            return text(json.dumps({"pid": os.getpid(), "token": TOKEN}))
        case "hang":
            mark(options, "hanging")
            return None
        case "hang_once":
            return None if mark(options, "hung") else text(TOKEN)
        case "die":
            mark(options, "dying")
            os._exit(7)
        case "fail":
            return text(arguments["text"], isError=True)
        case "reply":
            return arguments["result"]
        case "nonsense":
            return {"content": "not a list", "isError": {"neither": True}}
        case "count":
            return count(arguments, request, options)
        case "mirror":
            return text(json.dumps(arguments))
        case "environment":
            return text(json.dumps(dict(os.environ)))
        case "say":
            sys.stderr.write(arguments["text"])
            sys.stderr.flush()
            return text("said")
        case "withdrawn":
            return text(json.dumps(_cancelled))
        case "change":
            _added.update(arguments.get("add", []))
            _removed.update(arguments.get("remove", []))
            if not arguments.get("quietly"):
                send({"method": "notifications/tools/list_changed"})
            return text("changed")
        case _:
            return text(name)


def count(arguments: dict[str, Any], request: dict[str, Any], options: argparse.Namespace) -> dict[str, Any]:
    """Reports each step, and leaves a sign of it; ends early when there is a sign `enough`."""
    token = request["params"].get("_meta", {}).get("progressToken")
    for step in range(1, arguments["to"] + 1):
        time.sleep(arguments.get("every", 0))
        if options.marks is not None and os.path.exists(os.path.join(options.marks, "enough")):
            break
        if token is not None:
            params = {
                "progressToken": token,
                "progress": step,
                "total": arguments["to"],
                "message": f"{arguments.get('text', 'step')} {step}",
            }
            send({"method": "notifications/progress", "params": params})
            mark(options, f"counted-{step}")
    return text("with progress" if token is not None else "without progress")


def mark(options: argparse.Namespace, name: str) -> bool:
    """Leaves a file as a sign; True for the first to do so."""
    if options.marks is None:
        return False
    try:
        os.close(os.open(os.path.join(options.marks, name), os.O_CREAT | os.O_EXCL))
    except FileExistsError:
        return False
    return True


def answer(request: dict[str, Any], options: argparse.Namespace) -> None:
    params = request.get("params") or {}
    match request["method"]:
        case "initialize":
            time.sleep(options.start_delay)
            about = {"name": "raw", "version": "1.2.3"}
            capabilities = {"tools": {"listChanged": True}}
            result = {
                "protocolVersion": params["protocolVersion"],
                "capabilities": capabilities,
                "serverInfo": about,
            }
            send({"id": request["id"], "result": {**result, "instructions": "Ask anything."}})
        case "ping":
            send({"id": request["id"], "result": {}})
        case "tools/list":
            send({"id": request["id"], "result": page(params.get("cursor"))})
        case "tools/call" if params["name"] == "refuse":
            send({"id": request["id"], "error": {"code": -32000, "message": params["arguments"]["text"]}})
        case "tools/call":
            result_or_none = call(params["name"], params.get("arguments") or {}, request, options)
            if result_or_none is not None:
                send({"id": request["id"], "result": result_or_none})
            if params["name"] == "last_words":
                os._exit(0)
        case _:
            send({"id": request["id"], "error": {"code": -32601, "message": "unknown method"}})


def serve(options: argparse.Namespace) -> None:
    for line in sys.stdin:
        message = json.loads(line)
        if message.get("method") == "notifications/cancelled":
            _cancelled.append(message["params"].get("reason"))
        if "id" not in message or "method" not in message:
            continue
        if options.noise:
            sys.stdout.write('a line for people\n{\'not\': json}\n{"json": "but not a message"}\n')
            send({"method": "notifications/unheard/of", "params": {"secret": "content"}})
            send({"id": "no-number", "result": {}})
        if (message.get("params") or {}).get("name") == "stall":
            mark(options, "stalled")
            time.sleep(message["params"]["arguments"]["seconds"])
        threading.Thread(target=answer, args=(message, options), daemon=True).start()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--marks", help="a folder for signs")
    parser.add_argument("--start-delay", type=float, default=0)
    parser.add_argument("--hang", action="store_true", help="never say anything")
    parser.add_argument("--noise", action="store_true", help="other lines between the messages")
    parser.add_argument("--garbage", choices=("some", "endless"), help="nothing but other lines")
    parser.add_argument("--exit", help="say this on stderr and exit with code 3")
    parser.add_argument("--stubborn", action="store_true", help="end neither with the input nor on SIGTERM")
    parser.add_argument("--api-token", help="not used")
    parser.add_argument("--sign", help="a file to write at the start")
    parser.add_argument(
        "--helper", action="store_true", help="start another process of the same kind, which holds the pipes"
    )
    options = parser.parse_args()
    if options.marks:
        with open(os.path.join(options.marks, f"pid-{os.getpid()}"), "w"):
            pass
    if options.sign:
        with open(options.sign, "w"):
            pass
    if options.exit is not None:
        sys.exit(fail_at_start(options.exit))
    if options.stubborn:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    if options.helper and os.fork() == 0:
        time.sleep(600)
    while options.garbage == "endless":
        sys.stdout.write("x" * 60 + "\n")
    if options.garbage:
        sys.stdout.write("Welcome to the server!\n" * 3)
        sys.stdout.flush()
    if not options.hang and not options.garbage:
        serve(options)
    while options.hang or options.stubborn or (options.garbage and sys.stdin.read(1)):
        time.sleep(0.05)


def fail_at_start(message: str) -> int:
    sys.stderr.write(message + "\n")
    return 3


if __name__ == "__main__":
    main()
