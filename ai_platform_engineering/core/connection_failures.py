"""Why a connection failed, in fixed words: a library's own text may quote an address with a password."""

import errno
import re
import socket
import ssl
from collections.abc import Iterator

REFUSED = "nothing listens at its address"
UNKNOWN_HOST = "its host name is not known"
NOT_TRUSTED = "its TLS certificate is not trusted (SSL_CERT_FILE names more authorities)"
NO_TLS = "a secure connection to it fails"
NO_ROUTE = "there is no route to it"
CLOSED = "it closed the connection"
TOO_LATE = "it did not answer in time"

_ERRNO_REASONS = {
    errno.ECONNREFUSED: REFUSED,
    errno.EHOSTUNREACH: NO_ROUTE,
    errno.ENETUNREACH: NO_ROUTE,
    errno.ECONNRESET: CLOSED,
    errno.EPIPE: CLOSED,
    errno.ETIMEDOUT: TOO_LATE,
}
# The first that matches: HTTP clients wrap the error of the system in texts of their own.
_TEXT_REASONS = (
    (r"connection refused|Connect call failed|Error 111\b", REFUSED),
    (
        r"resolve host|translate host|not known|name resolution|getaddrinfo|\bDNS\b|No address associated",
        UNKNOWN_HOST,
    ),
    (r"certificate", NOT_TRUSTED),
    (r"\bSSL\b|\bTLS\b", NO_TLS),
    (r"unreachable|no route", NO_ROUTE),
    (r"timed? ?out|timeout|in time", TOO_LATE),
    (r"disconnected|reset by peer|was closed|closed the connection", CLOSED),
)


def explain_connection(error: BaseException) -> str | None:
    """The reason why a connection failed; none when the error says nothing of a connection."""
    causes = list(list_causes(error))
    for cause in causes:
        reason = _explain_type(cause)
        if reason:
            return reason
    texts = "\n".join(f"{cause}" for cause in causes)
    for pattern, reason in _TEXT_REASONS:
        if re.search(pattern, texts, re.IGNORECASE):
            return reason
    if any("Timeout" in type(cause).__name__ for cause in causes):
        return TOO_LATE
    return None


def why_unreachable(error: BaseException) -> str:
    """The end of "… cannot be reached": the reason, or the name of the error's type."""
    reason = explain_connection(error)
    if reason is None:
        return f" ({type(error).__name__})"
    return f": {reason}"


def list_causes(error: BaseException) -> Iterator[BaseException]:
    """The error, what caused it, and so on."""
    visited: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in visited:
        visited.add(id(cause))
        yield cause
        if isinstance(cause, BaseExceptionGroup):
            cause = cause.exceptions[0]
        else:
            cause = cause.__cause__ or cause.__context__


def _explain_type(cause: BaseException) -> str | None:
    if isinstance(cause, ssl.SSLCertVerificationError):
        return NOT_TRUSTED
    if isinstance(cause, ssl.SSLError):
        return NO_TLS
    if isinstance(cause, socket.gaierror):
        return UNKNOWN_HOST
    if isinstance(cause, TimeoutError):
        return TOO_LATE
    if isinstance(cause, OSError):
        return _ERRNO_REASONS.get(cause.errno or 0)
    return None
