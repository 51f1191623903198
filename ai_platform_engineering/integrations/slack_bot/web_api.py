"""A client for Slack's Web API: within the rate limits, and with the delivery status of a call that fails.

A call is refused, does not reach Slack, or nobody knows whether it was delivered.
"""

import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError, SlackRequestError
from slack_sdk.web.async_client import AsyncWebClient

from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter

log = logging.getLogger(__name__)

UNREACHABLE = "it cannot be reached"
_MAX_RATE_LIMITED = 20  # times in a row that Slack may answer 429 to one call
_MAX_UPLOADS = 3  # attempts; a file that is uploaded twice is harmless
_RETRY_DELAYS = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # while Slack cannot be reached at all
_READS = frozenset(
    {
        "auth.test",
        "chat.getPermalink",
        "conversations.replies",
        "files.info",
        "usergroups.users.list",
        "users.info",
    }
)
_IDEMPOTENT = _READS | {"chat.update", "chat.delete"}
_SERVER_ERRORS = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})


class SlackError(CaipeError):
    """Slack refused the call; `reason` is Slack's error code."""

    code = "slack"

    def __init__(self, method: str, reason: str, needed: str = "") -> None:
        scope = ""
        if needed:
            scope = f" (needs the scope {needed})"
        super().__init__(f"Slack refused {method}: {reason}{scope}.")
        self.method = method
        self.reason = reason


class DeliveryUnknown(CaipeError):
    """The call may have been delivered, or not."""

    code = "slack_unsure"


@dataclass(frozen=True, slots=True)
class SlackApi:
    client: AsyncWebClient
    rate_limiter: RateLimiter
    before_call: Callable[[], Awaitable[None]] | None = None  # raises what forbids the call

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        max_wait: float | None = None,
        tries: float = len(_RETRY_DELAYS),
    ) -> dict[str, Any] | None:
        """Slack's response to a call; None when the rate limit would take longer than `max_wait` seconds.

        Waits as long as Slack answers 429, and tries again `tries` times while it cannot be reached. Raises
        SlackError and DeliveryUnknown.
        """
        channel = str(params.get("channel") or "")
        rate_limited = 0
        failures = 0
        while True:
            if not await self.rate_limiter.acquire(method, channel, max_wait=max_wait):
                return None
            await self._check()
            repeatable = method in _IDEMPOTENT and failures < tries
            try:
                return await self._call_once(method, params)
            except SlackApiError as error:
                if error.response.status_code == 429 and rate_limited < max(_MAX_RATE_LIMITED, tries):
                    rate_limited += 1
                    self.rate_limiter.back_off(method, channel, _retry_after(error.response.headers))
                    continue
                refusal = _classify_error(method, error)
                if not repeatable or not isinstance(refusal, DeliveryUnknown):
                    raise refusal from None
                problem = str(refusal)
            except aiohttp.ClientConnectorError as error:  # before its base class: surely not delivered
                if failures >= tries:
                    raise SlackError(method, UNREACHABLE) from None
                problem = f"Slack cannot be reached{why_unreachable(error)}."
            except (aiohttp.ClientError, TimeoutError) as error:
                if not repeatable:
                    raise DeliveryUnknown(f"Slack dropped {method} ({type(error).__name__}).") from None
                problem = f"Slack dropped {method}{why_unreachable(error)}."
            delay = retry_delay(failures)
            failures += 1
            attempt = f"{failures} of {tries:g}" if math.isfinite(tries) else f"{failures}"
            log.warning("%s %s is tried again in %g s (%s).", problem, method, delay, attempt)
            await self.rate_limiter.clock.sleep(delay)

    async def try_call(self, method: str, params: Mapping[str, Any]) -> bool:
        """Makes a call that is nice to have, and says whether it was done; a failure is only logged."""
        try:
            return await self.call(method, params, max_wait=5.0, tries=2) is not None
        except (SlackError, DeliveryUnknown) as error:
            log.info("%s", error)
            return False

    async def upload(self, name: str, content: bytes, channel: str, thread_ts: str) -> str:
        """Uploads a text file for a thread and returns its id; Slack shows it there a little later.

        Raises SlackError.
        """
        for attempt in range(_MAX_UPLOADS):
            await self.rate_limiter.acquire("files.getUploadURLExternal")
            await self.rate_limiter.acquire("files.completeUploadExternal")
            await self._check()
            try:
                response = await self.client.files_upload_v2(
                    filename=name, file=content, channel=channel, thread_ts=thread_ts, snippet_type="json"
                )
                return str(response["files"][0]["id"])
            except SlackApiError as error:
                refusal = _classify_error("the upload of a file", error)
                if isinstance(refusal, SlackError) and error.response.status_code != 429:
                    raise refusal from None
                await self.rate_limiter.clock.sleep(_retry_after(error.response.headers))
            except (SlackRequestError, aiohttp.ClientError, TimeoutError) as error:
                log.info("the upload of a file failed (%s)", type(error).__name__)
                await self.rate_limiter.clock.sleep(retry_delay(attempt))
        raise SlackError("the upload of a file", UNREACHABLE)

    async def _check(self) -> None:
        if self.before_call is not None:
            await self.before_call()

    async def _call_once(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        values = {name: value for name, value in params.items() if value is not None}
        if method in _READS:
            response = await self.client.api_call(method, params=values, http_verb="GET")
        else:
            response = await self.client.api_call(method, json=values)
        if isinstance(response.data, dict):
            return dict(response.data)
        return {}


def _classify_error(method: str, error: SlackApiError) -> CaipeError:
    """A refusal, or an error of Slack's own after which nobody knows whether the call was done."""
    details: Mapping[str, Any] = {}
    if isinstance(error.response.data, dict):
        details = error.response.data
    reason = str(details.get("error") or f"HTTP {error.response.status_code}")
    if reason in _SERVER_ERRORS or error.response.status_code >= 500:
        return DeliveryUnknown(f"Slack dropped {method} ({reason}).")
    return SlackError(method, reason, str(details.get("needed") or ""))


def retry_delay(attempt: int) -> float:
    """Seconds to wait after the attempt of this number, counted from 0."""
    return _RETRY_DELAYS[min(attempt, len(_RETRY_DELAYS) - 1)]


def _retry_after(headers: Mapping[str, Any]) -> float:
    """The seconds in the header `Retry-After`; at least one."""
    seconds: Any = 1
    for name, value in headers.items():
        if name.lower() == "retry-after":
            seconds = value
            break
    if isinstance(seconds, list):
        seconds = seconds[0]
    try:
        return max(1.0, float(seconds))
    except ValueError:
        return 1.0
