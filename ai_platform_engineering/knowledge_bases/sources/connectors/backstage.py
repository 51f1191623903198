"""The connector of Backstage: entities of the software catalogue with their owners, systems and relations."""

import hashlib
import json
import re
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from urllib.parse import quote

from ai_platform_engineering.core.errors import ConfigurationError, Refused
from ai_platform_engineering.core.source_settings import SourceSettings
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
    PassCursor,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_names,
    read_text,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import ChangedItem, SourceItem

_ENTITIES = "/api/catalog/entities/by-query"
_ALL = "all"
_FILTER = re.compile(r"[\w.:/@-]{1,200}(=[\w.:/@ -]{1,200})?(,[\w.:/@-]{1,200}(=[\w.:/@ -]{1,200})?){0,9}")
_TECHDOCS = "backstage.io/techdocs-ref"
_SOURCE = "backstage.io/source-location"
_FACTS = ("type", "lifecycle", "owner", "system", "domain", "subcomponentOf")
_MAX_RELATIONS = 200
_MAX_DEFINITION_CHARS = 200_000


class BackstageSource(ApiSource):
    """The entities that a filter selects. Addresses are entity references (component:default/payments), marks
    digests of what is read of an entity, since relations change without a new version of it.

    A listing has the entities themselves, so that nothing is fetched besides; deletions are found by it."""

    kind = "backstage"
    page_size = 250
    batch_size = 1  # fetched as soon as it is listed: the listing has it

    def __init__(
        self,
        entity_filter: str,
        app_url: str,
        endpoint: ApiEndpoint,
        access: ApiAccess,
        rules: ListingRules | None = None,
    ) -> None:
        """`app_url`: where people open pages of the catalogue."""
        super().__init__(f"backstage:{entity_filter}", endpoint, access, rules)
        self._filter = entity_filter
        self._app_url = app_url.rstrip("/")
        self._listed: Mapping[str, Any] = {}  # the entity that was listed last

    async def check(self, api: ApiClient) -> None:
        await api.get_json(_ENTITIES, {"limit": 1})

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        query: dict[str, str | int] = {"limit": self.page_size}
        if self._filter != _ALL:
            query["filter"] = self._filter

        def find_next(page: Any, _: Mapping[str, str]) -> tuple[str, Query] | None:
            cursor = read_text(read_mapping(page, "pageInfo"), "nextCursor")
            if not cursor:
                return None
            return _ENTITIES, {"limit": self.page_size, "cursor": cursor}

        async for page in api.pages(_ENTITIES, query, find_next):
            for entity in read_list(page, "items"):
                if read_text(read_mapping(entity, "metadata"), "name"):
                    self._listed = entity
                    yield ListedDocument(_format_reference(entity), self._compute_mark(entity))

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        for document in documents:
            yield ChangedItem(self._create_document(document.address, self._listed), document.mark)

    def _create_document(self, address: str, entity: Mapping[str, Any]) -> RawDocument:
        metadata = read_mapping(entity, "metadata")
        title = read_text(metadata, "title") or read_text(metadata, "name")
        kind = read_text(entity, "kind")
        return RawDocument(
            address,
            self._render(entity).encode(errors="replace"),
            "text/markdown",
            link=self._build_link("catalog", entity),
            title=f"{title} ({kind})",
            metadata=_list_facts(entity),
        )

    def _render(self, entity: Mapping[str, Any]) -> str:
        metadata = read_mapping(entity, "metadata")
        annotations = read_mapping(metadata, "annotations")
        name = read_text(metadata, "title") or read_text(metadata, "name")
        lines = [f"# {name}", "", read_text(metadata, "description"), ""]
        lines += [f"- {label}: {value}" for label, value in _list_facts(entity).items()]
        tags = read_names(metadata, "tags")
        if tags:
            lines.append(f"- tags: {', '.join(tags)}")
        if read_text(annotations, _TECHDOCS):
            lines.append(f"- documentation (TechDocs): {self._build_link('docs', entity)}")
        if read_text(annotations, _SOURCE):
            lines.append(f"- source: {read_text(annotations, _SOURCE).removeprefix('url:')}")
        for link in read_list(metadata, "links"):
            lines.append(f"- {read_text(link, 'title') or 'link'}: {read_text(link, 'url')}")
        relations = list(_list_relations(entity))
        if relations:
            lines += ["", "## Relations", "", *(f"- {relation}" for relation in relations)]
        definition = read_text(read_mapping(entity, "spec"), "definition")
        if definition:
            lines += ["", "## Definition", "", "```", definition[:_MAX_DEFINITION_CHARS], "```"]
        return "\n".join(lines)

    def _build_link(self, page: str, entity: Mapping[str, Any]) -> str:
        metadata = read_mapping(entity, "metadata")
        namespace = read_text(metadata, "namespace") or "default"
        parts = (namespace, read_text(entity, "kind").lower(), read_text(metadata, "name"))
        path = "/".join(quote(part, safe="") for part in parts)
        return f"{self._app_url}/{page}/{path}"

    def _compute_mark(self, entity: Mapping[str, Any]) -> str:
        document = self._create_document("", entity)
        facts = json.dumps([document.title, document.link]).encode()
        return hashlib.sha256(facts + document.content).hexdigest()[:32]

    def _is_listing_due(self, last_pass: PassCursor, now: datetime, known_documents: int) -> bool:
        return True


@dataclass(frozen=True, slots=True)
class BackstageConnector:
    """Creates the sources of `backstage:FILTER`."""

    settings: SourceSettings
    access: ApiAccess
    rules: ListingRules
    kind = "backstage"
    example = "backstage:all"
    options = ()

    def create(self, address: str, options: Mapping[str, str]) -> BackstageSource:
        if not _FILTER.fullmatch(address):
            raise Refused(
                "Give `all`, or a filter of the catalogue, for example "
                "backstage:kind=component,spec.type=service."
            )
        if self.settings.backstage_url is None:
            raise ConfigurationError(
                "Backstage is not configured. Set BACKSTAGE_URL and BACKSTAGE_API_TOKEN."
            )
        headers: dict[str, str] = {}
        secrets: tuple[str, ...] = ()
        if self.settings.backstage_token is not None:
            token = self.settings.backstage_token.get_secret_value()
            headers["Authorization"] = f"Bearer {token}"
            secrets = (token,)
        endpoint = ApiEndpoint(
            "Backstage",
            self.settings.backstage_url,
            "BACKSTAGE_URL",
            "BACKSTAGE_API_TOKEN",
            headers,
            secrets,
        )
        app_url = self.settings.backstage_app_url or self.settings.backstage_url
        return BackstageSource(address, app_url, endpoint, self.access, self.rules)


def _format_reference(entity: Mapping[str, Any]) -> str:
    metadata = read_mapping(entity, "metadata")
    namespace = read_text(metadata, "namespace") or "default"
    return f"{read_text(entity, 'kind')}:{namespace}/{read_text(metadata, 'name')}".lower()


def _list_facts(entity: Mapping[str, Any]) -> dict[str, str]:
    """What people ask about an entity, by name."""
    facts = {"kind": read_text(entity, "kind"), "entity": _format_reference(entity)}
    spec = read_mapping(entity, "spec")
    for name in _FACTS:
        value = read_text(spec, name)
        if value:
            facts[name] = value
    return facts


def _list_relations(entity: Mapping[str, Any]) -> Iterator[str]:
    for relation in read_list(entity, "relations")[:_MAX_RELATIONS]:
        target = read_text(relation, "targetRef")
        if target:
            yield f"{read_text(relation, 'type')} {target}"
