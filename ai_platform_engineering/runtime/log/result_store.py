"""Tool results that are too long for a message: the run log stores them, and agents read parts of them."""

import hashlib
import zlib
from dataclasses import dataclass
from typing import Protocol

CHUNK_CHARS = 50_000  # a page is read without the rest of its result
_ID_CHARS = 16


@dataclass(frozen=True, slots=True)
class ResultLimits:
    """How much may be stored, in compressed bytes: of one run, and of all. The oldest results go first."""

    run_bytes: int
    total_bytes: int


@dataclass(frozen=True, slots=True)
class ResultPart:
    """A part of a stored result. `chars`: of all of it."""

    text: str
    start: int
    chars: int


@dataclass(frozen=True, slots=True)
class PackedResult:
    """A text as it is stored: in compressed chunks."""

    result_id: str
    chars: int
    chunks: tuple[bytes, ...]

    @classmethod
    def pack(cls, text: str) -> "PackedResult":
        """Takes long for a long text: not for the event loop.

        The id follows from the text, so a call that gives the same result again gives the same message.
        """
        digest = hashlib.sha256()
        chunks: list[bytes] = []
        for start in range(0, len(text), CHUNK_CHARS):
            content = _encode(text[start : start + CHUNK_CHARS])
            digest.update(content)
            chunks.append(zlib.compress(content, level=1))
        return cls(f"r-{digest.hexdigest()[:_ID_CHARS]}", len(text), tuple(chunks))

    @property
    def bytes(self) -> int:
        return sum(map(len, self.chunks))

    def fits(self, limits: ResultLimits) -> bool:
        return self.bytes <= min(limits.run_bytes, limits.total_bytes)


def unpack_chunk(chunk: bytes) -> bytes:
    """The text of a chunk in UTF-8; those of all chunks make up the result."""
    return zlib.decompress(chunk)


def find_chunks(start: int, length: int) -> range:
    """The numbers of the chunks that hold so many characters from a position on."""
    return range(start // CHUNK_CHARS, (start + max(length, 1) - 1) // CHUNK_CHARS + 1)


def cut_part(chunks: list[bytes], start: int, length: int) -> str:
    """The characters from a position on, out of the unpacked chunks that `find_chunks` has named."""
    text = decode(b"".join(chunks))
    offset = start % CHUNK_CHARS
    return text[offset : offset + length]


def decode(content: bytes) -> str:
    return content.decode("utf-8", "surrogatepass")


def _encode(text: str) -> bytes:
    # A server's JSON may hold half of a surrogate pair; it is stored as it came.
    return text.encode("utf-8", "surrogatepass")


class ResultStore(Protocol):
    """Where the results of runs are stored.

    Only the runs of the same conversation read a result: a later question has it in its history.
    """

    async def store(self, run_id: str, epoch: int, result: PackedResult, limits: ResultLimits) -> None:
        """Stores a result that fits the limits, and removes older ones that do not fit beside it.

        Raises Fenced and RunNotFound.
        """
        ...

    async def read(self, run_id: str, result_id: str, start: int, length: int) -> ResultPart | None:
        """A part of a result, for a run; None when its conversation has no such result (any more)."""
        ...

    async def read_all(self, run_id: str, result_id: str) -> bytes | None:
        """The result in UTF-8, for a run; None when its conversation has no such result (any more)."""
        ...
