"""What is known of an MCP server without talking to it: its identity, its environment, its secrets, its state, its failures."""

import hashlib
import json
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from pathlib import Path
from typing import Literal
from urllib.parse import parse_qsl, unquote, urlsplit

from ai_platform_engineering.core.agent_definition import McpServer
from ai_platform_engineering.core.errors import AgentUnavailable, CaipeError

# What a program needs to run at all. Whatever else is in our environment, our own keys above all, is not the server's business.
_BASE_NAMES = frozenset(
    {
        *(
            "PATH",
            "LD_LIBRARY_PATH",
            "HOME",
            "USER",
            "LOGNAME",
            "SHELL",
            "TERM",
            "LANG",
            "LANGUAGE",
            "TZ",
            "TMPDIR",
            "TEMP",
            "TMP",
        ),
        *("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_RUNTIME_DIR"),
        *("SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "NODE_EXTRA_CA_CERTS"),
        *(
            "HTTP_PROXY",
            "HTTPS_PROXY",
            "ALL_PROXY",
            "NO_PROXY",
            "http_proxy",
            "https_proxy",
            "all_proxy",
            "no_proxy",
        ),
    }
)
_SECRET_NAME = re.compile(
    r"key|token|secret|passw|pwd|auth|credential|cookie|session|signature|private|dsn|pat\b|_pat_",
    re.IGNORECASE,
)
_LEAST_SECRET = 8  # a shorter value is a word like any other, and hiding it would hide nothing

ProgressCallback = Callable[[float, float | None, str | None], None]
"""Takes the progress of a call: how much is done, of how much, and words."""

ServerStatus = Literal["not started", "starting", "ready", "failed"]


@dataclass(frozen=True, slots=True)
class McpState:
    """How a server is doing, for reports. `tools` is known once it has listed them, also from the cache."""

    server: str
    status: ServerStatus
    tools: int | None = None
    reason: str | None = None
    since: datetime | None = None


class McpUnavailable(AgentUnavailable):
    """The server cannot be started or reached; nothing was done."""

    code = "mcp_unavailable"

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"The tool server {server} is not available: {reason}")
        self.reason = reason


class McpCallLost(CaipeError):
    """The call was given to the server and no answer came; nobody knows whether it took effect."""

    code = "mcp_call_lost"
    retryable = True
    outcome = "unknown"


class McpToolFailed(CaipeError):
    """The server answered that the call failed; the text is the server's."""

    code = "tool_failed"


class McpToolGone(CaipeError):
    """The server no longer has the tool."""

    code = "tool_gone"


class NotDeliveredError(Exception):
    """Between us and the server: the request cannot have reached it. Doing it again is safe."""


class DeliveryUnknownError(Exception):
    """The request may have reached the server, and no answer will come."""


class RequestRejectedError(Exception):
    """The server answered with an error."""

    def __init__(self, text: str, code: int = 0) -> None:
        super().__init__(text)
        self.code = code


@dataclass(frozen=True)
class McpLimits:
    """Seconds: to connect, without a sign of life in a call, unused before a session is closed (0: never), at most between two starts."""

    connect: float = 30.0
    call: float = 60.0
    idle: float = 900.0
    backoff: float = 60.0

    @property
    def longest_call(self) -> float:
        """Progress prolongs a call, but not for ever."""
        return 10 * self.call


@dataclass(slots=True)
class OutgoingRequest:
    """A request on its way; it has an id as soon as it was handed to the transport."""

    request_id: str | int | None = None


def server_key(server: McpServer) -> str:
    """The same for the same server with the same credentials, and different otherwise."""
    what = [
        server.command,
        server.args,
        sorted(server.env.items()),
        server.cwd,
        server.url,
        sorted(server.headers.items()),
    ]
    return hashlib.sha256(json.dumps(what).encode()).hexdigest()


def base_environment(ours: Mapping[str, str]) -> dict[str, str]:
    return {name: value for name, value in ours.items() if name in _BASE_NAMES or name.startswith("LC_")}


def child_environment(server: McpServer, ours: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server's process: the usual base, and what its definition gives."""
    return {**base_environment(ours), **server.env}


def find_executable(server: McpServer, ours: Mapping[str, str]) -> str | None:
    """The file that the server's command names, as its own environment would find it."""
    command = server.command or ""
    if "/" in command:
        return shutil.which(
            str(Path(server.cwd or ".", command).absolute())
        )  # not resolved: a link may be a virtual environment
    return shutil.which(command, path=child_environment(server, ours).get("PATH", ""))


def redact_url(server: McpServer) -> str:
    """Where the server is, for people: without user, password and query, which may be secrets."""
    parts = urlsplit(server.url or "")
    host = f"[{parts.hostname}]" if parts.hostname and ":" in parts.hostname else parts.hostname or ""
    try:
        port = f":{parts.port}" if parts.port else ""
    except ValueError:
        port = ""
    return f"{parts.scheme}://{host}{port}{parts.path}"


def sanitize_line(text: str, most: int) -> str:
    """A stranger's text as one short line without control characters."""
    return "".join(char if char.isprintable() else " " for char in text[:most]).strip()


class SecretRedactor:
    """Takes a server's secrets out of whatever the server says."""

    def __init__(self, server: McpServer) -> None:
        # The longest first: one secret may begin with another.
        found = sorted(
            {value for value in _secrets(server) if len(value) >= _LEAST_SECRET}, key=len, reverse=True
        )
        self._secret = re.compile("|".join(map(re.escape, found))) if found else None

    def __call__(self, text: str) -> str:
        if self._secret:
            return self._secret.sub("***", text)
        return text


def _secrets(server: McpServer) -> list[str]:
    found: list[str] = []
    for before, argument in pairwise(("", *server.args)):
        option, _, value = argument.partition("=")
        if _SECRET_NAME.search(option) and option.startswith("-"):
            found.append(value)
        elif _SECRET_NAME.search(before) and before.startswith("-"):
            found.append(argument)
    for name, value in {**server.env, **server.headers}.items():
        if _SECRET_NAME.search(name):
            found += [value, *value.split()[1:]]  # "Bearer x": x alone as well
        elif "://" in value:
            found += _secrets_in(value)
    return found + _secrets_in(server.url or "")


def _secrets_in(url: str) -> list[str]:
    try:
        parts = urlsplit(url)
    except ValueError:
        return []
    given = [value for name, value in parse_qsl(parts.query) if _SECRET_NAME.search(name)]
    return [*given, *([parts.password, unquote(parts.password)] if parts.password else [])]
