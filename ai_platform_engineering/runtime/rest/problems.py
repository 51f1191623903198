"""Errors of REST routes as problem responses (RFC 9457), and JSON bodies of requests."""

import logging
from collections.abc import Awaitable, Callable
from http import HTTPStatus

from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.core.errors import CaipeError, Refused, RunNotFound, WrongState
from ai_platform_engineering.core.failure_text import describe_for_client
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

log = logging.getLogger(__name__)

Handler = Callable[[Request], Awaitable[Response]]


class ProblemResponse(AsciiJSONResponse):
    """An error as a problem of RFC 9457, with a sentence for people."""

    media_type = "application/problem+json"

    @classmethod
    def of(cls, status: HTTPStatus, detail: str) -> "ProblemResponse":
        return cls(
            {"type": "about:blank", "title": status.phrase, "status": status.value, "detail": detail},
            status.value,
        )


class NotFound(CaipeError):
    """What a REST request names does not exist, or not for this owner (HTTP 404)."""

    code = "not_found"


class Forbidden(CaipeError):
    """Whoever sends this request may not do it (HTTP 403)."""

    code = "forbidden"


async def read_json_body(request: Request, max_bytes: int, expected: str) -> bytes:
    """The body of a JSON request within the limit. Raises Refused; `expected` says what to send."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise Refused(expected)
    body = b""
    async for chunk in request.stream():
        body += chunk
        if len(body) > max_bytes:
            raise Refused(f"The request is larger than {max_bytes} bytes.")
    return body


def with_problem_responses(handler: Handler) -> Handler:
    """The handler with every exception as a problem response."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except (NotFound, RunNotFound) as error:
            return ProblemResponse.of(HTTPStatus.NOT_FOUND, str(error))
        except Forbidden as error:
            return ProblemResponse.of(HTTPStatus.FORBIDDEN, str(error))
        except WrongState as error:
            return ProblemResponse.of(HTTPStatus.CONFLICT, str(error))
        except Refused as error:
            return ProblemResponse.of(HTTPStatus.BAD_REQUEST, str(error))
        except Exception as error:  # noqa: BLE001 - the text may hold a secret and stays in the log
            # Imported late: commands that serve routes themselves do not wait for the graph's libraries.
            from ai_platform_engineering.core.tracebacks import format_traceback

            log.error("%s %s failed: %s", request.method, request.url.path, format_traceback(error))
            text = describe_for_client(error)
            if text is None:
                return ProblemResponse.of(
                    HTTPStatus.INTERNAL_SERVER_ERROR, "Internal error. The server's log says more."
                )
            return ProblemResponse.of(HTTPStatus.SERVICE_UNAVAILABLE, text.message)

    return handle
