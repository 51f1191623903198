"""The running supervisor as the skills API knows it: it registers itself, and the API reports whether it
uses the catalogue."""

from typing import Literal, Protocol, runtime_checkable

from ai_platform_engineering.core.skills import SkillRegistry

SyncStatus = Literal["synced", "stale", "unknown"]


@runtime_checkable
class MultiAgentSystem(Protocol):
    """A supervisor."""

    graph_generation: int  # how often its graph was built
    skills: SkillRegistry | None


_registered: MultiAgentSystem | None = None


def set_mas_instance(mas: MultiAgentSystem | None) -> None:
    """Registers a supervisor in place of the one before: a process has one, replaced as a whole when the
    configuration is reloaded."""
    global _registered  # noqa: PLW0603 - that is what a registry is
    _registered = mas


def get_mas_instance() -> MultiAgentSystem | None:
    return _registered


def read_sync_status(catalog: SkillRegistry | None) -> SyncStatus:
    """Skills are read at each step of a run, so a supervisor with this catalogue is never behind it."""
    if _registered is None:
        return "unknown"
    if catalog is None or _registered.skills is not catalog:
        return "stale"
    return "synced"
