"""`python -m ai_platform_engineering.demo`: the stand-ins of the demo, without the supervisor.

The first line that it writes is JSON: the variables that point tool servers to the stand-ins. It ends when
its stdin is closed.
"""

import argparse
import asyncio
import sys
from pathlib import Path

from ai_platform_engineering.core.failure_text import describe_failure, describe_unforeseen
from ai_platform_engineering.demo.launcher import run_launcher
from ai_platform_engineering.demo.stand_ins import STAND_INS


def main(arguments: list[str] | None = None) -> int:
    options = _create_parser().parse_args(arguments)
    try:
        asyncio.run(run_launcher(STAND_INS, options.seed, options.folder))
    except Exception as error:  # noqa: BLE001 - whatever fails is told in words to who started it
        text = describe_failure(error) or describe_unforeseen(error, "")
        sys.stderr.write(f"{text.message}\n")
        return 1
    return 0


def _create_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="demo", description="Stand-ins for the systems that agents work on, with one company in them."
    )
    parser.add_argument("--seed", type=int, default=1, help="which company (default: 1)")
    parser.add_argument(
        "--folder", type=Path, required=True, help="where the control file is written, for its owner alone"
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
