"""Memory of the server for readers that ask for a long run and do not read.

    .venv/bin/python -m benchmarks.slow_readers [--readers 300] [--megabytes 6]

The server is a process of its own, with a scripted model; nothing leaves loopback.
"""

import argparse
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

CHUNK = 20_000  # characters


def serve(megabytes: int, readers: int) -> None:
    from ai_platform_engineering.core.settings import Settings
    from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
    from ai_platform_engineering.runtime.server.app import listen
    from ai_platform_engineering.runtime.server.app import serve as serve_forever
    from ai_platform_engineering.runtime.storage import Storage
    from tests.support.fakes.model import ScriptedChatModel
    from tests.support.fakes.script import Say, Script, Turn

    limits = {"A2A_MAX_STREAMS": str(readers), "A2A_MAX_STREAMS_PER_USER": str(readers)}
    settings = Settings.from_variables({"A2A_PORT": "0", "ENABLE_RAG": "false", **limits})
    listener = listen(settings.server)
    pieces = [Say(f"{number} " + "x" * CHUNK) for number in range(megabytes * 1_000_000 // CHUNK)]
    model = ScriptedChatModel(script=Script(Turn(*pieces)))
    print(listener.getsockname()[1], flush=True)
    with tempfile.TemporaryDirectory() as folder:
        storage = Storage.from_settings(settings.storage, Path(folder), "supervisor")
        serve_forever(create_app(settings, model=model, storage=storage), listener, "warning")


def resident_megabytes(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text(encoding="ascii").split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def settled_megabytes(pid: int) -> float:
    """The memory when it has not grown for some seconds."""
    history = [resident_megabytes(pid)]
    for _ in range(30):
        time.sleep(1)
        history.append(resident_megabytes(pid))
        if len(history) > 8 and history[-1] - history[-6] < 1:
            break
    return max(history)


def kernel_megabytes() -> float:
    """What all TCP connections of this machine hold."""
    for line in Path("/proc/net/sockstat").read_text(encoding="ascii").splitlines():
        if line.startswith("TCP:"):
            return int(line.split()[-1]) * os.sysconf("SC_PAGE_SIZE") / 1e6
    return 0.0


def request(method: str, params: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": "1", "method": method, "params": params}).encode()


def ask(port: int) -> str:
    """The id of a task that has ended."""
    message = {"role": "ROLE_USER", "messageId": "1", "parts": [{"text": "Talk."}]}
    headers = {
        "Content-Type": "application/json",
        "A2A-Version": "1.0",
        "A2A-Extensions": "urn:caipe:events:1",
    }
    asked = urllib.request.Request(
        f"http://127.0.0.1:{port}/", request("SendMessage", {"message": message}), headers
    )
    with urllib.request.urlopen(asked, timeout=60) as response:
        return str(json.load(response)["result"]["task"]["id"])


def subscribe(port: int, task_id: str) -> socket.socket:
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)  # nothing hides in the reader's own buffer
    reader.connect(("127.0.0.1", port))
    body = request("SubscribeToTask", {"id": task_id})
    head = (
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\nA2A-Version: 1.0\r\n"
        f"Last-Event-ID: 0\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    reader.sendall(head.encode() + body)
    return reader


def measure(readers: int, megabytes: int) -> None:
    command = [sys.executable, "-m", "benchmarks.slow_readers", "--serve"]
    options = ["--readers", str(readers), "--megabytes", str(megabytes)]
    server = subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        task_id = ask(port)
        before = resident_megabytes(server.pid)
        sockets = [subscribe(port, task_id) for _ in range(readers)]
        after = settled_megabytes(server.pid)
        each = (after - before) / readers * 1000
        print(f"{readers} readers of a run of {megabytes} MB that do not read:")
        print(f"{before:.0f} MB before, {after:.0f} MB after: {each:.0f} kB a reader")
        print(f"in the kernel: {kernel_megabytes():.0f} MB")
        for reader in sockets:
            reader.close()
    finally:
        server.kill()
        server.wait()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readers", type=int, default=300)
    parser.add_argument("--megabytes", type=int, default=6)
    parser.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.serve:
        serve(arguments.megabytes, arguments.readers)
    else:
        measure(arguments.readers, arguments.megabytes)


if __name__ == "__main__":
    main()
