"""DNS questions to the system's resolver or to a given server, with the hosts file behind the former."""

import asyncio
import re
import time
from typing import Literal

import dns.asyncresolver
import dns.exception
import dns.name
import dns.rdata
import dns.rdtypes.ANY.MX
import dns.rdtypes.ANY.TXT
import dns.rdtypes.IN.SRV
import dns.resolver
import dns.reversename

from ai_platform_engineering.mcp_servers.netutils.hosts import (
    HostResolver,
    IPAddress,
    describe_failure,
    format_host_port,
    is_localhost,
    parse_address,
    parse_host,
    without_scope,
)
from ai_platform_engineering.mcp_servers.netutils.results import (
    CheckResult,
    NetError,
    ResultModel,
    to_milliseconds,
    pluralize,
    printable,
    quote_input,
)

RecordType = Literal["A", "AAAA", "CNAME", "MX", "NS", "TXT", "SRV", "SOA", "CAA", "PTR", "ANY"]

# A server may refuse the real ANY (RFC 8482), so it means these, asked one by one.
COMMON_TYPES = ("A", "AAAA", "CNAME", "MX", "NS", "TXT", "SOA", "CAA")
MAX_RECORDS = 100
MAX_VALUE_LENGTH = 1000
SYSTEM_LIMIT = 1.5  # the hosts file answers at once, and DNS was asked before
_FAMILIES = {"A": (4,), "AAAA": (6,), "ANY": (4, 6)}


class Record(ResultModel):
    type: str
    value: str
    ttl: int | None = None
    priority: int | None = None
    weight: int | None = None
    port: int | None = None


class DnsResult(CheckResult):
    name: str
    type: str
    status: Literal["NOERROR", "NXDOMAIN"] = "NOERROR"
    source: Literal["dns", "system"] = "dns"
    records: tuple[Record, ...] = ()
    total: int = 0
    aliases: tuple[str, ...] | None = None
    server: str | None = None
    took_ms: float | None = None
    not_answered: dict[str, str] | None = None

    @property
    def line(self) -> str:
        by = (
            f"answered by {self.server}" if self.source == "dns" else "from this machine's own names, not DNS"
        )
        kind = "common" if self.type == "ANY" else self.type
        if parse_address(self.name) is not None:
            return f"{self.name} is {', '.join(record.value for record in self.records[:8]) or 'not known by any name'} ({by})."
        if self.status == "NXDOMAIN":
            return f"{self.name} does not exist ({by})."
        if not self.records:
            return f"{self.name} has no {kind} records ({by})."
        values = ", ".join(_format_record(record, typed=self.type == "ANY") for record in self.records[:8])
        more = f" and {self.total - 8} more" if self.total > 8 else ""
        return f"{self.name} has {pluralize(self.total, f'{kind} record')}: {values}{more} ({by})."


def _format_record(record: Record, *, typed: bool) -> str:
    port = f":{record.port}" if record.port is not None else ""
    priority = f" (priority {record.priority})" if record.priority is not None else ""
    return f"{record.type + ' ' if typed else ''}{printable(record.value, 120)}{port}{priority}"


