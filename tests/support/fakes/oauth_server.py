"""An OAuth authorization server on a loopback port: registration, codes with PKCE, device codes, refresh with
rotation, revocation and introspection. A person is whoever types a name into its form."""

import base64
import contextlib
import hashlib
import html
import secrets
import time
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from tests.support.harness import PLAIN, serve_app

DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"


@dataclass
class Grant:
    """What a person has granted to a client; it ends with its refresh token."""

    subject: str
    client_id: str
    resource: str
    scope: str
    is_revoked: bool = False


@dataclass
class IssuedToken:
    grant: Grant
    expires_at: float
    is_used: bool = False


@dataclass
class PendingCode:
    grant: Grant | None
    client_id: str
    resource: str
    scope: str
    redirect_uri: str = ""
    challenge: str = ""
    polls: int = 0


@dataclass
class OAuthServer:
    """The server, what it has issued, and how it misbehaves."""

    url: str = ""
    lifetime: int = 3600
    has_device_flow: bool = True
    has_registration: bool = True
    audience: str | None = None  # of every token, whatever was asked for
    token_status: int = 0  # of the next answers of the token endpoint; 0: as it should be
    clients: dict[str, dict[str, Any]] = field(default_factory=dict)
    codes: dict[str, PendingCode] = field(default_factory=dict)
    devices: dict[str, PendingCode] = field(default_factory=dict)
    user_codes: dict[str, str] = field(default_factory=dict)
    access_tokens: dict[str, IssuedToken] = field(default_factory=dict)
    refresh_tokens: dict[str, IssuedToken] = field(default_factory=dict)
    forms: list[tuple[str, dict[str, str]]] = field(default_factory=list)  # path and form of every post

    @property
    def secrets(self) -> list[str]:
        """Everything that must not be seen elsewhere."""
        return [*self.access_tokens, *self.refresh_tokens]

    @property
    def refreshes(self) -> int:
        return sum(form.get("grant_type") == "refresh_token" for _, form in self.forms)

    def expire_access_tokens(self) -> None:
        """Ends the access tokens, as if a person had revoked them at the server."""
        self.access_tokens.clear()

    def revoke_all(self) -> None:
        """What an administrator does."""
        for token in (*self.access_tokens.values(), *self.refresh_tokens.values()):
            token.grant.is_revoked = True

    def approve_device(self, user_code: str, subject: str) -> None:
        pending = self.devices[self.user_codes[user_code]]
        pending.grant = Grant(subject, pending.client_id, pending.resource, pending.scope)

    def app(self) -> Starlette:
        return Starlette(
            routes=[
                Route("/.well-known/oauth-authorization-server", self._metadata),
                Route("/register", self._register, methods=["POST"]),
                Route("/authorize", self._show_form),
                Route("/authorize", self._approve, methods=["POST"]),
                Route("/token", self._token, methods=["POST"]),
                Route("/device_authorization", self._device, methods=["POST"]),
                Route("/revoke", self._revoke, methods=["POST"]),
                Route("/introspect", self._introspect, methods=["POST"]),
            ]
        )

    # --- routes ---------------------------------------------------------------------------------------------

    async def _metadata(self, _: Request) -> Response:
        metadata: dict[str, Any] = {
            "issuer": self.url,
            "authorization_endpoint": f"{self.url}/authorize",
            "token_endpoint": f"{self.url}/token",
            "revocation_endpoint": f"{self.url}/revoke",
            "response_types_supported": ["code"],
            "grant_types_supported": ["authorization_code", "refresh_token"],
            "code_challenge_methods_supported": ["S256"],
            "token_endpoint_auth_methods_supported": ["none", "client_secret_basic"],
            "authorization_response_iss_parameter_supported": True,
            "scopes_supported": ["read"],
        }
        if self.has_registration:
            metadata["registration_endpoint"] = f"{self.url}/register"
        if self.has_device_flow:
            metadata["device_authorization_endpoint"] = f"{self.url}/device_authorization"
            metadata["grant_types_supported"].append(DEVICE_GRANT)
        return JSONResponse(metadata)

    async def _register(self, request: Request) -> Response:
        client = await request.json()
        client_id = f"client-{secrets.token_hex(4)}"
        self.clients[client_id] = client
        return JSONResponse({**client, "client_id": client_id}, 201)

    async def _show_form(self, request: Request) -> Response:
        refusal = self._check_authorization(request.query_params)
        if refusal:
            return JSONResponse({"error": refusal}, 400)
        fields = "".join(
            f'<input type="hidden" name="{html.escape(name)}" value="{html.escape(value)}">'
            for name, value in request.query_params.items()
        )
        return HTMLResponse(
            f'<title>Authorize</title><form method="post">{fields}<label>Name <input name="user"></label>'
            '<button name="answer" value="yes">Allow</button>'
            '<button name="answer" value="no">Deny</button></form>'
        )

    async def _approve(self, request: Request) -> Response:
        form = await _read_form(request)
        answer = {"state": form["state"], "iss": self.url}
        if form["answer"] == "no":
            answer["error"] = "access_denied"
            return RedirectResponse(f"{form['redirect_uri']}?{urlencode(answer)}", 303)
        resource = form.get("resource", "")
        grant = Grant(form["user"], form["client_id"], resource, form.get("scope", ""))
        code = f"code-{secrets.token_hex(16)}"
        self.codes[code] = PendingCode(
            grant, grant.client_id, resource, grant.scope, form["redirect_uri"], form["code_challenge"]
        )
        return RedirectResponse(f"{form['redirect_uri']}?{urlencode({**answer, 'code': code})}", 303)

    async def _token(self, request: Request) -> Response:
        form = await self._note_form(request)
        if self.token_status:
            return JSONResponse({"error": "temporarily_unavailable"}, self.token_status)
        if form.get("client_id") not in self.clients:
            return _error("invalid_client")
        match form.get("grant_type"):
            case "authorization_code":
                return self._exchange_code(form)
            case "refresh_token":
                return self._refresh(form)
            case str(grant) if grant == DEVICE_GRANT:
                return self._exchange_device_code(form)
        return _error("unsupported_grant_type")

    async def _device(self, request: Request) -> Response:
        form = await self._note_form(request)
        if form.get("client_id") not in self.clients:
            return _error("invalid_client")
        device_code = f"device-{secrets.token_hex(16)}"
        user_code = secrets.token_hex(4).upper()
        self.devices[device_code] = PendingCode(
            None, form["client_id"], form.get("resource", ""), form.get("scope", "")
        )
        self.user_codes[user_code] = device_code
        return JSONResponse(
            {
                "device_code": device_code,
                "user_code": user_code,
                "verification_uri": f"{self.url}/device",
                "expires_in": 600,
                "interval": 1,
            }
        )

    async def _revoke(self, request: Request) -> Response:
        form = await self._note_form(request)
        token = self.refresh_tokens.get(form["token"]) or self.access_tokens.get(form["token"])
        if token is not None:
            token.grant.is_revoked = True
        return Response(status_code=200)

    async def _introspect(self, request: Request) -> Response:
        form = await _read_form(request)
        token = self.access_tokens.get(form["token"])
        if token is None or token.grant.is_revoked or token.expires_at <= time.time():
            return JSONResponse({"active": False})
        audience = self.audience or token.grant.resource
        return JSONResponse(
            {"active": True, "sub": token.grant.subject, "aud": audience, "scope": token.grant.scope}
        )

    # --- grants ---------------------------------------------------------------------------------------------

    def _check_authorization(self, query: Any) -> str | None:
        client = self.clients.get(query.get("client_id", ""))
        if client is None:
            return "unauthorized_client"
        if query.get("redirect_uri") not in client["redirect_uris"]:
            return "invalid_redirect_uri"
        if query.get("code_challenge_method") != "S256" or not query.get("state"):
            return "invalid_request"
        return None

    def _exchange_code(self, form: dict[str, str]) -> Response:
        pending = self.codes.pop(form["code"], None)
        if pending is None or pending.grant is None or pending.client_id != form["client_id"]:
            return _error("invalid_grant")
        digest = hashlib.sha256(form["code_verifier"].encode()).digest()
        challenge = base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
        if challenge != pending.challenge or form["redirect_uri"] != pending.redirect_uri:
            return _error("invalid_grant")
        if form.get("resource") != pending.resource:
            return _error("invalid_target")
        return self._issue(pending.grant)

    def _exchange_device_code(self, form: dict[str, str]) -> Response:
        pending = self.devices[form["device_code"]]
        pending.polls += 1
        if pending.grant is None:
            return _error("authorization_pending")
        self.devices.pop(form["device_code"])
        return self._issue(pending.grant)

    def _refresh(self, form: dict[str, str]) -> Response:
        token = self.refresh_tokens.get(form["refresh_token"])
        if token is None or token.grant.is_revoked:
            return _error("invalid_grant")
        if token.is_used:  # somebody has stolen it, or did not store the new one
            token.grant.is_revoked = True
            return _error("invalid_grant")
        token.is_used = True
        return self._issue(token.grant)

    def _issue(self, grant: Grant) -> Response:
        access_token = f"access-{secrets.token_hex(16)}"
        refresh_token = f"refresh-{secrets.token_hex(16)}"
        self.access_tokens[access_token] = IssuedToken(grant, time.time() + self.lifetime)
        self.refresh_tokens[refresh_token] = IssuedToken(grant, time.time() + 86_400)
        body = {
            "access_token": access_token,
            "token_type": "Bearer",
            "expires_in": self.lifetime,
            "refresh_token": refresh_token,
        }
        return JSONResponse(body, headers={"Cache-Control": "no-store"})

    async def _note_form(self, request: Request) -> dict[str, str]:
        form = await _read_form(request)
        self.forms.append((request.url.path, form))
        return form


