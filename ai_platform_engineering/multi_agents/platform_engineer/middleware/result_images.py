"""Images in tool results: the run log stores them, and a model that reads images is shown the last ones.

Neither messages nor checkpoints nor the journal hold an image: a result has their descriptions in its text,
and their ids as metadata.
"""

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from langchain.agents.middleware import AgentMiddleware, ModelRequest, ModelResponse, ToolCallRequest
from langchain_core.messages import AnyMessage, HumanMessage, ToolMessage
from langgraph.config import get_config

from ai_platform_engineering.core.message_metadata import StoredImage, StoredImagesNote
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.signals import ModelRetried
from ai_platform_engineering.graph.failures import is_overflow, read_status
from ai_platform_engineering.models.image_input import ImagePlace, find_image_place
from ai_platform_engineering.multi_agents.platform_engineer.middleware.handlers import (
    ModelCallHandler,
    ToolCallHandler,
    ToolCallResult,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.untrusted_content import (
    insert_before_end_marker,
    mark_blocks,
)
from ai_platform_engineering.multi_agents.platform_engineer.run_usage import count_model_call, may_call_model
from ai_platform_engineering.multi_agents.platform_engineer.stored_images import StoredImages
from ai_platform_engineering.runtime.log.result_store import ResultStore

log = logging.getLogger(__name__)

_MAX_REFUSED = 1000
_REFUSED_STATUS = frozenset({400, 413, 415, 422})
_IMAGES_OF = "[images in the result of {tool}]"

Block = dict[Any, Any]


class ResultImagesMiddleware(AgentMiddleware):
    """Inside stored results, which cut the text; around the model inside retries, whose fallback models may
    read no images, and inside the markers of untrusted content, which stand around images, too."""

    def __init__(self, store: ResultStore | None, settings: Settings) -> None:
        """`store`: None where there is no run log, or no language model."""
        super().__init__()
        self._mode = settings.model.tool_images
        self._max_images = settings.limits.tool_images
        self._images: StoredImages | None = None
        if store is not None and self._max_images and self._mode != "off":
            self._images = StoredImages(store, settings.limits)
        self._refused = OrderedDict[tuple[str | None, str], None]()  # by thread and id

    async def awrap_tool_call(self, request: ToolCallRequest, handler: ToolCallHandler) -> ToolCallResult:
        result = await handler(request)
        if not isinstance(result, ToolMessage) or not any(map(_is_image, result.content)):
            return result
        run = RunContext.from_config(request.runtime.config)
        images = await self._store_images(run, result.content)
        metadata = dict(result.additional_kwargs)
        if images:
            metadata |= StoredImagesNote(images).to_metadata()
        update = {"content": _describe_images(result.content), "additional_kwargs": metadata}
        return result.model_copy(update=update)

    async def _store_images(self, run: RunContext, blocks: Sequence[Any]) -> tuple[StoredImage, ...]:
        """The first of the images, as far as they can be stored."""
        images = dict[StoredImage, None]()  # a set in order
        if self._images is None or not run.run_id:
            return ()
        for block in blocks:
            if _is_image(block) and len(images) < self._max_images:
                image = await self._images.store(run, block["base64"])
                if image is not None:
                    images[image] = None
        return tuple(images)

    async def awrap_model_call(
        self, request: ModelRequest[Any], handler: ModelCallHandler
    ) -> ModelResponse[Any]:
        place = find_image_place(request.model, self._mode)
        if self._images is None or place is None:
            return await handler(request)
        run = RunContext.from_config(get_config())
        ids = self._choose(request.messages, run)
        images = await self._images.read_all(run, ids)
        if not images:
            return await handler(request)
        messages = show_images(request.messages, images, place)
        try:
            return await handler(request.override(messages=messages))
        except Exception as error:
            if not _is_refusal(error) or not may_call_model():
                raise
            log.warning("the model refused a request with %d images; asking without them", len(images))
            self._forget(run, ids)
            request.runtime.stream_writer(ModelRetried("images"))
            count_model_call()
            return await handler(request)

    def _choose(self, messages: Sequence[AnyMessage], run: RunContext) -> list[str]:
        """The ids of the last images that no request was refused with."""
        ids: list[str] = []
        for message in messages:
            for image in _read_images(message):
                if image.result_id in ids:
                    ids.remove(image.result_id)
                ids.append(image.result_id)
        accepted_ids = [image_id for image_id in ids if (run.thread_id, image_id) not in self._refused]
        return accepted_ids[-self._max_images :]

    def _forget(self, run: RunContext, ids: Sequence[str]) -> None:
        """An image that a model cannot read would break every later request of its conversation, too."""
        for image_id in ids:
            self._refused[run.thread_id, image_id] = None
        while len(self._refused) > _MAX_REFUSED:
            self._refused.popitem(last=False)


def show_images(
    messages: Sequence[AnyMessage], images: Mapping[str, str], place: ImagePlace
) -> list[AnyMessage]:
    """The messages with these images, which are in base64, by their ids: each where it came last."""
    last_positions = _find_last_positions(messages)
    result: list[AnyMessage] = []
    pending: list[str | Block] = []  # until the last of the results, which follow their calls without a gap
    for position, message in enumerate(messages):
        if pending and not isinstance(message, ToolMessage):
            result.append(HumanMessage(pending))
            pending = []
        blocks: list[Block] = []
        for image in _read_images(message):
            if image.result_id in images and last_positions[image.result_id] == position:
                data = images[image.result_id]
                blocks.append({"type": "image", "base64": data, "mime_type": image.mime_type})
        if not isinstance(message, ToolMessage) or not blocks:
            result.append(message)
        elif place == "tool":
            result.append(insert_before_end_marker(message, blocks))
        else:
            result.append(message)
            heading = _IMAGES_OF.format(tool=message.name)
            pending += mark_blocks([{"type": "text", "text": heading}, *blocks], message)
    if pending:
        result.append(HumanMessage(pending))
    return result


def _find_last_positions(messages: Sequence[AnyMessage]) -> dict[str, int]:
    """Where each image was in a result last, by its id."""
    positions: dict[str, int] = {}
    for position, message in enumerate(messages):
        for image in _read_images(message):
            positions[image.result_id] = position
    return positions


def _read_images(message: AnyMessage) -> Sequence[StoredImage]:
    if not isinstance(message, ToolMessage):
        return ()
    note = StoredImagesNote.of(message)
    if note is None:
        return ()
    return note.images


def _is_image(block: Any) -> bool:
    return isinstance(block, dict) and block.get("type") == "image" and isinstance(block.get("base64"), str)


def _describe_images(blocks: Sequence[Any]) -> str | list[Any]:
    """The blocks with descriptions in place of images: one text, unless another block is none."""
    others: list[Any] = []
    texts: list[str] = []
    for block in blocks:
        if _is_image(block):
            block = {"type": "text", "text": _describe(block)}
        if isinstance(block, dict) and block.get("type") == "text":
            texts.append(str(block.get("text") or ""))
        elif isinstance(block, str):
            texts.append(block)
        else:
            others.append(block)
    text = "\n".join(texts)
    if others:
        return [{"type": "text", "text": text}, *others]
    return text


def _describe(block: Mapping[str, Any]) -> str:
    """The description of an image, for those who do not see it."""
    extras = block.get("extras")
    if isinstance(extras, Mapping) and extras.get("description"):
        return str(extras["description"])
    return f"[image: {block.get('mime_type') or 'unknown type'}]"


def _is_refusal(error: BaseException) -> bool:
    """Whether the model's server took offence at the request itself, which its images may have caused."""
    return is_overflow(error) or read_status(error) in _REFUSED_STATUS
