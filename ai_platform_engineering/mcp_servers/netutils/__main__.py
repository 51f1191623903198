"""`python -m ai_platform_engineering.mcp_servers.netutils`: serves the tools over stdin and stdout."""

import argparse
import sys

from ai_platform_engineering.mcp_servers.netutils.server import create_server


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="netutils", description="An MCP server for network checks, over stdin and stdout."
    )
    parser.add_argument(
        "--allow-metadata",
        action="store_true",
        help="let the tools connect to cloud metadata services, "
        "which hand out credentials (refused by default)",
    )
    chosen = parser.parse_args()
    try:
        create_server(allow_metadata=chosen.allow_metadata).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
