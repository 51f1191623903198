"""The identity of an MCP server, and the environment and the executable of its process."""

import hashlib
import json
import shutil
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ai_platform_engineering.core.agent_definition import McpServer

# What a program needs to run at all. Whatever else is in our environment, our own keys above all, is not the
# server's business.
_BASE_VARIABLES = frozenset(
    """
    PATH LD_LIBRARY_PATH HOME USER LOGNAME SHELL TERM LANG LANGUAGE TZ
    XDG_CACHE_HOME XDG_CONFIG_HOME XDG_DATA_HOME
    SSL_CERT_FILE SSL_CERT_DIR REQUESTS_CA_BUNDLE CURL_CA_BUNDLE NODE_EXTRA_CA_CERTS
    HTTP_PROXY HTTPS_PROXY ALL_PROXY NO_PROXY http_proxy https_proxy all_proxy no_proxy
    """.split()
)
_LOCALE_PREFIX = "LC_"
_OWN_PACKAGE = "ai_platform_engineering"
OWN_PACKAGE_FOLDER = Path(__file__).resolve().parents[1]


def server_key(server: McpServer) -> str:
    """A key that is the same for the same server with the same credentials, and different otherwise."""
    definition: list[Any] = [
        server.command,
        server.args,
        sorted(server.env.items()),
        server.cwd,
        server.url,
        sorted(server.headers.items()),
        server.sandbox.model_dump(mode="json"),
    ]
    if server.sends_user:
        definition.append("sends_user")
    if server.oauth is not None:
        definition.append(server.oauth.model_dump(mode="json"))
    return hashlib.sha256(json.dumps(definition).encode()).hexdigest()


def base_environment(own_environment: Mapping[str, str]) -> dict[str, str]:
    """The part of our environment that every program needs."""
    environment = dict[str, str]()
    for name, value in own_environment.items():
        if name in _BASE_VARIABLES or name.startswith(_LOCALE_PREFIX):
            environment[name] = value
    return environment


def is_own_server(server: McpServer) -> bool:
    """Whether it is a server of this package, in this process's own Python."""
    if server.command != sys.executable:
        return False
    match server.args:
        case ("-P", "-m", module, *_) | ("-m", module, *_):
            return module.split(".")[0] == _OWN_PACKAGE
        case _:
            return False


def child_environment(
    server: McpServer, own_environment: Mapping[str, str], working_folder: Path
) -> dict[str, str]:
    """The environment of a server's process: the usual base, its folder, the variables of its definition."""
    environment = {**base_environment(own_environment), "TMPDIR": str(working_folder)}
    if is_own_server(server):  # it is to run this very package, wherever that is
        environment["PYTHONPATH"] = str(OWN_PACKAGE_FOLDER.parent)
    return {**environment, **server.env}


def find_executable(server: McpServer, own_environment: Mapping[str, str]) -> str | None:
    """The file that the server's command names, as its own environment would find it."""
    command = server.command or ""
    if "/" in command:
        # Not resolved: a link may be a virtual environment.
        return shutil.which(str(Path(server.cwd or ".", command).absolute()))
    path = server.env.get("PATH") or own_environment.get("PATH", "")
    return shutil.which(command, path=path)
