"""The reasons why a database cannot be used are words of ours; what the libraries say is not quoted.

tests/runtime/checkpoints has them with real servers."""

import socket
import ssl

import pytest
from pymongo.errors import OperationFailure

from ai_platform_engineering.databases.database_failures import explain_failure, unavailable

SECRET = "never-in-a-log"


def wrapped(cause: Exception) -> Exception:
    """As client libraries raise it: their own class, with the system's error behind it."""
    try:
        try:
            raise cause
        except Exception as error:
            raise RuntimeError(f"redis://:{SECRET}@cache:6379 failed") from error
    except RuntimeError as error:
        return error


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (wrapped(socket.gaierror(-2, "Name or service not known")), "its host name is not known"),
        (wrapped(ConnectionRefusedError(111, "Connection refused")), "nothing listens at its address"),
        (
            wrapped(ssl.SSLCertVerificationError("certificate verify failed")),
            "its TLS certificate is not trusted (SSL_CERT_FILE names more authorities)",
        ),
        (OperationFailure("Authentication failed.", 18), "it refuses this user or password"),
        (wrapped(TimeoutError()), "it did not answer in time (STORAGE_TIMEOUT_SECONDS)"),
        (wrapped(ValueError(SECRET)), "its client failed (RuntimeError)"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_failure_is_told_in_words_of_ours(error: Exception, reason: str) -> None:
    assert explain_failure(error) == reason
    problem = unavailable("Redis at cache", error, "Check REDIS_URL.")
    assert f"{problem}" == f"Redis at cache cannot be used: {reason}. Check REDIS_URL."
    assert SECRET not in f"{problem!r}"
