"""What can go wrong with a worker, and the errors of ours that a worker passes on."""

from ai_platform_engineering.core.errors import CaipeError, ConfigurationError, Refused


class WorkerFailed(CaipeError):
    """A worker gave no result: it died, took too long, cannot be started, or failed in a way of its own."""

    code = "worker"
    retryable = True


class WorkerDied(WorkerFailed):
    """The process ended, or was ended, before it replied."""


class WorkerNotStarted(WorkerDied):
    """The process ended before it could take a call."""


class WorkerTimeout(WorkerFailed):
    """No reply in time."""


class WorkerUnavailable(WorkerFailed):
    """The process is not started now: it failed again and again, or has too much to do, or is closed."""


PASSED_ON: tuple[type[CaipeError], ...] = (ConfigurationError, Refused)
"""A handler's error of these types is raised at the caller as it is; of any other only the type is told."""
