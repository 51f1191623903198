"""What the fake providers share: a loopback server in this event loop that checks, records and plays
requests."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from typing import Any, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request as HttpRequest
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from .gate import GateTimeout
from .prompt_cache import AutomaticCache, MarkedCache
from .request import Request, ScriptError
from .script import Broken, Casting, Fail, Piece, Playback, Player, Refused


class Wire(ABC):
    """The form one provider gives to one reply."""

    content_type = "text/event-stream; charset=utf-8"

    def __init__(self, playback: Playback) -> None:
        self.playback = playback

    @abstractmethod
    def head(self) -> bytes:
        """The events before the first piece."""

    @abstractmethod
    def piece(self, piece: Piece) -> bytes:
        """The events of one piece."""

    @abstractmethod
    def tail(self) -> bytes:
        """The events after the last piece."""

    @abstractmethod
    def failure(self, fail: Fail) -> bytes:
        """The event that ends a begun stream with an error."""

    @abstractmethod
    def whole(self, pieces: Sequence[Piece]) -> dict[str, Any]:
        """The reply to a request that does not stream."""


class ModelServer(ABC):
    """A fake provider; `url` is what a client takes as its base URL."""

    path: str
    base: str = ""

    def __init__(
        self, casting: Casting, *, api_key: str | None = None, max_context_tokens: int | None = None
    ) -> None:
        self.player = Player(casting)
        self.marked_cache = MarkedCache()
        self.automatic_cache = AutomaticCache()
        self.api_key = api_key
        self.max_context_tokens = max_context_tokens
        self.url = ""
        self.targets: list[str] = []  # path and query of every request
        routes = [Route(self.path, self._answer, methods=["POST"]), Route("/v1/models", self._models)]
        self.app = Starlette(routes=routes)
        self._server: uvicorn.Server | None = None

    @property
    def requests(self) -> list[Request]:
        """Every request that passed the provider's checks of form and history."""
        return self.player.requests

    @property
    def abandoned(self) -> list[Request]:
        """The requests whose client went away before the reply was complete."""
        return self.player.abandoned

    @property
    def refusals(self) -> list[str]:
        """Why requests were refused without the script wanting it: a broken history, a template, too long a
        prompt."""
        return self.player.refusals

    async def read_body(self, http: HttpRequest) -> dict[str, Any]:
        """The body of a request, with what a provider has in its address."""
        body: dict[str, Any] = await http.json()
        return body

    @abstractmethod
    def given_key(self, headers: Mapping[str, str]) -> str | None:
        """The API key of a request."""

    @abstractmethod
    def objection(self, body: dict[str, Any]) -> Fail | None:
        """What a strict provider finds wrong with the form or the history of a request."""

    @abstractmethod
    def parse(self, body: dict[str, Any]) -> Request:
        """The normalised request."""

    @abstractmethod
    def overflow(self, tokens: int, limit: int) -> Fail:
        """The refusal of a prompt that is too long."""

    @abstractmethod
    def wire(self, playback: Playback) -> Wire:
        """The form of the reply."""

    @abstractmethod
    def error_body(self, fail: Fail) -> dict[str, Any]:
        """The body of an error."""

    @abstractmethod
    def model_list(self, names: tuple[str, ...]) -> dict[str, Any]:
        """The answer to a request for the list of models."""

    def refusal(self, fail: Fail) -> JSONResponse:
        """The error as a response."""
        headers = {} if fail.retry_after is None else {"retry-after": f"{fail.retry_after:g}"}
        return JSONResponse(self.error_body(fail), status_code=fail.status, headers=headers)

    def cut(self, client: tuple[str, int]) -> None:
        """Break the connection of this client without finishing anything."""
        assert self._server is not None
        for protocol in list(self._server.server_state.connections):
            if getattr(protocol, "client", None) == client:
                protocol.transport.abort()

    async def _models(self, http: HttpRequest) -> Response:
        return JSONResponse(self.model_list(self.player.casting.models or ("scripted",)))

    async def _answer(self, http: HttpRequest) -> Response:
        self.targets.append(f"{http.url.path}?{http.url.query}".rstrip("?"))
        if self.api_key is not None and self.given_key(http.headers) != self.api_key:
            return self.refusal(Fail(401, "invalid_api_key", "Incorrect API key provided."))
        try:
            body = await self.read_body(http)
        except json.JSONDecodeError as error:
            return self._refused(Fail(400, message=f"The body is not JSON: {error}"))
        if wrong := self.objection(body):
            return self._refused(wrong)
        request = self.parse(body)
        self.requests.append(request)
        if self.max_context_tokens is not None and request.approximate_tokens > self.max_context_tokens:
            return self._refused(self.overflow(request.approximate_tokens, self.max_context_tokens))
        try:
            return _Performance(self, self.player.cue(request))
        except ScriptError as error:
            return self.refusal(Fail(error.status, message=str(error)))

    def _refused(self, fail: Fail) -> Response:
        self.refusals.append(fail.message)
        return self.refusal(fail)

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Listen on an ephemeral loopback port; at the end all connections are dropped."""
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(
            self.app, log_config=None, lifespan="off", ws="none", http="h11", timeout_keep_alive=600
        )
        config.load()
        self._server = server = uvicorn.Server(config)
        server.lifespan = config.lifespan_class(config)
        # Not serve(): it takes over the process's signals and needs 0.1 s to stop.
        await server.startup(sockets=[listener])
        self.url = f"http://127.0.0.1:{listener.getsockname()[1]}{self.base}"
        try:
            yield
        finally:
            for listening in server.servers:
                listening.close()
            for protocol in list(server.server_state.connections):
                protocol.transport.abort()
            await asyncio.gather(*server.server_state.tasks, return_exceptions=True)
            for listening in server.servers:
                await listening.wait_closed()


class _Performance(Response):
    """Plays a turn until it ends or the client goes away."""

    def __init__(self, server: ModelServer, playback: Playback) -> None:
        super().__init__()
        self._server, self._playback, self._broken = server, playback, False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        playing = asyncio.create_task(self._play(scope, receive, send))
        leaving = asyncio.create_task(_left(receive))
        try:
            await asyncio.wait({playing, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if not playing.done() and not self._broken:
                self._server.abandoned.append(self._playback.request)
        finally:
            playing.cancel()
            leaving.cancel()
            await asyncio.wait({playing, leaving})
        if not playing.cancelled():
            playing.result()

    async def _play(self, scope: Scope, receive: Receive, send: Send) -> None:
        streaming = self._playback.request.stream
        pieces, wire = self._playback.pieces(gated=streaming), self._server.wire(self._playback)
        try:
            if streaming:
                await self._stream(pieces, wire, send)
            else:
                await JSONResponse(wire.whole([piece async for piece in pieces]))(scope, receive, send)
        except (Refused, GateTimeout) as error:
            await self._server.refusal(_as_fail(error))(scope, receive, send)
        except Broken:
            self._broken = True
            self._server.cut(scope["client"])
            await asyncio.Event().wait()  # until the loss of the connection cancels this
        finally:
            await pieces.aclose()

    async def _stream(self, pieces: AsyncGenerator[Piece, None], wire: Wire, send: Send) -> None:
        # Nothing is sent before the first piece is there: until then a refusal can be a status.
        first = await anext(pieces, None)
        headers = [(b"content-type", wire.content_type.encode()), (b"cache-control", b"no-cache")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await _write(send, wire.head())
        try:
            if first is not None:
                await _write(send, wire.piece(first))
            async for piece in pieces:
                await _write(send, wire.piece(piece))
            await _write(send, wire.tail())
        except (Refused, GateTimeout) as error:
            await _write(send, wire.failure(_as_fail(error)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _write(send: Send, data: bytes) -> None:
    if data:
        await send({"type": "http.response.body", "body": data, "more_body": True})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _as_fail(error: Refused | GateTimeout) -> Fail:
    return error.fail if isinstance(error, Refused) else Fail(400, "gate_timeout", str(error))


_Server = TypeVar("_Server", bound=ModelServer)


@contextlib.asynccontextmanager
async def serving(server: _Server) -> AsyncIterator[_Server]:
    """Run this server while the context is open."""
    async with server.running():
        yield server


def sse(data: Mapping[str, Any], event: str | None = None) -> bytes:
    """One server-sent event."""
    head = f"event: {event}\n" if event else ""
    return f"{head}data: {json.dumps(data, ensure_ascii=False)}\n\n".encode()
