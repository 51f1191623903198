"""`python -m ai_platform_engineering.mcp_servers.victorops`: serves the tools over stdin and stdout."""

import sys

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.mcp_servers.victorops.server import DEFAULT_URL, OnCallApi, create_server


def main() -> int:
    try:
        variables = {name: value.strip() for name, value in read_environment().items()}
    except ConfigurationError as error:
        print(error, file=sys.stderr)  # noqa: T201 - a command
        return 2
    api_id = variables.get("X_VO_API_ID")
    api_key = variables.get("X_VO_API_KEY")
    if not api_id or not api_key:
        print(  # noqa: T201 - a command
            "Set X_VO_API_ID and X_VO_API_KEY: the API id and an API key of Splunk On-Call.", file=sys.stderr
        )
        return 2
    try:
        api = OnCallApi(variables.get("VICTOROPS_API_URL") or DEFAULT_URL, api_id, api_key)
        create_server(api).run("stdio")
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
