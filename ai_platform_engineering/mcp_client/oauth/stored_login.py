"""What is stored of OAuth: the tokens of a sign-in, our registration as a client, and a sign-in under way."""

import time
from collections.abc import Iterable
from typing import Any

from pydantic import BaseModel, ConfigDict

# A token is refreshed so long before its end: requests take a while, and clocks differ.
_EARLY_SECONDS = 30.0


class StoredModel(BaseModel):
    """A row's encrypted content. No value is ever printed: most are secrets."""

    model_config = ConfigDict(frozen=True, extra="ignore", hide_input_in_errors=True)

    def __repr_args__(self) -> Iterable[tuple[str | None, Any]]:
        return ()


class RegisteredClient(StoredModel):
    """Our registration with an authorization server."""

    issuer: str
    client_id: str
    client_secret: str | None = None
    token_endpoint_auth_method: str | None = None
    secret_expires_at: float = 0.0  # 0: never

    @property
    def is_expired(self) -> bool:
        return 0 < self.secret_expires_at <= time.time()


class StoredLogin(StoredModel):
    """The tokens of an owner for one server, and where they are refreshed and revoked."""

    login_id: str = ""  # of this sign-in; it stays when tokens are refreshed
    client: RegisteredClient
    resource: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    access_token: str
    refresh_token: str | None = None
    scope: str | None = None
    expires_at: float | None = None

    @property
    def is_expired(self) -> bool:
        return self.expires_at is not None and time.time() >= self.expires_at - _EARLY_SECONDS

    def secrets(self) -> tuple[str, ...]:
        """What must never be shown."""
        values = (self.access_token, self.refresh_token, self.client.client_secret)
        return tuple(value for value in values if value)


class PendingSignIn(StoredModel):
    """A sign-in that a person has begun: what is needed when the authorization server answers."""

    agent: str
    server: str
    server_url: str
    owner: str  # of the login to be: the person who signs in, or the installation
    resource: str
    issuer: str
    token_endpoint: str
    revocation_endpoint: str | None = None
    sends_iss: bool = False  # the authorization server names itself in its answer
    client: RegisteredClient
    redirect_uri: str
    code_verifier: str
    # What the browser that began it has in a cookie; None when a command began it.
    browser_secret: str | None = None
    # The device flow: the code that we poll with, and how often.
    device_code: str | None = None
    interval: float = 5.0
