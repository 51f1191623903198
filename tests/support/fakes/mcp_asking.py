"""An MCP server that asks people, with the protocol's library before 2.0 or after; on stdio or HTTP.

python mcp_asking.py MARKS [--port-file FILE]     writes a file into the folder for each order
"""

import argparse
import base64
import json
import socket
import uuid
from pathlib import Path
from typing import Any

import uvicorn
from mcp.shared.exceptions import UrlElicitationRequiredError
from mcp.types import ElicitRequestURLParams
from pydantic import BaseModel

try:
    from mcp.server.mcpserver import Context, MCPServer
    from mcp.types import (
        ElicitRequest,
        ElicitRequestFormParams,
        EmbeddedResource,
        ImageContent,
        InputRequiredResult,
        ResourceLink,
        TextContent,
        TextResourceContents,
    )

    HAS_ROUNDS = True
except ImportError:  # the library before 2.0
    from mcp.server.fastmcp import Context
    from mcp.server.fastmcp import FastMCP as MCPServer

    HAS_ROUNDS = False

LINK = "https://sign-in.example/start?state=1"
DOORS = ("outer", "inner")
PIXEL = base64.b64encode(bytes(range(70))).decode()
SCHEMA = {
    "type": "object",
    "properties": {
        "size": {"type": "string", "title": "Size", "enum": ["s", "l"], "enumNames": ["Small", "Large"]},
        "count": {"type": "integer", "title": "How many", "minimum": 1, "maximum": 9},
        "gift": {"type": "boolean", "default": False},
    },
    "required": ["size", "count"],
}

parser = argparse.ArgumentParser()
parser.add_argument("marks", type=Path)
parser.add_argument("--port-file", type=Path)
parser.add_argument("--port", type=int, default=0)
options = parser.parse_args()
server = MCPServer("asking", instructions="Takes orders.")


class Details(BaseModel):
    """For the library before 2.0, which makes the schema itself."""

    size: str
    count: int


def note_call(item: str) -> None:
    (options.marks / f"called-{uuid.uuid4().hex}").write_text(item)


def carry_out(item: str, answer: dict[str, Any]) -> str:
    (options.marks / f"order-{uuid.uuid4().hex}").write_text(item)
    return f"ordered {item}: {json.dumps(answer, sort_keys=True)}"


@server.tool()
async def open_vault(item: str) -> str:
    """Takes something out, once people have opened each door at an address of its own."""
    note_call(item)
    closed = [door for door in DOORS if not (options.marks / f"opened-{door}").exists()]
    if closed:
        links = []
        for door in closed:
            link = {
                "mode": "url",
                "message": f"Open the {door} door.",
                "url": f"https://{door}.example/door?for={item}",
                "elicitationId": door,
            }
            links.append(ElicitRequestURLParams.model_validate(link))
        raise UrlElicitationRequiredError(links)
    return carry_out(item, {})


def question_of_place() -> str:
    return "Where exactly?" if (options.marks / "changed").exists() else "Where?"


def ask_for(name: str, kind: str, message: str) -> Any:
    """A question with one field."""
    schema = {"type": "object", "properties": {name: {"type": kind}}, "required": [name]}
    return ElicitRequest(params=ElicitRequestFormParams(message=message, requested_schema=schema))


if HAS_ROUNDS:

    @server.tool()
    async def book(item: str, context: Context[Any, Any]) -> str | InputRequiredResult:
        """Books something: two questions at once, and then one more with their answers in it."""
        note_call(item)
        answers = {}
        for key, answer in (context.input_responses or {}).items():
            answers[key] = answer.content if answer.action == "accept" else answer.action
        if context.request_state is None:
            questions = {
                "where": ask_for("place", "string", question_of_place()),
                "when": ask_for("day", "integer", "Which day?"),
            }
            return InputRequiredResult(input_requests=questions, request_state="{}")
        known = json.loads(context.request_state) | answers
        if "sure" not in known:
            message = f"Book {item}, {json.dumps(known, sort_keys=True)}?"
            questions = {"sure": ask_for("yes", "boolean", message)}
            return InputRequiredResult(input_requests=questions, request_state=json.dumps(known))
        return carry_out(item, known)

    @server.tool()
    async def order(item: str, context: Context[Any, Any]) -> str | InputRequiredResult:
        """Orders something, once a person has said the details."""
        note_call(item)
        answer = (context.input_responses or {}).get("details")
        if answer is None:
            params = ElicitRequestFormParams(message=f"Details of {item}?", requested_schema=SCHEMA)
            return InputRequiredResult(
                input_requests={"details": ElicitRequest(params=params)}, request_state=f"asked for {item}"
            )
        assert context.request_state == f"asked for {item}"
        if answer.action != "accept":
            return f"not ordered: {answer.action}"
        return carry_out(item, answer.content or {})

    @server.tool()
    async def sign_in(context: Context[Any, Any]) -> str | InputRequiredResult:
        """Has a person sign in elsewhere."""
        answer = (context.input_responses or {}).get("link")
        if answer is None:
            params = ElicitRequestURLParams(message="Please sign in.", url=LINK)
            return InputRequiredResult(input_requests={"link": ElicitRequest(params=params)})
        return f"signed in: {answer.action}"

    @server.tool()
    async def show() -> list[Any]:
        """A picture, a document, and a link to another one."""
        document = TextResourceContents(uri="notes://today", mime_type="text/plain", text="buy milk")
        return [
            TextContent(text="Here they are."),
            ImageContent(data=PIXEL, mime_type="image/png"),
            EmbeddedResource(resource=document),
            ResourceLink(uri="notes://archive", name="archive", description="Older notes."),
        ]

else:

    @server.tool()
    async def order(item: str, context: Context[Any, Any, Any]) -> str:
        """Orders something, once a person has said the details."""
        note_call(item)
        answer = await context.session.elicit_form(
            message=f"Details of {item}?", requestedSchema=SCHEMA, related_request_id=context.request_id
        )
        if answer.action != "accept":
            return f"not ordered: {answer.action}"
        return carry_out(item, answer.content or {})

    @server.tool()
    async def sign_in(context: Context[Any, Any, Any]) -> str:
        """Has a person sign in elsewhere."""
        answer = await context.session.elicit_url(
            message="Please sign in.", url=LINK, elicitation_id="1", related_request_id=context.request_id
        )
        return f"signed in: {answer.action}"


@server.resource("notes://today", description="What is to be done today.")
async def today() -> str:
    return "buy milk"


@server.resource("notes://{day}", description="The notes of a day.")
async def day_notes(day: str) -> str:
    return f"{day}: nothing" + "." * 100_000


@server.prompt(description="How notes are reviewed.")
async def review(topic: str) -> str:
    return f"Review the notes on {topic}, one by one."


def serve_http(port_file: Path, port: int) -> None:
    listening = socket.create_server(("127.0.0.1", port))
    app = uvicorn.Server(uvicorn.Config(server.streamable_http_app(), log_level="warning"))
    written = port_file.with_suffix(".new")
    written.write_text(str(listening.getsockname()[1]))
    written.replace(port_file)
    app.run(sockets=[listening])


if __name__ == "__main__":
    if options.port_file:
        serve_http(options.port_file, options.port)
    else:
        server.run("stdio")
