"""The MCP server for the knowledge base: four tools that read."""

import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from importlib.metadata import version
from typing import Any

from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.types import (
    CallToolRequestParams,
    CallToolResult,
    ListToolsResult,
    PaginatedRequestParams,
    TextContent,
    Tool,
    ToolAnnotations,
)
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
from ai_platform_engineering.knowledge_bases.tool_schemas import (
    INSTRUCTIONS,
    TOOLS,
    KnowledgeTool,
    answer_tool_call,
)
from ai_platform_engineering.runtime.server.authentication import (
    BearerAuthMiddleware,
    HostCheckMiddleware,
    principal_of_call,
)
from ai_platform_engineering.runtime.server.read_only import ReadOnlyMiddleware

log = logging.getLogger(__name__)

SERVER_NAME = "knowledge_base"
MCP_PATH = "/mcp"


def create_server(kb: KnowledgeBase) -> Server[Any]:
    async def list_tools(_: ServerRequestContext[Any], __: PaginatedRequestParams | None) -> ListToolsResult:
        return ListToolsResult(tools=[_describe_tool(tool) for tool in TOOLS])

    async def call_tool(context: ServerRequestContext[Any], params: CallToolRequestParams) -> CallToolResult:
        try:
            principal = _find_principal(context)
            arguments = params.arguments or {}
            return _build_tool_result(await answer_tool_call(kb, params.name, arguments, principal))
        except CaipeError as error:
            return _build_tool_result(str(error), failed=True)
        except Exception as error:  # noqa: BLE001 - the text of an error of ours is nothing for a model
            log.error("%s failed: %s", params.name, type(error).__name__)
            text = f"{params.name} failed on our side ({type(error).__name__})."
            return _build_tool_result(text, failed=True)

    return Server(
        SERVER_NAME,
        version=version("ai-platform-engineering"),
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=call_tool,
    )


def _describe_tool(tool: KnowledgeTool) -> Tool:
    return Tool(
        name=tool.name,
        description=tool.description,
        input_schema=tool.schema,
        annotations=ToolAnnotations(
            read_only_hint=True,
            destructive_hint=False,
            idempotent_hint=True,
            open_world_hint=tool.open_world,
        ),
    )


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


def _find_principal(context: ServerRequestContext[Any]) -> str | None:
    """Who asks. On stdin and stdout the program that started this one says it. Raises Refused."""
    meta: Mapping[str, Any] = context.meta or {}
    user = meta.get(USER_META_KEY)
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
    return CallToolResult(content=[TextContent(type="text", text=text)], is_error=failed)
