"""Where a chat model reads images that tools return, from its profile and its interface."""

from collections.abc import Mapping
from typing import Any, Literal

from langchain_core.language_models import BaseChatModel

from ai_platform_engineering.core.model_streams import FeatureMode

ImagePlace = Literal["tool", "user"]
"""In the tool's message, or in one of the user's behind it."""

# By the type of LangChain's model. In chat completions a tool's message has text alone, and LangChain puts
# Gemini's images before the result, outside of its markers.
_IN_TOOL_MESSAGES = frozenset({"anthropic-chat", "amazon_bedrock_converse_chat"})


def find_image_place(model: BaseChatModel, mode: FeatureMode) -> ImagePlace | None:
    """Where the images of a tool's result are put; None for a model that is not shown any.

    `mode`: "auto" asks the profile of the model, "on" takes it for one that reads images.
    """
    if mode == "off" or (mode == "auto" and not _reads_images(model.profile or {})):
        return None
    if model._llm_type in _IN_TOOL_MESSAGES or getattr(model, "use_responses_api", False):
        return "tool"
    return "user"


def _reads_images(profile: Mapping[str, Any]) -> bool:
    """Some profiles say it of tool messages alone; those of text models say that wrongly."""
    return bool(profile.get("image_inputs", profile.get("image_tool_message")))
