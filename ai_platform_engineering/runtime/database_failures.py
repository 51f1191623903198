"""Why a database cannot be used, in words of our own: a library's text may quote a password."""

import re
from collections.abc import Iterator

from ai_platform_engineering.core.errors import DatabaseUnavailable

_TOO_LATE = "it did not answer in time (STORAGE_TIMEOUT_SECONDS)"

# The first that matches the texts of the libraries. They share no classes, and PostgreSQL's refusals of a
# connection have no code.
_REASONS = (
    (
        r"password authentication failed|no password supplied|role .* does not exist|no pg_hba\.conf entry"
        r"|WRONGPASS|NOAUTH|invalid (?:username-password|password)|without any password configured"
        r"|authentication failed|requires authentication|bad auth",
        "it refuses this user or password",
    ),
    (r"database .* does not exist", "it has no such database"),
    (r"permission denied|not authorized|NOPERM", "this user may not do what is needed there"),
    (r"too many (?:connections|clients)|connection slots", "it takes no more connections"),
    (r"connection refused|Connect call failed|Error 111\b", "nothing listens at its address"),
    (
        r"resolve host|translate host|not known|name resolution|getaddrinfo|DNS|No address",
        "its host name is not known",
    ),
    (r"\bSSL\b|\bTLS\b|certificate", "a secure connection to it fails"),
    (r"timed? ?out|timeout", _TOO_LATE),
)


def explain_failure(error: BaseException) -> str:
    """The reason of a client library's error, in fixed words; without one, the name of its type."""
    texts = "\n".join(f"{cause}" for cause in _causes(error))
    for pattern, reason in _REASONS:
        if re.search(pattern, texts, re.IGNORECASE):
            return reason
    if any(isinstance(cause, TimeoutError) for cause in _causes(error)):
        return _TOO_LATE
    return f"its client failed ({type(error).__name__})"


def unavailable(label: str, error: BaseException, remedy: str) -> DatabaseUnavailable:
    """The failure of a database for people; `label` is its kind and host."""
    return DatabaseUnavailable(f"{label} cannot be used: {explain_failure(error)}.", remedy)


def _causes(error: BaseException) -> Iterator[BaseException]:
    seen: set[int] = set()
    cause: BaseException | None = error
    while cause is not None and id(cause) not in seen:
        seen.add(id(cause))
        yield cause
        cause = cause.__cause__ or cause.__context__
