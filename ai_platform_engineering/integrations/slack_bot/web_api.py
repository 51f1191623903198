"""Slack's Web API as this bot needs it: within the budgets, and with three ways to fail: refused, not reached, or nobody knows."""

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter

log = logging.getLogger(__name__)

UNREACHABLE = "it cannot be reached"
_MOST_LIMITED = 20  # times in a row that Slack may say "later" to one call
_PAUSES = (0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0)  # while Slack cannot be reached at all
_READS = frozenset(
    {"auth.test", "conversations.replies", "users.info", "usergroups.users.list", "chat.getPermalink"}
)
# Done twice is as good as done once.
_REPEATABLE = _READS | {"chat.update", "chat.delete"}
_BROKEN = frozenset({"internal_error", "fatal_error", "service_unavailable", "request_timeout"})


class SlackError(CaipeError):
    """Slack refused the call; `reason` is its word for why."""

    code = "slack"

    def __init__(self, method: str, reason: str, needed: str = "") -> None:
        super().__init__(
            f"Slack refused {method}: {reason}{f' (needs the scope {needed})' if needed else ''}."
        )
        self.method, self.reason = method, reason


class DeliveryUnknown(CaipeError):
    """The call may have been done, or not."""

    code = "slack_unsure"


@dataclass(frozen=True, slots=True)
class SlackApi:
    client: AsyncWebClient
    rate_limiter: RateLimiter

    async def call(
        self,
        method: str,
        params: Mapping[str, Any],
        *,
        max_wait: float | None = None,
        tries: float = len(_PAUSES),
    ) -> dict[str, Any] | None:
        """What Slack answers. Waits for the budget (None when that takes longer than `within`), for as long as Slack says it is busy,
        and, so many `tries`, while it cannot be reached. Raises SlackError and Unsure."""
        channel = str(params.get("channel") or "")
        limited, unreached = 0, 0
        while True:
            if not await self.rate_limiter.acquire(method, channel, max_wait=max_wait):
                return None
            try:
                return await self._once(method, params)
            except SlackApiError as error:
                if error.response.status_code == 429 and limited < max(_MOST_LIMITED, tries):
                    limited += 1
                    self.rate_limiter.back_off(method, channel, _seconds(error.response.headers))
                    continue
                refusal = self._refusal(method, error)
                if (
                    method not in _REPEATABLE
                    or not isinstance(refusal, DeliveryUnknown)
                    or unreached >= tries
                ):
                    raise refusal from None
            except aiohttp.ClientConnectorError:  # before the others: this one was surely not done
                if unreached >= tries:
                    raise SlackError(method, UNREACHABLE) from None
            except (aiohttp.ClientError, TimeoutError) as error:
                if method not in _REPEATABLE or unreached >= tries:
                    raise DeliveryUnknown(f"Slack broke off {method} ({type(error).__name__}).") from None
            await self.rate_limiter.clock.sleep(retry_delay(unreached))
            unreached += 1

    async def try_call(self, method: str, params: Mapping[str, Any]) -> bool:
        """For what is nice to have: whether it was done. A refusal is logged and costs nothing else."""
        try:
            return await self.call(method, params, max_wait=5.0, tries=2) is not None
        except (SlackError, DeliveryUnknown) as error:
            log.info("%s", error)
            return False

    async def _once(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        given = {name: value for name, value in params.items() if value is not None}
        sent: dict[str, Any] = {"params": given, "http_verb": "GET"} if method in _READS else {"json": given}
        answer = await self.client.api_call(method, **sent)
        if isinstance(answer.data, dict):
            return dict(answer.data)
        return {}

    def _refusal(self, method: str, error: SlackApiError) -> CaipeError:
        said = error.response.data if isinstance(error.response.data, dict) else {}
        reason = str(said.get("error") or f"HTTP {error.response.status_code}")
        if reason in _BROKEN or error.response.status_code >= 500:
            return DeliveryUnknown(f"Slack broke off {method} ({reason}).")
        return SlackError(method, reason, str(said.get("needed") or ""))


def retry_delay(number: int) -> float:
    """Seconds to wait after so many vain attempts."""
    return _PAUSES[min(number, len(_PAUSES) - 1)]


def _seconds(headers: Mapping[str, Any]) -> float:
    found = next((value for name, value in headers.items() if name.lower() == "retry-after"), 1)
    try:
        return max(1.0, float(found[0] if isinstance(found, list) else found))
    except ValueError:
        return 1.0
