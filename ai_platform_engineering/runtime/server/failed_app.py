"""The ASGI application of a server that cannot start: it tells the reason to whichever program runs it."""

import logging

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send

log = logging.getLogger(__name__)


class FailedApp:
    """An application that could not be built: its start fails with a sentence, where an exception would be
    shown as a traceback."""

    def __init__(self, reason: str) -> None:
        self._reason = reason
        self._logged = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await receive()
            await send({"type": "lifespan.startup.failed", "message": self._reason})
        elif scope["type"] == "http":
            await self._refuse(scope, receive, send)

    async def _refuse(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Refuses requests of a server that runs applications without their lifespan."""
        if not self._logged:
            log.error("%s", self._reason)
            self._logged = True
        response = PlainTextResponse("The server could not be started; its log says why.", 503)
        await response(scope, receive, send)
