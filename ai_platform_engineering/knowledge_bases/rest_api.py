"""The REST API of the knowledge base: datasources, ingest jobs, queries and documents."""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from pydantic import Field
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.knowledge_bases.access import OPERATOR, VisibleTo, parse_visible_to
from ai_platform_engineering.knowledge_bases.datasources import PUSH, read_pushed_name
from ai_platform_engineering.knowledge_bases.indexing.refresh_schedule import parse_interval
from ai_platform_engineering.knowledge_bases.knowledge_base import KnowledgeBase
from ai_platform_engineering.knowledge_bases.owner_file import OwnerProcess
from ai_platform_engineering.knowledge_bases.rest_push import PushApi
from ai_platform_engineering.knowledge_bases.rest_requests import (
    RequestAccess,
    RequestBody,
    handle_errors,
    read_body,
)
from ai_platform_engineering.knowledge_bases.rest_uploads import UploadsApi, create_uploads
from ai_platform_engineering.knowledge_bases.result_json import (
    render_datasource,
    render_document,
    render_explanation,
    render_job,
    render_result,
)
from ai_platform_engineering.knowledge_bases.results import KnowledgeNotFound
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource, SearchMode
from ai_platform_engineering.knowledge_bases.tool_schemas import MAX_RESULTS, SearchFilters
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

_PAGE_CHARS = 100_000  # of a document


class AddDatasourceBody(RequestBody):
    location: str = Field(min_length=1, max_length=4096)
    name: str | None = None
    title: str = Field("", max_length=200)
    options: dict[str, str] = Field(default_factory=dict)
    visible_to: list[str] | None = None
    every: str | None = None


class ChangeDatasourceBody(RequestBody):
    """What changes; a field that is left out stays."""

    visible_to: list[str] | None = None  # null is everybody
    every: str | None = None  # null is never


class IngestBody(RequestBody):
    datasource: str | None = None


class QueryBody(RequestBody):
    query: str = Field(min_length=1, max_length=2000)
    datasource: str | None = None
    filters: SearchFilters | None = None
    limit: int = Field(10, ge=1, le=MAX_RESULTS)
    mode: SearchMode = "hybrid"


