"""Failures in words: the one place that turns an exception into a sentence, for commands and for servers.

Only the texts of our own errors are repeated; that of another library may hold a secret.
"""

import errno
import sqlite3
from dataclasses import dataclass

from ai_platform_engineering.core.connection_failures import list_causes
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.redaction import Redactor

_REDACTOR = Redactor()
_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})
_NOT_ALLOWED = frozenset({errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOTDIR, errno.EISDIR, errno.EEXIST})
_HOME_REMEDY = "Make it writable, or set CAIPE_HOME to a writable folder."


@dataclass(frozen=True, slots=True)
class FailureText:
    """A failure for people: a sentence, a code, and whether trying again may help."""

    message: str
    code: str
    retryable: bool = False


def describe_failure(error: BaseException) -> FailureText | None:
    """The failure in words; none for an error that nobody foresaw."""
    if isinstance(error, CaipeError):
        # Ours, but it may quote an address or what another server said.
        return FailureText(_REDACTOR.redact(str(error)), error.code, error.retryable)
    for cause in list_causes(error):
        text = _describe_cause(cause)
        if text is not None:
            return text
    return None


def describe_for_client(error: BaseException) -> FailureText | None:
    """As `describe_failure`, for whoever asks a server: the names of its files stay in its log."""
    text = describe_failure(error)
    if text is not None and text.code == "file":
        return None
    return text


def describe_unforeseen(error: BaseException, hint: str) -> FailureText:
    """An error that nobody foresaw; `hint` says where to find more."""
    return FailureText(f"Internal error ({type(error).__name__}). {hint}", "internal", True)


def describe_storage_failure(error: BaseException) -> str:
    """Why nothing could be written, as a part of a sentence."""
    if is_disk_full(error):
        return "the disk is full, or a limit to the size of files is reached"
    if isinstance(error, sqlite3.Error):
        return _describe_sqlite(error)
    if isinstance(error, OSError) and error.strerror:
        return error.strerror.lower()
    return type(error).__name__


def _describe_cause(cause: BaseException) -> FailureText | None:
    if is_disk_full(cause):
        return FailureText("The disk is full: nothing can be stored. Free some space.", "disk_full", True)
    if isinstance(cause, sqlite3.OperationalError):
        return FailureText(f"A database cannot be used: {_describe_sqlite(cause)}.", "storage", True)
    if isinstance(cause, OSError) and cause.filename is not None and cause.strerror:
        message = f"{cause.filename} cannot be used: {cause.strerror.lower()}."
        if cause.errno in _NOT_ALLOWED:
            message = f"{message} {_HOME_REMEDY}"
        return FailureText(message, "file")
    if isinstance(cause, UnicodeError):
        return FailureText("The text is not valid UTF-8. Convert it and try again.", "not_utf8")
    return None


def is_disk_full(error: BaseException) -> bool:
    """Whether a write failed for lack of space."""
    if isinstance(error, OSError):
        return error.errno in _FULL
    # SQLite reports a write beyond a limit of the process as an I/O error.
    names = ("SQLITE_FULL", "SQLITE_IOERR_WRITE")
    return isinstance(error, sqlite3.OperationalError) and getattr(error, "sqlite_errorname", "") in names


def _describe_sqlite(error: sqlite3.Error) -> str:
    """SQLite's own words: they name no file, no value and no address."""
    return str(error).partition("\n")[0].rstrip(".")