class DnsClient:
    """Asks DNS, and the system where DNS knows nothing."""

    def __init__(self, reach: HostResolver) -> None:
        self._hosts = reach

    async def lookup(
        self, name: str, record_type: RecordType, server: str | None, timeout: float
    ) -> DnsResult:
        if record_type == "PTR" and parse_address(name) is not None:
            return await self.reverse(name, server, timeout)
        asked = parse_host(name)
        if parse_address(asked) is not None:
            raise NetError(
                f"{asked} is an address, not a name. Use reverse_dns to find its name, or ip_info to learn about it."
            )
        if is_localhost(asked) and not server:
            return await self._lookup_on_system(asked, record_type) or DnsResult(
                name=asked, type=record_type, source="system"
            )
        try:
            found = await self._query(
                asked, record_type, server, timeout, search=not name.strip().endswith(".")
            )
        except NetError:
            if not server and (known := await self._lookup_on_system(asked, record_type)):
                return known
            raise
        if found.records or server:
            return found
        return await self._lookup_on_system(asked, record_type) or found

    async def reverse(self, address: str, server: str | None, timeout: float) -> DnsResult:
        parsed = parse_address(address)
        if parsed is None:
            raise NetError(
                f"{quote_input(address)} is not an IP address. Write one like 10.0.0.5 or 2001:db8::1; for a name use dns_lookup."
            )
        parsed = without_scope(parsed)
        if parsed.is_loopback and not server:
            return await self._reverse_on_system(parsed) or DnsResult(
                name=str(parsed), type="PTR", status="NXDOMAIN", source="system"
            )
        pointer = dns.reversename.from_address(str(parsed)).to_text(omit_final_dot=True)
        try:
            found = (await self._query(pointer, "PTR", server, timeout)).model_copy(
                update={"name": str(parsed)}
            )
        except NetError:
            if not server and (known := await self._reverse_on_system(parsed)):
                return known
            raise
        if found.records or server:
            return found
        return await self._reverse_on_system(parsed) or found

    async def _lookup_on_system(self, name: str, record_type: str) -> DnsResult | None:
        """What programs on this machine would get for the name."""
        if record_type not in _FAMILIES:
            return None
        try:
            addresses = await self._hosts.resolve(name, SYSTEM_LIMIT)
        except NetError:
            return None
        records = tuple(
            Record(type="A" if address.version == 4 else "AAAA", value=str(address))
            for address in addresses
            if address.version in _FAMILIES[record_type]
        )
        if records:
            return DnsResult(
                name=name, type=record_type, source="system", records=records, total=len(records)
            )
        return None

    async def _reverse_on_system(self, address: IPAddress) -> DnsResult | None:
        name = await self._hosts.reverse_lookup(address, SYSTEM_LIMIT)
        records = (Record(type="PTR", value=name),) if name else ()
        if records:
            return DnsResult(name=str(address), type="PTR", source="system", records=records, total=1)
        return None

    async def _query(
        self, name: str, record_type: str, server: str | None, timeout: float, *, search: bool = False
    ) -> DnsResult:
        """With `search`, a short name is also tried with the domains of the system's resolver, as other programs do."""
        resolver = await self._make_resolver(server, timeout)
        search = search and not server
        started = time.perf_counter()
        if record_type == "ANY":
            found = await _query_common(resolver, name, timeout, search=search)
        else:
            found = await _query_one(resolver, name, record_type, timeout, search=search)
        return found.model_copy(update={"took_ms": to_milliseconds(time.perf_counter() - started)})

    async def _make_resolver(self, server: str | None, timeout: float) -> dns.asyncresolver.Resolver:
        if server:
            host, port = _parse_server(server)
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers = [str(address) for address in await self._hosts.resolve(host, timeout)]
            resolver.port = port
        else:
            try:
                resolver = dns.asyncresolver.Resolver()  # read anew each time: a VPN changes it
            except dns.resolver.NoResolverConfiguration:
                raise NetError(
                    "This machine has no name server configured. Give one in `server`, for example 10.0.0.2."
                ) from None
        resolver.use_edns(0, 0, 1232)
        return resolver


async def _query_common(
    resolver: dns.asyncresolver.Resolver, name: str, timeout: float, *, search: bool
) -> DnsResult:
    answers = await asyncio.gather(
        *(_query_one(resolver, name, kind, timeout, search=search) for kind in COMMON_TYPES),
        return_exceptions=True,
    )
    found = [answer for answer in answers if isinstance(answer, DnsResult)]
    failed = {
        kind: answer
        for kind, answer in zip(COMMON_TYPES, answers, strict=True)
        if isinstance(answer, BaseException)
    }
    for failure in failed.values():
        if not found or not isinstance(failure, NetError):
            raise failure
    # An alias answers every question with the records it points to; the CNAME itself is asked for as well.
    records = tuple(dict.fromkeys(record for answer in found for record in answer.records))[:MAX_RECORDS]
    return DnsResult(
        name=found[0].name,
        type="ANY",
        status="NXDOMAIN"
        if not records and any(answer.status == "NXDOMAIN" for answer in found)
        else "NOERROR",
        records=records,
        total=len(records),
        aliases=next((answer.aliases for answer in found if answer.aliases), None),
        server=found[0].server,
        not_answered={kind: printable(str(failure), 200) for kind, failure in failed.items()} or None,
    )


