"""A stock MCP server that wants bearer tokens of an authorization server, made with the protocol's library.

python mcp_protected.py --issuer URL --port-file FILE     for both generations of the library
"""

import argparse
import socket
import ssl
from pathlib import Path
from typing import Any

import httpx
import uvicorn
from mcp.server.auth.middleware.auth_context import get_access_token
from mcp.server.auth.provider import AccessToken
from mcp.server.auth.settings import AuthSettings
from mcp.types import ToolAnnotations
from pydantic import AnyHttpUrl

try:
    from mcp.server.mcpserver import MCPServer as Server
except ImportError:  # the first generation
    from mcp.server.fastmcp import FastMCP as Server  # type: ignore[no-redef]


NO_CERTIFICATES = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)


class IntrospectedTokens:
    """Asks the authorization server about each token, and takes those for this server alone."""

    def __init__(self, issuer: str, resource: str) -> None:
        self._issuer = issuer
        self._resource = resource

    async def verify_token(self, token: str) -> AccessToken | None:
        async with httpx.AsyncClient(trust_env=False, verify=NO_CERTIFICATES) as http:
            response = await http.post(f"{self._issuer}/introspect", data={"token": token})
        answer = response.json()
        if not answer["active"] or answer["aud"] != self._resource:
            return None
        return AccessToken(token=token, client_id=answer["sub"], scopes=answer["scope"].split())


def build_app(issuer: str, url: str) -> Any:
    """The server's application for the address that it will have."""
    resource = f"{url}/mcp"
    auth = AuthSettings(
        issuer_url=AnyHttpUrl(issuer),
        resource_server_url=AnyHttpUrl(resource),
        required_scopes=["read"],
        **_check_resource_option(),
    )
    server = Server("desk", token_verifier=IntrospectedTokens(issuer, resource), auth=auth)

    @server.tool(annotations=ToolAnnotations(readOnlyHint=True))
    async def whoami() -> str:
        """Who is signed in."""
        token = get_access_token()
        return f"signed in as {token.client_id if token else 'nobody'}"

    @server.tool(annotations=ToolAnnotations(readOnlyHint=True))
    async def leak() -> str:
        """Repeats the token, as a careless server would."""
        token = get_access_token()
        return f"your token is {token.token if token else ''}"

    return server.streamable_http_app()


def _check_resource_option() -> dict[str, Any]:
    if "validate_token_resource" in AuthSettings.model_fields:
        return {"validate_token_resource": False}  # the verifier does
    return {}


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--issuer", required=True)
    parser.add_argument("--port-file", type=Path, required=True)
    options = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    port = listener.getsockname()[1]
    app = build_app(options.issuer, f"http://127.0.0.1:{port}")
    options.port_file.write_text(str(port))
    uvicorn.Server(uvicorn.Config(app, log_level="error")).run(sockets=[listener])


if __name__ == "__main__":
    main()
