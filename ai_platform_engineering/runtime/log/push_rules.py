"""The rules of push notifications that every storage of the run log shares."""

from collections.abc import Collection

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.push_store import PushLimits, PushTarget


def check_config_count(config_ids: Collection[str], target: PushTarget, limits: PushLimits) -> None:
    """Raises Refused when the run has as many configs as it may, and this one replaces none."""
    if target.config_id not in config_ids and len(config_ids) >= limits.configs_per_run:
        raise Refused(
            f"The task has {len(config_ids)} push notification configs, the most that are allowed "
            "(A2A_PUSH_CONFIGS_PER_TASK). Delete one first."
        )


def is_news(run: RunRow, notified_state: str, notify_after: int) -> bool:
    """Whether a receiver that is told of changes only would wait for this state for ever."""
    return run.status != "running" and run.state != notified_state and run.last_seq > notify_after
