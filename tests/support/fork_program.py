"""`fork_program.py SOCKET -m MODULE ...` or `... FILE ...`: a Python program that the command server forks.

It has our standard streams, environment and folder, and ends with us; we end with its exit code. It looks
like an interpreter that was started, and is spared the imports. Standard library only: it is started with
`-I -S`.
"""

import json
import os
import signal
import socket
import sys

PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def main() -> None:
    address, *arguments = sys.argv[1:]
    report, report_for_server = socket.socketpair()
    request = {
        "module": "tests.support.command_server",
        "function": "run_python",
        "arguments": ["python", *arguments],
        "environment": dict(os.environ),
        "folder": os.getcwd(),
        "terminal": False,
    }
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as control:
        control.connect(address)
        socket.send_fds(control, [json.dumps(request).encode()], [0, 1, 2, report_for_server.fileno()])
    report_for_server.close()
    # The program alone holds the pipes: who reads them sees when it closes them.
    nothing = os.open(os.devnull, os.O_RDWR)
    os.dup2(nothing, 0)
    os.dup2(nothing, 1)
    lines = report.makefile()
    pid = int(lines.readline())
    for number in PASSED_ON:
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = int(lines.readline() or -signal.SIGKILL)
    if code >= 0:
        sys.exit(code)
    signal.signal(-code, signal.SIG_DFL)
    os.kill(os.getpid(), -code)


if __name__ == "__main__":
    main()
