"""Signing in to MCP servers: with a browser (authorization code and PKCE), or with a code on another device.

A sign-in is begun and finished by two requests that may reach different processes: everything between them is
stored. The MCP library's own provider keeps it in memory and waits in the middle of a tool call (ADR 0058).
"""

import hmac
import logging
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from mcp.client.auth import PKCEParameters

from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.oauth.access_tokens import login_resource
from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp, HttpAnswer
from ai_platform_engineering.mcp_client.oauth.client_registration import DEVICE_GRANT, ClientRegistrations
from ai_platform_engineering.mcp_client.oauth.discovery import (
    AuthorizationServer,
    discover,
    probe_server,
    read_challenge,
)
from ai_platform_engineering.mcp_client.oauth.oauth_errors import SignInFailed, TokenRefused
from ai_platform_engineering.mcp_client.oauth.sign_in_target import SignInTarget
from ai_platform_engineering.mcp_client.oauth.stored_login import PendingSignIn, RegisteredClient, StoredLogin
from ai_platform_engineering.mcp_client.oauth.token_endpoint import (
    build_refusal,
    post_as_client,
    request_tokens,
    revoke_tokens,
)
from ai_platform_engineering.mcp_client.oauth.token_store import TokenStore
from ai_platform_engineering.mcp_client.secret_redactor import sanitize_line
from ai_platform_engineering.net.url_policy import FetchRefused, parse_url

log = logging.getLogger(__name__)

_MAX_CODE_CHARS = 4096
_MIN_INTERVAL = 1.0
_MAX_INTERVAL = 60.0
_SLOW_DOWN_SECONDS = 5.0  # as RFC 8628 wants it
_UNKNOWN = "This sign-in is not known, was finished already, or took too long. Begin again."
_NO_DEVICE_FLOW = "The authorization server {issuer} has no device flow. Sign in with a browser."


@dataclass(frozen=True, slots=True)
class BrowserSignIn:
    """A sign-in to be continued in a browser."""

    authorization_url: str
    state: str
    issuer: str
    has_device_flow: bool


@dataclass(frozen=True, slots=True)
class DeviceSignIn:
    """A sign-in to be continued on any device, where the person enters the code."""

    state: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str | None
    interval: float
    issuer: str


@dataclass(frozen=True, slots=True)
class SignedIn:
    """A sign-in that is finished."""

    agent: str
    server: str


