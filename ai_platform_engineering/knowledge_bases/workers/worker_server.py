"""The worker's end: it reads calls from its input, runs them in threads, and writes replies to its output."""

import logging
import os
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import Any, BinaryIO, Protocol

from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.knowledge_bases.workers.frames import (
    HEADER,
    BadFrame,
    Frame,
    Reply,
    decode_frame,
    decode_header,
    encode_frame,
)
from ai_platform_engineering.knowledge_bases.workers.worker_errors import PASSED_ON

log = logging.getLogger(__name__)

Arguments = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Handler:
    """What answers a call, and the threads that it runs in."""

    run: Callable[[Arguments, bytes], Reply]
    executor: Executor


class Service(Protocol):
    """What a kind of worker does."""

    @property
    def handlers(self) -> Mapping[str, Handler]: ...

    def close(self) -> None:
        """Saves and closes what is open; no call runs any more."""
        ...


class Channel:
    """The two pipes to the program that started this worker."""

    def __init__(self, incoming: BinaryIO, outgoing: BinaryIO) -> None:
        self._incoming = incoming
        self._outgoing = outgoing
        self._lock = threading.Lock()

    @classmethod
    def from_standard_streams(cls) -> "Channel":
        """Takes the standard streams for frames: what a library prints goes to stderr from now on."""
        incoming = os.fdopen(os.dup(0), "rb")
        outgoing = os.fdopen(os.dup(1), "wb", buffering=0)
        null = os.open(os.devnull, os.O_RDONLY)
        os.dup2(null, 0)
        os.close(null)
        os.dup2(2, 1)
        return cls(incoming, outgoing)

    def read(self) -> Frame | None:
        """The next frame; None when the other end is closed. Raises BadFrame."""
        header = self._incoming.read(HEADER.size)
        if len(header) < HEADER.size:
            return None
        head_size, body_size = decode_header(header)
        head = self._incoming.read(head_size)
        body = self._incoming.read(body_size)
        if len(head) < head_size or len(body) < body_size:
            return None
        return decode_frame(head, body)

    def write(self, frame: Frame) -> None:
        pieces = encode_frame(frame)
        with self._lock:
            for piece in pieces:
                view = memoryview(piece)
                while view:
                    view = view[self._outgoing.write(view) :]


class LogFrames(logging.Handler):
    """Sends log lines to the program that started this worker, which logs them as its own."""

    def __init__(self, channel: Channel) -> None:
        super().__init__()
        self._channel = channel

    def emit(self, record: logging.LogRecord) -> None:
        self._channel.write(Frame({"log": record.levelno, "message": record.getMessage()[:2000]}))


def serve(channel: Channel, service: Service) -> None:
    """Answers calls until `close`, or until the other end is gone."""
    while (frame := channel.read()) is not None:
        call = frame.head["call"]
        if call == "close":
            for handler in service.handlers.values():
                handler.executor.shutdown()
            service.close()
            channel.write(Frame({"id": frame.head["id"], "result": {}}))
            return
        handler = service.handlers[call]
        handler.executor.submit(_answer, channel, handler, frame)
    # Nobody is there for results any more, and what a thread still does may take minutes.
    sys.stderr.flush()
    os._exit(0)


def _answer(channel: Channel, handler: Handler, frame: Frame) -> None:
    call_id = frame.head["id"]
    try:
        reply = handler.run(frame.head["arguments"], frame.body)
        channel.write(Frame({"id": call_id, "result": reply.result}, reply.body))
        return
    except PASSED_ON as error:
        failure = {"error": error.code, "message": str(error)}
    except BadFrame:
        failure = {"error": "too_large", "message": ""}
    except OSError as error:
        failure = {"error": type(error).__name__, "message": error.strerror or ""}
    # Whatever a library raises: the other calls go on.
    except Exception as error:  # noqa: BLE001
        log.warning("%s failed: %s", frame.head["call"], format_traceback(error))
        failure = {"error": type(error).__name__, "message": ""}
    channel.write(Frame({"id": call_id, **failure}))