async def _query_one(
    resolver: dns.asyncresolver.Resolver, name: str, record_type: str, timeout: float, *, search: bool
) -> DnsResult:
    asked = ", ".join(_format_server(str(each), resolver.port) for each in resolver.nameservers)
    try:
        answer = await resolver.resolve(
            name, record_type, raise_on_no_answer=False, search=search, lifetime=timeout
        )
    except dns.resolver.NXDOMAIN:
        return DnsResult(name=name, type=record_type, status="NXDOMAIN", server=asked)
    except (dns.exception.DNSException, OSError) as error:
        reason = _describe_failure(error, asked, timeout)
        raise NetError(f"Cannot look up {record_type} records of {name}: {reason}") from None
    values = (
        tuple(_parse_record(rdata, record_type, answer.rrset.ttl) for rdata in answer.rrset) if answer.rrset else ()
    )
    steps = [_name_text(cname[0].target) for cname in answer.chaining_result.cnames]
    return DnsResult(
        name=_name_text(answer.qname),
        type=record_type,
        records=values[:MAX_RECORDS],
        total=len(values),
        aliases=tuple(steps) or None,
        server=_format_server(str(answer.nameserver), answer.port or resolver.port),
    )


def _parse_record(rdata: dns.rdata.Rdata, record_type: str, ttl: int) -> Record:
    value = rdata.to_text()
    priority = None
    weight = None
    port = None
    if isinstance(rdata, dns.rdtypes.ANY.MX.MX):
        value, priority = _name_text(rdata.exchange), rdata.preference
    elif isinstance(rdata, dns.rdtypes.IN.SRV.SRV):
        value = _name_text(rdata.target)
        priority = rdata.priority
        weight = rdata.weight
        port = rdata.port
    elif isinstance(rdata, dns.rdtypes.ANY.TXT.TXT):
        value = b"".join(rdata.strings).decode("utf-8", "replace")
    elif isinstance(target := getattr(rdata, "target", None), dns.name.Name):  # CNAME, NS, PTR
        value = _name_text(target)
    return Record(
        type=record_type,
        value=printable(value, MAX_VALUE_LENGTH),
        ttl=ttl,
        priority=priority,
        weight=weight,
        port=port,
    )


def _name_text(name: dns.name.Name) -> str:
    return printable(name.to_text(omit_final_dot=True), 260)


def _describe_failure(error: Exception, asked: str, timeout: float) -> str:
    """Why there is no answer."""
    if isinstance(error, dns.exception.Timeout):
        return (
            f"{asked} did not answer within {timeout:g} s. Is there a network, and is that the right server?"
        )
    if isinstance(error, dns.resolver.NoNameservers):
        # Each entry: server, over TCP or not, port, what went wrong, the response if there was one.
        reasons = [entry[3] for entry in error.kwargs.get("errors", [])]
        words = [
            describe_failure(reason) if isinstance(reason, OSError) else printable(str(reason), 80)
            for reason in reasons
        ]
        return f"{asked}: {', '.join(dict.fromkeys(words)) or 'no usable answer'}"
    if isinstance(error, OSError):
        return f"{asked}: {describe_failure(error)}"
    return f"{asked}: {printable(str(error) or type(error).__name__, 160)}"


def _parse_server(text: str) -> tuple[str, int]:
    """`10.0.0.2`, `10.0.0.2:5353`, `[2001:db8::1]:53`, or a name in place of the address."""
    given = text.strip()
    if parse_address(given) is not None:
        return parse_host(given), 53
    split = re.fullmatch(r"\[?([^\[\]]+?)\]?:(\d{1,5})", given)
    host, port = (split[1], int(split[2])) if split else (given, 53)
    if not 1 <= port <= 65535:
        raise NetError(f"{quote_input(text)} is not a DNS server: the port must be from 1 to 65535.")
    try:
        return parse_host(host), port
    except NetError:
        raise NetError(
            f"{quote_input(text)} is not a DNS server. Write an address like 10.0.0.2, 10.0.0.2:5353 or [2001:db8::1]:53."
        ) from None


def _format_server(address: str, port: int) -> str:
    if port == 53:
        return address
    return format_host_port(address, port)
