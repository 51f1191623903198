"""Push notifications as the run log stores them: the configs of tasks, and the outbox of each."""

from collections.abc import Collection
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Protocol

from ai_platform_engineering.a2a.client_shape import ClientShape
from ai_platform_engineering.core.push_settings import PushSettings
from ai_platform_engineering.core.transcript import TranscriptState


@dataclass(frozen=True, slots=True)
class PushTarget:
    """Where and how a client wants to be notified. What could be a secret is in no representation."""

    url: str = field(repr=False)
    host: str  # with scheme and port: the origin of the URL
    config_id: str = ""  # empty: the id of the task
    token: str = field(default="", repr=False)
    scheme: str = ""
    credentials: str = field(default="", repr=False)
    is_v03: bool = False
    shape: ClientShape = field(default_factory=ClientShape)

    def for_run(self, run_id: str) -> "PushTarget":
        """The target with the id that it has among those of the run."""
        return replace(self, config_id=self.config_id or run_id)


@dataclass(frozen=True, slots=True)
class PushConfig:
    """The stored config of a run; `number` is its own, and never used again."""

    number: int
    run_id: str
    target: PushTarget


@dataclass(frozen=True, slots=True)
class DueNotification:
    """The oldest notification that waits for a receiver: the run as it was after the event `seq`."""

    config: PushConfig
    seq: int
    state: TranscriptState
    queued_at: datetime
    attempts: int  # that failed


@dataclass(frozen=True, slots=True)
class PushLimits:
    """How many configs a run may have, and how many notifications may wait: for one of them, for one owner of
    runs, and in all."""

    configs_per_run: int
    queue_per_config: int
    queue_per_owner: int
    queue: int

    @classmethod
    def from_settings(cls, settings: PushSettings) -> "PushLimits":
        queue = settings.queue if settings.enabled else 0
        return cls(settings.configs_per_task, settings.queue_per_config, settings.queue_per_user, queue)


DEFAULT_LIMITS = PushLimits.from_settings(PushSettings())


class PushStore(Protocol):
    """The part of the run log for push notifications.

    A change of state is queued for each config of its run in the commit that stores the event: what a
    receiver is told exists, and what exists is told.
    """

    limits: PushLimits

    async def set_config(self, run_id: str, target: PushTarget, *, notify_after: int = 0) -> PushConfig:
        """Stores a config; one with the same id is replaced. Raises RunNotFound and Refused.

        A run that waits or has ended changes its state no more by itself: that state is queued, if it came
        after this event.
        """
        ...

    async def find_config(self, run_id: str, config_id: str) -> PushConfig | None: ...

    async def list_configs(self, run_id: str, *, after: int = 0, limit: int) -> list[PushConfig]:
        """The configs of a run in the order in which they were made, from a number on."""
        ...

    async def delete_config(self, run_id: str, config_id: str) -> bool:
        """Removes a config and what waits for it. False when there is none."""
        ...

    async def find_due(
        self, *, busy_configs: Collection[int], busy_hosts: Collection[str], limit: int
    ) -> list[DueNotification]:
        """The first notification of each config whose time has come, the longest due first."""
        ...

    async def next_due_at(self, after: datetime) -> datetime | None:
        """When the next notification is due that was not at this time."""
        ...

    async def remove(self, notification: DueNotification) -> None:
        """Removes a notification that was delivered or is given up; the next one of its config is due."""
        ...

    async def postpone(self, notification: DueNotification, until: datetime) -> None:
        """Counts a failed attempt; nothing is sent to this config before."""
        ...

    def wake(self) -> None:
        """Lets `wait_for_change` return."""
        ...

    async def wait_for_change(self) -> None:
        """Returns when something may be due that was not before."""
        ...
