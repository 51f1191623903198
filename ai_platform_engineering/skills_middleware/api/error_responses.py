"""Error responses of the skills API: every one is a problem with a sentence, and names the file and field."""

import logging
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Match, Route

from ai_platform_engineering.core.errors import CaipeError, Refused, SourceUnavailable
from ai_platform_engineering.core.failure_text import describe_for_client
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.runtime.rest.problems import ProblemResponse
from ai_platform_engineering.skills_middleware.api.schemas import ProblemDetails, ProblemItem
from ai_platform_engineering.skills_middleware.file_rules import SkillErrors
from ai_platform_engineering.skills_middleware.skill_catalog import SkillChanged, SkillNotFound
from ai_platform_engineering.skills_middleware.skill_resolution import RESERVED_NAMES

log = logging.getLogger(__name__)

_MAX_IN_SENTENCE = 5  # problems in the sentence; all are in the list
_MAX_IN_LIST = 100
_NOT_FOUND = (
    "There is nothing at this address."
    " GET /skills lists the skills, /skills/openapi.json describes the routes."
)
_SKILLS_DISABLED = "Skills are switched off here (ENABLE_SKILLS)."
_REQUEST_PARTS = ("body", "query", "path", "header")

ResponseDocs = dict[int | str, dict[str, Any]]  # of the OpenAPI description, by status


class SkillsDisabled(CaipeError):
    code = "skills_unavailable"

    def __init__(self) -> None:
        super().__init__(_SKILLS_DISABLED)


class ReadOnly(CaipeError):
    code = "read_only"


class UnprocessableRequest(CaipeError):
    """A request of the right form that cannot be processed."""

    code = "unusable"


def add_error_handlers(app: FastAPI) -> None:
    app.add_exception_handler(CaipeError, _handle_caipe_error)
    app.add_exception_handler(RequestValidationError, _handle_validation_error)
    app.add_exception_handler(HTTPException, _handle_http_exception)
    app.add_exception_handler(Exception, _handle_unexpected_error)


def document_problems(*statuses: int) -> ResponseDocs:
    """The problems of a route for its OpenAPI description; every route can answer 422, 500 and 503."""
    schema = {"$ref": f"#/components/schemas/{ProblemDetails.__name__}"}
    content = {ProblemResponse.media_type: {"schema": schema}}
    docs: ResponseDocs = {}
    for status in sorted({*statuses, 422, 500, 503}):
        docs[status] = {"description": HTTPStatus(status).phrase, "content": content}
    return docs


def _problem_response(
    status: int,
    detail: str,
    *,
    error: str | None = None,
    problems: Sequence[ProblemItem] | None = None,
    headers: dict[str, str] | None = None,
) -> ProblemResponse:
    title = HTTPStatus(status).phrase
    content: dict[str, Any] = {"type": "about:blank", "title": title, "status": status, "detail": detail}
    if error is not None:
        content["error"] = error
    if problems is not None:
        content["problems"] = [problem.model_dump() for problem in problems]
    return ProblemResponse(content, status, headers)


async def _handle_caipe_error(request: Request, error: Exception) -> Response:
    match error:
        case SkillsDisabled():
            return _problem_response(503, str(error), error=error.code)
        case ReadOnly():
            return _problem_response(403, str(error))
        case SkillErrors():
            problems = [ProblemItem.of(problem) for problem in error.problems]
            return _problem_response(422, _describe_skill_errors(error), problems=problems)
        case UnprocessableRequest():
            return _problem_response(422, str(error))
        case SkillNotFound() if request.path_params.get("name") in RESERVED_NAMES:
            return _method_not_allowed(request)  # a route of ours with another method
        case SkillNotFound():
            return _problem_response(404, str(error))
        case SkillChanged():
            return _problem_response(412, str(error))
        case Refused():
            return _problem_response(409, str(error))
        case SourceUnavailable():
            return _problem_response(503, str(error))
        case _:
            return await _handle_unexpected_error(request, error)


def _describe_skill_errors(error: SkillErrors) -> str:
    sentence = " ".join(map(str, error.problems[:_MAX_IN_SENTENCE]))
    text = f"The skill is not valid. {sentence}"
    more = len(error.problems) - _MAX_IN_SENTENCE
    if more > 0:
        text += f" And {more} more."
    return text


async def _handle_validation_error(_: Request, error: Exception) -> Response:
    """Answers a request of the wrong form, without its values, which may be anything."""
    assert isinstance(error, RequestValidationError)
    problems: list[ProblemItem] = []
    sentences: list[str] = []
    for detail in error.errors():
        problem = ProblemItem(file="", field=_field_name(detail["loc"]), message=f"{detail['msg']}.")
        problems.append(problem)
        sentences.append(f"{problem.field}: {problem.message}" if problem.field else problem.message)
    text = f"The request is wrong. {' '.join(sentences[:_MAX_IN_SENTENCE])}"
    return _problem_response(422, text[:1000], problems=problems[:_MAX_IN_LIST])


def _field_name(path: tuple[Any, ...]) -> str:
    """The field of the request with dots, each part shortened."""
    return ".".join(str(part)[:64] for part in path if part not in _REQUEST_PARTS)


async def _handle_http_exception(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == HTTPStatus.NOT_FOUND:
        return _problem_response(404, _NOT_FOUND)
    if error.status_code == HTTPStatus.METHOD_NOT_ALLOWED:
        return _method_not_allowed(request)
    return _problem_response(error.status_code, str(error.detail))


def _method_not_allowed(request: Request) -> Response:
    """Answers with all methods of the path; the framework names those of its first route alone."""
    routes = [route for route in request.app.routes if isinstance(route, Route)]
    path = next(route.path for route in routes if route.matches(request.scope)[0] is not Match.NONE)
    methods: set[str] = set()
    for route in routes:
        if route.path == path:
            methods |= route.methods or set()
    allowed = ", ".join(sorted(methods))
    text = f"This address does not take the method {request.method[:20]}. It takes: {allowed}."
    return _problem_response(405, text, headers={"Allow": allowed})


async def _handle_unexpected_error(request: Request, error: Exception) -> Response:
    log.error("%s %s failed: %s", request.method, request.url.path, format_traceback(error))
    text = describe_for_client(error)
    if text is None:
        return _problem_response(500, "Internal error. The server's log says more.")
    return _problem_response(503, text.message)
