"""The process that works on one stored result: a command and the result on stdin, the output on stdout.

It has no secrets, no time and no memory beyond its limits, and ends with the command.
"""

import json
import os
import resource
import sys
from typing import Any

from ai_platform_engineering.core.process_protection import end_with_parent
from ai_platform_engineering.runtime.results.result_commands import CommandRefused, run_command

_MAX_MEMORY = 1024**3  # of addresses; the values of a result take several times its characters
_TOO_LARGE = "It takes more memory than there is: select less."


def main(parent: int) -> None:
    end_with_parent(parent)
    command = json.loads(sys.stdin.buffer.readline())
    _limit(command)
    reply: dict[str, Any]
    try:
        text = sys.stdin.buffer.read().decode("utf-8", "surrogatepass")
        reply = {"output": run_command(command, text)}
    except CommandRefused as error:
        reply = {"refusal": str(error)}
    except MemoryError:
        reply = {"refusal": _TOO_LARGE}
    sys.stdout.write(json.dumps(reply))
    sys.stdout.flush()
    os._exit(0)  # without freeing what a large result took


def _limit(command: dict[str, Any]) -> None:
    seconds = max(1, round(command["seconds"]))
    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))
    resource.setrlimit(resource.RLIMIT_AS, (_MAX_MEMORY, _MAX_MEMORY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
