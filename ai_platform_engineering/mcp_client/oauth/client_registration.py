"""Our identity as a client: configured, a metadata document, or registered with the server (RFC 7591)."""

from typing import Literal

from mcp.client.auth.exceptions import OAuthRegistrationError
from mcp.client.auth.oauth2 import check_registration_usable
from mcp.client.auth.utils import should_use_client_metadata_url
from mcp.shared.auth import OAuthClientInformationFull, OAuthClientMetadata
from pydantic import AnyUrl, ValidationError

from ai_platform_engineering.core.agent_definition import OAuthConfig
from ai_platform_engineering.mcp_client.oauth.checked_http import CheckedHttp
from ai_platform_engineering.mcp_client.oauth.discovery import AuthorizationServer
from ai_platform_engineering.mcp_client.oauth.oauth_errors import SignInFailed
from ai_platform_engineering.mcp_client.oauth.stored_login import RegisteredClient
from ai_platform_engineering.mcp_client.oauth.token_endpoint import describe_refusal
from ai_platform_engineering.mcp_client.oauth.token_store import TokenStore

CLIENT_NAME = "AI Platform Engineer"
DEVICE_GRANT = "urn:ietf:params:oauth:grant-type:device_code"
GRANTS = ("authorization_code", "refresh_token", DEVICE_GRANT)


class ClientRegistrations:
    """Finds our client for an authorization server, and registers it where there is none yet."""

    def __init__(self, http: CheckedHttp, store: TokenStore, metadata_url: str | None) -> None:
        """`metadata_url`: where this server publishes its client metadata document, if it can be reached."""
        self._http = http
        self._store = store
        self._metadata_url = metadata_url

    async def find_client(
        self,
        config: OAuthConfig,
        server: AuthorizationServer,
        redirect_uri: str,
        *,
        server_url: str,
        is_kept: bool,
    ) -> RegisteredClient:
        """`is_kept`: the redirect URI will be used again, so the registration is stored. Raises
        SignInFailed."""
        if config.client_id is not None:
            return _configured_client(config, config.client_id, server)
        if should_use_client_metadata_url(server.metadata, self._metadata_url):
            assert self._metadata_url is not None
            return RegisteredClient(
                issuer=server.issuer, client_id=self._metadata_url, token_endpoint_auth_method="none"
            )
        client = await self._store.find_client(server.issuer, redirect_uri)
        if client is not None and not client.is_expired:
            return client
        client = await self._register(server, redirect_uri, server_url)
        if is_kept:
            await self._store.save_client(redirect_uri, client)
        return client

    async def _register(
        self, server: AuthorizationServer, redirect_uri: str, server_url: str
    ) -> RegisteredClient:
        endpoint = server.metadata.registration_endpoint
        if endpoint is None:
            raise SignInFailed(
                f"The authorization server {server.issuer} registers no clients by itself. Register one "
                f"there with the redirect URI {redirect_uri}, and set `client_id` in the definition."
            )
        metadata = OAuthClientMetadata(
            redirect_uris=[AnyUrl(redirect_uri)],
            client_name=CLIENT_NAME,
            grant_types=_choose_grants(server),
            scope=server.scope,
            token_endpoint_auth_method=_choose_auth_method(server, has_secret=False),
            application_type="native" if redirect_uri.startswith("http://") else "web",
        )
        answer = await self._http.post_json(
            str(endpoint), metadata.model_dump(mode="json", exclude_none=True), server_url=server_url
        )
        if answer.status not in (200, 201) or not isinstance(answer.body, dict):
            text = describe_refusal(answer.body) or f"HTTP {answer.status}"
            raise SignInFailed(f"The authorization server {server.issuer} refused to register us ({text}).")
        try:
            information = OAuthClientInformationFull.model_validate(answer.body)
            check_registration_usable(information)
        except ValidationError:
            raise SignInFailed(f"The registration at {server.issuer} has no client id.") from None
        except OAuthRegistrationError as error:
            raise SignInFailed(f"The registration at {server.issuer} cannot be used: {error}.") from None
        return RegisteredClient(
            issuer=server.issuer,
            client_id=information.client_id,
            client_secret=information.client_secret,
            token_endpoint_auth_method=information.token_endpoint_auth_method,
            secret_expires_at=float(information.client_secret_expires_at or 0),
        )


def _configured_client(config: OAuthConfig, client_id: str, server: AuthorizationServer) -> RegisteredClient:
    return RegisteredClient(
        issuer=server.issuer,
        client_id=client_id,
        client_secret=config.client_secret,
        token_endpoint_auth_method=_choose_auth_method(server, has_secret=config.client_secret is not None),
    )


def _choose_grants(server: AuthorizationServer) -> list[str]:
    """Those of ours that the server supports; what it does not list it may refuse."""
    supported = server.metadata.grant_types_supported
    if supported is None:
        return ["authorization_code", "refresh_token"]
    return [grant for grant in GRANTS if grant in supported] or ["authorization_code"]


def _choose_auth_method(
    server: AuthorizationServer, *, has_secret: bool
) -> Literal["none", "client_secret_post", "client_secret_basic"]:
    """How we prove who we are at the token endpoint; a secret that is not needed is not asked for."""
    supported = server.metadata.token_endpoint_auth_methods_supported or ["client_secret_basic"]
    if not has_secret and "none" in supported:
        return "none"
    if "client_secret_basic" in supported:
        return "client_secret_basic"
    return "client_secret_post"
