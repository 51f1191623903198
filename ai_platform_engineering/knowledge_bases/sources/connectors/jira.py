"""The connector of Jira, Cloud and Data Center: the issues of a project or of a JQL query, with their
comments. Attachments are not read."""

import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from ai_platform_engineering.core.errors import ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import (
    ApiAccess,
    ApiClient,
    ApiEndpoint,
    Query,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.api_errors import ApiError
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import (
    ApiSource,
    ListedDocument,
    ListingRules,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.atlassian import (
    count_minutes_since,
    create_endpoint,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.jira_text import render_text
from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_names,
    read_text,
    read_time,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.markdown_text import (
    demote_headings,
    render_facts,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import ChangedItem, RemovedItem, SourceItem

_PROJECT = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,254}")
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*-\d+")
_ORDER = re.compile(r"\s+order\s+by\s+[^\"']*$", re.IGNORECASE)
_MAX_JQL_CHARS = 1000
_FIELDS = "summary,description,status,resolution,issuetype,priority,labels,components,comment,updated"
_COMMENTS_PER_REQUEST = 100
_MAX_COMMENTS = 1000


class JiraSource(ApiSource):
    """Issues. Addresses are their keys; an issue's mark is the time of its last change, which a comment moves
    as well.

    Issues are asked for by how many minutes ago they changed, since Jira reads times in the time zone of the
    account and without seconds."""

    kind = "jira"
    batch_size = 25

    def __init__(
        self,
        jql: str,
        location: str,
        endpoint: ApiEndpoint,
        access: ApiAccess,
        rules: ListingRules | None = None,
        *,
        project: str = "",
        is_cloud: bool = True,
    ) -> None:
        super().__init__(location, endpoint, access, rules)
        self._jql = jql
        self._project = project
        self._is_cloud = is_cloud
        self._root = "/rest/api/3" if is_cloud else "/rest/api/2"
        self._search_path = f"{self._root}/search/jql" if is_cloud else f"{self._root}/search"

    @property
    def scope(self) -> str:
        return f"{super().scope} {self._jql}"

    async def check(self, api: ApiClient) -> None:
        try:
            await api.get_json(self._search_path, {"jql": self._jql, "maxResults": 1, "fields": "updated"})
        except ApiError as error:
            if error.status == 400:
                raise SourceUnavailable(
                    f"Jira refuses {self.location}. Check it, and that the account of "
                    f"{self._endpoint.credential_variables} may see it. It says: {error.detail}"
                ) from None
            raise

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        jql = self._jql
        if since is not None:
            minutes = count_minutes_since(since, api.server_time or self._access.clock())
            jql = f"({jql}) AND updated >= -{minutes}m"
        async for issue in self._search(api, f"{jql} ORDER BY key ASC", "updated", self.page_size):
            key = read_text(issue, "key")
            if _KEY.fullmatch(key):
                yield ListedDocument(key, read_text(read_mapping(issue, "fields"), "updated"), key)

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        issues = await self._find_issues(api, [document.key for document in documents])
        for document in documents:
            issue = issues.get(document.key) or await self._find_issue(api, document.key)
            if issue is None:
                yield RemovedItem(document.address)
                continue
            comments = await self._list_comments(api, issue)
            mark = read_text(read_mapping(issue, "fields"), "updated")
            yield ChangedItem(self._create_document(issue, comments), mark)

    async def find_removed(self, api: ApiClient, addresses: Collection[str]) -> Collection[str]:
        """Of a project, an issue is asked for before it is removed: the index of a search may be behind. Of a
        JQL query, only the search knows what belongs to it."""
        if not self._project:
            return addresses
        removed: list[str] = []
        for address in sorted(addresses):
            if await self._find_issue(api, address) is None:
                removed.append(address)
        return removed

    # --- requests

    async def _search(
        self, api: ApiClient, jql: str, fields: str, count: int
    ) -> AsyncIterator[Mapping[str, Any]]:
        query: Query = {"jql": jql, "fields": fields, "maxResults": count}

        def find_next(page: Any, _: Mapping[str, str]) -> tuple[str, Query] | None:
            if not read_list(page, "issues"):
                return None
            if self._is_cloud:
                token = read_text(page, "nextPageToken")
                return (self._search_path, {**query, "nextPageToken": token}) if token else None
            position = int(read_text(page, "startAt") or 0) + len(read_list(page, "issues"))
            if position >= int(read_text(page, "total") or 0):
                return None
            return self._search_path, {**query, "startAt": position}

        async for page in api.pages(self._search_path, query, find_next):
            for issue in read_list(page, "issues"):
                yield issue

    async def _find_issues(self, api: ApiClient, keys: Sequence[str]) -> Mapping[str, Mapping[str, Any]]:
        """The issues of these keys at once. Jira refuses the whole query if one was deleted meanwhile; then
        each is asked for alone."""
        jql = f"key in ({','.join(keys)})"
        try:
            issues = [issue async for issue in self._search(api, jql, _FIELDS, len(keys))]
        except ApiError as error:
            if error.status != 400:
                raise
            return {}
        return {read_text(issue, "key"): issue for issue in issues}

    async def _find_issue(self, api: ApiClient, key: str) -> Mapping[str, Any] | None:
        """The issue; None for one that was deleted, is hidden from us, or has another key since it was
        moved."""
        try:
            issue: Mapping[str, Any] = await api.get_json(f"{self._root}/issue/{key}", {"fields": _FIELDS})
        except ApiError as error:
            if error.is_missing or error.status == 403:
                return None
            raise
        if read_text(issue, "key") != key:
            return None
        return issue

    async def _list_comments(self, api: ApiClient, issue: Mapping[str, Any]) -> list[Mapping[str, Any]]:
        """All comments; a search sends some of them."""
        embedded = read_mapping(read_mapping(issue, "fields"), "comment")
        comments = read_list(embedded, "comments")
        total = int(read_text(embedded, "total") or 0)
        if len(comments) >= total:
            return comments
        comments = []  # which ones a search sends differs
        path = f"{self._root}/issue/{read_text(issue, 'key')}/comment"
        while len(comments) < min(total, _MAX_COMMENTS):
            query: Query = {
                "startAt": len(comments),
                "maxResults": _COMMENTS_PER_REQUEST,
                "orderBy": "created",
            }
            more = read_list(await api.get_json(path, query), "comments")
            if not more:
                break
            comments += more
        return comments

    # --- the document

    def _create_document(
        self, issue: Mapping[str, Any], comments: Sequence[Mapping[str, Any]]
    ) -> RawDocument:
        fields = read_mapping(issue, "fields")
        key = read_text(issue, "key")
        title = f"{key} {read_text(fields, 'summary')}"
        return RawDocument(
            key,
            _render_issue(title, fields, comments).encode(errors="replace"),
            "text/markdown",
            link=f"{self._endpoint.base_url.rstrip('/')}/browse/{key}",
            changed=read_time(fields, "updated"),
            title=title,
        )


@dataclass(frozen=True, slots=True)
class JiraConnector:
    """Creates the sources of `jira:PROJECT` and `jira:JQL`."""

    settings: SourceSettings
    access: ApiAccess
    rules: ListingRules
    kind = "jira"
    example = "jira:PROJECT"
    options = ()

    def create(self, address: str, options: Mapping[str, str]) -> JiraSource:
        project = ""
        jql = _ORDER.sub("", address)
        if _PROJECT.fullmatch(address):
            project = address.upper()
            jql = f'project = "{project}"'
        elif len(address) > _MAX_JQL_CHARS or not re.search(r"[=~<>]|\bin\b|\bis\b", jql, re.IGNORECASE):
            raise Refused(
                "Give the key of a project or a JQL query, for example jira:OPS or "
                "jira:project = OPS AND labels = runbook."
            )
        location = f"jira:{project or jql}"
        projects = self.settings.jira_projects
        if projects and project and project.lower() not in map(str.lower, projects):
            raise Refused(f"JIRA_PROJECTS_FILTER allows only: {', '.join(projects)}.")
        if projects and not project:
            names = ", ".join(f'"{name}"' for name in projects if _PROJECT.fullmatch(name))
            jql = f"project in ({names}) AND ({jql})"
        is_cloud = self.settings.jira_token is None
        endpoint = self._create_endpoint()
        return JiraSource(
            jql, location, endpoint, self.access, self.rules, project=project, is_cloud=is_cloud
        )

    def _create_endpoint(self) -> ApiEndpoint:
        settings = self.settings
        if settings.atlassian_url is None:
            raise ConfigurationError(
                "Jira is not configured. Set ATLASSIAN_API_URL with ATLASSIAN_EMAIL and ATLASSIAN_TOKEN "
                "(Cloud), or with JIRA_PERSONAL_TOKEN (Data Center)."
            )
        return create_endpoint(
            "Jira",
            settings,
            base_url=settings.atlassian_url,
            address_variable="ATLASSIAN_API_URL",
            personal_token=settings.jira_token,
            personal_token_variable="JIRA_PERSONAL_TOKEN",
        )


def _render_issue(title: str, fields: Mapping[str, Any], comments: Sequence[Mapping[str, Any]]) -> str:
    facts = [
        ("Type", read_text(read_mapping(fields, "issuetype"), "name")),
        ("Status", read_text(read_mapping(fields, "status"), "name")),
        ("Resolution", read_text(read_mapping(fields, "resolution"), "name")),
        ("Priority", read_text(read_mapping(fields, "priority"), "name")),
        ("Components", ", ".join(read_text(entry, "name") for entry in read_list(fields, "components"))),
        ("Labels", ", ".join(read_names(fields, "labels"))),
    ]
    parts = [f"# {' '.join(title.split())}", render_facts(facts)]
    description = render_text(fields.get("description"))
    if description:
        parts += ["## Description", demote_headings(description, 2)]
    if comments:
        parts.append("## Comments")
    for comment in comments:
        author = read_text(read_mapping(comment, "author"), "displayName") or "Somebody"
        written = read_text(comment, "created")[:10]
        parts += [f"### {author}, {written}", demote_headings(render_text(comment.get("body")), 3)]
    missing = int(read_text(read_mapping(fields, "comment"), "total") or 0) - len(comments)
    if missing > 0:
        parts.append(f"[{missing} more comments are not read.]")
    return "\n\n".join(filter(None, parts))
