"""The REST API for files that people upload, and for deleting one of them."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.knowledge_settings import KnowledgeSettings
from ai_platform_engineering.knowledge_bases.access import OPERATOR
from ai_platform_engineering.knowledge_bases.datasources import check_name
from ai_platform_engineering.knowledge_bases.rest_requests import RequestAccess, handle_errors
from ai_platform_engineering.knowledge_bases.result_json import render_datasource, render_job
from ai_platform_engineering.knowledge_bases.results import compute_document_id
from ai_platform_engineering.knowledge_bases.stores.job_store import IngestJob
from ai_platform_engineering.knowledge_bases.stores.knowledge_store import Datasource
from ai_platform_engineering.knowledge_bases.stores.upload_store import UploadLimits, UploadStore
from ai_platform_engineering.knowledge_bases.uploads import Uploads, describe_file_limit
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse

DEFAULT_DATASOURCE = "uploads"
_FOLDER = "uploads"
_TITLE = "Uploaded files"
_NOT_UPLOADED = "This document was not uploaded here: change it where {datasource} is read from."


def create_uploads(settings: KnowledgeSettings, home: Path, store: UploadStore | None) -> Uploads:
    limits = UploadLimits(settings.upload_bytes, settings.uploads_bytes, settings.uploads_files)
    return Uploads(home / _FOLDER, limits, store)


@dataclass(frozen=True, slots=True)
class UploadsApi:
    """Handlers and routes of uploaded files; they go through the same readers as those of a folder."""

    access: RequestAccess
    uploads: Uploads

    @classmethod
    def from_settings(cls, access: RequestAccess, settings: KnowledgeSettings, home: Path) -> "UploadsApi":
        return cls(access, create_uploads(settings, home, access.kb.uploads))

    def routes(self) -> list[Route]:
        return [
            Route("/v1/uploads", handle_errors(self.upload), methods=["POST"]),
            Route("/v1/documents/{document_id}", handle_errors(self.delete_document), methods=["DELETE"]),
        ]

    async def upload(self, request: Request) -> Response:
        """Takes a file as the body, and starts the job that reads it."""
        kb = self.access.kb
        kb.check_writable()
        file_name = request.query_params.get("name", "")
        name = request.query_params.get("datasource") or DEFAULT_DATASOURCE
        check_name(name)
        await self._check_datasource(request, name)
        length = request.headers.get("content-length", "")
        if length.isdecimal() and int(length[:18]) > self.uploads.limits.file_bytes:
            raise Refused(describe_file_limit(self.uploads.limits.file_bytes))
        received = await self.uploads.receive(file_name, request.stream())
        try:
            async with self.uploads.lock:
                datasource, job = await self._add(request, received, name, file_name)
        finally:
            await asyncio.to_thread(received.unlink, missing_ok=True)
        body = {
            "datasource": render_datasource(datasource),
            "job": render_job(job),
            "document_id": compute_document_id(name, file_name),
        }
        return AsciiJSONResponse(body, 202)

    async def _add(
        self, request: Request, received: Path, name: str, file_name: str
    ) -> tuple[Datasource, IngestJob]:
        """Puts a complete file into its datasource."""
        kb = self.access.kb
        datasource = await self._check_datasource(request, name)
        if datasource is None:
            # Files of a datasource that was removed since must not come back with it.
            await asyncio.to_thread(self.uploads.clear, name)
        if self.uploads.store is not None:
            await self.uploads.share_folder(self.uploads.store, name, _TITLE)
            content = await asyncio.to_thread(received.read_bytes)
            job = await self.uploads.store.put(name, _TITLE, file_name, content, self.uploads.limits)
            kb.take_job(job)
            return await kb.find_datasource(name, OPERATOR), job
        await asyncio.to_thread(self.uploads.put, received, name, file_name)
        if datasource is not None:
            return datasource, await kb.refresh_datasource(name, again=True)
        return await kb.add_datasource(
            str(self.uploads.folder_of(name)), name=name, title=_TITLE, options={"kind": "folder"}
        )

    async def _check_datasource(self, request: Request, name: str) -> Datasource | None:
        """The datasource of uploads with this name; None when there is none yet. Raises Refused and
        KnowledgeNotFound."""
        for datasource in await self.access.kb.list_datasources(OPERATOR):
            if datasource.name != name:
                continue
            await self.access.check_may_change(request, name)
            if not self.uploads.has(datasource):
                raise Refused(f"There is a datasource {name} with other documents. Use another name.")
            return datasource
        return None

    async def delete_document(self, request: Request) -> Response:
        """Deletes the uploaded file of a document; the job removes the document."""
        kb = self.access.kb
        kb.check_writable()
        document_id = request.path_params["document_id"]
        viewer = OPERATOR
        if not self.access.may_manage(request):
            viewer = await self.access.find_viewer(request)
        document = await kb.fetch_document(document_id, viewer=viewer)
        datasource = await kb.find_datasource(document.datasource, OPERATOR)
        refusal = Refused(_NOT_UPLOADED.format(datasource=datasource.name))
        if not self.uploads.has(datasource):
            raise refusal
        async with self.uploads.lock:
            job = await self._remove(datasource.name, document.document_id)
        if job is None:
            raise refusal
        return AsciiJSONResponse({"job": render_job(job)}, 202)

    async def _remove(self, name: str, document_id: str) -> IngestJob | None:
        """Removes the file of a document; returns the job that removes the document, None when there is no
        such file."""
        kb = self.access.kb
        if self.uploads.store is None:
            if not await asyncio.to_thread(self.uploads.remove, name, document_id):
                return None
            return await kb.refresh_datasource(name, again=True)
        await self.uploads.share_folder(self.uploads.store, name, _TITLE)
        job = await self.uploads.store.remove(name, document_id)
        if job is not None:
            kb.take_job(job)
        return job
