"""Notices of a run as lines of a terminal."""

from ai_platform_engineering.core.events import Notice, TextDiscarded

_DISCARD_REASONS = {"crash": "the server was restarted", "replaced": "it was replaced"}
_OFFLINE = "No language model is set, so the embedded router answers. Set LLM_MODEL to use a model."


def render_notice(notice: Notice) -> str:
    """The notice on one line."""
    if notice.code == "offline_model":
        return _OFFLINE
    return notice.text


def render_discard(event: TextDiscarded) -> str:
    """Why a text that was already shown does not count."""
    why = _DISCARD_REASONS.get(event.reason or "", "the answer was cut off")
    return f"(Ignore the text above: {why}. It is written again.)"