@dataclass(frozen=True, slots=True)
class KnowledgeApi:
    """Handlers and routes of the REST API.

    Files of this machine may be ingested on request below the folders of the settings. Whoever sends
    `local_key` has read it from a file that only this user can read, and may have any file ingested that this
    user may read.
    """

    kb: KnowledgeBase
    settings: KnowledgeSettings = field(default_factory=KnowledgeSettings)
    local_key: str = field(default_factory=lambda: secrets.token_urlsafe(32), repr=False)
    home: Path | None = None  # where uploaded files are kept; without it none are taken

    @classmethod
    def from_settings(
        cls, kb: KnowledgeBase, settings: KnowledgeSettings, home: Path | None = None
    ) -> "KnowledgeApi":
        return cls(kb, settings, home=home)

    @property
    def access(self) -> RequestAccess:
        return RequestAccess(self.kb, self.local_key)

    async def open(self, server: ServerSettings, home: Path) -> None:
        """Opens the knowledge base and, if this process owns it, writes the owner file for commands on this
        machine."""
        await self.kb.open(scheduled=True)
        if self.kb.is_writable:
            OwnerProcess(server.model_copy(update={"external_url": None}).url, self.local_key).write(home)

    def routes(self) -> list[Route]:
        return [
            Route("/v1/datasources", handle_errors(self.list_datasources)),
            Route("/v1/datasources", handle_errors(self.add), methods=["POST"]),
            Route("/v1/datasources/{name}", handle_errors(self.show_datasource)),
            Route("/v1/datasources/{name}", handle_errors(self.change), methods=["PATCH"]),
            Route("/v1/datasources/{name}", handle_errors(self.remove), methods=["DELETE"]),
            Route("/v1/ingest", handle_errors(self.ingest), methods=["POST"]),
            Route("/v1/query", handle_errors(self.query), methods=["POST"]),
            Route("/v1/documents/{document_id}", handle_errors(self.show_document)),
            Route("/v1/jobs", handle_errors(self.list_jobs)),
            Route("/v1/jobs/{job_id}", handle_errors(self.show_job)),
            Route("/v1/jobs/{job_id}/stop", handle_errors(self.stop_job), methods=["POST"]),
            *PushApi.from_settings(self.access, self.settings).routes(),
            *self._upload_routes(),
        ]

    def _upload_routes(self) -> list[Route]:
        if self.home is None:
            return []
        return UploadsApi.from_settings(self.access, self.settings, self.home).routes()

    async def list_datasources(self, request: Request) -> Response:
        datasources = await self.kb.list_datasources(await self.access.find_viewer(request))
        render = self._choose_renderer(request)
        return AsciiJSONResponse({"datasources": list(map(render, datasources))})

    async def show_datasource(self, request: Request) -> Response:
        viewer = await self.access.find_viewer(request)
        datasource = await self.kb.find_datasource(request.path_params["name"], viewer)
        return AsciiJSONResponse(self._choose_renderer(request)(datasource))

    async def add(self, request: Request) -> Response:
        body = await read_body(request, AddDatasourceBody)
        visible_to = parse_visible_to(body.visible_to)
        datasource, job = await self._add(request, body, visible_to)
        if visible_to is not None and datasource.visible_to != visible_to:  # it was there before
            self.access.check_may_manage(request)
            await self.kb.set_visible_to(datasource.name, visible_to)
        rendered_job = None
        if job is not None:
            rendered_job = render_job(job)
        return AsciiJSONResponse({"datasource": render_datasource(datasource), "job": rendered_job}, 202)

    async def _add(
        self, request: Request, body: AddDatasourceBody, visible_to: VisibleTo
    ) -> tuple[Datasource, IngestJob | None]:
        viewer = OPERATOR
        if not self.access.may_manage(request):
            viewer = await self.access.find_viewer(request)
        pushed_name = read_pushed_name(body.location, body.name)
        if pushed_name is not None:
            if body.every is not None or body.options:
                raise Refused("Pushed documents are not refreshed: omit `options` and `every`.")
            datasource = await self.kb.add_pushed_datasource(
                pushed_name, title=body.title, visible_to=visible_to, viewer=viewer
            )
            return datasource, None
        every = None
        if body.every is not None:
            every = parse_interval(body.every)
        return await self.kb.add_datasource(
            body.location,
            name=body.name,
            title=body.title,
            options=body.options,
            folders=self._allowed_folders(request),
            visible_to=visible_to,
            every=every,
            viewer=viewer,
        )

    async def change(self, request: Request) -> Response:
        """Changes who may see a datasource, or how often it is refreshed."""
        name = request.path_params["name"]
        body = await read_body(request, ChangeDatasourceBody)
        await self.access.check_may_change(request, name)
        if "visible_to" in body.model_fields_set:
            self.access.check_may_manage(request)
            await self.kb.set_visible_to(name, parse_visible_to(body.visible_to))
        if "every" in body.model_fields_set:
            every = None
            if body.every is not None:
                every = parse_interval(body.every)
            await self.kb.set_interval(name, every)
        datasource = await self.kb.find_datasource(name, OPERATOR)
        return AsciiJSONResponse(self._choose_renderer(request)(datasource))

    async def remove(self, request: Request) -> Response:
        name = request.path_params["name"]
        await self.access.check_may_change(request, name)
        datasource = await self.kb.find_datasource(name, OPERATOR)
        await self.kb.remove_datasource(name)
        if self.home is not None:
            uploads = create_uploads(self.settings, self.home, self.kb.uploads)
            if uploads.has(datasource):
                await asyncio.to_thread(uploads.clear, name)
        return Response(status_code=204)

    async def ingest(self, request: Request) -> Response:
        """Refreshes one datasource, or all that have something to be refreshed from."""
        body = await read_body(request, IngestBody)
        if body.datasource is not None:
            await self.access.check_may_change(request, body.datasource)
            names = [body.datasource]
        else:
            datasources = await self.kb.list_datasources(await self.access.find_viewer(request))
            names = [datasource.name for datasource in datasources if datasource.kind != PUSH]
        jobs = [await self.kb.refresh_datasource(name) for name in names]
        return AsciiJSONResponse({"jobs": list(map(render_job, jobs))}, 202)

    async def query(self, request: Request) -> Response:
        body = await read_body(request, QueryBody)
        filters: dict[str, str] = {}
        if body.filters is not None:
            filters = body.filters.to_dict()
        viewer = await self.access.find_viewer(request)
        results = await self.kb.search(
            body.query, body.datasource, filters, body.limit, body.mode, viewer, explain=True
        )
        rendered: list[dict[str, Any]] = []
        for result in results:
            rendered.append({**render_result(result), "why": render_explanation(result.explanation)})
        return AsciiJSONResponse({"query": body.query, "results": rendered})

    async def show_document(self, request: Request) -> Response:
        offset = request.query_params.get("offset", "0")
        if not offset.isdecimal() or len(offset) > 12:
            raise Refused("offset is a number of characters.")
        viewer = await self.access.find_viewer(request)
        excerpt = await self.kb.fetch_document(request.path_params["document_id"], int(offset), viewer)
        page = {
            **render_document(excerpt),
            "text": excerpt.text[:_PAGE_CHARS],
            "next_offset": excerpt.next_offset(_PAGE_CHARS),
        }
        return AsciiJSONResponse(page)

    async def list_jobs(self, request: Request) -> Response:
        hidden = await self._find_hidden_datasources(request)
        jobs = [job for job in await self.kb.list_jobs() if job.datasource not in hidden]
        return AsciiJSONResponse({"jobs": list(map(render_job, jobs))})

    async def show_job(self, request: Request) -> Response:
        return AsciiJSONResponse(render_job(await self._find_job(request)))

    async def stop_job(self, request: Request) -> Response:
        job = await self._find_job(request)
        return AsciiJSONResponse(render_job(await self.kb.stop_job(job.job_id)))

    async def _find_job(self, request: Request) -> IngestJob:
        job_id = request.path_params["job_id"]
        job = await self.kb.find_job(job_id)
        if job.datasource in await self._find_hidden_datasources(request):
            raise KnowledgeNotFound(f"There is no job {job_id}.")
        return job

    async def _find_hidden_datasources(self, request: Request) -> set[str]:
        """The names of the datasources that the sender may not see: their jobs name documents."""
        viewer = await self.access.find_viewer(request)
        if self.access.may_manage(request):
            return set()
        datasources = await self.kb.list_datasources(OPERATOR)
        return {datasource.name for datasource in datasources if not viewer.may_see(datasource.visible_to)}

    def _choose_renderer(self, request: Request) -> Callable[[Datasource], dict[str, Any]]:
        return partial(render_datasource, with_names=self.access.may_manage(request))

    def _allowed_folders(self, request: Request) -> Sequence[Path] | None:
        """The folders that may be read for this request; None, without limits, for the user of this
        machine."""
        if self.access.is_local(request):
            return None
        return [Path(folder) for folder in self.settings.ingest_folders]
