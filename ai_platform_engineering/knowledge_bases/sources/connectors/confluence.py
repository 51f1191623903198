"""The connector of Confluence, Cloud and Data Center: the pages of a space. Attachments and comments are not
read."""

import hashlib
import html
import re
from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from ai_platform_engineering.core.errors import ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import CONFLUENCE_STORAGE
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
from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_text,
    read_time,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import ChangedItem, RemovedItem, SourceItem

_SEARCH = "/rest/api/content/search"
_LISTED = "version,ancestors"
_WHOLE = "body.storage,version,ancestors,metadata.labels,space"
_PREFIX = "pages/"
_SPACE = re.compile(r"~?[\w.-]{1,255}")


class ConfluenceSource(ApiSource):
    """The current pages of a space. Addresses are `pages/` and the id of the page; a page's mark is its
    version and what it stands below, since a move makes no version.

    Listings come from Confluence's search index, which may be behind: a stored page that they lack is asked
    for before it is removed."""

    kind = "confluence"
    page_size = 100
    batch_size = 25  # pages with their bodies, as many as Confluence Cloud sends at once

    def __init__(
        self, space: str, endpoint: ApiEndpoint, access: ApiAccess, rules: ListingRules | None = None
    ) -> None:
        super().__init__(f"confluence:{space}", endpoint, access, rules)
        self._space = space
        self._pages_of_space = f'space = "{space}" and type = page'

    async def check(self, api: ApiClient) -> None:
        try:
            page = await api.get_json(_SEARCH, {"cql": self._pages_of_space, "limit": 1})
        except ApiError as error:
            if error.status == 400:  # Data Center says that of a space that does not exist
                raise self._create_missing_error() from None
            raise
        if not read_list(page, "results"):
            raise self._create_missing_error()

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        cql = self._pages_of_space
        if since is not None:
            minutes = count_minutes_since(since, api.server_time or self._access.clock())
            cql += f' and lastmodified >= now("-{minutes}m")'
        query: Query = {"cql": cql, "limit": self.page_size, "expand": _LISTED}
        async for page in api.pages(_SEARCH, query, _find_next_page):
            for content in read_list(page, "results"):
                if _is_current(content):
                    page_id = read_text(content, "id")
                    yield ListedDocument(f"{_PREFIX}{page_id}", _compute_mark(content), page_id)

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        page_ids = ",".join(document.key for document in documents)
        query: Query = {"cql": f"id in ({page_ids})", "limit": len(documents), "expand": _WHOLE}
        answer = await api.get_json(_SEARCH, query)
        contents = {read_text(content, "id"): content for content in read_list(answer, "results")}
        for document in documents:
            content = contents.get(document.key) or await self._find_page(api, document.key)
            if content is None:
                yield RemovedItem(document.address)
            else:
                yield ChangedItem(self._create_document(document, content, answer), _compute_mark(content))

    async def find_removed(self, api: ApiClient, addresses: Collection[str]) -> Collection[str]:
        removed: list[str] = []
        for address in sorted(addresses):
            if await self._find_page(api, address.removeprefix(_PREFIX)) is None:
                removed.append(address)
        return removed

    async def _find_page(self, api: ApiClient, page_id: str) -> Mapping[str, Any] | None:
        """The page as it is now; None for one that is deleted, archived, in another space, or hidden from
        us."""
        try:
            content = await api.get_json(f"/rest/api/content/{page_id}", {"expand": _WHOLE})
        except ApiError as error:
            if error.is_missing or error.status == 403:
                return None
            raise
        space = read_text(read_mapping(content, "space"), "key")
        if not _is_current(content) or space.lower() != self._space.lower():
            return None
        page: Mapping[str, Any] = content
        return page

    def _create_document(
        self, document: ListedDocument, content: Mapping[str, Any], answer: Mapping[str, Any]
    ) -> RawDocument:
        title = read_text(content, "title")
        storage = read_mapping(read_mapping(content, "body"), "storage")
        body = read_text(storage, "value") or f"<p>{html.escape(title)}</p>"
        labels = _read_labels(content)
        if labels:
            body += f"<p>Labels: {html.escape(', '.join(labels))}</p>"
        return RawDocument(
            document.address,
            body.encode(errors="replace"),
            CONFLUENCE_STORAGE,
            link=self._build_link(content, answer),
            changed=read_time(read_mapping(content, "version"), "when"),
            title=title,
            headings=(*_read_ancestors(content), title),
        )

    def _build_link(self, content: Mapping[str, Any], answer: Mapping[str, Any]) -> str | None:
        path = read_text(read_mapping(content, "_links"), "webui")
        if not path.startswith("/"):
            return None
        base = read_text(read_mapping(answer, "_links"), "base")
        if not base.startswith(("http://", "https://")):
            base = self._endpoint.base_url
        return f"{base.rstrip('/')}{path}"

    def _create_missing_error(self) -> SourceUnavailable:
        return SourceUnavailable(
            f"Confluence shows no page of the space {self._space}. Check its key, and that the account of "
            f"{self._endpoint.credential_variables} may see it."
        )


