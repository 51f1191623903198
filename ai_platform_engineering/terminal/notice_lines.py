"""Notices of a run as lines of a terminal."""

from ai_platform_engineering.core.events import Notice, TextDiscarded

_OFFLINE = "No language model is set: the embedded router answers. To use a model, set LLM_MODEL."


def render_notice(notice: Notice) -> str:
    """The notice on one line."""
    if notice.code == "offline_model":
        return _OFFLINE
    return notice.text


def render_discard(event: TextDiscarded) -> str:
    """Why a text that was already shown does not count."""
    return event.reason or "the model broke off"
