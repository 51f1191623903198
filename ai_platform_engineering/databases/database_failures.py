"""Why a database cannot be used, in words of our own: a library's text may quote a password."""

import re

from ai_platform_engineering.core.connection_failures import TOO_LATE, explain_connection, list_causes
from ai_platform_engineering.core.errors import DatabaseUnavailable

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
)


def explain_failure(error: BaseException) -> str:
    """The reason of a client library's error, in fixed words; without one, the name of its type."""
    texts = "\n".join(f"{cause}" for cause in list_causes(error))
    for pattern, reason in _REASONS:
        if re.search(pattern, texts, re.IGNORECASE):
            return reason
    connection_reason = explain_connection(error)
    if connection_reason == TOO_LATE:
        return f"{TOO_LATE} (STORAGE_TIMEOUT_SECONDS)"
    return connection_reason or f"its client failed ({type(error).__name__})"


def unavailable(label: str, error: BaseException, remedy: str) -> DatabaseUnavailable:
    """The failure of a database for people; `label` is its kind and host."""
    return DatabaseUnavailable(f"{label} cannot be used: {explain_failure(error)}.", remedy)