class SignIns:
    """Begins and finishes sign-ins. Every method raises SignInFailed or Refused."""

    def __init__(
        self, store: TokenStore, http: CheckedHttp, settings: OAuthSettings, client_metadata_url: str | None
    ) -> None:
        self._store = store
        self._http = http
        self._settings = settings
        self._registrations = ClientRegistrations(http, store, client_metadata_url)

    async def begin_browser(
        self, target: SignInTarget, redirect_uri: str, *, browser_secret: str | None
    ) -> BrowserSignIn:
        """`browser_secret`: what the browser that begins proves itself with later; None for a command."""
        server_url = target.server.url or ""
        server = await discover(self._http, server_url, target.config.scopes)
        client = await self._registrations.find_client(
            target.config,
            server,
            redirect_uri,
            server_url=server_url,
            is_kept=browser_secret is not None,
        )
        endpoint = str(server.metadata.authorization_endpoint)
        await self._http.check_url(endpoint, server_url=server_url)
        pkce = PKCEParameters.generate()
        state = secrets.token_urlsafe(32)
        pending = self._build_pending(target, server, client, redirect_uri, pkce.code_verifier)
        pending = pending.model_copy(update={"browser_secret": browser_secret})
        await self._store.add_pending(state, target.principal, pending)
        query = _authorization_query(server, client, redirect_uri, state, pkce.code_challenge)
        separator = "&" if "?" in endpoint else "?"
        return BrowserSignIn(f"{endpoint}{separator}{query}", state, server.issuer, server.has_device_flow)

    async def finish_browser(
        self,
        state: str,
        code: str,
        issuer: str | None,
        *,
        principal: str | None = None,
        browser_secret: str | None = None,
    ) -> SignedIn:
        """Finishes a sign-in for the browser that began it, or for the person whose command did."""
        await self._check_person(state, principal, browser_secret)
        pending_row = await self._store.take_pending(state)
        if pending_row is None:
            raise SignInFailed(_UNKNOWN)
        pending = pending_row[1]
        _check_issuer(pending, issuer)
        if not 0 < len(code) <= _MAX_CODE_CHARS:
            raise SignInFailed("The authorization server's answer holds no code. Begin again.")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": pending.redirect_uri,
            "code_verifier": pending.code_verifier,
            "resource": pending.resource,
        }
        login = await self._request_tokens(pending, form)
        return await self._store_login(pending, login)

    async def _request_tokens(self, pending: PendingSignIn, form: Mapping[str, str]) -> StoredLogin:
        """The tokens of a sign-in. Raises SignInFailed.

        A registration that the server does not know any more is deleted: the next sign-in makes another.
        """
        login = _login_without_tokens(pending)
        try:
            return await request_tokens(self._http, login, form, server_url=pending.server_url)
        except TokenRefused as refusal:
            if refusal.is_client_unknown:
                await self._store.delete_client(pending.client)
            raise

    async def refuse(
        self,
        state: str,
        error: str,
        *,
        principal: str | None = None,
        browser_secret: str | None = None,
    ) -> None:
        """Ends a sign-in that the authorization server answered with an error. Always raises SignInFailed."""
        await self._check_person(state, principal, browser_secret)
        await self._store.take_pending(state)
        raise SignInFailed(f"The authorization server did not sign you in ({sanitize_line(error, 200)}).")

    async def begin_device(self, target: SignInTarget) -> DeviceSignIn:
        server_url = target.server.url or ""
        server = await discover(self._http, server_url, target.config.scopes)
        endpoint = server.metadata.device_authorization_endpoint
        if endpoint is None:
            raise SignInFailed(_NO_DEVICE_FLOW.format(issuer=server.issuer))
        # A client has to have some redirect URI; this one is never used.
        redirect_uri = "http://127.0.0.1/callback"
        try:
            client, answer = await self._request_device_code(target, server, str(endpoint), redirect_uri)
        except TokenRefused as refusal:
            if not refusal.is_client_unknown:
                raise
            # With a new registration: the server has lost the one that was stored.
            client, answer = await self._request_device_code(target, server, str(endpoint), redirect_uri)
        state = secrets.token_urlsafe(32)
        sign_in = _read_device_answer(answer.body, state, server.issuer)
        pending = self._build_pending(target, server, client, redirect_uri, "").model_copy(
            update={"device_code": answer.body["device_code"], "interval": sign_in.interval}
        )
        await self._store.add_pending(state, target.principal, pending)
        return sign_in

    async def _request_device_code(
        self, target: SignInTarget, server: AuthorizationServer, endpoint: str, redirect_uri: str
    ) -> tuple[RegisteredClient, HttpAnswer]:
        """The server's answer with a code for us. Raises TokenRefused."""
        server_url = target.server.url or ""
        client = await self._registrations.find_client(
            target.config, server, redirect_uri, server_url=server_url, is_kept=True
        )
        form = {"client_id": client.client_id, "resource": server.resource}
        if server.scope:
            form["scope"] = server.scope
        answer = await post_as_client(self._http, endpoint, client, form, server_url=server_url)
        if answer.is_ok:
            return client, answer
        refusal = build_refusal(answer, "no code for a device")
        if refusal.is_client_unknown:
            await self._store.delete_client(client)
        raise refusal

    async def poll_device(self, state: str, *, principal: str) -> SignedIn | float:
        """Asks whether the person has entered the code; if not, after how many seconds to ask again."""
        await self._check_person(state, principal, None)
        pending_row = await self._store.find_pending(state)
        if pending_row is None or pending_row[1].device_code is None:
            raise SignInFailed(_UNKNOWN)
        pending = pending_row[1]
        form = {
            "grant_type": DEVICE_GRANT,
            "device_code": pending.device_code or "",
            "resource": pending.resource,
        }
        try:
            login = await self._request_tokens(pending, form)
        except TokenRefused as refusal:
            if refusal.error == "authorization_pending":
                return pending.interval
            if refusal.error == "slow_down":
                return pending.interval + _SLOW_DOWN_SECONDS
            await self._store.take_pending(state)
            raise
        if await self._store.take_pending(state) is None:
            raise SignInFailed(_UNKNOWN)
        return await self._store_login(pending, login)

    async def sign_out(self, target: SignInTarget) -> bool:
        """Deletes the tokens, and revokes them where that is offered; whether somebody was signed in."""
        resource = login_resource(target.server)
        stored = await self._store.find_login(target.owner, resource)
        was_signed_in = await self._store.delete_login(target.owner, resource)
        if stored is not None:
            try:
                await revoke_tokens(self._http, stored.login, server_url=target.server.url or "")
            except SignInFailed as error:
                log.warning("mcp %s: the tokens are deleted but not revoked: %s", target.name, error)
        return was_signed_in

    async def _check_person(self, state: str, principal: str | None, browser_secret: str | None) -> None:
        """Raises SignInFailed for a sign-in of somebody else, which stays as it is."""
        pending_row = await self._store.find_pending(state)
        if pending_row is None:
            raise SignInFailed(_UNKNOWN)
        owner_principal, pending = pending_row
        if pending.browser_secret is None:
            is_same = principal is not None and principal == owner_principal
        else:
            is_same = browser_secret is not None and hmac.compare_digest(
                pending.browser_secret.encode(), browser_secret.encode()
            )
        if not is_same:
            raise SignInFailed("This sign-in was begun elsewhere. Begin again here.")

    def _build_pending(
        self,
        target: SignInTarget,
        server: AuthorizationServer,
        client: RegisteredClient,
        redirect_uri: str,
        code_verifier: str,
    ) -> PendingSignIn:
        revocation_endpoint = server.metadata.revocation_endpoint
        return PendingSignIn(
            agent=target.agent,
            server=target.name,
            server_url=target.server.url or "",
            owner=target.owner,
            resource=server.resource,
            issuer=server.issuer,
            token_endpoint=str(server.metadata.token_endpoint),
            revocation_endpoint=str(revocation_endpoint) if revocation_endpoint else None,
            sends_iss=bool(server.metadata.authorization_response_iss_parameter_supported),
            client=client,
            redirect_uri=redirect_uri,
            code_verifier=code_verifier,
        )

    async def _store_login(self, pending: PendingSignIn, login: StoredLogin) -> SignedIn:
        """Stores tokens that the server accepts; others are revoked."""
        answer = await probe_server(self._http, pending.server_url, login.access_token)
        if answer.status in (401, 403):
            await self._discard(pending, login)
            description = read_challenge(answer, "error_description") or read_challenge(answer, "error")
            raise SignInFailed(
                f"{pending.server_url} refused the token that {pending.issuer} has just issued for "
                f"{login.resource} ({description or f'HTTP {answer.status}'}). The authorization server may "
                "have issued it for another audience, or without a scope that is needed."
            )
        resource = parse_url(pending.server_url).url
        await self._store.save_login(pending.owner, resource, login)
        log.info("mcp %s: signed in at %s", pending.server, pending.issuer)
        return SignedIn(pending.agent, pending.server)

    async def _discard(self, pending: PendingSignIn, login: StoredLogin) -> None:
        try:
            await revoke_tokens(self._http, login, server_url=pending.server_url)
        except SignInFailed as error:
            log.info("mcp %s: a refused token is not revoked: %s", pending.server, error)


