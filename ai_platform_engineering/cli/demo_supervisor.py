"""The supervisor of the demo as a process: `caipe demo` starts it, and it ends with it."""

import os
import signal
import sys
import threading
from collections.abc import Mapping

from ai_platform_engineering.core.import_collections import paused_collections
from ai_platform_engineering.core.settings import Settings

with paused_collections():
    from ai_platform_engineering.demo.investigator.investigator_model import InvestigatorModel
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.startup import (
        start_server,
    )
    from ai_platform_engineering.runtime.server.app import App


def main() -> None:
    threading.Thread(target=_end_with_parent, name="parent", daemon=True).start()
    start_server({}, _build, is_supervisor=True)


def _build(settings: Settings, variables: Mapping[str, str]) -> App:
    app = build_app(settings, variables, router=InvestigatorModel())
    app.greeting = tuple  # `caipe demo` tells what to do first
    return app


def _end_with_parent() -> None:
    """Waits for the end of stdin: a parent that was killed cannot send a signal."""
    while os.read(sys.stdin.fileno(), 1024):
        pass
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    main()
