"""Refuses every connection and look-up beyond this machine, and writes each attempt down.

The attempt is written to a file because the code under test may swallow the exception, and because it may run
in a process of its own: whoever runs the test reads the file afterwards. Standard library only, since it is
also loaded by `sitecustomize` before anything else is there.
"""

import importlib.machinery
import ipaddress
import os
import socket
import sys
from collections.abc import Callable, Sequence
from types import ModuleType
from typing import Any

GUARD_FILE = "CAIPE_TEST_GUARD_FILE"
_installed: list[bool] = []


class NetworkForbidden(PermissionError):
    """An OSError, so that libraries close their sockets as they do after any refusal; the file is what fails
    the test."""


def is_local_host(host: object) -> bool:
    """True for what stays on this machine: nothing at all, the name localhost, or a loopback address."""
    if isinstance(host, bytes | bytearray):
        host = bytes(host).decode("ascii", "replace")
    if host is None or host == "":
        return True
    if not isinstance(host, str):
        return False
    if host.rstrip(".").lower() in {"localhost", "localhost.localdomain", "ip6-localhost"}:
        return True
    address = _numeric(host)
    if address is None:
        return False
    mapped = getattr(address, "ipv4_mapped", None)
    return (mapped or address).is_loopback


def install() -> None:
    """Puts the guard into this process, once; an audit hook cannot be taken out again."""
    if not _installed:
        _installed.append(True)
        sys.addaudithook(_audit)
        sys.meta_path.insert(0, _UvloopFinder())


def _audit(event: str, args: tuple[Any, ...]) -> None:
    if not event.startswith("socket."):
        return
    if event in {"socket.connect", "socket.sendto", "socket.sendmsg"}:
        sock, address = args
        if (
            sock.family in {socket.AF_INET, socket.AF_INET6}
            and isinstance(address, tuple)
            and not is_local_host(address[0])
        ):
            _refuse(event, address[0], address[1])
    elif event in {"socket.getaddrinfo", "socket.gethostbyname", "socket.gethostbyaddr"}:
        _check_lookup(event, args[0], args[1] if len(args) > 1 else "")


def _check_lookup(event: str, host: object, port: object = "") -> None:
    # A numeric address needs no question to anybody: it is refused where somebody connects to it.
    if not is_local_host(host) and _numeric(host) is None:
        _refuse(event, host, port)


def _numeric(host: object) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host.decode() if isinstance(host, bytes) else str(host))
    except ValueError:
        return None


def _refuse(event: str, host: object, port: object) -> None:
    shown = host.decode("ascii", "replace") if isinstance(host, bytes) else host
    text = f"{event} to {shown}:{port} refused: tests stay on this machine"
    path = os.environ.get(GUARD_FILE)
    if path:
        with open(path, "a", encoding="utf-8") as file:
            file.write(text + "\n")
    raise NetworkForbidden(text)


class _UvloopFinder:
    """Guards uvloop when it is imported: importing it here would cost every process 50 ms.

    It has no base class of `importlib.abc`, whose import costs as much again.
    """

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != "uvloop":
            return None
        sys.meta_path.remove(self)
        spec = importlib.machinery.PathFinder.find_spec(fullname, path, target)
        if spec is not None and spec.loader is not None:
            spec.loader = _UvloopLoader(spec.loader)
        return spec


class _UvloopLoader:
    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> ModuleType | None:
        return self._loader.create_module(spec)

    def exec_module(self, module: ModuleType) -> None:
        self._loader.exec_module(module)
        _guard_uvloop(module)


def _guard_uvloop(uvloop: Any) -> None:
    """uvloop connects and looks up inside libuv, where no audit event is raised."""

    def checked(name: str, check: Callable[..., None]) -> None:
        original = getattr(uvloop.Loop, name)

        async def guarded(self: Any, *args: Any, **kwargs: Any) -> Any:
            check(*args, **kwargs)
            return await original(self, *args, **kwargs)

        setattr(uvloop.Loop, name, guarded)

    def connection(_factory: object, host: object = None, port: object = None, **_: object) -> None:
        if not is_local_host(host):
            _refuse("uvloop.create_connection", host, port)

    def datagram(_factory: object, local_addr: object = None, remote_addr: Any = None, **_: object) -> None:
        if isinstance(remote_addr, tuple) and not is_local_host(remote_addr[0]):
            _refuse("uvloop.create_datagram_endpoint", remote_addr[0], remote_addr[1])

    def lookup(host: object, port: object, **_: object) -> None:
        _check_lookup("uvloop.getaddrinfo", host, port)

    checked("create_connection", connection)
    checked("create_datagram_endpoint", datagram)
    checked("getaddrinfo", lookup)
