"""A check of TCP ports: one connection per port, closed at once."""

import asyncio
import time
from typing import Literal

from ai_platform_engineering.core.port_ranges import parse_ports
from ai_platform_engineering.mcp_servers.netutils.hosts import (
    HostResolver,
    IPAddress,
    connect,
    describe_failure,
    parse_host,
)
from ai_platform_engineering.mcp_servers.netutils.results import (
    CheckResult,
    NetError,
    ResultModel,
    pluralize,
    to_milliseconds,
)

PortStatus = Literal["open", "closed", "filtered", "unreachable"]

MAX_ADDRESSES = 4
MAX_SOCKETS = 200
_BEST_FIRST: tuple[PortStatus, ...] = ("open", "closed", "filtered", "unreachable")


class PortState(ResultModel):
    port: int
    state: PortStatus
    address: str
    took_ms: float
    reason: str | None = None


class PortsResult(CheckResult):
    host: str
    addresses: tuple[str, ...]
    ports: tuple[PortState, ...]
    open: tuple[int, ...]

    @property
    def line(self) -> str:
        if len(self.ports) == 1:
            return self._describe_port(self.ports[0])
        parts = []
        for state in _BEST_FIRST:
            ports = [port.port for port in self.ports if port.state == state]
            if ports:
                parts.append(f"{len(ports)} {state} ({_join_ports(ports)})")
        host = self._describe_host(", ".join(self.addresses))
        return f"{host}: of {pluralize(len(self.ports), 'port')} {'; '.join(parts)}."

    def _describe_port(self, port: PortState) -> str:
        text = f"Port {port.port} on {self._describe_host(port.address)} is {port.state}"
        if port.state == "open":
            return f"{text}: it answered in {port.took_ms:g} ms."
        return f"{text}: {port.reason}."

    def _describe_host(self, address: str) -> str:
        if self.host == address:
            return self.host
        return f"{self.host} ({address})"


def _join_ports(ports: list[int]) -> str:
    text = ", ".join(map(str, ports[:12]))
    if len(ports) > 12:
        text += ", …"
    return text


class PortChecker:
    """Checks ports, with a limit on sockets over all calls."""

    def __init__(self, hosts: HostResolver) -> None:
        self._hosts = hosts
        self._sockets = asyncio.Semaphore(MAX_SOCKETS)

    async def check(self, host: str, port: int | str | list[int], timeout: float) -> PortsResult:
        try:
            ports = parse_ports(port, limit=self._hosts.policy.ports_per_call)
        except ValueError as error:
            raise NetError(str(error)) from None
        addresses = await self._hosts.resolve_allowed(host, timeout, checked_ports=ports)
        addresses = addresses[:MAX_ADDRESSES]
        states = await asyncio.gather(*(self._check_port(addresses, number, timeout) for number in ports))
        result = PortsResult(
            host=parse_host(host),
            addresses=tuple(str(address) for address in addresses),
            ports=tuple(states),
            open=tuple(state.port for state in states if state.state == "open"),
        )
        if all(state.state == "unreachable" for state in states):
            raise NetError(f"{result.host} cannot be reached: {states[0].reason}.", result)
        return result

    async def _check_port(self, addresses: tuple[IPAddress, ...], port: int, timeout: float) -> PortState:
        """The best state over the host's addresses: a service may listen on one of them only."""
        states = await asyncio.gather(*(self._check_address(address, port, timeout) for address in addresses))
        return min(states, key=lambda state: _BEST_FIRST.index(state.state))

    async def _check_address(self, address: IPAddress, port: int, timeout: float) -> PortState:
        async with self._sockets:
            started = time.perf_counter()
            state, reason = await _try_connect(address, port, timeout)
            took = to_milliseconds(time.perf_counter() - started)
        return PortState(port=port, state=state, address=str(address), took_ms=took, reason=reason)


async def _try_connect(address: IPAddress, port: int, timeout: float) -> tuple[PortStatus, str | None]:
    try:
        async with asyncio.timeout(timeout):
            sock = await connect(address, port)
    except TimeoutError:
        return "filtered", f"no answer within {timeout:g} s; a firewall drops it, or the host is down"
    except ConnectionRefusedError:
        return "closed", "connection refused, nothing listens there"
    except OSError as error:
        return "unreachable", describe_failure(error)
    sock.close()
    return "open", None
