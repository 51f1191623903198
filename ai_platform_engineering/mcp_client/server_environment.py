"""The identity of an MCP server, and the environment and the executable of its process."""

import hashlib
import json
import shutil
from collections.abc import Mapping
from pathlib import Path

from ai_platform_engineering.core.agent_definition import McpServer

# What a program needs to run at all. Whatever else is in our environment, our own keys above all, is not the
# server's business.
_BASE_VARIABLES = frozenset(
    """
    PATH LD_LIBRARY_PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ TMPDIR TEMP TMP
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME XDG_RUNTIME_DIR
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
    """.split()
)
_LOCALE_PREFIX = "LC_"


def server_key(server: McpServer) -> str:
    """A key that is the same for the same server with the same credentials, and different otherwise."""
    definition = [
        server.command,
        server.args,
        sorted(server.env.items()),
        server.cwd,
        server.url,
        sorted(server.headers.items()),
    ]
    return hashlib.sha256(json.dumps(definition).encode()).hexdigest()


def base_environment(own_environment: Mapping[str, str]) -> dict[str, str]:
    """The part of our environment that every program needs."""
    environment = dict[str, str]()
    for name, value in own_environment.items():
        if name in _BASE_VARIABLES or name.startswith(_LOCALE_PREFIX):
            environment[name] = value
    return environment


def child_environment(server: McpServer, own_environment: Mapping[str, str]) -> dict[str, str]:
    """The environment of a server's process: the usual base, and the variables of its definition."""
    return {**base_environment(own_environment), **server.env}


def find_executable(server: McpServer, own_environment: Mapping[str, str]) -> str | None:
    """The file that the server's command names, as its own environment would find it."""
    command = server.command or ""
    if "/" in command:
        # Not resolved: a link may be a virtual environment.
        return shutil.which(str(Path(server.cwd or ".", command).absolute()))
    return shutil.which(command, path=child_environment(server, own_environment).get("PATH", ""))
