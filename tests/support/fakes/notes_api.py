"""A small API of notes, and a connector that reads it: what connectors have in common is tried with them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import (
    ApiAccess,
    ApiClient,
    ApiEndpoint,
    Query,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import (
    ApiSource,
    ListedDocument,
    ListingRules,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import ChangedItem, SourceItem
from tests.support.fakes.api_stand_in import ApiStandIn

PAGE_SIZE = 2
SECRET = "Bearer secret-of-the-notes"


class NotesApi(ApiStandIn):
    """Notes by id, each with its text and the time of its change."""

    def __init__(self) -> None:
        super().__init__(SECRET)
        self.notes: dict[str, tuple[str, datetime]] = {}
        self.now = datetime(2026, 3, 1, tzinfo=UTC)
        self.redirect_to = ""

    def write(self, **texts: str) -> None:
        for name, text in texts.items():
            self.notes[name] = (text, self.now)

    def routes(self) -> Sequence[Route]:
        return [
            Route("/v1/notes", self._list),
            Route("/v1/notes/{name}", self._show),
            Route("/v1/moved", self._redirect),
        ]

    async def _list(self, request: Request) -> Response:
        since = datetime.fromisoformat(request.query_params.get("since", "2000-01-01T00:00:00+00:00"))
        start = int(request.query_params.get("start", "0"))
        names = sorted(name for name, (_, changed) in self.notes.items() if changed >= since)
        page = names[start : start + PAGE_SIZE]
        following = None
        if start + PAGE_SIZE < len(names):
            following = start + PAGE_SIZE
        notes = [{"name": name, "changed": self.notes[name][1].isoformat()} for name in page]
        return self._answer({"notes": notes, "next": following})

    async def _show(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self.notes:
            return JSONResponse({"message": "No such note"}, 404)
        return self._answer({"text": self.notes[name][0]})

    async def _redirect(self, request: Request) -> Response:
        return RedirectResponse(self.redirect_to)

    def _answer(self, body: Any) -> Response:
        return JSONResponse(body, headers={"Date": self.now.strftime("%a, %d %b %Y %H:%M:%S GMT")})


class NotesSource(ApiSource):
    kind = "notes"
    batch_size = 2
    page_size = PAGE_SIZE

    async def check(self, api: ApiClient) -> None:
        await api.get_json("/notes", {"start": 0})

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        query: dict[str, str | int] = {"start": 0}
        if since is not None:
            query["since"] = (since - timedelta(minutes=1)).isoformat()

        def find_next(page: Any, headers: Mapping[str, str]) -> tuple[str, Query] | None:
            if page["next"] is None:
                return None
            return "/notes", {**query, "start": page["next"]}

        async for page in api.pages("/notes", query, find_next):
            for note in page["notes"]:
                yield ListedDocument(note["name"], note["changed"])

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        for document in documents:
            note = await api.get_json(f"/notes/{document.address}")
            raw = RawDocument(document.address, note["text"].encode(), "text/markdown")
            yield ChangedItem(raw, document.mark)


class NotesConnector:
    kind = "notes"
    example = "notes:BOOK"
    options = ("colour",)

    def __init__(self, url: str, access: ApiAccess, rules: ListingRules | None = None) -> None:
        headers = {"Authorization": SECRET}
        self._endpoint = ApiEndpoint("Notes", f"{url}/v1", "NOTES_URL", "NOTES_TOKEN", headers, (SECRET,))
        self._access = access
        self._rules = rules

    def create(self, address: str, options: Mapping[str, str]) -> NotesSource:
        if not address:
            raise Refused("Name the book: notes:BOOK.")
        return NotesSource(f"notes:{address}", self._endpoint, self._access, self._rules)
