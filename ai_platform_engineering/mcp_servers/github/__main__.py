"""`python -m ai_platform_engineering.mcp_servers.github`: serves the tools over stdin and stdout."""

import sys

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.mcp_servers.github.api import DEFAULT_URL, GitHubApi
from ai_platform_engineering.mcp_servers.github.server import create_server


def main() -> int:
    try:
        variables = {name: value.strip() for name, value in read_environment().items()}
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 2
    token = variables.get("GITHUB_TOKEN") or variables.get("GITHUB_PERSONAL_ACCESS_TOKEN")
    if not token:
        print("Set GITHUB_TOKEN to a personal access token of GitHub.", file=sys.stderr)  # noqa: T201 - a command
        return 2
    try:
        api = GitHubApi(variables.get("GITHUB_API_URL") or DEFAULT_URL, token)
    except ValueError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 2
    try:
        create_server(api).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
