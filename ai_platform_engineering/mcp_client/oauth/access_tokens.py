"""The access token of one owner for one server: checked before a call, refreshed when it has expired."""

import asyncio
import logging

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.mcp_client.mcp_errors import McpLoginRequired, McpUnavailable
from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp
from ai_platform_engineering.mcp_client.oauth.oauth_errors import SignInFailed, TokenRefused
from ai_platform_engineering.mcp_client.oauth.stored_login import StoredLogin
from ai_platform_engineering.mcp_client.oauth.token_endpoint import request_tokens
from ai_platform_engineering.mcp_client.oauth.token_store import TokenStore, VersionedLogin
from ai_platform_engineering.net.url_policy import FetchRefused, parse_url

log = logging.getLogger(__name__)

INSTALLATION = "installation:"
"""The owner of logins that serve everybody; no person's name ends with a colon."""

_POLL_SECONDS = 0.1
_REFRESH_MARGIN = 10.0  # in addition to the time of one request, before another process may refresh
_NOT_SIGNED_IN = "nobody has signed in to it for this use"
_ENDED = "the sign-in has ended: it was revoked or has expired"


def login_resource(server: McpServer) -> str:
    """The server's address as logins are stored for it: agents that use one server share its logins.

    Raises CaipeError for an address that is none.
    """
    try:
        return parse_url(server.url or "").url
    except FetchRefused as error:
        raise CaipeError(f"The address of a tool server with `auth: oauth` cannot be used. {error}") from None


def login_owner(server: McpServer, principal: str | None) -> str:
    """Whose login is used when this person asks."""
    if server.oauth is not None and server.oauth.owner == "installation":
        return INSTALLATION
    return principal or ""


def describe_sign_in(server: str, reason: str) -> str:
    """What to do when a server wants a person to sign in, for people and models."""
    return (
        f"{reason}. A person has to sign in: `caipe agents login {server}`, or Sign in under Agents on the "
        "web page. Trying again before that does not help"
    )


class AccessTokens:
    """The tokens that one session sends. Everything about them is stored: other processes use them, too."""

    def __init__(
        self, name: str, server: McpServer, owner: str, store: TokenStore, http: CheckedHttp, seconds: float
    ) -> None:
        """`seconds`: how long a request to the authorization server may take."""
        self._name = name
        self._server_url = server.url or ""
        self._resource = login_resource(server)
        self._owner = owner
        self._store = store
        self._http = http
        self._lease_seconds = seconds + _REFRESH_MARGIN
        self._login: StoredLogin | None = None
        self._refusal: tuple[str, str] | None = None  # a token that the server refused, and what it said
        self._lock = asyncio.Lock()
        self._refreshing: asyncio.Task[StoredLogin] | None = None

    @property
    def current(self) -> str | None:
        """The token of the last check, for the requests of the call that was checked."""
        return self._login.access_token if self._login is not None else None

    @property
    def login_id(self) -> str:
        """Which sign-in the tokens come from: an MCP session belongs to one."""
        return self._login.login_id if self._login is not None else ""

    def secrets(self) -> tuple[str, ...]:
        """What must not be shown."""
        return self._login.secrets() if self._login is not None else ()

    async def ensure(self) -> None:
        """Makes sure that there is a token that has not expired. Raises McpLoginRequired, and McpUnavailable
        when it cannot be refreshed now."""
        stored = await self._store.find_login(self._owner, self._resource)
        if stored is None:
            self._login = None
            raise self._login_required(_NOT_SIGNED_IN)
        self._login = stored.login
        if self._refusal is not None and self._refusal[0] == stored.login.access_token:
            raise self._login_required(self._refusal[1])
        if stored.login.is_expired:
            await self._refresh(stored.login.access_token)

    async def renew(self, refused_token: str, reason: str) -> str | None:
        """Another token in place of one that the server refused; None when there is none to be had.

        `reason` is what the server said; the next check repeats it.
        """
        self._refusal = (refused_token, reason)
        try:
            await self._refresh(refused_token)
        except McpUnavailable as error:
            log.info("mcp %s: the refused token is not replaced: %s", self._name, error.reason)
            return None
        return self.current

    def note_refusal(self, token: str, reason: str) -> None:
        """The server refused a token that was just issued: another one would not be better."""
        self._refusal = (token, reason)

    def find_refusal(self) -> McpLoginRequired | None:
        """The error of a call whose token the server refused."""
        if self._refusal is None:
            return None
        if self._login is not None and self._login.access_token != self._refusal[0]:
            return None
        return self._login_required(self._refusal[1])

    async def _refresh(self, old_token: str) -> None:
        """One refresh at a time; those who come meanwhile wait for it.

        It is a task of its own: a call that is cancelled must not lose a refresh token that was used up.
        """
        if self._refreshing is None or self._refreshing.done():
            self._refreshing = asyncio.create_task(self._refresh_stored(old_token))
        self._login = await asyncio.shield(self._refreshing)

    async def _refresh_stored(self, old_token: str) -> StoredLogin:
        """Refreshes the stored login, unless somebody else has. Raises McpUnavailable."""
        deadline = asyncio.get_running_loop().time() + self._lease_seconds
        while True:
            stored = await self._store.find_login(self._owner, self._resource)
            if stored is None:
                raise self._login_required(_NOT_SIGNED_IN)
            if stored.login.access_token != old_token:
                return stored.login
            if stored.login.refresh_token is None:
                raise self._login_required(_ENDED)
            if await self._store.claim_refresh(
                self._owner, self._resource, stored.version, self._lease_seconds
            ):
                return await self._refresh_claimed(stored)
            if asyncio.get_running_loop().time() > deadline:
                raise McpUnavailable(self._name, "its access token is being refreshed elsewhere")
            await asyncio.sleep(_POLL_SECONDS)

    async def _refresh_claimed(self, stored: VersionedLogin) -> StoredLogin:
        login = stored.login
        form = {
            "grant_type": "refresh_token",
            "refresh_token": login.refresh_token or "",
            "resource": login.resource,
        }
        if login.scope:
            form["scope"] = login.scope
        try:
            refreshed = await request_tokens(self._http, login, form, server_url=self._server_url)
        except TokenRefused as refusal:
            if refusal.is_client_unknown:
                await self._store.delete_client(login.client)
            # Of no use to anybody any more, whatever the reason.
            await self._store.delete_login(self._owner, self._resource, stored.version)
            raise self._login_required(_ENDED) from None
        except SignInFailed as error:
            await self._store.release_refresh(self._owner, self._resource, stored.version)
            raise McpUnavailable(self._name, f"its access token cannot be refreshed. {error}") from None
        if await self._store.replace_login(self._owner, self._resource, refreshed, stored.version):
            log.info("mcp %s: its access token was refreshed", self._name)
            return refreshed
        current = await self._store.find_login(self._owner, self._resource)
        if current is None:  # signed out meanwhile
            raise self._login_required(_NOT_SIGNED_IN)
        return current.login

    def _login_required(self, reason: str) -> McpLoginRequired:
        return McpLoginRequired(self._name, describe_sign_in(self._name, reason))
