"""A check of a TLS service's certificate, also of one that nobody should trust."""

import asyncio
import functools
import ipaddress
import socket
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import dsa, ec, rsa

from ai_platform_engineering.mcp_servers.netutils.hosts import (
    HostResolver,
    IPAddress,
    connect_to_first,
    describe_failure,
    format_host_port,
    parse_address,
    parse_host,
)
from ai_platform_engineering.mcp_servers.netutils.results import (
    CheckResult,
    NetError,
    ResultModel,
    pluralize,
    printable,
)

MAX_NAMES = 100
MAX_CHAIN = 10


class ChainCertificate(ResultModel):
    subject: str
    issuer: str
    not_after: str


class CertificateResult(CheckResult):
    host: str
    port: int
    address: str
    server_name: str
    verified: bool
    problems: tuple[str, ...]
    subject: str
    issuer: str
    names: tuple[str, ...]
    names_total: int
    not_before: str
    not_after: str
    days_left: int
    expired: bool
    self_signed: bool
    name_matches: bool
    serial_number: str
    fingerprint_sha256: str
    key: str
    signature_hash: str | None
    chain_length: int
    chain: tuple[ChainCertificate, ...]
    protocol: str
    cipher: str

    @property
    def line(self) -> str:
        day = self.not_after[:10]
        if self.expired:
            days_ago = -self.days_left - 1  # days are counted downwards
            validity = f"expired on {day}"
            if days_ago:
                validity += f", {pluralize(days_ago, 'day')} ago"
        else:
            validity = f"valid until {day}, {pluralize(self.days_left, 'day')} left"
        trust = "trusted by this machine"
        if not self.verified:
            trust = f"not trusted: {'; '.join(self.problems)}"
        name = next(iter(self.names), self.subject)
        certificate = f"a certificate for {name} from {self.issuer}, {validity}; {trust}"
        return f"{format_host_port(self.host, self.port)} has {certificate}. {self.protocol}, {self.cipher}."


@dataclass(frozen=True)
class _Handshake:
    """The certificates, protocol and cipher of one handshake."""

    chain: tuple[bytes, ...]
    protocol: str
    cipher: str


class CertificateChecker:
    def __init__(self, hosts: HostResolver) -> None:
        self._hosts = hosts

    async def check(self, host: str, port: int, server_name: str | None, timeout: float) -> CertificateResult:
        name = parse_host(host)
        where = format_host_port(name, port)
        sni = name
        if server_name:
            sni = parse_host(server_name)
        try:
            async with asyncio.timeout(timeout):
                addresses = await self._hosts.resolve_for_request(name, port, timeout)
                handshake, address, problem = await _inspect(addresses, port, sni, timeout)
        except TimeoutError:
            raise NetError(
                f"{where} gave no certificate within {timeout:g} s; "
                "a firewall drops it, or it does not speak TLS."
            ) from None
        except ssl.SSLError as error:
            raise NetError(f"{where}: {describe_handshake_error(error)}") from None
        except (ConnectionResetError, ConnectionAbortedError, BrokenPipeError):
            raise NetError(
                f"{where} closed the connection during the TLS handshake; it may not speak TLS."
            ) from None
        except OSError as error:
            raise NetError(f"{where} cannot be reached: {describe_failure(error)}.") from None
        try:
            return _build_result(name, port, address, sni, handshake, problem)
        except ValueError as error:
            raise NetError(
                f"{where} sent a certificate that cannot be read: {printable(str(error), 160)}"
            ) from None


async def _inspect(
    addresses: Sequence[IPAddress], port: int, sni: str, timeout: float
) -> tuple[_Handshake, IPAddress, str | None]:
    """A verified handshake; if verification fails, one that accepts everything, and why the first failed."""
    sock, address = await connect_to_first(addresses, port, timeout)
    try:
        return await _perform_handshake(sock, verifying_context(), sni), address, None
    except ssl.SSLCertVerificationError as error:
        problem = describe_verification_error(error)
    except ssl.SSLError as error:
        if error.reason in _NOT_TLS:
            raise
        problem = describe_handshake_error(error)
    sock, address = await connect_to_first([address], port, timeout)
    return await _perform_handshake(sock, _permissive_context(), sni), address, problem


async def _perform_handshake(sock: socket.socket, context: ssl.SSLContext, sni: str) -> _Handshake:
    try:
        _, writer = await asyncio.open_connection(sock=sock, ssl=context, server_hostname=sni)
    except BaseException:
        sock.close()
        raise
    try:
        tls: ssl.SSLObject = writer.get_extra_info("ssl_object")
        cipher_name = "unknown"
        cipher = tls.cipher()
        if cipher:
            cipher_name = cipher[0]
        return _Handshake(chain=_read_chain(tls), protocol=tls.version() or "unknown", cipher=cipher_name)
    finally:
        writer.transport.abort()  # no data was sent: there is nothing to close politely


def _read_chain(tls: ssl.SSLObject) -> tuple[bytes, ...]:
    """All certificates the server sent.

    Python has a public method for this from 3.13 on; the older versions will not change any more.
    """
    public: Any = getattr(tls, "get_unverified_chain", None)
    if public is not None:
        return tuple(public())
    inner: Any = getattr(tls, "_sslobj", None)
    if inner is not None and hasattr(inner, "get_unverified_chain"):
        certificates = inner.get_unverified_chain() or ()
        return tuple(ssl.PEM_cert_to_DER_cert(each.public_bytes()) for each in certificates)
    leaf = tls.getpeercert(binary_form=True)
    if leaf:
        return (leaf,)
    return ()


