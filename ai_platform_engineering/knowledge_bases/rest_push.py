"""The REST API for programs that push documents, and for the groups of people that may see them."""

from dataclasses import dataclass
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.knowledge_bases.access import GROUP_PREFIX, check_names
from ai_platform_engineering.knowledge_bases.datasources import check_name
from ai_platform_engineering.knowledge_bases.indexing.document_push import PushResult
from ai_platform_engineering.knowledge_bases.rest_requests import (
    RequestAccess,
    RequestBody,
    handle_errors,
    read_body,
)
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse


class PushBody(RequestBody):
    documents: list[Any] = Field(default_factory=list)  # each is checked for itself
    delete: list[str] = Field(default_factory=list)
    generation: str | None = None


class GroupBody(RequestBody):
    members: list[str] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class PushApi:
    """Handlers and routes of pushed documents and of groups. `max_bytes`, `max_documents`: of one batch."""

    access: RequestAccess
    max_bytes: int
    max_documents: int

    @classmethod
    def from_settings(cls, access: RequestAccess, settings: KnowledgeSettings) -> "PushApi":
        return cls(access, settings.push_bytes, settings.push_documents)

    def routes(self) -> list[Route]:
        path = "/v1/datasources/{name}"
        return [
            Route(f"{path}/documents", handle_errors(self.push), methods=["POST"]),
            Route(f"{path}/generations", handle_errors(self.begin), methods=["POST"]),
            Route(f"{path}/generations/{{generation}}/finish", handle_errors(self.finish), methods=["POST"]),
            Route("/v1/groups", handle_errors(self.list_groups)),
            Route("/v1/groups/{name}", handle_errors(self.put_group), methods=["PUT"]),
            Route("/v1/groups/{name}", handle_errors(self.remove_group), methods=["DELETE"]),
        ]

    async def push(self, request: Request) -> Response:
        """Stores and deletes documents; each has a result of its own."""
        name = await self._check_datasource(request)
        body = await read_body(request, PushBody, self.max_bytes)
        count = len(body.documents) + len(body.delete)
        if count > self.max_documents:
            raise Refused(
                f"The batch has {count} documents, and {self.max_documents} are the most "
                "(RAG_PUSH_MAX_DOCUMENTS). Send several batches."
            )
        results = await self.access.kb.push.push(name, body.documents, body.delete, body.generation)
        return AsciiJSONResponse({"results": list(map(_render_result, results))})

    async def begin(self, request: Request) -> Response:
        name = await self._check_datasource(request)
        return AsciiJSONResponse({"generation": await self.access.kb.push.begin(name)}, 201)

    async def finish(self, request: Request) -> Response:
        name = await self._check_datasource(request)
        removed = await self.access.kb.push.finish(name, request.path_params["generation"])
        return AsciiJSONResponse({"removed": removed})

    async def list_groups(self, request: Request) -> Response:
        self.access.check_may_manage(request)
        return AsciiJSONResponse({"groups": await self.access.kb.groups.list()})

    async def put_group(self, request: Request) -> Response:
        self.access.check_may_manage(request)
        self.access.kb.check_writable()
        name = request.path_params["name"]
        check_name(name)
        body = await read_body(request, GroupBody)
        check_names(body.members, "members")
        if any(member.startswith(GROUP_PREFIX) for member in body.members):
            raise Refused("A group has people as members, no groups.")
        await self.access.kb.groups.put(name, body.members)
        return Response(status_code=204)

    async def remove_group(self, request: Request) -> Response:
        self.access.check_may_manage(request)
        self.access.kb.check_writable()
        await self.access.kb.groups.remove(request.path_params["name"])
        return Response(status_code=204)

    async def _check_datasource(self, request: Request) -> str:
        name = str(request.path_params["name"])
        self.access.kb.check_writable()
        await self.access.check_may_change(request, name)
        return name


def _render_result(result: PushResult) -> dict[str, str]:
    rendered = {"id": result.id, "status": result.status}
    if result.document_id:
        rendered["document_id"] = result.document_id
    if result.reason:
        rendered["reason"] = result.reason
    return rendered
