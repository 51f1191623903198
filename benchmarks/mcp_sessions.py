"""Calls per second on a shared MCP session against one session per call, on stdio and on HTTP.

    python benchmarks/mcp_sessions.py [--seconds 2]

The server is the protocol's own library, in a process of its own. "Per call" is what
`langchain-mcp-adapters` does unless it is given a session: open, initialize, call, close.
Each measurement takes about the given time and at least three calls; there are four.
"""

import argparse
import asyncio
import os
import secrets
import socket
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

from mcp import ClientSession, StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.server.mcpserver import MCPServer

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.session_pool import McpSessionPool

HERE = Path(__file__).resolve()
MIN_CALLS = 3
PARALLEL = 100


def serve(port: int | None) -> None:
    server = MCPServer("bench", port=port or 0, log_level="ERROR")

    @server.tool()
    async def echo(value: str) -> str:
        """Says it again."""
        return value

    server.run("streamable-http" if port else "stdio")


async def measure_rate(call: Callable[[str], Awaitable[str]], seconds: float) -> float:
    """Calls per second, one after the other."""
    began, count = time.perf_counter(), 0
    while count < MIN_CALLS or time.perf_counter() - began < seconds:
        value = secrets.token_hex(8)
        answer = await call(value)
        assert answer == value, f"{answer!r} is not {value!r}"
        count += 1
    return count / (time.perf_counter() - began)


async def initialize_and_call(session: ClientSession, value: str) -> str:
    await session.initialize()
    result = await session.call_tool("echo", {"value": value})
    return str(getattr(result.content[0], "text", ""))


async def per_call_stdio(value: str) -> str:
    parameters = StdioServerParameters(command=sys.executable, args=[str(HERE), "--serve"])
    async with stdio_client(parameters) as (read, write), ClientSession(read, write) as session:
        return await initialize_and_call(session, value)


def per_call_http(url: str) -> Callable[[str], Awaitable[str]]:
    async def call(value: str) -> str:
        async with streamable_http_client(url) as (read, write), ClientSession(read, write) as session:
            return await initialize_and_call(session, value)

    return call


async def compare(
    name: str, server: McpServer, per_call: Callable[[str], Awaitable[str]], seconds: float
) -> None:
    sessions = McpSessionPool(environment=dict(os.environ))
    try:
        (echo,) = await sessions.tools(name, server)

        async def call_on_shared_session(value: str) -> str:
            return str(await echo.ainvoke({"value": value}))

        shared_rate = await measure_rate(call_on_shared_session, seconds)
        per_call_rate = await measure_rate(per_call, seconds)
        began = time.perf_counter()
        await asyncio.gather(*(call_on_shared_session(secrets.token_hex(8)) for _ in range(PARALLEL)))
        together = PARALLEL / (time.perf_counter() - began)
    finally:
        await sessions.aclose()
    sys.stdout.write(
        f"{name:5}  kept {shared_rate:7.1f} calls/s   per call {per_call_rate:6.2f} calls/s"
        f"   ratio {shared_rate / per_call_rate:6.1f}"
        f"   ({PARALLEL} at once on one session: {together:.0f} calls/s)\n"
    )


async def main(seconds: float) -> None:
    await compare(
        "stdio", McpServer(command=sys.executable, args=(str(HERE), "--serve")), per_call_stdio, seconds
    )
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    # The library's server reports every session that its client closes as an error.
    command = (sys.executable, str(HERE), "--serve", "--port", str(port))
    process = await asyncio.create_subprocess_exec(*command, stderr=asyncio.subprocess.DEVNULL)
    try:
        await wait_until_listening(port)
        url = f"http://127.0.0.1:{port}/mcp"
        await compare("http", McpServer(url=url), per_call_http(url), seconds)
    finally:
        process.terminate()
        await process.wait()


async def wait_until_listening(port: int) -> None:
    async with asyncio.timeout(60):
        while True:
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.05)
            else:
                writer.close()
                return


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=float, default=2.0, help="per measurement")
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.serve:
        serve(options.port)
    else:
        asyncio.run(main(options.seconds))
