"""Requests to the token and revocation endpoints of an authorization server (RFC 6749, RFC 7009)."""

import base64
import time
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp, HttpAnswer
from ai_platform_engineering.mcp_client.oauth.oauth_errors import (
    AuthorizationServerUnreachable,
    SignInFailed,
    TokenRefused,
)
from ai_platform_engineering.mcp_client.oauth.stored_login import RegisteredClient, StoredLogin
from ai_platform_engineering.mcp_client.secret_redactor import sanitize_line

_MAX_TEXT_CHARS = 200
_MAX_TOKEN_CHARS = 32 * 1024
_MAX_LIFETIME = 10 * 365 * 86_400


async def request_tokens(
    http: CheckedHttp, login: StoredLogin, form: Mapping[str, str], *, server_url: str
) -> StoredLogin:
    """The login with the tokens that the token endpoint gives; what it does not give again stays.

    Raises TokenRefused, and other SignInFailed errors.
    """
    answer = await _post(http, login.token_endpoint, login.client, form, server_url)
    if not answer.is_ok:
        raise build_refusal(answer, "no token")
    return _read_tokens(login, answer.body)


async def revoke_tokens(http: CheckedHttp, login: StoredLogin, *, server_url: str) -> bool:
    """Revokes the login where the authorization server offers that. Raises SignInFailed."""
    if login.revocation_endpoint is None:
        return False
    is_revoked = True
    # The refresh token first: with it most servers end the whole grant.
    tokens = (("refresh_token", login.refresh_token), ("access_token", login.access_token))
    for hint, token in tokens:
        if token:
            form = {"token": token, "token_type_hint": hint}
            answer = await _post(http, login.revocation_endpoint, login.client, form, server_url)
            is_revoked = is_revoked and answer.is_ok
    return is_revoked


async def post_as_client(
    http: CheckedHttp, url: str, client: RegisteredClient, form: Mapping[str, str], *, server_url: str
) -> HttpAnswer:
    """A request with our credentials as a client. Raises SignInFailed."""
    return await _post(http, url, client, form, server_url)


def describe_refusal(body: Any) -> str:
    """The error that an authorization server answers with, as one short line."""
    if not isinstance(body, dict):
        return ""
    texts = [text for text in (body.get("error"), body.get("error_description")) if isinstance(text, str)]
    return sanitize_line(": ".join(texts), _MAX_TEXT_CHARS)


async def _post(
    http: CheckedHttp, url: str, client: RegisteredClient, form: Mapping[str, str], server_url: str
) -> HttpAnswer:
    fields = dict(form)
    headers: dict[str, str] = {}
    if client.client_secret and client.token_endpoint_auth_method == "client_secret_basic":
        # Encoded as in a form before they are joined (RFC 6749, 2.3.1).
        credentials = f"{quote(client.client_id, safe='')}:{quote(client.client_secret, safe='')}"
        headers["Authorization"] = f"Basic {base64.b64encode(credentials.encode()).decode()}"
    else:
        fields["client_id"] = client.client_id
        if client.client_secret:
            fields["client_secret"] = client.client_secret
    answer = await http.post_form(url, fields, server_url=server_url, headers=headers)
    if answer.status >= 500 or answer.status == 429:
        raise AuthorizationServerUnreachable(
            f"The authorization server has a problem (HTTP {answer.status}). Try again later."
        )
    return answer


def build_refusal(answer: HttpAnswer, what: str) -> TokenRefused:
    """The error of a request that gave nothing; `what` it gave, in words."""
    error = answer.body.get("error") if isinstance(answer.body, dict) else None
    text = describe_refusal(answer.body) or f"HTTP {answer.status}"
    return TokenRefused(
        f"The authorization server gives {what} ({text}).", error if isinstance(error, str) else ""
    )


def _read_tokens(login: StoredLogin, body: Any) -> StoredLogin:
    if not isinstance(body, dict) or not _is_token(body.get("access_token")):
        raise SignInFailed("The authorization server's answer holds no access token.")
    if str(body.get("token_type", "Bearer")).lower() != "bearer":
        raise SignInFailed("The authorization server gives a token that is no bearer token.")
    changes: dict[str, Any] = {"access_token": body["access_token"], "expires_at": None}
    lifetime = _read_seconds(body.get("expires_in"))
    if lifetime is not None:
        changes["expires_at"] = time.time() + lifetime
    if _is_token(body.get("refresh_token")):
        changes["refresh_token"] = body["refresh_token"]
    if isinstance(body.get("scope"), str):
        changes["scope"] = body["scope"][:_MAX_TOKEN_CHARS]
    return login.model_copy(update=changes)


def _is_token(value: Any) -> bool:
    """Whether it can be sent in a header: a line break in it could add another one."""
    return (
        isinstance(value, str)
        and 0 < len(value) <= _MAX_TOKEN_CHARS
        and value.isascii()
        and value.isprintable()
    )


def _read_seconds(value: Any) -> float | None:
    """A number of seconds; some servers send it as text."""
    try:
        return min(max(float(value), 0.0), _MAX_LIFETIME)
    except (TypeError, ValueError):
        return None
