"""Opens many A2A streams at once, and says what arrived when.

While streams run only times and bytes are stored; they are parsed afterwards, so that the client takes as
little as possible of the machine.
"""

import asyncio
import json
import re
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from benchmarks.load.scripted_model import answer_text

_TOKEN = re.compile(r"t(\d+) ")
_LAST_CHUNK = b"\r\n0\r\n\r\n"


@dataclass(frozen=True, slots=True)
class Question:
    """What one stream asks for."""

    tokens: int
    rate: float = 0.0
    delegate: str = ""
    sub_tokens: int = 20
    context_id: str | None = None

    def text(self) -> str:
        words = f"tokens={self.tokens} rate={self.rate}"
        if self.delegate:
            words += f" delegate={self.delegate} sub_tokens={self.sub_tokens}"
        return f"[[{words}]]"


@dataclass(slots=True)
class StreamResult:
    """What one stream received: the times are seconds after its request."""

    first_token: float
    lateness: list[float]  # of each token behind its ideal time
    total: float
    is_exact: bool
    problem: str = ""
    frames: int = 0


@dataclass(slots=True)
class LoadResult:
    streams: list[StreamResult]
    seconds: float
    tokens: int

    @property
    def failures(self) -> list[str]:
        return [stream.problem for stream in self.streams if not stream.is_exact]

    @property
    def tokens_per_second(self) -> float:
        return self.tokens / self.seconds

    def first_token_ms(self, quantile: float = 0.5) -> float:
        return 1000 * at_quantile([stream.first_token for stream in self.streams], quantile)

    def lateness_ms(self, quantile: float) -> float:
        lateness = [value for stream in self.streams for value in stream.lateness]
        return 1000 * at_quantile(lateness, quantile)

    def total_ms(self, quantile: float = 0.5) -> float:
        return 1000 * at_quantile([stream.total for stream in self.streams], quantile)


def at_quantile(values: Sequence[float], quantile: float) -> float:
    if not values:
        return float("nan")
    return sorted(values)[min(len(values) - 1, int(quantile * len(values)))]


@dataclass(slots=True)
class _Connection(asyncio.Protocol):
    """One request on one connection."""

    request: bytes
    pieces: list[tuple[float, bytes]] = field(default_factory=list)
    done: asyncio.Event = field(default_factory=asyncio.Event)
    started: float = 0.0
    _transport: asyncio.Transport | None = None
    _tail: bytes = b""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self.started = time.perf_counter()
        transport.write(self.request)

    def data_received(self, data: bytes) -> None:
        self.pieces.append((time.perf_counter(), data))
        self._tail = (self._tail + data)[-len(_LAST_CHUNK) :]
        if self._tail == _LAST_CHUNK:
            self.close()

    def connection_lost(self, exc: Exception | None) -> None:
        self.done.set()

    def close(self) -> None:
        self.done.set()
        if self._transport is not None:
            self._transport.close()


async def open_streams(port: int, questions: Sequence[Question], *, limit: float = 300.0) -> LoadResult:
    """Asks all questions at once, and waits for their answers."""
    loop = asyncio.get_running_loop()
    connections = [_Connection(_request(port, question, index)) for index, question in enumerate(questions)]
    start = time.perf_counter()
    await asyncio.gather(
        *(
            loop.create_connection(lambda made=connection: made, "127.0.0.1", port)
            for connection in connections
        )
    )
    async with asyncio.timeout(limit):
        await asyncio.gather(*(connection.done.wait() for connection in connections))
    seconds = time.perf_counter() - start
    results = [
        _read(connection, question) for connection, question in zip(connections, questions, strict=True)
    ]
    return LoadResult(results, seconds, sum(question.tokens for question in questions))


def _request(port: int, question: Question, index: int) -> bytes:
    message = {
        "role": "user",
        "kind": "message",
        "messageId": f"m{index}-{time.time_ns()}",
        "parts": [{"kind": "text", "text": question.text()}],
    }
    if question.context_id is not None:
        message["contextId"] = question.context_id
    call = {"jsonrpc": "2.0", "id": index, "method": "message/stream", "params": {"message": message}}
    body = json.dumps(call).encode()
    head = (
        f"POST / HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nContent-Type: application/json\r\n"
        f"Accept: text/event-stream\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


def _read(connection: _Connection, question: Question) -> StreamResult:
    """Reads the frames: an artifact's chunks are joined, and tokens are timed when they first arrive."""
    artifacts: dict[str, str] = {}
    names: dict[str, str] = {}
    times: list[float] = []
    state = ""
    problem = ""
    payloads = _events(connection)
    for arrived, payload in payloads:
        frame = json.loads(payload)
        result = frame.get("result")
        if result is None:
            problem = payload[:200]
            continue
        if result["kind"] == "status-update":
            state = result["status"]["state"]
        if result["kind"] != "artifact-update":
            continue
        artifact = result["artifact"]
        artifact_id = artifact["artifactId"]
        names[artifact_id] = artifact.get("name") or ""
        text = "".join(part.get("text", "") for part in artifact["parts"])
        if result.get("append"):
            text = artifacts.get(artifact_id, "") + text
        artifacts[artifact_id] = text
        if names[artifact_id] == "streaming_result":
            while len(times) < len(_TOKEN.findall(text)):
                times.append(arrived - connection.started)
    answers = [text for key, text in artifacts.items() if names[key] in ("streaming_result", "final_result")]
    is_exact = state == "completed" and answer_text(question.tokens) in answers
    if not is_exact and not problem:
        problem = f"{state or 'no end'}, {len(times)} of {question.tokens} tokens"
    total = connection.pieces[-1][0] - connection.started if connection.pieces else float("nan")
    lateness: list[float] = []
    if question.rate:
        lateness = [arrival - number / question.rate for number, arrival in enumerate(times)]
    first = times[0] if times else float("nan")
    return StreamResult(first, lateness, total, is_exact, problem, len(payloads))


def _events(connection: _Connection) -> list[tuple[float, str]]:
    """The `data:` payloads with the time at which their last byte arrived."""
    raw = b"".join(data for _, data in connection.pieces)
    start = raw.find(b"\r\n\r\n") + 4
    ends: list[tuple[int, float]] = []
    received = 0
    for arrived, data in connection.pieces:
        received += len(data)
        ends.append((received, arrived))
    body = bytearray()
    marks: list[tuple[int, int]] = []  # where a chunk ends: in the body, in the bytes
    while 4 <= start < len(raw):
        line_end = raw.find(b"\r\n", start)
        size = int(raw[start:line_end] or b"0", 16)
        if line_end < 0 or size == 0:
            break
        body += raw[line_end + 2 : line_end + 2 + size]
        start = line_end + 2 + size + 2
        marks.append((len(body), start - 2))
    events: list[tuple[float, str]] = []
    mark = 0
    end = 0
    position = 0
    for block in bytes(body).split(b"\n\n"):
        position += len(block) + 2
        data = [line[5:].strip() for line in block.split(b"\n") if line.startswith(b"data:")]
        while mark < len(marks) - 1 and marks[mark][0] < position:
            mark += 1
        while end < len(ends) - 1 and ends[end][0] < marks[mark][1]:
            end += 1
        if data:
            events.append((ends[end][1], b"".join(data).decode()))
    return events
