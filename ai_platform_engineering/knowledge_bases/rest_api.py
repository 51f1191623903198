"""The REST API of the knowledge base: datasources, ingest jobs, queries and documents."""

import hmac
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
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
from ai_platform_engineering.knowledge_bases.tool_schemas import (
    MAX_RESULTS,
    SearchFilters,
    describe_validation_error,
)
from ai_platform_engineering.knowledge_bases.workers.worker_errors import WorkerFailed
from ai_platform_engineering.runtime.rest.problems import (
    Handler,
    NotFound,
    ProblemResponse,
    read_json_body,
    with_problem_responses,
)
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

LOCAL_KEY_HEADER = "X-Caipe-Local-Key"
_MAX_BODY_BYTES = 64 * 1024
_PAGE_CHARS = 100_000  # of a document

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
    """Handlers and routes of the REST API.

    `folders`: files of this machine below these may be ingested on request. Whoever sends `local_key` has
    read it from a file that only this user can read, and may have any file ingested that this user may read.
    """

    kb: KnowledgeBase
    folders: Sequence[Path] = ()
    local_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)

    @classmethod
    def from_settings(cls, kb: KnowledgeBase, settings: KnowledgeSettings) -> "KnowledgeApi":
        return cls(kb, [Path(folder) for folder in settings.ingest_folders])

    async def open(self, server: ServerSettings, home: Path) -> None:
        """Opens the knowledge base and, if this process owns it, writes the owner file for commands on this
        machine."""
        await self.kb.open()
        if self.kb.is_writable:
            OwnerProcess(server.model_copy(update={"external_url": None}).url, self.local_key).write(home)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/datasources", _handle_errors(self.list_datasources)),
            Route("/v1/datasources", _handle_errors(self.add), methods=["POST"]),
            Route("/v1/datasources/{name}", _handle_errors(self.show_datasource)),
            Route("/v1/datasources/{name}", _handle_errors(self.remove), methods=["DELETE"]),
            Route("/v1/ingest", _handle_errors(self.ingest), methods=["POST"]),
            Route("/v1/query", _handle_errors(self.query), methods=["POST"]),
            Route("/v1/documents/{document_id}", _handle_errors(self.show_document)),
            Route("/v1/jobs", _handle_errors(self.list_jobs)),
            Route("/v1/jobs/{job_id}", _handle_errors(self.show_job)),
            Route("/v1/jobs/{job_id}/stop", _handle_errors(self.stop_job), methods=["POST"]),
        ]

    async def list_datasources(self, _: Request) -> Response:
        datasources = await self.kb.list_datasources()
        return AsciiJSONResponse({"datasources": list(map(render_datasource, datasources))})

    async def show_datasource(self, request: Request) -> Response:
        datasource = await self.kb.find_datasource(request.path_params["name"])
        return AsciiJSONResponse(render_datasource(datasource))

    async def add(self, request: Request) -> Response:
        body = await _read_body(request, AddDatasourceBody)
        datasource, job = await self.kb.add_datasource(
            body.location,
            name=body.name,
            title=body.title,
            options=body.options,
            folders=self._allowed_folders(request),
        )
        return AsciiJSONResponse({"datasource": render_datasource(datasource), "job": render_job(job)}, 202)

    async def remove(self, request: Request) -> Response:
        await self.kb.remove_datasource(request.path_params["name"])
        return Response(status_code=204)

    async def ingest(self, request: Request) -> Response:
        """Refreshes one datasource, or all."""
        body = await _read_body(request, IngestBody)
        if body.datasource is not None:
            names = [body.datasource]
        else:
            names = [datasource.name for datasource in await self.kb.list_datasources()]
        jobs = [await self.kb.refresh_datasource(name) for name in names]
        return AsciiJSONResponse({"jobs": list(map(render_job, jobs))}, 202)

    async def query(self, request: Request) -> Response:
        body = await _read_body(request, QueryBody)
        filters: dict[str, str] = {}
        if body.filters is not None:
            filters = body.filters.to_dict()
        results = await self.kb.search(body.query, body.datasource, filters, body.limit, body.mode)
        return AsciiJSONResponse({"query": body.query, "results": list(map(render_result, results))})

    async def show_document(self, request: Request) -> Response:
        offset = request.query_params.get("offset", "0")
        if not offset.isdecimal() or len(offset) > 12:
            raise Refused("offset is a number of characters.")
        excerpt = await self.kb.fetch_document(request.path_params["document_id"], int(offset))
        page = {
            **render_document(excerpt),
            "text": excerpt.text[:_PAGE_CHARS],
            "next_offset": excerpt.next_offset(_PAGE_CHARS),
        }
        return AsciiJSONResponse(page)

    async def list_jobs(self, _: Request) -> Response:
        return AsciiJSONResponse({"jobs": list(map(render_job, await self.kb.list_jobs()))})

    async def show_job(self, request: Request) -> Response:
        return AsciiJSONResponse(render_job(await self.kb.find_job(request.path_params["job_id"])))

    async def stop_job(self, request: Request) -> Response:
        return AsciiJSONResponse(render_job(await self.kb.stop_job(request.path_params["job_id"])))

    def _allowed_folders(self, request: Request) -> Sequence[Path] | None:
        """The folders that may be read for this request; None, without limits, for the user of this
        machine."""
        key = request.headers.get(LOCAL_KEY_HEADER, "")
        if hmac.compare_digest(key.encode(), self.local_key.encode()):
            return None
        return self.folders


def _handle_errors(handler: Handler) -> Handler:
    """A handler whose errors become problem responses."""

    async def handle(request: Request) -> Response:
        try:
            return await handler(request)
        except KnowledgeNotFound as error:
            raise NotFound(str(error)) from None
        except Refused:
            raise
        except WorkerFailed as error:
            return ProblemResponse.of(HTTPStatus.SERVICE_UNAVAILABLE, str(error))
        except CaipeError as error:  # a source that cannot be read, an address that is not fetched
            raise Refused(str(error)) from None

    return with_problem_responses(handle)


async def _read_body(request: Request, model: type[BodyT]) -> BodyT:
    body = await read_json_body(
        request, _MAX_BODY_BYTES, "Send JSON, with the content type application/json."
    )
    try:
        return model.model_validate_json(body)
    except ValidationError as error:
        raise Refused(f"The request is wrong. {describe_validation_error(error)}."[:1000]) from None
