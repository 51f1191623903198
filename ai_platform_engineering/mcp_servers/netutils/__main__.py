"""`python -m ai_platform_engineering.mcp_servers.netutils`: serves the tools over stdin and stdout."""

import argparse
import sys

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.network_settings import NetworkSettings
from ai_platform_engineering.mcp_servers.netutils.network_policy import NetworkPolicy
from ai_platform_engineering.mcp_servers.netutils.server import create_server


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="netutils",
        description="An MCP server for network checks, over stdin and stdout. "
        "The variables NETWORK_* say what it reaches.",
    )
    parser.parse_args()
    try:
        settings = NetworkSettings.parse_variables(read_environment())
        server = create_server(NetworkPolicy.from_settings(settings))
    except CaipeError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 2
    try:
        server.run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
