"""Redaction: a server's secrets, and control characters, removed from texts and addresses."""

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.redaction import SECRET_NAME, Redactor, find_url_secrets

if TYPE_CHECKING:
    from ai_platform_engineering.mcp_client.oauth.access_tokens import AccessTokens

_MAX_TOKENS = 20  # of earlier refreshes; older ones have expired


class SecretRedactor:
    """Removes a server's secrets from whatever the server says."""

    def __init__(self, server: McpServer, tokens: "AccessTokens | None" = None) -> None:
        self._secrets = tuple(_find_secrets(server))
        self._tokens = tokens
        self._token_secrets: tuple[str, ...] = ()
        self._redactor = Redactor.from_secrets(self._secrets)

    def redact(self, text: str) -> str:
        """What a tool returned, without the values of the server's secrets."""
        return self._find_redactor().redact_values(text)

    def redact_error(self, text: str) -> str:
        """What went wrong, also without texts in the format of a secret."""
        return self._find_redactor().redact(text)

    def _find_redactor(self) -> Redactor:
        """The redactor with the tokens as they are now: those before are still redacted, too."""
        if self._tokens is not None:
            new_secrets = set(self._tokens.secrets()).difference(self._token_secrets)
            if new_secrets:
                self._token_secrets = (*new_secrets, *self._token_secrets)[:_MAX_TOKENS]
                self._redactor = Redactor.from_secrets((*self._secrets, *self._token_secrets))
        return self._redactor


def redact_url(server: McpServer) -> str:
    """The server's URL for people: without user, password and query, which may be secrets."""
    parts = urlsplit(server.url or "")
    host = parts.hostname or ""
    if ":" in host:
        host = f"[{host}]"
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def sanitize_line(text: str, max_chars: int) -> str:
    """Third-party text as one short line without control characters."""
    characters = list(text[:max_chars])
    for index, character in enumerate(characters):
        if not character.isprintable():
            characters[index] = " "
    return "".join(characters).strip()


def _find_secrets(server: McpServer) -> Iterator[str]:
    yield from _find_secrets_in_arguments(server.args)
    for name, value in {**server.env, **server.headers}.items():
        if SECRET_NAME.search(name):
            yield value
            yield from value.split()[1:]  # "Bearer x": x alone as well
        elif "://" in value:
            yield from find_url_secrets(value)
    yield from find_url_secrets(server.url or "")


def _find_secrets_in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """The values of `--token=value` and of `--token value`."""
    for previous, argument in pairwise(("", *arguments)):
        option, _, value = argument.partition("=")
        if _is_secret_option(option):
            yield value
        elif _is_secret_option(previous):
            yield argument


def _is_secret_option(option: str) -> bool:
    return option.startswith("-") and bool(SECRET_NAME.search(option))
