"""What is outside of the process that is killed: the points at which it is held, and the ledger that counts
what it wrote."""

import asyncio
import contextlib
import json
import secrets
from collections import Counter
from collections.abc import AsyncIterator, Iterable
from dataclasses import dataclass, field


@dataclass(slots=True)
class _Hold:
    reached: asyncio.Event = field(default_factory=asyncio.Event)
    free: asyncio.Event = field(default_factory=asyncio.Event)


class Points:
    """Named points that a run passes; one that is held there stays until it is let go."""

    def __init__(self) -> None:
        self._holds: dict[tuple[str, str], _Hold] = {}

    def hold(self, point: str, tags: Iterable[str]) -> None:
        self._holds |= {(point, tag): _Hold() for tag in tags}

    async def reached(self) -> None:
        """Waits until every run that is to be held has come to its point."""
        for hold in list(self._holds.values()):
            await hold.reached.wait()

    def release(self) -> None:
        for hold in self._holds.values():
            hold.free.set()
        self._holds.clear()

    async def passing(self, point: str, tag: str) -> None:
        if (hold := self._holds.get((point, tag))) is not None:
            hold.reached.set()
            await hold.free.wait()


class Ledger:
    """Answers the tools over a loopback port: what they see is the same each time, and each write has a
    receipt of its own."""

    def __init__(self, points: Points) -> None:
        self._points = points
        self.port = 0
        self.reads: Counter[str] = Counter()
        self.writes: dict[str, list[str]] = {}
        self._seen: dict[str, str] = {}

    def seen(self, key: str) -> str:
        return self._seen.setdefault(key, f"s{secrets.token_hex(4)}")

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        server = await asyncio.start_server(self._answer, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            asked = json.loads(await reader.readline() or b"{}")
            if asked:
                answer = await self._asked(asked["what"], asked["key"])
                writer.write(json.dumps({"answer": answer}).encode() + b"\n")
                await writer.drain()
        except ConnectionError:
            pass  # whoever asked was killed
        finally:
            writer.close()

    async def _asked(self, what: str, key: str) -> str:
        role, _, tag = key.partition("-")
        answer = ""
        if what == "look":
            self.reads[key] += 1
            answer = self.seen(key)
        elif what == "write":
            answer = f"r{secrets.token_hex(4)}"
            self.writes.setdefault(key, []).append(answer)
        await self._points.passing(f"{role}:{what}", tag)
        return answer
