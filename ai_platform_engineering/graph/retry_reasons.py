"""Why a model call is made again, in words for the person who waits."""

from ai_platform_engineering.graph.failures import read_status

_RATE_LIMITED = 429
_OVERLOADED = 529  # Anthropic's
_TIMED_OUT = (408, 504)


def describe_transient(error: BaseException) -> str:
    """A passing failure of a model call as the beginning of a sentence."""
    status = read_status(error)
    if status == _RATE_LIMITED:
        return "The model is busy (rate limit)"
    if status == _OVERLOADED:
        return "The model is overloaded"
    if status in _TIMED_OUT or isinstance(error, TimeoutError) or "Timeout" in type(error).__name__:
        return "The model took too long to answer"
    if status is not None and status >= 400:
        return f"The model's server failed (HTTP {status})"
    return "The model failed in the middle of its answer"
