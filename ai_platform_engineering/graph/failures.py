"""Why a run failed, in words for the person who asked; never the text of an exception, which may hold a
secret."""

import logging

from langchain_core.exceptions import (
    ContextOverflowError,
    ModelAuthenticationError,
    ModelError,
    ModelInvalidRequestError,
    ModelNotFoundError,
    ModelPermissionDeniedError,
    ModelRateLimitError,
)
from langgraph.errors import GraphRecursionError

from ai_platform_engineering.core.errors import CaipeError, TooManySteps
from ai_platform_engineering.core.events import Failed
from ai_platform_engineering.core.redaction import Redactor
from ai_platform_engineering.core.tracebacks import format_traceback

log = logging.getLogger(__name__)

_REDACTOR = Redactor()
_OVERFLOW_WORDS = (
    "context_length_exceeded",
    "prompt is too long",
    "maximum context length",
    "input is too long",
    "context window",
)
_STATUS_OF: tuple[tuple[type[ModelError], int], ...] = (
    (ModelInvalidRequestError, 400),
    (ModelAuthenticationError, 401),
    (ModelPermissionDeniedError, 403),
    (ModelNotFoundError, 404),
    (ModelRateLimitError, 429),
)
_STATUS_OF_EVENT = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "rate_limit_error": 429,
}
_TRANSIENT_STATUS = frozenset({408, 409, 425, 429, 500, 502, 503, 504, 529})


def is_recursion(error: BaseException) -> bool:
    return isinstance(error, GraphRecursionError) or "GraphRecursionError" in str(error)


def is_overflow(error: BaseException) -> bool:
    """The model refused because the conversation is too long for it."""
    if isinstance(error, ContextOverflowError) or getattr(error, "code", None) == "context_length_exceeded":
        return True
    return _status(error) in (400, 413, None) and any(
        words in str(error).lower() for words in _OVERFLOW_WORDS
    )


def is_transient(error: BaseException) -> bool:
    """Trying the same again may help."""
    if isinstance(error, ConnectionError | TimeoutError):
        return True
    if (status := _status(error)) is not None:
        return status in _TRANSIENT_STATUS
    if isinstance(error, ModelError):
        return error.is_retryable
    # By name: providers bring HTTP clients of their own, which are not imported for a look at an error. A
    # bare APIError is how their libraries report an error event in the middle of a stream.
    names = {kind.__name__ for kind in type(error).__mro__}
    return type(error).__name__ == "APIError" or bool(
        names & {"APIConnectionError", "TransportError", "TimeoutException"}
    )


def retry_after(error: BaseException) -> float | None:
    """How long the provider asks us to wait, in seconds."""
    headers = getattr(getattr(error, "response", None), "headers", None) or {}
    try:
        return max(0.0, float(headers.get("retry-after") or ""))
    except ValueError:
        return None


def failed_event(error: Exception, trace_id: str) -> Failed:
    """The terminal event for an exception that ended a run."""
    message, code, retryable = describe_error(error)
    log.error("run failed: %s, trace %s: %s", code, trace_id, format_traceback(error))
    return Failed(message=message, code=code, retryable=retryable, trace_id=trace_id)


def describe_error(error: Exception) -> tuple[str, str, bool]:
    """What to tell a person, a code, and whether trying again may help."""
    if isinstance(error, CaipeError):
        # Ours, but it may quote an address or what another server said.
        return _REDACTOR.redact(str(error)), error.code, error.retryable
    if is_recursion(error):
        return describe_error(TooManySteps())
    if is_overflow(error):
        return (
            "The conversation is too long for the model. Start a new one, or ask for less at once.",
            "too_long",
            False,
        )
    status = _status(error)
    if status in (401, 403):
        return (
            "The model refused our credentials. Check the API key of the configured model; "
            "trying again does not help.",
            "model_auth",
            False,
        )
    if status == 404:
        return (
            "The model's server does not know the configured model. Check LLM_MODEL; "
            "trying again does not help.",
            "model_unknown",
            False,
        )
    if status == 429:
        return "The model is busy (rate limit). Try again in a moment.", "model_busy", True
    if is_transient(error):
        return (
            "The model could not be reached or broke off its answer. Try again in a moment.",
            "model_unavailable",
            True,
        )
    if status is not None and 400 <= status < 500:
        return (
            "The model refused the request. Trying the same again does not help; the log names the trace.",
            "model_refused",
            False,
        )
    return (
        f"Something went wrong on our side ({type(error).__name__}). "
        "Trying again may help; the log names the trace.",
        "internal",
        True,
    )


def _status(error: BaseException) -> int | None:
    """The HTTP status, or the one that the error's kind stands for: not every provider speaks HTTP."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        return next((number for kind, number in _STATUS_OF if isinstance(error, kind)), None)
    # An error event in a stream that had begun well has the stream's status; only its type says what it is.
    if status >= 400:
        return status
    return _STATUS_OF_EVENT.get(str(getattr(error, "type", "")), 500)
