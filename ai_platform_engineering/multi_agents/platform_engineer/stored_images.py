"""Images of tool results in the run log: as base64 text, among the long results."""

import asyncio
import base64
import binascii
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from ai_platform_engineering.core.message_metadata import StoredImage
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import LimitSettings
from ai_platform_engineering.databases.sql_connections import StorageFailed
from ai_platform_engineering.mcp_client.tool_types import count_bytes
from ai_platform_engineering.runtime.log.result_store import PackedResult, ResultLimits, ResultStore, decode

log = logging.getLogger(__name__)

# What all providers read, by the first bytes: a server may call its file what it likes.
_SIGNATURES = {b"\x89PNG\r\n\x1a\n": "image/png", b"\xff\xd8\xff": "image/jpeg", b"GIF8": "image/gif"}
_RIFF = b"RIFF"
_WEBP = b"WEBP"


@dataclass(frozen=True, slots=True)
class _PackedImage:
    """An image as it is stored."""

    mime_type: str
    content: PackedResult


class StoredImages:
    """Stores and reads the images of runs. `max_bytes`: of one image."""

    def __init__(self, store: ResultStore, limits: LimitSettings) -> None:
        self._store = store
        self._limits = ResultLimits(limits.tool_result_run_bytes, limits.tool_result_total_bytes)
        self._max_bytes = limits.tool_image_bytes

    async def store(self, run: RunContext, data: str) -> StoredImage | None:
        """Stores an image, which is in base64; None if it is too large, or no image that models read."""
        if count_bytes(data) > self._max_bytes:
            return None
        image = await asyncio.to_thread(_pack, data)
        if image is None or not image.content.fits(self._limits):
            return None
        try:
            await self._store.store(run.run_id, run.epoch, image.content, self._limits)
        except StorageFailed as error:
            log.warning("an image in a tool result was not stored: %s", error)
            return None
        return StoredImage(image.content.result_id, image.mime_type)

    async def read_all(self, run: RunContext, result_ids: Iterable[str]) -> Mapping[str, str]:
        """The images in base64, by id; without those that were removed to make room."""
        images: dict[str, str] = {}
        for result_id in result_ids:
            try:
                content = await self._store.read_all(run.run_id, result_id)
            except StorageFailed as error:
                log.warning("an image in a tool result cannot be read: %s", error)
                continue
            if content is not None:
                images[result_id] = decode(content)
        return images


def _pack(data: str) -> _PackedImage | None:
    """Takes long for a large image: not for the event loop."""
    try:
        content = base64.b64decode(data, validate=True)
    except (binascii.Error, ValueError):
        return None
    mime_type = _find_type(content)
    if mime_type is None:
        return None
    return _PackedImage(mime_type, PackedResult.pack(data))


def _find_type(content: bytes) -> str | None:
    if content.startswith(_RIFF) and content[8:12] == _WEBP:
        return "image/webp"
    for signature, mime_type in _SIGNATURES.items():
        if content.startswith(signature):
            return mime_type
    return None
