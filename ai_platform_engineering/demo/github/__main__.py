"""`python -m ai_platform_engineering.demo.github`: a GitHub on this machine.

The first line that it writes is its address.
"""

import argparse
import socket
import sys
from pathlib import Path

import uvicorn

from ai_platform_engineering.demo.github.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.github.sample_data import build_sample_state
from ai_platform_engineering.demo.github.state import load_state


def main(arguments: list[str] | None = None) -> int:
    options = _create_parser().parse_args(arguments)
    file = Path(options.file) if options.file else None
    if file and file.exists():
        state = load_state(file)
    else:
        state = build_sample_state()
    app = create_app(state, tokens=options.token or [DEMO_TOKEN], rate_limit=options.rate_limit, file=file)
    family = socket.AF_INET
    url_host = options.host
    if ":" in options.host:
        family = socket.AF_INET6
        url_host = f"[{options.host}]"
    with socket.create_server((options.host, options.port), family=family) as listener:
        print(f"http://{url_host}:{listener.getsockname()[1]}", flush=True)  # noqa: T201 - a command
        uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
    return 0


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="demo.github", description="A stand-in for GitHub's REST API with a small organisation in it."
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default: only this machine)"
    )
    parser.add_argument("--port", type=int, default=0, help="port (default: a free one)")
    parser.add_argument(
        "--token", action="append", help=f"a token it accepts, may be repeated (default: {DEMO_TOKEN})"
    )
    parser.add_argument(
        "--rate-limit", type=int, default=5000, help="calls that each token has in an hour (default: 5000)"
    )
    parser.add_argument("--file", help="JSON file to keep the state in (default: in memory only)")
    return parser


if __name__ == "__main__":
    sys.exit(main())
