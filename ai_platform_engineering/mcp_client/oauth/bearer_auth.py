"""The access token on requests to an MCP server: only there, and again with another if it is refused."""

from collections.abc import AsyncGenerator

import httpx2
from mcp.client.auth.utils import extract_field_from_www_auth

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.mcp_client.oauth.access_tokens import AccessTokens
from ai_platform_engineering.mcp_client.secret_redactor import sanitize_line

_MAX_TEXT_CHARS = 200


class BearerAuth(httpx2.Auth):
    """Sends the token of the session's owner. A server that refuses it is asked again with a refreshed one:
    it has not read the request."""

    requires_response_body = False

    def __init__(self, server: McpServer, tokens: AccessTokens) -> None:
        self._tokens = tokens
        url = httpx2.URL(server.url or "")
        self._origin = (url.scheme, url.host, url.port)

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        token = self._tokens.current
        if token is None or (request.url.scheme, request.url.host, request.url.port) != self._origin:
            request.headers.pop("Authorization", None)
            yield request
            return
        request.headers["Authorization"] = f"Bearer {token}"
        response = yield request
        if response.status_code == 401:
            renewed_token = await self._tokens.renew(token, _explain(response))
            if renewed_token is None:
                return
            token = renewed_token
            request.headers["Authorization"] = f"Bearer {token}"
            response = yield request
        if response.status_code == 401 or _lacks_scope(response):
            self._tokens.note_refusal(token, _explain(response))


def _lacks_scope(response: httpx2.Response) -> bool:
    if response.status_code != 403:
        return False
    return extract_field_from_www_auth(response, "error") == "insufficient_scope"


def _explain(response: httpx2.Response) -> str:
    """Why a server refuses a token, in its own words where it has some."""
    text = extract_field_from_www_auth(response, "error_description")
    text = text or extract_field_from_www_auth(response, "error") or f"HTTP {response.status_code}"
    shown_text = sanitize_line(text, _MAX_TEXT_CHARS)
    scope = extract_field_from_www_auth(response, "scope")
    if response.status_code == 403 and scope:
        return f"it wants a token with the scope {sanitize_line(scope, _MAX_TEXT_CHARS)} ({shown_text})"
    return f"it refused the access token ({shown_text}): it was revoked, or issued for another audience"
