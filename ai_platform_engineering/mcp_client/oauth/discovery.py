"""Finds the authorization server of an MCP server, and what it offers (RFC 9728, RFC 8414).

The MCP library knows where to look, what the documents look like and how they are checked; the requests are
ours, since these addresses come from others. Loading the library takes a second: this module is imported on
first use.
"""

from dataclasses import dataclass
from typing import TypeVar

import httpx2
from mcp.client.auth.exceptions import OAuthFlowError
from mcp.client.auth.utils import (
    build_oauth_authorization_server_metadata_discovery_urls,
    build_protected_resource_metadata_discovery_urls,
    extract_field_from_www_auth,
    get_client_metadata_scopes,
    issuers_match,
    validate_metadata_issuer,
)
from mcp.shared.auth import OAuthMetadata, ProtectedResourceMetadata
from mcp.shared.auth_utils import check_resource_allowed, resource_url_from_server_url
from pydantic import AnyHttpUrl, BaseModel, ValidationError

from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp, HttpAnswer
from ai_platform_engineering.mcp_client.oauth.oauth_errors import SignInFailed
from ai_platform_engineering.mcp_client.secret_redactor import sanitize_line
from ai_platform_engineering.net.url_policy import parse_url

_MAX_TEXT_CHARS = 200
_PING = {"jsonrpc": "2.0", "id": 0, "method": "ping"}
_GRANTS = ("authorization_code", "refresh_token")

ModelT = TypeVar("ModelT", bound=BaseModel)


class ServerMetadata(OAuthMetadata):
    """What an authorization server offers, with the device flow (RFC 8628)."""

    device_authorization_endpoint: AnyHttpUrl | None = None


@dataclass(frozen=True, slots=True)
class AuthorizationServer:
    """An authorization server, the resource that tokens are asked for, and the scopes to ask for."""

    metadata: ServerMetadata
    resource: str
    scope: str | None

    @property
    def issuer(self) -> str:
        return str(self.metadata.issuer)

    @property
    def has_device_flow(self) -> bool:
        return self.metadata.device_authorization_endpoint is not None


async def probe_server(http: CheckedHttp, server_url: str, token: str | None = None) -> HttpAnswer:
    """How the server answers a request with this token, or without one. Raises SignInFailed."""
    headers = {} if token is None else {"Authorization": f"Bearer {token}"}
    return await http.post_json(server_url, _PING, server_url=server_url, headers=headers)


def read_challenge(answer: HttpAnswer, field: str) -> str | None:
    """A field of the answer's WWW-Authenticate header."""
    value = extract_field_from_www_auth(_as_response(answer), field)
    if value is None:
        return None
    return sanitize_line(value, _MAX_TEXT_CHARS)


async def discover(http: CheckedHttp, server_url: str, scopes: tuple[str, ...]) -> AuthorizationServer:
    """`scopes`: those of the definition, in place of what the servers name. Raises SignInFailed."""
    challenge = await probe_server(http, server_url)
    resource_metadata = await _find_resource_metadata(http, server_url, challenge)
    metadata = await _find_server_metadata(http, server_url, resource_metadata)
    if "S256" not in (metadata.code_challenge_methods_supported or ()):
        raise SignInFailed(
            f"The authorization server {metadata.issuer} does not say that it supports PKCE with S256, "
            "without which a sign-in is not safe."
        )
    resource = resource_url_from_server_url(server_url)
    if resource_metadata is not None:
        resource = str(resource_metadata.resource)
    scope = " ".join(scopes) or get_client_metadata_scopes(
        read_challenge(challenge, "scope"), resource_metadata, metadata, list(_GRANTS)
    )
    return AuthorizationServer(metadata, resource, scope)


async def _find_resource_metadata(
    http: CheckedHttp, server_url: str, challenge: HttpAnswer
) -> ProtectedResourceMetadata | None:
    """The server's own statement; older servers have none."""
    named_url = read_challenge(challenge, "resource_metadata")
    for url in build_protected_resource_metadata_discovery_urls(named_url, server_url):
        answer = await http.get(url, server_url=server_url)
        metadata = _parse(ProtectedResourceMetadata, answer)
        if metadata is None:
            continue
        expected = resource_url_from_server_url(server_url)
        if not check_resource_allowed(expected, str(metadata.resource)):
            raise SignInFailed(
                f"{server_url} says that its tokens are for {metadata.resource}, which is another server."
            )
        return metadata
    return None


async def _find_server_metadata(
    http: CheckedHttp, server_url: str, resource_metadata: ProtectedResourceMetadata | None
) -> ServerMetadata:
    server_named = None
    if resource_metadata is not None:
        server_named = str(resource_metadata.authorization_servers[0])
    for url in build_oauth_authorization_server_metadata_discovery_urls(server_named, server_url):
        metadata = _parse(ServerMetadata, await http.get(url, server_url=server_url))
        if metadata is not None:
            _check_issuer(metadata, server_named or parse_url(server_url).origin)
            return metadata
    origin = server_named or parse_url(server_url).origin
    raise SignInFailed(
        f"The authorization server {origin} publishes no metadata (RFC 8414), or the server {server_url} "
        "does not use OAuth."
    )


def _check_issuer(metadata: ServerMetadata, expected: str) -> None:
    """Raises SignInFailed for a document that speaks of another authorization server (RFC 8414, 3.3)."""
    if issuers_match(str(metadata.issuer), expected):
        return
    try:
        validate_metadata_issuer(metadata, expected)
    except OAuthFlowError:
        raise SignInFailed(
            f"The metadata of {expected} names another authorization server: {metadata.issuer}."
        ) from None


def _parse(model: type[ModelT], answer: HttpAnswer) -> ModelT | None:
    if answer.status != 200 or answer.body is None:
        return None
    try:
        return model.model_validate(answer.body)
    except ValidationError:
        return None


def _as_response(answer: HttpAnswer) -> httpx2.Response:
    return httpx2.Response(answer.status, headers=dict(answer.headers))
