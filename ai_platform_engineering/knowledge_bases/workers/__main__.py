"""The process of a worker: `python -m ai_platform_engineering.knowledge_bases.workers KIND PARENT`."""

import logging
import os
import signal
import sys
from importlib import import_module

from ai_platform_engineering.core.process_protection import end_with_parent, forbid_inspection
from ai_platform_engineering.knowledge_bases.workers.worker_kinds import SERVICE_MODULES
from ai_platform_engineering.knowledge_bases.workers.worker_server import Channel, LogFrames, Service, serve


def main(kind: str, parent: int) -> None:
    """Serves calls of the process `parent`, and ends with it."""
    # A group of its own: a Ctrl-C in the terminal is for the parent, which ends its workers in order. Not a
    # session: Linux may weigh priorities only within one.
    os.setpgrp()
    end_with_parent(parent)
    forbid_inspection()
    _restore_signals()
    channel = Channel.from_standard_streams()
    logging.basicConfig(level=logging.INFO, handlers=[LogFrames(channel)])
    service: Service = import_module(SERVICE_MODULES[kind]).create_service()
    serve(channel, service)


def _restore_signals() -> None:
    """Whatever the parent ignores, blocks or handles, here the system's defaults hold."""
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)


if __name__ == "__main__":
    os.umask(0o077)
    main(sys.argv[1], int(sys.argv[2]))
