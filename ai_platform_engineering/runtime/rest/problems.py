"""What the REST routes share: bodies, and errors as problems with a sentence."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.core.errors import CaipeError, Refused, RunNotFound, WrongState
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class ProblemResponse(AsciiJSONResponse):
    """An error as RFC 9457 wants it, with a sentence for people."""

    media_type = "application/problem+json"

    @classmethod
    def of(cls, status: HTTPStatus, detail: str) -> "ProblemResponse":
        return cls(
            {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail},
            status.value,
        )


class NotFound(CaipeError):
    code = "not_found"


async def read_json_body(request: Request, most: int, expected: str) -> bytes:
    """The body of a request that must be JSON and not larger. Raises Refused; `expected` says what to send."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(expected)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > most:
            raise Refused(f"The request is larger than {most} bytes.")
    return body


def with_problem_responses(handler: Handler) -> Handler:
    """Every error as a problem with a sentence."""

    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except (NotFound, RunNotFound) as error:
            return ProblemResponse.of(HTTPStatus.NOT_FOUND, str(error))
        except WrongState as error:
            return ProblemResponse.of(HTTPStatus.CONFLICT, str(error))
        except Refused as error:
            return ProblemResponse.of(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # noqa: BLE001 - the text may hold a secret and stays here
            # Imported late: a command that opens its routes in its own process does not wait for the graph's libraries.
            from ai_platform_engineering.core.tracebacks import format_traceback

            log.error("%s %s failed: %s", request.method, request.url.path, format_traceback(error))
            return ProblemResponse.of(
                HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. The server's log says more."
            )

    return answer
