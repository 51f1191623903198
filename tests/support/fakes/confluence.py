"""A stand-in of Confluence's REST API: content search with CQL, and single pages; of Cloud or Data Center."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.fakes.api_stand_in import ApiStandIn

_SPACE = re.compile(r'space = "([^"]+)" and type = page(?: and lastmodified >= now\("-(\d+)m"\))?')
_IDS = re.compile(r"id in \(([\d,]+)\)")
_MAX_WITH_BODY = 25


@dataclass(slots=True)
class WikiPage:
    title: str
    body: str
    changed: datetime
    space: str = "OPS"
    status: str = "current"
    version: int = 1
    parent: str = ""
    labels: list[str] = field(default_factory=list)
    indexed: bool = True


class ConfluenceApi(ApiStandIn):
    """Pages by id. `now` is the server's clock; on Cloud the API is below `/wiki`."""

    def __init__(self, authorization: str, *, cloud: bool = True) -> None:
        super().__init__(authorization)
        self.cloud = cloud
        self.prefix = "/wiki" if cloud else "/confluence"
        self.pages: dict[str, WikiPage] = {}
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def write(self, page_id: str, title: str, body: str, **values: Any) -> None:
        """Adds a page, or a version of it."""
        version = 1
        if page_id in self.pages:
            version = self.pages[page_id].version + 1
            values.setdefault("parent", self.pages[page_id].parent)
        self.pages[page_id] = WikiPage(title, body, self.now, version=version, **values)

    def routes(self) -> Sequence[Route]:
        return [
            Route(f"{self.prefix}/rest/api/content/search", self._search),
            Route(f"{self.prefix}/rest/api/content/{{page_id}}", self._show),
        ]

    @property
    def read_ids(self) -> list[str]:
        """The ids of pages whose bodies were read since the last call."""
        ids: list[str] = []
        for request in self.take_requests():
            if match := _IDS.fullmatch(request.query.get("cql", "")):
                ids += match[1].split(",")
            elif "body.storage" in request.query.get("expand", ""):
                ids.append(request.path.rpartition("/")[2])
        return ids

    async def _search(self, request: Request) -> Response:
        query = dict(request.query_params)
        expand = query.get("expand", "").split(",")
        page_ids = self._match(query["cql"])
        if page_ids is None:
            return self._answer({"message": "The value does not exist for the field 'space'."}, 400)
        limit = int(query.get("limit", "25"))
        if "body.storage" in expand:
            limit = min(limit, _MAX_WITH_BODY)
        start = int(query.pop("cursor" if self.cloud else "start", "0"))
        links: dict[str, str] = {"base": f"https://wiki.example{self.prefix}", "context": self.prefix}
        if start + limit < len(page_ids):
            position = {"cursor" if self.cloud else "start": start + limit}
            links["next"] = f"/rest/api/content/search?{urlencode({**query, **position})}"
        results = [self._render(page_id, expand) for page_id in page_ids[start : start + limit]]
        return self._answer({"results": results, "size": len(results), "_links": links})

    def _match(self, cql: str) -> list[str] | None:
        indexed = {page_id: page for page_id, page in self.pages.items() if page.indexed}
        if match := _IDS.fullmatch(cql):
            return [page_id for page_id in match[1].split(",") if page_id in indexed]
        match = _SPACE.fullmatch(cql)
        assert match is not None, cql
        space, minutes = match.groups()
        if not self.cloud and space not in {page.space for page in self.pages.values()}:
            return None
        since = datetime.min.replace(tzinfo=UTC)
        if minutes is not None:
            # Confluence rounds to minutes.
            since = (self.now - timedelta(minutes=int(minutes))).replace(second=0, microsecond=0)
        return [
            page_id
            for page_id, page in indexed.items()
            if page.space == space and page.status == "current" and page.changed >= since
        ]

    async def _show(self, request: Request) -> Response:
        page_id = request.path_params["page_id"]
        page = self.pages.get(page_id)
        if page is None or page.status == "trashed":
            return self._answer({"statusCode": 404, "message": "No content found with id"}, 404)
        return self._answer(self._render(page_id, request.query_params.get("expand", "").split(",")))

    def _render(self, page_id: str, expand: Sequence[str]) -> dict[str, Any]:
        page = self.pages[page_id]
        content: dict[str, Any] = {
            "id": page_id,
            "type": "page",
            "status": page.status,
            "title": page.title,
            "_links": {"webui": f"/spaces/{page.space}/pages/{page_id}"},
        }
        if "version" in expand:
            content["version"] = {"number": page.version, "when": page.changed.isoformat()}
        if "ancestors" in expand:
            content["ancestors"] = self._render_ancestors(page)
        if "space" in expand:
            content["space"] = {"key": page.space}
        if "metadata.labels" in expand:
            content["metadata"] = {"labels": {"results": [{"name": label} for label in page.labels]}}
        if "body.storage" in expand:
            content["body"] = {"storage": {"value": page.body, "representation": "storage"}}
        return content

    def _render_ancestors(self, page: WikiPage) -> list[dict[str, str]]:
        ancestors: list[dict[str, str]] = []
        while page.parent:
            ancestors.insert(0, {"id": page.parent, "title": self.pages[page.parent].title})
            page = self.pages[page.parent]
        return ancestors

    def _answer(self, body: Any, status: int = 200) -> Response:
        headers = {"Date": self.now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        return JSONResponse(body, status, headers=headers)
