"""Requests to the knowledge base over REST: their bodies, their errors, and what who sends them may do."""

import hmac
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError
from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.knowledge_bases.access import OPERATOR, Viewer
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.tool_schemas import describe_validation_error
from ai_platform_engineering.knowledge_bases.workers.worker_errors import WorkerFailed
from ai_platform_engineering.runtime.rest.problems import (
    Forbidden,
    Handler,
    NotFound,
    ProblemResponse,
    read_json_body,
    with_problem_responses,
)
from ai_platform_engineering.runtime.server.access_keys import DELEGATE_USER
from ai_platform_engineering.runtime.server.authentication import principal_of_request

LOCAL_KEY_HEADER = "X-Caipe-Local-Key"
MAX_BODY_BYTES = 64 * 1024
_NOT_FOR_THIS_KEY = (
    "Who may see documents is changed on the server's machine, or with the key of A2A_AUTH_DELEGATE_KEY "
    "(of a knowledge base server: RAG_SERVER_TOKEN), not on behalf of somebody."
)

BodyT = TypeVar("BodyT", bound=BaseModel)


class RequestBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


@dataclass(frozen=True, slots=True)
class RequestAccess:
    """Who sends a request. Whoever sends `local_key` has read it from a file that only this user can read."""

    kb: KnowledgeBase
    local_key: str = field(repr=False)

    def is_local(self, request: Request) -> bool:
        key = request.headers.get(LOCAL_KEY_HEADER, "")
        return hmac.compare_digest(key.encode(), self.local_key.encode())

    def may_manage(self, request: Request) -> bool:
        """Whether the sender may decide on who sees documents: one who may speak for anybody sees them
        anyway."""
        return self.is_local(request) or principal_of_request(request) == DELEGATE_USER

    def check_may_manage(self, request: Request) -> None:
        """Raises Forbidden."""
        if not self.may_manage(request):
            raise Forbidden(_NOT_FOR_THIS_KEY)

    async def find_viewer(self, request: Request) -> Viewer:
        """Whose documents are shown: all to the user of this machine, else those of the principal."""
        if self.is_local(request):
            return OPERATOR
        return await self.kb.groups.identify(principal_of_request(request))

    async def check_may_change(self, request: Request, name: str) -> None:
        """Raises KnowledgeNotFound for a datasource that the sender may neither see nor manage."""
        viewer = OPERATOR
        if not self.may_manage(request):
            viewer = await self.find_viewer(request)
        await self.kb.find_datasource(name, viewer)


def handle_errors(handler: Handler) -> Handler:
    """A handler whose errors become problem responses."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except KnowledgeNotFound as error:
            raise NotFound(str(error)) from None
        except (Forbidden, Refused):
            raise
        except WorkerFailed as error:
            return ProblemResponse.of(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except CaipeError as error:  # a source that cannot be read, an address that is not fetched
            raise Refused(str(error)) from None

    return with_problem_responses(handle)


async def read_body(request: Request, model: type[BodyT], max_bytes: int = MAX_BODY_BYTES) -> BodyT:
    """Raises Refused."""
    body = await read_json_body(request, max_bytes, "Send JSON, with the content type application/json.")
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Refused(f"The request is invalid. {describe_validation_error(error)}."[:1000]) from None
