"""The context size of a model, from the profile that its provider's package ships."""

import logging
from functools import lru_cache

from langchain_core.language_models import BaseChatModel

log = logging.getLogger(__name__)

DEFAULT_CONTEXT_TOKENS = 100_000  # of a model that no profile tells of
_SMALLEST_CONTEXT = 1000  # tokens; a smaller number in a profile is no chat model's


def find_context_tokens(model: BaseChatModel) -> int:
    """How many tokens a conversation with this model may have.

    What the model may write is taken off: most providers count it as part of the context, and some refuse a
    request that leaves no room for it.
    """
    profile = model.profile or {}
    max_input = profile.get("max_input_tokens") or 0
    max_output = profile.get("max_output_tokens") or 0
    if max_input < _SMALLEST_CONTEXT:
        _log_unknown(_read_name(model))
        return DEFAULT_CONTEXT_TOKENS
    return max_input - min(max_output, max_input // 2)


def _read_name(model: BaseChatModel) -> str:
    for attribute in ("model_name", "model", "model_id"):
        name = getattr(model, attribute, None)
        if isinstance(name, str):
            return name
    return type(model).__name__


@lru_cache(maxsize=64)
def _log_unknown(name: str) -> None:
    """Once for each model."""
    log.info(
        "the context size of the model %s is not known; using %d tokens, LLM_CONTEXT_TOKENS sets another",
        name,
        DEFAULT_CONTEXT_TOKENS,
    )
