"""Why a run failed, in words for the person who asked; never the text of an exception, which may hold a
secret."""

import logging
from collections.abc import Mapping

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

from ai_platform_engineering.core.connection_failures import CLOSED, explain_connection, list_causes
from ai_platform_engineering.core.errors import CaipeError, TooManySteps
from ai_platform_engineering.core.events import Failed
from ai_platform_engineering.core.failure_text import (
    FailureText,
    describe_failure,
    describe_for_client,
    describe_unforeseen,
)
from ai_platform_engineering.core.tracebacks import format_traceback

log = logging.getLogger(__name__)

_LOG_HINT = "Trying again may help; the log names the trace."
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
_STATUS_OF_AWS_ERROR = {
    "validationexception": 400,
    "accessdeniedexception": 403,
    "resourcenotfoundexception": 404,
    "throttlingexception": 429,
    "internalserverexception": 500,
    "serviceunavailableexception": 503,
    "modelstreamerrorexception": 503,
}
_CONNECTION_ERRORS = frozenset(
    {
        "APIConnectionError",
        "TransportError",
        "TimeoutException",
        # AWS's client: two of its own, and what urllib3 raises in mid-stream.
        "ConnectionError",
        "HTTPClientError",
        "ProtocolError",
    }
)
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
    return type(error).__name__ == "APIError" or bool(names & _CONNECTION_ERRORS)


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
    text = _describe_model_error(error) or describe_for_client(error) or describe_unforeseen(error, _LOG_HINT)
    return text.message, text.code, text.retryable


def _describe_model_error(error: Exception) -> FailureText | None:
    """A failure of the graph or of the model's server in words; none for any other error."""
    if isinstance(error, CaipeError):
        return None
    if is_recursion(error):
        return describe_failure(TooManySteps())
    if is_overflow(error):
        return FailureText(
            "The conversation is too long for the model. Start a new one, or ask for less at once.",
            "too_long",
        )
    status = _status(error)
    match status:
        case 401 | 403:
            return FailureText(
                "The model's server rejected the credentials. Check the API key of the configured model; "
                "trying again does not help.",
                "model_auth",
            )
        case 404:
            return FailureText(
                "The model's server has no such model. Check LLM_MODEL; trying again does not help.",
                "model_unknown",
            )
        case 429:
            return FailureText("The model is busy (rate limit). Try again in a moment.", "model_busy", True)
        case _:
            pass
    if is_transient(error):
        return FailureText(_describe_outage(error, status), "model_unavailable", True)
    if status is not None and 400 <= status < 500:
        return FailureText(
            "The model refused the request. Retrying will not help; the log names the trace.",
            "model_refused",
        )
    return None


def _describe_outage(error: BaseException, status: int | None) -> str:
    """A model server that cannot be used now: where it is, and why."""
    address = _find_address(error)
    server = f"The model's server at {address}" if address else "The model's server"
    if status is not None:
        return f"{server} failed (HTTP {status}). Try again in a moment."
    reason = explain_connection(error)
    if reason is None or reason == CLOSED:
        return f"{server} could not be reached or failed in the middle of its answer. Try again in a moment."
    return f"{server} could not be reached: {reason}. `caipe doctor --live` tries it again."


def _find_address(error: BaseException) -> str | None:
    """The scheme, host and port of the request that failed: no path, and nothing of a user."""
    for cause in list_causes(error):
        try:
            url = cause.request.url  # type: ignore[attr-defined]  # of any HTTP client
        except (AttributeError, RuntimeError):  # it has none, or it was not set
            continue
        port = f":{url.port}" if url.port else ""
        return f"{url.scheme}://{url.host}{port}"
    return None


def _status(error: BaseException) -> int | None:
    """The HTTP status, or the one that the error's kind stands for: not every provider speaks HTTP."""
    status = getattr(error, "status_code", None)
    if not isinstance(status, int):
        status = _bedrock_status(error)
    if status is None:
        return next((number for kind, number in _STATUS_OF if isinstance(error, kind)), None)
    # An error event in a stream that had begun well has the stream's status; only its type says what it is.
    if status >= 400:
        return status
    return _STATUS_OF_EVENT.get(str(getattr(error, "type", "")), 500)


def _bedrock_status(error: BaseException) -> int | None:
    """The HTTP status in an error of AWS's client, which has its response as a dictionary."""
    response = getattr(error, "response", None)
    if not isinstance(response, Mapping):
        return None
    # By name first: an error event in a stream that had begun well has no status of its own.
    name = str((response.get("Error") or {}).get("Code") or "").lower()
    status = _STATUS_OF_AWS_ERROR.get(name) or (response.get("ResponseMetadata") or {}).get("HTTPStatusCode")
    if isinstance(status, int):
        return status
    return None


def read_status(error: BaseException) -> int | None:
    """The HTTP status with which a model's server refused, if there is one."""
    return _status(error)