@functools.cache
def verifying_context() -> ssl.SSLContext:
    """A context that verifies against the system's trust store; read once, since that takes long."""
    return ssl.create_default_context()


@functools.cache
def _permissive_context() -> ssl.SSLContext:
    """A context that accepts everything, old protocols too: nothing is sent over such a connection."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    context.minimum_version = ssl.TLSVersion.MINIMUM_SUPPORTED
    context.set_ciphers("ALL:@SECLEVEL=0")
    return context


_NOT_TLS = frozenset(
    {"WRONG_VERSION_NUMBER", "RECORD_LAYER_FAILURE", "HTTP_REQUEST", "UNEXPECTED_EOF_WHILE_READING"}
)


def describe_verification_error(error: ssl.SSLCertVerificationError) -> str:
    problem = printable(str(error.verify_message or error.reason or "verification failed"), 200).rstrip(".")
    if not verifying_context().get_ca_certs() and "issuer" in problem:
        problem += " (this machine's trust store is empty)"
    return problem


def describe_handshake_error(error: ssl.SSLError) -> str:
    """Why the handshake failed, for people."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate is not trusted: {describe_verification_error(error)}"
    if error.reason in _NOT_TLS:
        return "the port is open but does not speak TLS (plain HTTP, or a protocol that starts TLS later)."
    if error.reason and "CERTIFICATE_REQUIRED" in error.reason:
        return "the server asks for a client certificate."
    reason = (error.reason or "no reason given").replace("_", " ").lower()
    return f"the TLS handshake failed: {printable(reason, 120)}."


def _build_result(
    host: str, port: int, address: IPAddress, sni: str, handshake: _Handshake, problem: str | None
) -> CertificateResult:
    if not handshake.chain:
        raise NetError(f"{format_host_port(host, port)} speaks TLS but sent no certificate.")
    chain = [x509.load_der_x509_certificate(der) for der in handshake.chain[:MAX_CHAIN]]
    leaf = chain[0]
    now = datetime.now(UTC)
    names = subject_names(leaf)
    matches = any(name_matches(pattern, sni) for pattern in names)
    problems: tuple[str, ...] = ()
    if problem:
        problems = _list_problems(leaf, now, sni, problem, matches=matches)
    signature_hash = None
    if leaf.signature_hash_algorithm:
        signature_hash = leaf.signature_hash_algorithm.name
    return CertificateResult(
        host=host,
        port=port,
        address=str(address),
        server_name=sni,
        verified=problem is None,
        problems=problems,
        subject=_format_name(leaf.subject),
        issuer=_format_name(leaf.issuer),
        names=tuple(printable(name, 255) for name in names[:MAX_NAMES]),
        names_total=len(names),
        not_before=leaf.not_valid_before_utc.isoformat(),
        not_after=leaf.not_valid_after_utc.isoformat(),
        days_left=(leaf.not_valid_after_utc - now).days,
        expired=leaf.not_valid_after_utc < now,
        self_signed=leaf.subject == leaf.issuer,
        name_matches=matches,
        serial_number=f"{leaf.serial_number:x}",
        fingerprint_sha256=leaf.fingerprint(hashes.SHA256()).hex(":"),
        key=_describe_key(leaf),
        signature_hash=signature_hash,
        chain_length=len(handshake.chain),
        chain=tuple(_view_certificate(certificate) for certificate in chain),
        protocol=handshake.protocol,
        cipher=handshake.cipher,
    )


def _view_certificate(certificate: x509.Certificate) -> ChainCertificate:
    return ChainCertificate(
        subject=_format_name(certificate.subject),
        issuer=_format_name(certificate.issuer),
        not_after=certificate.not_valid_after_utc.isoformat(),
    )


def _list_problems(
    leaf: x509.Certificate, now: datetime, sni: str, reported: str, *, matches: bool
) -> tuple[str, ...]:
    """All problems of a certificate: the verifier stops at the first."""
    problems = [reported]
    if leaf.not_valid_after_utc < now and "expired" not in reported:
        problems.append("certificate has expired")
    if leaf.not_valid_before_utc > now and "not yet valid" not in reported:
        problems.append("certificate is not yet valid")
    if not matches and "mismatch" not in reported:
        problems.append(f"certificate is not valid for {sni}")
    return tuple(problems)


def subject_names(certificate: x509.Certificate) -> list[str]:
    """The names and addresses a certificate is for; the common name has not counted for years."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return []
    addresses = map(str, names.get_values_for_type(x509.IPAddress))
    return [*names.get_values_for_type(x509.DNSName), *addresses]


def name_matches(pattern: str, name: str) -> bool:
    """Whether a name of a certificate covers a host: `*` stands for one whole label, the first (RFC 9525)."""
    address = parse_address(name)
    if address is not None:
        return parse_address(pattern) == ipaddress.ip_address(str(address))
    pattern = pattern.lower().removesuffix(".")
    name = name.lower()
    if pattern.startswith("*."):
        return "." in name and name.split(".", 1)[1] == pattern[2:]
    return pattern == name


def _format_name(name: x509.Name) -> str:
    return printable(name.rfc4514_string(), 300) or "(no name)"


def _describe_key(certificate: x509.Certificate) -> str:
    key = certificate.public_key()
    if isinstance(key, rsa.RSAPublicKey):
        return f"RSA {key.key_size}"
    if isinstance(key, ec.EllipticCurvePublicKey):
        return f"EC {key.curve.name}"
    if isinstance(key, dsa.DSAPublicKey):
        return f"DSA {key.key_size}"
    return type(key).__name__.strip("_").removesuffix("PublicKey")
