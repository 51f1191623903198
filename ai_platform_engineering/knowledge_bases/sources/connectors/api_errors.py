"""What an API answers instead of data, in words for the person who reads the job: what is wrong, and which
variable to look at."""

import json
from collections.abc import Iterator
from http import HTTPStatus
from typing import Any

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line

_MAX_DETAIL_CHARS = 300
_MAX_ERROR_BYTES = 20_000  # of a body that is read for its message


class ApiError(SourceUnavailable):
    """A response without success. `detail`: what the API says itself, without secrets, cut."""

    def __init__(self, message: str, status: int, detail: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.detail = detail

    @property
    def is_missing(self) -> bool:
        """What was asked for does not exist, or may not be seen, which APIs do not tell apart."""
        return self.status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE)


def describe_status(status: int, service: str, credentials: str, address_variable: str, detail: str) -> str:
    """The sentence for a status. `credentials`: the variables that hold them."""
    detail_sentence = ""
    if detail:
        detail_sentence = f" It says: {detail}"
    if status == HTTPStatus.UNAUTHORIZED:
        return f"{service} refused the credentials. Check {credentials}: they may be wrong or expired."
    if status == HTTPStatus.FORBIDDEN:
        return (
            f"{service} does not let this account read it. "
            f"Check what the account of {credentials} may see.{detail_sentence}"
        )
    if status in (HTTPStatus.NOT_FOUND, HTTPStatus.GONE):
        return (
            f"{service} has nothing at this address, or the account of {credentials} may not see it. "
            f"Check {address_variable}.{detail_sentence}"
        )
    return f"{service} answered {status}.{detail_sentence}"


def extract_detail(content: bytes, redactor: Redactor) -> str:
    """The message in the body of an error, on one line."""
    try:
        body: Any = json.loads(content[:_MAX_ERROR_BYTES])
    except (ValueError, RecursionError):
        return ""
    messages = [message for message in _find_messages(body) if message]
    text = to_single_line("; ".join(dict.fromkeys(messages)))
    return redactor.redact(text)[:_MAX_DETAIL_CHARS]


def is_limited_query(content: bytes) -> bool:
    """Whether an answer to a GraphQL query, which has the status of a success, says that there were too many
    requests."""
    if len(content) > _MAX_ERROR_BYTES or b"RATE_LIMITED" not in content:
        return False
    try:
        body: Any = json.loads(content)
    except (ValueError, RecursionError):
        return False
    errors = _as_list(body.get("errors")) if isinstance(body, dict) else []
    return any(isinstance(error, dict) and error.get("type") == "RATE_LIMITED" for error in errors)


def _find_messages(body: Any) -> Iterator[str]:
    """The messages in the forms of Atlassian, GitHub and Slack."""
    if not isinstance(body, dict):
        return
    for key in ("message", "error", "error_description"):
        if isinstance(body.get(key), str):
            yield body[key]
    for message in _as_list(body.get("errorMessages")):
        if isinstance(message, str):
            yield message
    for error in _as_list(body.get("errors")):
        if isinstance(error, dict) and isinstance(error.get("message"), str):
            yield error["message"]
    data = body.get("data")
    if isinstance(data, dict):
        yield from _find_messages({"errors": data.get("errors")})


def _as_list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
