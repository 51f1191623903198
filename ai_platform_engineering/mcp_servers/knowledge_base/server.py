"""The MCP server for the knowledge base: four tools that read."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import CallToolResult, TextContent, Tool, ToolAnnotations
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import HTTPConnection, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import BaseRoute, Route
from starlette.types import Receive, Scope, Send

from ai_platform_engineering.a2a.on_behalf_of import USER_META_KEY
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.tool_schemas import INSTRUCTIONS, TOOLS, answer_tool_call
from ai_platform_engineering.runtime.server.authentication import (
    BearerAuthMiddleware,
    HostCheckMiddleware,
    principal_of_call,
)
from ai_platform_engineering.runtime.server.read_only import ReadOnlyMiddleware

log = logging.getLogger(__name__)

SERVER_NAME = "knowledge_base"
MCP_PATH = "/mcp"


def create_server(kb: KnowledgeBase) -> Server[Any, Any]:
    server: Server[Any, Any] = Server(SERVER_NAME, instructions=INSTRUCTIONS)

    async def list_tools() -> list[Tool]:
        return [
            Tool(
                name=tool.name,
                description=tool.description,
                inputSchema=tool.schema,
                annotations=ToolAnnotations(
                    readOnlyHint=True,
                    destructiveHint=False,
                    idempotentHint=True,
                    openWorldHint=tool.open_world,
                ),
            )
            for tool in TOOLS
        ]

    async def call_tool(name: str, arguments: dict[str, Any]) -> CallToolResult:
        try:
            principal = _find_principal(server)
            return _build_tool_result(await answer_tool_call(kb, name, arguments, principal))
        except CaipeError as error:
            return _build_tool_result(str(error), failed=True)
        except Exception as error:  # noqa: BLE001 - the text of an error of ours is nothing for a model
            log.error("%s failed: %s", name, type(error).__name__)
            return _build_tool_result(f"{name} failed on our side ({type(error).__name__}).", failed=True)

    server.list_tools()(list_tools)  # type: ignore[no-untyped-call]
    server.call_tool(validate_input=False)(call_tool)  # our own check has better messages
    return server


def create_app(
    kb: KnowledgeBase,
    settings: ServerSettings,
    *,
    read_only: bool = False,
    on_startup: Callable[[], Awaitable[None]] | None = None,
    routes: Sequence[BaseRoute] = (),
) -> Starlette:
    """Streamable HTTP at `/mcp`, behind the checks that every server of ours has; `routes` are served with
    it, `on_startup` replaces opening the knowledge base.
    """
    manager = StreamableHTTPSessionManager(
        create_server(kb), stateless=True, max_request_body_size=settings.max_request_bytes
    )

    start = on_startup or kb.open

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        await start()
        try:
            async with manager.run():
                yield
        finally:
            await kb.aclose()

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    return Starlette(
        lifespan=lifespan,
        middleware=[
            Middleware(HostCheckMiddleware, settings=settings),
            Middleware(BearerAuthMiddleware, settings=settings),
            Middleware(ReadOnlyMiddleware, read_only=lambda: read_only),
        ],
        routes=[Route(MCP_PATH, _McpEndpoint(manager)), Route("/health", health), *routes],
    )


def _find_principal(server: Server[Any, Any]) -> str | None:
    """Who asks. On stdin and stdout the program that started this one says it. Raises Refused."""
    context = server.request_context
    user = None
    if context.meta is not None:
        user = (context.meta.model_extra or {}).get(USER_META_KEY)
    if not isinstance(user, str):
        user = None
    if isinstance(context.request, HTTPConnection):
        return principal_of_call(context.request, user)
    return user


class _McpEndpoint:
    """An ASGI app as an object: Starlette passes every HTTP method to it unchanged."""

    def __init__(self, manager: StreamableHTTPSessionManager) -> None:
        self._manager = manager

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self._manager.handle_request(scope, receive, send)


def _build_tool_result(text: str, *, failed: bool = False) -> CallToolResult:
    return CallToolResult(content=[TextContent(type="text", text=text)], isError=failed)
