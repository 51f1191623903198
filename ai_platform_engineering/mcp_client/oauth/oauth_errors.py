"""Errors of sign-ins to MCP servers; no text holds a token, a code or a secret."""

from ai_platform_engineering.core.errors import Refused


class SignInFailed(Refused):
    """A person could not be signed in to a server; the text says why and what to do."""

    code = "sign_in_failed"


class TokenRefused(SignInFailed):
    """The authorization server refused a client's request; `error` is its code (RFC 6749, RFC 8628)."""

    def __init__(self, message: str, error: str) -> None:
        super().__init__(message)
        self.error = error

    @property
    def is_client_unknown(self) -> bool:
        """Whether the server does not know us: it may have lost the registrations of its clients."""
        return self.error == "invalid_client"


class AuthorizationServerUnreachable(SignInFailed):
    """The authorization server could not be asked; trying again may help."""

    code = "authorization_server_unreachable"
    retryable = True
