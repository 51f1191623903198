"""An embedding model without a model: texts that share words are near each other. It can be made to wait, and
to fail."""

import asyncio
import hashlib
import re
from collections.abc import Sequence
from dataclasses import dataclass, field

DIMENSIONS = 64


def embed_words(text: str) -> list[float]:
    counts = [0.001] * DIMENSIONS
    for word in re.findall(r"\w+", text.lower()):
        counts[hashlib.sha256(word.encode()).digest()[0] % DIMENSIONS] += 1.0
    length = sum(value * value for value in counts) ** 0.5
    return [value / length for value in counts]


@dataclass(slots=True)
class WordVectors:
    """`release` holds back requests until it is set, `broken` refuses them."""

    name: str = "words"
    dimensions: int = DIMENSIONS
    texts: list[str] = field(default_factory=list)
    release: asyncio.Event = field(default_factory=asyncio.Event)
    requested: asyncio.Event = field(default_factory=asyncio.Event)
    broken: bool = False

    def __post_init__(self) -> None:
        self.release.set()

    async def embed(self, texts: Sequence[str]) -> list[list[float]]:
        self.requested.set()
        if self.broken:
            raise ConnectionError("the far end is away")
        await self.release.wait()
        self.texts += texts
        return [embed_words(text) for text in texts]

    async def close(self) -> None:
        self.release.set()
