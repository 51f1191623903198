"""DNS queries to the system's resolvers or to configured ones; the hosts file answers where DNS does not."""

import asyncio
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
    pluralize,
    printable,
    quote_input,
    to_milliseconds,
)

RecordType = Literal["A", "AAAA", "CNAME", "MX", "NS", "TXT", "SRV", "SOA", "CAA", "PTR", "ANY"]

# A server may refuse the real ANY (RFC 8482), so it means these, asked one by one.
COMMON_TYPES = ("A", "AAAA", "CNAME", "MX", "NS", "TXT", "SOA", "CAA")
MAX_RECORDS = 100
MAX_RECORDS_IN_LINE = 8
MAX_VALUE_LENGTH = 1000
SYSTEM_LIMIT = 1.5  # the hosts file answers at once, and DNS was asked before
_FAMILIES = {"A": (4,), "AAAA": (6,), "ANY": (4, 6)}
_ADDRESS_TYPES = {4: "A", 6: "AAAA"}


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
        source = f"answered by {self.server}"
        if self.source == "system":
            source = "from this machine's own names, not DNS"
        if parse_address(self.name) is not None:
            names = ", ".join(record.value for record in self.records[:MAX_RECORDS_IN_LINE])
            return f"{self.name} is {names or 'not known by any name'} ({source})."
        if self.status == "NXDOMAIN":
            return f"{self.name} does not exist ({source})."
        kind = self.type
        if self.type == "ANY":
            kind = "common"
        if not self.records:
            return f"{self.name} has no {kind} records ({source})."
        first_records = self.records[:MAX_RECORDS_IN_LINE]
        values = ", ".join(_format_record(record, typed=self.type == "ANY") for record in first_records)
        if self.total > MAX_RECORDS_IN_LINE:
            values += f" and {self.total - MAX_RECORDS_IN_LINE} more"
        return f"{self.name} has {pluralize(self.total, f'{kind} record')}: {values} ({source})."


def _format_record(record: Record, *, typed: bool) -> str:
    text = printable(record.value, 120)
    if typed:
        text = f"{record.type} {text}"
    if record.port is not None:
        text += f":{record.port}"
    if record.priority is not None:
        text += f" (priority {record.priority})"
    return text


class DnsClient:
    """Queries DNS, and the system's own names where DNS has no answer."""

    def __init__(self, hosts: HostResolver) -> None:
        self._hosts = hosts
        self._servers = hosts.policy.dns_servers

    async def lookup(self, name: str, record_type: RecordType, timeout: float) -> DnsResult:
        """The records of a name. Raises NetError."""
        if record_type == "PTR" and parse_address(name) is not None:
            return await self.reverse(name, timeout)
        host = parse_host(name)
        if parse_address(host) is not None:
            raise NetError(
                f"{host} is an address, not a name. "
                "Use reverse_dns to find its name, or ip_info to learn about it."
            )
        if is_localhost(host):
            system_result = await self._lookup_on_system(host, record_type)
            return system_result or DnsResult(name=host, type=record_type, source="system")
        if self._servers:
            return await self._query(host, record_type, timeout)
        is_absolute = name.strip().endswith(".")
        try:
            result = await self._query(host, record_type, timeout, search=not is_absolute)
        except NetError:
            system_result = await self._lookup_on_system(host, record_type)
            if system_result is None:
                raise
            return system_result
        if result.records:
            return result
        return await self._lookup_on_system(host, record_type) or result

    async def reverse(self, address: str, timeout: float) -> DnsResult:
        """The names of an address. Raises NetError."""
        parsed = parse_address(address)
        if parsed is None:
            raise NetError(
                f"{quote_input(address)} is not an IP address. "
                "Write one like 10.0.0.5 or 2001:db8::1; for a name use dns_lookup."
            )
        parsed = without_scope(parsed)
        if parsed.is_loopback:
            system_result = await self._reverse_on_system(parsed)
            return system_result or DnsResult(
                name=str(parsed), type="PTR", status="NXDOMAIN", source="system"
            )
        if self._servers:
            return await self._query_pointer(parsed, timeout)
        try:
            result = await self._query_pointer(parsed, timeout)
        except NetError:
            system_result = await self._reverse_on_system(parsed)
            if system_result is None:
                raise
            return system_result
        if result.records:
            return result
        return await self._reverse_on_system(parsed) or result

    async def _query_pointer(self, address: IPAddress, timeout: float) -> DnsResult:
        pointer = dns.reversename.from_address(str(address)).to_text(omit_final_dot=True)
        result = await self._query(pointer, "PTR", timeout)
        return result.model_copy(update={"name": str(address)})

    async def _lookup_on_system(self, name: str, record_type: str) -> DnsResult | None:
        """The addresses that programs on this machine get for the name, as records."""
        if record_type not in _FAMILIES:
            return None
        try:
            addresses = await self._hosts.resolve(name, SYSTEM_LIMIT)
        except NetError:
            return None
        records = []
        for address in addresses:
            if address.version in _FAMILIES[record_type]:
                records.append(Record(type=_ADDRESS_TYPES[address.version], value=str(address)))
        if not records:
            return None
        return DnsResult(
            name=name, type=record_type, source="system", records=tuple(records), total=len(records)
        )

    async def _reverse_on_system(self, address: IPAddress) -> DnsResult | None:
        name = await self._hosts.reverse_lookup(address, SYSTEM_LIMIT)
        if not name:
            return None
        record = Record(type="PTR", value=name)
        return DnsResult(name=str(address), type="PTR", source="system", records=(record,), total=1)

    async def _query(self, name: str, record_type: str, timeout: float, *, search: bool = False) -> DnsResult:
        """Queries DNS and measures the time.

        With `search`, a short name is also tried with the domains of the system's resolver, as other programs
        do.
        """
        resolver = self._make_resolver()
        started = time.perf_counter()
        if record_type == "ANY":
            result = await _query_common(resolver, name, timeout, search=search)
        else:
            result = await _query_one(resolver, name, record_type, timeout, search=search)
        return result.model_copy(update={"took_ms": to_milliseconds(time.perf_counter() - started)})

    def _make_resolver(self) -> dns.asyncresolver.Resolver:
        if self._servers:
            resolver = dns.asyncresolver.Resolver(configure=False)
            resolver.nameservers = [address for address, _ in self._servers]
            resolver.nameserver_ports = dict(self._servers)
        else:
            try:
                resolver = dns.asyncresolver.Resolver()  # read anew each time: a VPN changes it
            except dns.resolver.NoResolverConfiguration:
                raise NetError(
                    "This machine has no name server configured. An operator can set NETWORK_DNS_SERVERS."
                ) from None
        resolver.use_edns(0, 0, 1232)
        return resolver