async def allow(authorization_url: str, user: str, answer: str = "yes") -> str:
    """What a person does in a browser: opens the address, types a name and clicks; where it leads."""
    async with httpx.AsyncClient(verify=PLAIN) as http:
        page = await http.get(authorization_url)
        assert page.status_code == 200, page.text
        fields = {name: values[0] for name, values in parse_qs(urlsplit(authorization_url).query).items()}
        parts = urlsplit(authorization_url)
        response = await http.post(
            f"{parts.scheme}://{parts.netloc}{parts.path}", data={**fields, "user": user, "answer": answer}
        )
    return response.headers["location"]


def read_answer(location: str) -> dict[str, str]:
    """The parameters with which an authorization server sends the browser back."""
    return {name: values[0] for name, values in parse_qs(urlsplit(location).query).items()}


@contextlib.asynccontextmanager
async def serve_oauth(server: OAuthServer | None = None) -> AsyncIterator[OAuthServer]:
    server = server or OAuthServer()
    async with serve_app(server.app()) as url:
        server.url = url.rstrip("/")
        yield server


async def _read_form(request: Request) -> dict[str, str]:
    body = (await request.body()).decode()
    return {name: values[0] for name, values in parse_qs(body, keep_blank_values=True).items()}


def _error(code: str) -> Response:
    return JSONResponse({"error": code, "error_description": f"refused: {code}"}, 400)
