"""A stand-in of Jira's REST API: search with JQL, issues and their comments; of Cloud (v3) or Data Center
(v2)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.fakes.api_stand_in import ApiStandIn

_CHANGES = re.compile(r"\((?P<jql>.*)\) AND updated >= -(?P<minutes>\d+)m")
_ORDER = " ORDER BY key ASC"
_PROJECT = re.compile(r'project = "?(\w+)"?(?: AND labels = (\w+))?')
_KEYS = re.compile(r"key in \(([\w,-]+)\)")
_MAX_RESULTS = 100
_EMBEDDED_COMMENTS = 20  # that a search of Cloud sends


@dataclass(slots=True)
class JiraIssue:
    summary: str
    description: Any
    updated: datetime
    status: str = "Open"
    labels: list[str] = field(default_factory=list)
    comments: list[tuple[str, Any]] = field(default_factory=list)
    indexed: bool = True


class JiraApi(ApiStandIn):
    """Issues by key. `now` is the server's clock. `moved`: new keys by old ones."""

    def __init__(self, authorization: str, *, cloud: bool = True) -> None:
        super().__init__(authorization)
        self.cloud = cloud
        self.issues: dict[str, JiraIssue] = {}
        self.moved: dict[str, str] = {}
        self.deleted_once_listed: set[str] = set()
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)

    def write(self, key: str, summary: str, description: Any = "", **values: Any) -> None:
        self.issues[key] = JiraIssue(summary, description, self.now, **values)

    def comment(self, key: str, text: Any) -> None:
        self.issues[key].comments.append(("Ann", text))
        self.issues[key].updated = self.now

    def routes(self) -> Sequence[Route]:
        root = "/rest/api/3" if self.cloud else "/rest/api/2"
        return [
            Route(f"{root}/search/jql" if self.cloud else f"{root}/search", self._search),
            Route(f"{root}/issue/{{key}}", self._show),
            Route(f"{root}/issue/{{key}}/comment", self._list_comments),
        ]

    @property
    def read_keys(self) -> list[str]:
        """The keys of issues that were read as a whole since the last call."""
        keys: list[str] = []
        for request in self.take_requests():
            if "description" not in request.query.get("fields", ""):
                continue
            if match := _KEYS.fullmatch(request.query.get("jql", "")):
                keys += match[1].split(",")
            else:
                keys.append(request.path.rpartition("/")[2])
        return keys

    async def _search(self, request: Request) -> Response:
        query = request.query_params
        keys = self._match(query["jql"])
        if isinstance(keys, str):
            return self._answer({"errorMessages": [keys], "errors": {}}, 400)
        count = min(int(query.get("maxResults", "50")), _MAX_RESULTS)
        position = query.get("nextPageToken" if self.cloud else "startAt", "0").removeprefix("token-")
        start = int(position)
        fields = query.get("fields", "").split(",")
        issues = [self._render(key, fields) for key in keys[start : start + count]]
        if query["jql"].endswith(_ORDER):
            for key in self.deleted_once_listed:
                self.issues.pop(key, None)
        page: dict[str, Any] = {"issues": issues}
        if not self.cloud:
            page |= {"startAt": start, "maxResults": count, "total": len(keys)}
        elif start + count < len(keys):
            page |= {"nextPageToken": f"token-{start + count}", "isLast": False}
        else:
            page["isLast"] = True
        return self._answer(page)

    def _match(self, text: str) -> list[str] | str:
        jql = text.removesuffix(_ORDER)
        since = datetime.min.replace(tzinfo=UTC)
        if changes := _CHANGES.fullmatch(jql):
            jql = changes["jql"]
            # Jira knows minutes alone.
            since = self.now - timedelta(minutes=int(changes["minutes"]))
            since = since.replace(second=0, microsecond=0)
        indexed = sorted(key for key, issue in self.issues.items() if issue.indexed)
        if by_key := _KEYS.fullmatch(jql):
            keys = by_key[1].split(",")
            for key in keys:
                if key not in self.issues:
                    return f"An issue with key '{key}' does not exist for field 'key'."
            return [key for key in keys if key in indexed]
        project = _PROJECT.fullmatch(jql)
        if project is None:
            return "Error in the JQL Query: The character is a reserved JQL character."
        if not any(key.startswith(f"{project[1]}-") for key in self.issues):
            return f"The value '{project[1]}' does not exist for the field 'project'."
        return [
            key
            for key in indexed
            if key.startswith(f"{project[1]}-")
            and self.issues[key].updated >= since
            and (project[2] is None or project[2] in self.issues[key].labels)
        ]

    async def _show(self, request: Request) -> Response:
        key = request.path_params["key"]
        key = self.moved.get(key, key)
        if key not in self.issues:
            return self._answer(
                {"errorMessages": ["Issue does not exist or you do not have permission"]}, 404
            )
        return self._answer(self._render(key, request.query_params.get("fields", "").split(",")))

    async def _list_comments(self, request: Request) -> Response:
        start = int(request.query_params.get("startAt", "0"))
        count = int(request.query_params.get("maxResults", "50"))
        comments = self.issues[request.path_params["key"]].comments
        return self._answer(
            {
                "comments": [self._render_comment(comment) for comment in comments[start : start + count]],
                "total": len(comments),
                "startAt": start,
            }
        )

    def _render(self, key: str, wanted: Sequence[str]) -> dict[str, Any]:
        issue = self.issues[key]
        embedded = issue.comments[:_EMBEDDED_COMMENTS] if self.cloud else issue.comments
        fields = {
            "summary": issue.summary,
            "description": issue.description or None,
            "status": {"name": issue.status},
            "resolution": None,
            "issuetype": {"name": "Bug"},
            "labels": issue.labels,
            "comment": {
                "comments": [self._render_comment(comment) for comment in embedded],
                "total": len(issue.comments),
            },
            "updated": issue.updated.strftime("%Y-%m-%dT%H:%M:%S.000+0000"),
        }
        shown = {name: value for name, value in fields.items() if name in wanted}
        return {"id": "1", "key": key, "fields": shown}

    def _render_comment(self, comment: tuple[str, Any]) -> dict[str, Any]:
        author, body = comment
        return {"author": {"displayName": author}, "created": "2026-03-01T10:00:00.000+0000", "body": body}

    def _answer(self, body: Any, status: int = 200) -> Response:
        headers = {"Date": self.now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        return JSONResponse(body, status, headers=headers)