async def _query_common(
    resolver: dns.asyncresolver.Resolver, name: str, timeout: float, *, search: bool
) -> DnsResult:
    answers = await asyncio.gather(
        *(_query_one(resolver, name, record_type, timeout, search=search) for record_type in COMMON_TYPES),
        return_exceptions=True,
    )
    results = [answer for answer in answers if isinstance(answer, DnsResult)]
    failures = {}
    for record_type, answer in zip(COMMON_TYPES, answers, strict=True):
        if not isinstance(answer, BaseException):
            continue
        if not results or not isinstance(answer, NetError):
            raise answer
        failures[record_type] = printable(str(answer), 200)
    # An alias answers every query with the records it points to; the CNAME itself is asked for as well.
    records: dict[Record, None] = {}
    for result in results:
        records.update(dict.fromkeys(result.records))
    shown_records = tuple(records)[:MAX_RECORDS]
    status: Literal["NOERROR", "NXDOMAIN"] = "NOERROR"
    if not records and any(result.status == "NXDOMAIN" for result in results):
        status = "NXDOMAIN"
    return DnsResult(
        name=results[0].name,
        type="ANY",
        status=status,
        records=shown_records,
        total=len(shown_records),
        aliases=next((result.aliases for result in results if result.aliases), None),
        server=results[0].server,
        not_answered=failures or None,
    )


async def _query_one(
    resolver: dns.asyncresolver.Resolver, name: str, record_type: str, timeout: float, *, search: bool
) -> DnsResult:
    ports = resolver.nameserver_ports
    addresses = [str(server) for server in resolver.nameservers]
    servers = ", ".join(_format_server(address, ports.get(address, resolver.port)) for address in addresses)
    try:
        answer = await resolver.resolve(
            name, record_type, raise_on_no_answer=False, search=search, lifetime=timeout
        )
    except dns.resolver.NXDOMAIN:
        return DnsResult(name=name, type=record_type, status="NXDOMAIN", server=servers)
    except (dns.exception.DNSException, OSError) as error:
        reason = _describe_failure(error, servers, timeout)
        raise NetError(f"Cannot look up {record_type} records of {name}: {reason}") from None
    records: tuple[Record, ...] = ()
    if answer.rrset:
        records = tuple(_parse_record(rdata, record_type, answer.rrset.ttl) for rdata in answer.rrset)
    aliases = tuple(_name_text(cname[0].target) for cname in answer.chaining_result.cnames)
    return DnsResult(
        name=_name_text(answer.qname),
        type=record_type,
        records=records[:MAX_RECORDS],
        total=len(records),
        aliases=aliases or None,
        server=_format_server(str(answer.nameserver), answer.port or resolver.port),
    )


def _parse_record(rdata: dns.rdata.Rdata, record_type: str, ttl: int) -> Record:
    value = rdata.to_text()
    priority = None
    weight = None
    port = None
    if isinstance(rdata, dns.rdtypes.ANY.MX.MX):
        value = _name_text(rdata.exchange)
        priority = rdata.preference
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


def _describe_failure(error: Exception, servers: str, timeout: float) -> str:
    """Why the servers gave no answer."""
    if isinstance(error, dns.exception.Timeout):
        hint = "Is there a network, and is that the right server?"
        return f"{servers} did not answer within {timeout:g} s. {hint}"
    if isinstance(error, dns.resolver.NoNameservers):
        # Each entry: server, over TCP or not, port, what went wrong, the response if there was one.
        errors = [_describe_server_error(entry[3]) for entry in error.kwargs.get("errors", [])]
        return f"{servers}: {', '.join(dict.fromkeys(errors)) or 'no usable answer'}"
    if isinstance(error, OSError):
        return f"{servers}: {describe_failure(error)}"
    return f"{servers}: {printable(str(error) or type(error).__name__, 160)}"


def _describe_server_error(error: object) -> str:
    if isinstance(error, OSError):
        return describe_failure(error)
    return printable(str(error), 80)


def _format_server(address: str, port: int) -> str:
    if port == 53:
        return address
    return format_host_port(address, port)
