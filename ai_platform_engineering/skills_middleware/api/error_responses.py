"""Errors of the skills API: every one is a problem with a sentence, and says which file and field."""

import logging
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from ai_platform_engineering.core.errors import CaipeError, Refused, SourceUnavailable
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.rest.problems import ProblemResponse
from ai_platform_engineering.skills_middleware.api.schemas import ProblemItem, ProblemShown
from ai_platform_engineering.skills_middleware.file_rules import SkillErrors
from ai_platform_engineering.skills_middleware.skill_catalog import SkillChanged, SkillNotFound
from ai_platform_engineering.skills_middleware.skill_resolution import RESERVED_NAMES

log = logging.getLogger(__name__)

_MOST_SAID = 5  # problems in the sentence; all are in the list
_UNKNOWN = "There is nothing at this address. GET /skills lists the skills, /skills/openapi.json describes the routes."
_WRONG_METHOD = "This address does not take the method {method}. It takes: {allowed}."
_OFF = "Skills are switched off here (ENABLE_SKILLS)."

Documented = dict[int | str, dict[str, Any]]


class SkillsOff(CaipeError):
    code = "skills_unavailable"

    def __init__(self) -> None:
        super().__init__(_OFF)


class ReadOnly(CaipeError):
    code = "read_only"


class Unusable(CaipeError):
    """What was sent has the right form, and cannot be used."""

    code = "unusable"


def problem(
    status: int, detail: str, *, headers: dict[str, str] | None = None, **more: Any
) -> ProblemResponse:
    title = HTTPStatus(status).phrase
    content = {"type": "about:blank", "title": title, "status": status, "detail": detail, **more}
    return ProblemResponse(content, status, headers)


def documented(*statuses: int) -> Documented:
    """The problems of a route, for its description; what is wrong with a request can be said of every one."""
    return {
        status: {"description": HTTPStatus(status).phrase, "content": _CONTENT}
        for status in sorted({*statuses, 422, 500, 503})
    }


_CONTENT = {ProblemResponse.media_type: {"schema": {"$ref": f"#/components/schemas/{ProblemShown.__name__}"}}}


async def _refused(request: Request, error: Exception) -> Response:
    match error:
        case SkillsOff():
            return problem(503, str(error), error=error.code)
        case ReadOnly():
            return problem(403, str(error))
        case SkillErrors():
            return problem(
                422, _sentence(error), problems=[ProblemItem.of(one).model_dump() for one in error.problems]
            )
        case Unusable():
            return problem(422, str(error))
        case SkillNotFound() if (
            request.path_params.get("name") in RESERVED_NAMES
        ):  # a route of ours with another method
            return _not_allowed(request)
        case SkillNotFound():
            return problem(404, str(error))
        case SkillChanged():
            return problem(412, str(error))
        case Refused():
            return problem(409, str(error))
        case SourceUnavailable():
            return problem(503, str(error))
        case _:
            return await _broken(request, error)


def _sentence(error: SkillErrors) -> str:
    more = len(error.problems) - _MOST_SAID
    said = " ".join(map(str, error.problems[:_MOST_SAID]))
    return f"The skill is not valid. {said}{f' And {more} more.' if more > 0 else ''}"


async def _misread(_: Request, error: Exception) -> Response:
    """A request that does not have the form; without what was sent, which may be anything."""
    assert isinstance(error, RequestValidationError)
    found = [
        {"file": "", "field": _field(one["loc"]), "message": f"{one['msg']}.", "line": None}
        for one in error.errors()
    ]
    said = " ".join(
        f"{one['field']}: {one['message']}" if one["field"] else f"{one['message']}"
        for one in found[:_MOST_SAID]
    )
    return problem(422, f"The request is wrong. {said}"[:1000], problems=found[:100])


def _field(place: tuple[Any, ...]) -> str:
    """Where in the request, without the keys that a client chose."""
    return ".".join(str(part)[:64] for part in place if part not in ("body", "query", "path", "header"))


async def _http(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return problem(404, _UNKNOWN)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _not_allowed(request)
    return problem(error.status_code, str(error.detail))


def _not_allowed(request: Request) -> Response:
    """With all methods of the address; the framework names those of its first route alone."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    path = next(route.path for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    allowed = ", ".join(
        sorted({method for route in routes if route.path == path for method in route.methods or ()})
    )
    said = _WRONG_METHOD.format(method=request.method[:20], allowed=allowed)
    return problem(405, said, headers={"Allow": allowed})


async def _broken(request: Request, error: Exception) -> Response:
    log.error("%s %s failed: %s", request.method, request.url.path, format_traceback(error))
    return problem(500, "Internal error. The server's log says more.")


def refusing(app: FastAPI) -> None:
    app.add_exception_handler(CaipeError, _refused)
    app.add_exception_handler(RequestValidationError, _misread)
    app.add_exception_handler(HTTPException, _http)
    app.add_exception_handler(Exception, _broken)
