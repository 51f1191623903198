"""A scripted OpenAI-compatible model for load: never the bottleneck, and its answer is known exactly.

    python -m benchmarks.load.scripted_model PORT

The last message of the user says what it does: `[[tokens=200 rate=50]]` streams so many tokens at so many a
second (0: as fast as it can); `[[delegate=echo sub_tokens=20 tokens=5]]` first delegates to an agent.
"""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from typing import Any

_DIRECTIVE = re.compile(r"\[\[([^\]]*)\]\]")
_BURST = 16  # tokens in one write, each an event of its own
_HEAD = (
    b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n"
    b"Connection: keep-alive\r\n\r\n"
)


def token(number: int) -> str:
    return f"t{number} "


def answer_text(tokens: int) -> str:
    return "".join(token(number) for number in range(tokens))


def read_directive(text: str) -> dict[str, str]:
    """The words of the last directive in a text."""
    directives = _DIRECTIVE.findall(text)
    if not directives:
        return {}
    return dict(word.split("=", 1) for word in directives[-1].split() if "=" in word)


def _event(delta: dict[str, Any], finish: str | None = None) -> bytes:
    choice = {"index": 0, "delta": delta, "finish_reason": finish}
    chunk = {
        "id": "c",
        "object": "chat.completion.chunk",
        "created": 1,
        "model": "scripted",
        "choices": [choice],
    }
    return b"data: " + json.dumps(chunk).encode() + b"\n\n"


_TOKEN_HEAD, _TOKEN_TAIL = _event({"content": "@"}).split(b"@")
_USAGE = (
    b'data: {"id":"c","object":"chat.completion.chunk","created":1,"model":"scripted","choices":[],'
    b'"usage":{"prompt_tokens":10,"completion_tokens":10,"total_tokens":20}}\n\ndata: [DONE]\n\n'
)


def _token_event(number: int) -> bytes:
    return _TOKEN_HEAD + token(number).encode() + _TOKEN_TAIL


def _text_of(message: dict[str, Any]) -> str:
    content = message.get("content") or ""
    if isinstance(content, str):
        return content
    return "".join(part.get("text", "") for part in content)


async def _answer(request: dict[str, Any]) -> AsyncIterator[bytes]:
    """The body in pieces."""
    messages = request["messages"]
    directive: dict[str, str] = {}
    for message in messages:
        if message["role"] == "user":
            directive = read_directive(_text_of(message)) or directive
    yield _event({"role": "assistant", "content": ""})
    if "delegate" in directive and messages[-1]["role"] != "tool":
        arguments = {
            "description": f"[[tokens={directive.get('sub_tokens', '20')}]]",
            "subagent_type": directive["delegate"],
        }
        function = {"name": "task", "arguments": json.dumps(arguments)}
        call = {"index": 0, "id": "call-1", "type": "function", "function": function}
        yield _event({"tool_calls": [call]}) + _event({}, "tool_calls") + _USAGE
        return
    tokens = int(directive.get("tokens", "5"))
    rate = float(directive.get("rate", "0"))
    if rate:
        async for piece in _paced(tokens, rate):
            yield piece
    else:
        for first in range(0, tokens, _BURST):
            yield b"".join(_token_event(number) for number in range(first, min(first + _BURST, tokens)))
            await asyncio.sleep(0)
    yield _event({}, "stop") + _USAGE


async def _paced(tokens: int, rate: float) -> AsyncIterator[bytes]:
    loop = asyncio.get_running_loop()
    start = loop.time()
    for number in range(tokens):
        delay = start + number / rate - loop.time()
        if delay > 0:
            await asyncio.sleep(delay)
        yield _token_event(number)


async def _serve_connection(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while True:
            head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").lower()
            length = 0
            for line in head.split("\r\n"):
                if line.startswith("content-length:"):
                    length = int(line.split(":")[1])
            request = json.loads(await reader.readexactly(length) or b"{}")
            if "messages" not in request:
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")
                continue
            writer.write(_HEAD)
            async for piece in _answer(request):
                writer.write(b"%x\r\n%s\r\n" % (len(piece), piece))
                await writer.drain()
            writer.write(b"0\r\n\r\n")
    except (asyncio.IncompleteReadError, ConnectionError):
        pass
    finally:
        writer.close()


async def serve(port: int) -> None:
    server = await asyncio.start_server(_serve_connection, "127.0.0.1", port, limit=2**22, backlog=1024)
    async with server:
        await server.serve_forever()


if __name__ == "__main__":
    import uvloop

    uvloop.run(serve(int(sys.argv[1])))
