"""A proxy on the way to a server that loses frames of its streams."""

from collections.abc import AsyncIterator

import httpx
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

_OWN = ("host", "content-length", "connection", "accept-encoding")


class LossyProxy:
    """Passes everything on but the first `times` frames that hold `mark`; what it lost is in `lost`."""

    def __init__(self, target: str, http: httpx.AsyncClient) -> None:
        self._target, self._http = target, http
        self.mark, self.times = b"", 0
        self.lost: list[bytes] = []
        self.app = Starlette(routes=[Route("/{path:path}", self._pass, methods=["GET", "POST"])])

    def lose(self, mark: bytes, times: int) -> None:
        """What is lost from now on."""
        self.mark, self.times, self.lost = mark, times, []

    async def _pass(self, asked: Request) -> Response:
        headers = {name: value for name, value in asked.headers.items() if name not in _OWN}
        onward = self._http.build_request(
            asked.method,
            self._target + asked.path_params["path"],
            headers=headers,
            content=await asked.body(),
        )
        answer = await self._http.send(onward, stream=True)
        return StreamingResponse(
            self._frames(answer), answer.status_code, {"content-type": answer.headers["content-type"]}
        )

    async def _frames(self, answer: httpx.Response) -> AsyncIterator[bytes]:
        held = b""
        try:
            async for piece in answer.aiter_bytes():
                *frames, held = (held + piece).split(b"\n\n")
                for frame in frames:
                    if self.times > len(self.lost) and self.mark in frame:
                        self.lost.append(frame)
                    else:
                        yield frame + b"\n\n"
            yield held
        finally:
            await answer.aclose()
