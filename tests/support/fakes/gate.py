"""Causal gates: a model sends its next piece only after the test has seen the piece before."""

from __future__ import annotations

import asyncio
import random
import string
import threading
import time

_ALPHABET = string.ascii_letters + string.digits


class GateTimeout(Exception):
    """A piece was sent and never reported as seen."""


class Gate:
    """Lets a scripted model send piece N+1 only after the test has reported piece N; works across threads and
    loops."""

    # A piece is looked for in what the test reports, without its outer whitespace, so pieces must be unique
    # strings that no encoding changes: ASCII letters and digits, as `unique_pieces` makes them. After one
    # failure the gate stays failed, so that retries fail at once.

    def __init__(self, timeout: float = 120.0, poll: float = 0.002) -> None:
        self.timeout = timeout
        self.poll = poll
        self.failure: str | None = None
        self._sent: list[str] = []
        self._heard = ""
        self._lock = threading.Lock()

    def seen(self, text: str | bytes) -> None:
        """Report what has arrived: a piece, the text so far, or raw bytes in the order they came."""
        with self._lock:
            self._heard += text if isinstance(text, str) else text.decode("utf-8", "replace")

    @property
    def sent(self) -> tuple[str, ...]:
        """The pieces that went through the gate."""
        return tuple(self._sent)

    @property
    def unseen(self) -> tuple[str, ...]:
        """The pieces that were sent and have not been reported."""
        return tuple(piece for piece in self._sent if not self._has(piece))

    async def before(self, piece: str) -> None:
        """Wait until the piece sent before this one has been seen, then count this one as sent."""
        if self._sent:
            await self.wait_seen(self._sent[-1])
        self._sent.append(piece)

    async def wait_seen(self, piece: str) -> None:
        """Wait until this text has been reported, or fail with a message that names it."""
        end = time.monotonic() + self.timeout
        while not self._has(piece):
            if self.failure is None and time.monotonic() > end:
                self.failure = (
                    f"the piece {piece!r} (number {len(self._sent)}) was sent and not reported as seen "
                    f"within {self.timeout:g} s; "
                    f"the last that was reported: {self._heard[-80:]!r}"
                )
            if self.failure is not None:
                raise GateTimeout(self.failure)
            await asyncio.sleep(self.poll)

    def _has(self, piece: str) -> bool:
        return piece.strip() in self._heard


def unique_pieces(prefix: str, n: int, rng: random.Random) -> tuple[str, ...]:
    """`n` words of ASCII letters and digits, none part of another; they start with `prefix`, which must be
    such a word too."""
    if not (prefix.isascii() and prefix.isalnum()):
        raise ValueError(f"the prefix must be ASCII letters and digits: {prefix!r}")
    tags: dict[str, None] = {}
    while len(tags) < n:
        tags["".join(rng.choices(_ALPHABET, k=10))] = None
    return tuple(f"{prefix}{tag}" for tag in tags)
