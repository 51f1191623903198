"""The knowledge base over REST: datasources, jobs, queries and documents."""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import CaipeError, Refused
from ai_platform_engineering.core.settings import KnowledgeSettings, ServerSettings
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.owner_file import OwnerProcess
from ai_platform_engineering.knowledge_bases.result_json import (
    render_datasource,
    render_document,
    render_job,
    render_result,
)
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import SearchMode
from ai_platform_engineering.knowledge_bases.tool_schemas import MAX_RESULTS, SearchFilters
from ai_platform_engineering.runtime.rest.problems import (
    Handler,
    NotFound,
    read_json_body,
    with_problem_responses,
)
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

LOCAL_KEY_HEADER = "X-Caipe-Local-Key"
_MOST_BYTES = 64 * 1024
_PAGE = 100_000  # characters of a document

BodyT = TypeVar("BodyT", bound=BaseModel)


class _Body(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class AddDatasourceBody(_Body):
    location: str = Field(min_length=1, max_length=4096)
    name: str | None = None
    title: str = Field("", max_length=200)
    options: dict[str, str] = Field(default_factory=dict)


class IngestBody(_Body):
    datasource: str | None = None


class QueryBody(_Body):
    query: str = Field(min_length=1, max_length=2000)
    datasource: str | None = None
    filters: SearchFilters | None = None
    limit: int = Field(10, ge=1, le=MAX_RESULTS)
    mode: SearchMode = "hybrid"


@dataclass(frozen=True, slots=True)
class KnowledgeApi:
    """`folders` are those of this machine that a request may have read. Whoever sends `local_key` could read it from a file that only
    this user can, and so may have read what this user may."""

    kb: KnowledgeBase
    folders: Sequence[Path] = ()
    local_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @classmethod
    def from_settings(cls, kb: KnowledgeBase, settings: KnowledgeSettings) -> "KnowledgeApi":
        return cls(kb, [Path(folder) for folder in settings.ingest_folders])

    async def open(self, server: ServerSettings, home: Path) -> None:
        """Opens the knowledge base and says where its owner is, for commands on this machine."""
        await self.kb.open()
        if self.kb.is_writable:
            OwnerProcess(server.model_copy(update={"external_url": None}).url, self.local_key).write(home)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/datasources", _answering(self.list_datasources)),
            Route("/v1/datasources", _answering(self.add), methods=["POST"]),
            Route("/v1/datasources/{name}", _answering(self.show_datasource)),
            Route("/v1/datasources/{name}", _answering(self.remove), methods=["DELETE"]),
            Route("/v1/ingest", _answering(self.ingest), methods=["POST"]),
            Route("/v1/query", _answering(self.query), methods=["POST"]),
            Route("/v1/documents/{document_id}", _answering(self.show_document)),
            Route("/v1/jobs", _answering(self.list_jobs)),
            Route("/v1/jobs/{job_id}", _answering(self.show_job)),
            Route("/v1/jobs/{job_id}/stop", _answering(self.stop_job), methods=["POST"]),
        ]

    async def list_datasources(self, _: Request) -> Response:
        return AsciiJSONResponse(
            {"datasources": [render_datasource(one) for one in await self.kb.list_datasources()]}
        )

    async def show_datasource(self, request: Request) -> Response:
        return AsciiJSONResponse(
            render_datasource(await self.kb.find_datasource(request.path_params["name"]))
        )

    async def add(self, request: Request) -> Response:
        asked = await _body(request, AddDatasourceBody)
        datasource, job = await self.kb.add_datasource(
            asked.location,
            name=asked.name,
            title=asked.title,
            options=asked.options,
            folders=self._folders(request),
        )
        return AsciiJSONResponse({"datasource": render_datasource(datasource), "job": render_job(job)}, 202)

    async def remove(self, request: Request) -> Response:
        await self.kb.remove_datasource(request.path_params["name"])
        return Response(status_code=204)

    async def ingest(self, request: Request) -> Response:
        """Looks again at one datasource, or at all."""
        asked = await _body(request, IngestBody)
        names = (
            [asked.datasource]
            if asked.datasource is not None
            else [one.name for one in await self.kb.list_datasources()]
        )
        return AsciiJSONResponse(
            {"jobs": [render_job(await self.kb.refresh_datasource(name)) for name in names]}, 202
        )

    async def query(self, request: Request) -> Response:
        asked = await _body(request, QueryBody)
        filters = asked.filters.to_dict() if asked.filters else None
        found = await self.kb.search(asked.query, asked.datasource, filters, asked.limit, asked.mode)
        return AsciiJSONResponse(
            {"query": asked.query, "results": [render_result(result) for result in found]}
        )

    async def show_document(self, request: Request) -> Response:
        given = request.query_params.get("offset", "0")
        if not given.isdecimal() or len(given) > 12:
            raise Refused("offset is a number of characters.")
        rest = await self.kb.fetch_document(request.path_params["document_id"], int(given))
        shown = render_document(rest)
        end = rest.offset + _PAGE
        return AsciiJSONResponse(
            {**shown, "text": rest.text[:_PAGE], "next_offset": end if end < rest.total_chars else None}
        )

    async def list_jobs(self, _: Request) -> Response:
        return AsciiJSONResponse({"jobs": [render_job(job) for job in await self.kb.list_jobs()]})

    async def show_job(self, request: Request) -> Response:
        return AsciiJSONResponse(render_job(await self.kb.find_job(request.path_params["job_id"])))

    async def stop_job(self, request: Request) -> Response:
        return AsciiJSONResponse(render_job(await self.kb.stop_job(request.path_params["job_id"])))

    def _folders(self, request: Request) -> Sequence[Path] | None:
        """Files of this machine are nobody's who merely reaches the server."""
        known = hmac.compare_digest(
            request.headers.get(LOCAL_KEY_HEADER, "").encode(), self.local_key.encode()
        )
        if known:
            return None
        return self.folders


def _answering(handler: Handler) -> Handler:
    async def answer(request: Request) -> Response:
        try:
            return await handler(request)
        except KnowledgeNotFound as error:
            raise NotFound(str(error)) from None
        except Refused:
            raise
        except CaipeError as error:  # a source that cannot be read, an address that is not fetched
            raise Refused(str(error)) from None

    return with_problem_responses(answer)


async def _body(request: Request, kind: type[BodyT]) -> BodyT:
    body = await read_json_body(request, _MOST_BYTES, "Send JSON, with the content type application/json.")
    try:
        return kind.model_validate_json(body)
    except ValidationError as error:
        wrong = "; ".join(
            f"{'.'.join(map(str, one['loc']))}: {one['msg']}"
            for one in error.errors(include_input=False, include_url=False)
        )
        raise Refused(f"The request is wrong. {wrong}."[:1000]) from None
