"""When a request to an API is made again, and how long that waits: rate limits, and servers that fail."""

import math
import random
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from http import HTTPStatus

_FAILING = frozenset({500, 502, 503, 504})
_FIRST_DELAY = 1.0
_MAX_DELAY = 60.0  # where the server does not say how long


@dataclass(frozen=True, slots=True)
class RetryLimits:
    """How often a request is made, and for how long all its attempts wait together."""

    attempts: int = 6
    wait_seconds: float = 300.0


def is_rate_limited(status: int, headers: Mapping[str, str]) -> bool:
    """Whether a response says that there were too many requests. GitHub answers 403 for both its limits."""
    if status == HTTPStatus.TOO_MANY_REQUESTS:
        return True
    if status == HTTPStatus.FORBIDDEN:
        return "retry-after" in headers or headers.get("x-ratelimit-remaining", "").strip() == "0"
    return status == HTTPStatus.SERVICE_UNAVAILABLE and "retry-after" in headers


def may_retry(status: int, headers: Mapping[str, str]) -> bool:
    """Whether the same request may succeed later."""
    return status in _FAILING or is_rate_limited(status, headers)


def compute_delay(headers: Mapping[str, str], attempt: int, now: datetime) -> float:
    """Seconds to wait before the next attempt: as the server says, or longer each time.

    With some jitter: others were turned away at the same moment."""
    requested = _read_requested_delay(headers, now)
    if not requested:  # or at once, which did not help
        delay = min(_FIRST_DELAY * 2.0**attempt, _MAX_DELAY)
        return delay * random.uniform(0.5, 1.0)
    return requested + random.uniform(0.0, min(1.0, requested / 10))


def _read_requested_delay(headers: Mapping[str, str], now: datetime) -> float | None:
    retry_after = headers.get("retry-after", "").strip()
    if retry_after:
        return _read_seconds(retry_after, now)
    if headers.get("x-ratelimit-remaining", "").strip() not in ("", "0"):
        return None
    return _read_reset(headers.get("x-ratelimit-reset", "").strip(), now)


def _read_seconds(text: str, now: datetime) -> float | None:
    """Retry-After: seconds, or a date."""
    if text.isdecimal() and len(text) < 10:
        return float(text)
    try:
        moment = parsedate_to_datetime(text)
    except ValueError:
        return None
    return _seconds_until(moment, now)


def _read_reset(text: str, now: datetime) -> float | None:
    """X-RateLimit-Reset: seconds since 1970 (GitHub), or a time (Atlassian)."""
    try:
        seconds = float(text)
    except ValueError:
        seconds = math.nan
    try:
        moment = datetime.fromisoformat(text) if math.isnan(seconds) else datetime.fromtimestamp(seconds, UTC)
    except (ValueError, OverflowError, OSError):
        return None
    return _seconds_until(moment, now)


def _seconds_until(moment: datetime, now: datetime) -> float:
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(0.0, (moment - now).total_seconds())