def _authorization_query(
    server: AuthorizationServer, client: RegisteredClient, redirect_uri: str, state: str, challenge: str
) -> str:
    parameters = {
        "response_type": "code",
        "client_id": client.client_id,
        "redirect_uri": redirect_uri,
        "state": state,
        "code_challenge": challenge,
        "code_challenge_method": "S256",
        "resource": server.resource,
    }
    if server.scope:
        parameters["scope"] = server.scope
        if "offline_access" in server.scope.split():
            parameters["prompt"] = "consent"  # as OpenID Connect wants it
    return urlencode(parameters)


def _check_issuer(pending: PendingSignIn, issuer: str | None) -> None:
    """Against an answer of another authorization server (RFC 9207). Raises SignInFailed."""
    if issuer is None and not pending.sends_iss:
        return
    if issuer != pending.issuer:
        raise SignInFailed("The answer comes from another authorization server. Begin again.")


def _login_without_tokens(pending: PendingSignIn) -> StoredLogin:
    return StoredLogin(
        login_id=secrets.token_hex(8),
        client=pending.client,
        resource=pending.resource,
        token_endpoint=pending.token_endpoint,
        revocation_endpoint=pending.revocation_endpoint,
        access_token="",
    )


def _read_device_answer(body: Any, state: str, issuer: str) -> DeviceSignIn:
    """Raises SignInFailed for an answer that a person cannot use."""
    if not isinstance(body, dict):
        body = {}
    user_code = body.get("user_code")
    uri = body.get("verification_uri")
    if not (isinstance(user_code, str) and isinstance(uri, str) and isinstance(body.get("device_code"), str)):
        raise SignInFailed("The authorization server's answer holds no code for a device.")
    complete_uri = body.get("verification_uri_complete")
    interval = body.get("interval", 5)
    if not isinstance(interval, int | float):
        interval = 5
    return DeviceSignIn(
        state=state,
        user_code=sanitize_line(user_code, 100),
        verification_uri=_check_shown_url(uri),
        verification_uri_complete=_check_shown_url(complete_uri) if isinstance(complete_uri, str) else None,
        interval=min(max(float(interval), _MIN_INTERVAL), _MAX_INTERVAL),
        issuer=issuer,
    )


def _check_shown_url(url: str) -> str:
    try:
        return parse_url(url).url
    except FetchRefused:
        raise SignInFailed("The authorization server names an address that cannot be opened.") from None
