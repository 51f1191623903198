"""Redaction: a server's secrets, and control characters, removed from texts and addresses."""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from urllib.parse import parse_qsl, unquote, urlsplit

from ai_platform_engineering.core.agent_definition import McpServer

_SECRET_NAME = re.compile(
    r"key|token|secret|passw|pwd|auth|credential|cookie|session|signature|private|dsn|pat\b|_pat_",
    re.IGNORECASE,
)
_MIN_SECRET_LENGTH = 8  # a shorter value is a word like any other, and hiding it would hide nothing


class SecretRedactor:
    """Removes a server's secrets from whatever the server says."""

    def __init__(self, server: McpServer) -> None:
        secrets = {secret for secret in _find_secrets(server) if len(secret) >= _MIN_SECRET_LENGTH}
        self._pattern: re.Pattern[str] | None = None
        if secrets:
            # The longest first: one secret may begin with another.
            longest_first = sorted(secrets, key=len, reverse=True)
            self._pattern = re.compile("|".join(map(re.escape, longest_first)))

    def redact(self, text: str) -> str:
        if self._pattern:
            return self._pattern.sub("***", text)
        return text


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
        if _SECRET_NAME.search(name):
            yield value
            yield from value.split()[1:]  # "Bearer x": x alone as well
        elif "://" in value:
            yield from _find_secrets_in_url(value)
    yield from _find_secrets_in_url(server.url or "")


def _find_secrets_in_arguments(arguments: Sequence[str]) -> Iterator[str]:
    """The values of `--token=value` and of `--token value`."""
    for previous, argument in pairwise(("", *arguments)):
        option, _, value = argument.partition("=")
        if _is_secret_option(option):
            yield value
        elif _is_secret_option(previous):
            yield argument


def _is_secret_option(option: str) -> bool:
    return option.startswith("-") and bool(_SECRET_NAME.search(option))


def _find_secrets_in_url(url: str) -> Iterator[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    for name, value in parse_qsl(parts.query):
        if _SECRET_NAME.search(name):
            yield value
    if parts.password:
        yield parts.password
        yield unquote(parts.password)
