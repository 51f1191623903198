"""An MCP server made with the protocol's own library, on stdio or on streamable HTTP.

python mcp_real.py [--port-file FILE]     with a file: HTTP on a free loopback port, written there
"""

import argparse
import os
import secrets
import socket
from pathlib import Path
from typing import Any

import anyio
import uvicorn
from mcp.server.mcpserver import Context, Image, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import ToolAnnotations

TOKEN = secrets.token_hex(8)

server = MCPServer("real", instructions="Ask anything.")


@server.tool(annotations=ToolAnnotations(read_only_hint=True, idempotent_hint=True))
async def double(number: int) -> int:
    """Twice the number."""
    return 2 * number


@server.tool()
async def echo(value: str, delay: float = 0) -> str:
    """Says it again, after a while."""
    await anyio.sleep(delay)
    return value


@server.tool()
async def who() -> dict[str, Any]:
    """Process id and token."""
    return {"pid": os.getpid(), "token": TOKEN}


@server.tool()
async def fail(text: str) -> str:
    raise ToolError(text)


@server.tool()
async def picture() -> Image:
    """A picture."""
    return Image(data=secrets.token_bytes(90), format="png")


@server.tool()
async def count(to: int, context: Context[Any, Any]) -> str:
    """Counts, with progress."""
    for step in range(1, to + 1):
        await context.report_progress(step, to, f"step {step}")
    return f"counted to {to}"


@server.tool()
async def hang(mark: str) -> str:
    """Waits for ever; says in a file when it starts, and when it is cancelled."""
    Path(mark).write_text("started")
    try:
        await anyio.sleep_forever()
    finally:
        Path(mark).write_text("cancelled")


@server.tool()
async def learn(name: str, context: Context[Any, Any]) -> str:
    """Has one more tool from now on."""
    server.add_tool(lambda: TOKEN, name=name, description="New.")
    await context.notify_tools_changed()
    await context.session.send_tool_list_changed()
    return "learned"


def serve_http(port_file: Path, port: int) -> None:
    listening = socket.create_server(("127.0.0.1", port))
    app = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning"))
    written = port_file.with_suffix(".new")
    written.write_text(str(listening.getsockname()[1]))
    written.replace(port_file)
    app.run(sockets=[listening])


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port-file", type=Path)
    parser.add_argument("--port", type=int, default=0)
    options = parser.parse_args()
    if options.port_file:
        serve_http(options.port_file, options.port)
    else:
        server.run("stdio")
