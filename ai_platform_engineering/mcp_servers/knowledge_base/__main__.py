"""`python -m ai_platform_engineering.mcp_servers.knowledge_base`: serves the knowledge base over stdin and
stdout, or over HTTP.
"""

import argparse
import asyncio
import contextlib
import errno
import logging
import socket
import sys

from pydantic import SecretStr

from ai_platform_engineering.core.environment import export_variables, read_environment
from ai_platform_engineering.core.errors import CaipeError, ConfigurationError
from ai_platform_engineering.core.setting_types import check_key
from ai_platform_engineering.core.settings import ServerSettings, Settings
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.knowledge_base_factory import create_knowledge_base
from ai_platform_engineering.mcp_servers.knowledge_base.server import MCP_PATH, create_app, create_server

log = logging.getLogger(__name__)


def main() -> int:
    arguments = _parse_arguments()
    try:
        variables = read_environment()
        export_variables(variables)
        settings = Settings.from_variables(variables)
        logging.basicConfig(
            level=settings.logging.level,
            stream=sys.stderr,
            format="%(asctime)s %(levelname)s %(module)s: %(message)s",
        )
        kb = create_knowledge_base(settings, variables)
        if arguments.http:
            _serve_http(kb, settings, _server_settings(settings, arguments.host, arguments.port))
        else:
            asyncio.run(_serve_stdio(kb))
    except CaipeError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="knowledge_base", description="Serves the knowledge base over MCP.")
    parser.add_argument(
        "--http",
        action="store_true",
        help="Streamable HTTP at /mcp, and REST at /v1, in the place of stdin and stdout.",
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="Where to listen; beyond this machine only with a key."
    )
    parser.add_argument("--port", type=int, default=8010)
    return parser.parse_args()


def _server_settings(settings: Settings, host: str, port: int) -> ServerSettings:
    """The key is RAG_SERVER_TOKEN, with which a supervisor speaks for people, or the shared key, with which
    nobody does.
    """
    key: SecretStr | None = settings.knowledge.server_token
    if key is not None:
        try:
            check_key(key)
        except ValueError as error:
            raise ConfigurationError(f"RAG_SERVER_TOKEN: {error}.") from None
    shared_key = settings.server.shared_key if key is None else None
    changed = {
        "host": host,
        "port": port,
        "shared_key": shared_key,
        "delegate_key": key,
        "external_url": None,
    }
    return settings.server.model_copy(update=changed)


async def _serve_stdio(kb: KnowledgeBase) -> None:
    from mcp.server.stdio import stdio_server

    await kb.open()
    try:
        server = create_server(kb)
        async with stdio_server() as (read, write):
            await server.run(read, write, server.create_initialization_options())
    finally:
        await kb.aclose()


def _serve_http(kb: KnowledgeBase, settings: Settings, server: ServerSettings) -> None:
    # Imported late: none of it is needed on stdin and stdout.
    import uvicorn

    from ai_platform_engineering.knowledge_bases.rest_api import KnowledgeApi
    from ai_platform_engineering.net.http_connections import ConnectionLimits, server_options
    from ai_platform_engineering.runtime.server.authentication import check_exposure

    check_exposure(server)
    listener = _listen(server.host, server.port)
    here = server.model_copy(update={"port": listener.getsockname()[1]})
    api = KnowledgeApi.from_settings(kb, settings.knowledge, settings.agent.home)
    app = create_app(
        kb,
        here,
        read_only=settings.people.read_only,
        on_startup=lambda: api.open(here, settings.agent.home),
        routes=api.routes(),
    )
    log.info("serving the knowledge base on %s%s", here.url.rstrip("/"), MCP_PATH)
    config = uvicorn.Config(
        app,
        log_config=None,
        log_level=settings.logging.level.lower(),
        access_log=False,
        timeout_graceful_shutdown=5,
        **server_options(ConnectionLimits.from_settings(server)),
    )
    with contextlib.suppress(KeyboardInterrupt):  # raised again by uvicorn after its clean end
        uvicorn.Server(config).run(sockets=[listener])


def _listen(host: str, port: int) -> socket.socket:
    """Bound before anything is opened: a taken port is told at once, a free one has its number."""
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        reason = "another program uses this port" if error.errno == errno.EADDRINUSE else error.strerror
        raise ConfigurationError(
            f"Cannot listen on {host}, port {port}: {reason}. Set --host and --port."
        ) from None


if __name__ == "__main__":
    sys.exit(main())