@dataclass(frozen=True, slots=True)
class ConfluenceConnector:
    """Creates the sources of `confluence:SPACE`."""

    settings: SourceSettings
    access: ApiAccess
    rules: ListingRules
    kind = "confluence"
    example = "confluence:SPACE"
    options = ()

    def create(self, address: str, options: Mapping[str, str]) -> ConfluenceSource:
        if not _SPACE.fullmatch(address):
            raise Refused("Give the key of a space, for example confluence:OPS.")
        spaces = self.settings.confluence_spaces
        if spaces and address.lower() not in map(str.lower, spaces):
            raise Refused(f"CONFLUENCE_SPACES_FILTER allows only: {', '.join(spaces)}.")
        return ConfluenceSource(address, self._create_endpoint(), self.access, self.rules)

    def _create_endpoint(self) -> ApiEndpoint:
        settings = self.settings
        if settings.confluence_url is not None:
            base_url, variable = settings.confluence_url, "CONFLUENCE_API_URL"
        elif settings.atlassian_url is not None:
            base_url, variable = f"{settings.atlassian_url.rstrip('/')}/wiki", "ATLASSIAN_API_URL"
        else:
            raise ConfigurationError(
                "Confluence is not configured. Set ATLASSIAN_API_URL, ATLASSIAN_EMAIL and ATLASSIAN_TOKEN "
                "(Cloud), or CONFLUENCE_API_URL and CONFLUENCE_PERSONAL_TOKEN (Data Center)."
            )
        return create_endpoint(
            "Confluence",
            settings,
            base_url=base_url,
            address_variable=variable,
            personal_token=settings.confluence_token,
            personal_token_variable="CONFLUENCE_PERSONAL_TOKEN",
        )


def _find_next_page(page: Any, _: Mapping[str, str]) -> tuple[str, Query] | None:
    """Cloud pages by a cursor, Data Center by a number; both name the next page."""
    following = read_text(read_mapping(page, "_links"), "next")
    if not following or not read_list(page, "results"):
        return None
    # Only its parameters are taken: the path is written with and without that of the base URL.
    return _SEARCH, dict(parse_qsl(urlsplit(following).query))


def _is_current(content: Mapping[str, Any]) -> bool:
    return read_text(content, "id").isalnum() and content.get("status", "current") == "current"


def _compute_mark(content: Mapping[str, Any]) -> str:
    version = read_mapping(content, "version").get("number", "")
    path = hashlib.sha256("\0".join(_read_ancestors(content)).encode(errors="replace")).hexdigest()
    return f"{version}-{path[:12]}"


def _read_ancestors(content: Mapping[str, Any]) -> tuple[str, ...]:
    titles = (read_text(ancestor, "title") for ancestor in read_list(content, "ancestors"))
    return tuple(filter(None, titles))


def _read_labels(content: Mapping[str, Any]) -> list[str]:
    labels = read_list(read_mapping(read_mapping(content, "metadata"), "labels"), "results")
    return [name for label in labels if (name := read_text(label, "name"))]
