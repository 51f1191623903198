"""The base of sources behind an API: what changed since the last pass is listed, documents that changed are
fetched in batches, and those that are gone are found by listing everything."""

import json
from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from ai_platform_engineering.core.errors import SourceUnavailable
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import (
    ApiAccess,
    ApiClient,
    ApiEndpoint,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    RemovedItem,
    SourceItem,
    UnchangedItem,
)

_CURSOR_VERSION = 1
_MAX_CURSOR_CHARS = 10_000


@dataclass(frozen=True, slots=True)
class ListedDocument:
    """A document as a listing names it, without its text. `key`: by which it is fetched."""

    address: str
    mark: str
    key: str = ""


@dataclass(frozen=True, slots=True)
class ListingRules:
    """When everything is listed, so that deleted documents are found: at each pass while that takes few
    requests, else every so many hours. More documents than `max_documents` are refused."""

    cheap_requests: int = 10
    hours: float = 24.0
    max_documents: int = 200_000


@dataclass(frozen=True, slots=True)
class PassCursor:
    """Where a pass goes on. `scope`: the address and the options that it holds for; with others it is
    useless. `since`: when the last pass began; `listed`: when everything was listed last."""

    scope: str
    since: datetime
    listed: datetime

    def encode(self) -> str:
        values = {
            "version": _CURSOR_VERSION,
            "scope": self.scope,
            "since": self.since.isoformat(),
            "listed": self.listed.isoformat(),
        }
        return json.dumps(values, separators=(",", ":"))

    @classmethod
    def decode(cls, text: str, scope: str) -> "PassCursor | None":
        """None for no cursor, and for one of another scope or an unknown form: everything is listed then."""
        try:
            values: Any = json.loads(text[:_MAX_CURSOR_CHARS])
            if (values["version"], values["scope"]) != (_CURSOR_VERSION, scope):
                return None
            return cls(scope, _parse_time(values["since"]), _parse_time(values["listed"]))
        except (ValueError, KeyError, TypeError):
            return None


class ApiSource(ABC):
    """Lists and fetches documents of one API.

    A pass lists either everything, or what has changed since the cursor. A document is fetched when its mark
    differs, so that what a killed pass has stored costs nothing but its line in the listing."""

    kind: str
    revision: str | None = None
    batch_size = 25  # documents that are fetched at once
    page_size = 100  # documents of one request of a listing

    def __init__(
        self, location: str, endpoint: ApiEndpoint, access: ApiAccess, rules: ListingRules | None = None
    ) -> None:
        self.location = location
        self.next_cursor = ""
        self._endpoint = endpoint
        self._access = access
        self._rules = rules or ListingRules()
        endpoint.parse()  # raises ConfigurationError now rather than in the job

    async def count(self) -> int | None:
        return None

    # --- what each kind of source knows

    @property
    def scope(self) -> str:
        """What a cursor holds for; options that change what is listed belong to it."""
        return f"{self._endpoint.base_url} {self.location}"

    @abstractmethod
    async def check(self, api: ApiClient) -> None:
        """Raises SourceUnavailable for a location that does not exist, or may not be seen: a source that
        cannot be read loses no documents."""

    @abstractmethod
    def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        """What may have changed since a time of the server, or everything. It may list too much, and an
        entry twice."""

    @abstractmethod
    def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        """The documents of one batch; RemovedItem for one that has gone since it was listed."""

    async def find_removed(self, api: ApiClient, addresses: Collection[str]) -> Collection[str]:
        """Which of the stored documents that a listing of everything lacks are really gone.

        For an API whose listings come from an index that may be behind."""
        return addresses

    # --- the pass

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        last_pass = PassCursor.decode(cursor, self.scope)
        async with self._access.open(self._endpoint) as api:
            await self.check(api)
            now = api.server_time or self._access.clock()
            lists_all = last_pass is None or self._is_listing_due(last_pass, now, len(known_marks))
            since = None
            if last_pass is not None and not lists_all:
                since = last_pass.since
            listed: set[str] = set()
            changed: list[ListedDocument] = []
            async for document in self._list_once(api, since, listed):
                if known_marks.get(document.address) == document.mark:
                    yield UnchangedItem(document.address, document.mark)
                    continue
                changed.append(document)
                if len(changed) >= self.batch_size:
                    async for item in self.fetch(api, changed):
                        yield item
                    changed = []
            if changed:
                async for item in self.fetch(api, changed):
                    yield item
            if lists_all:
                missing = known_marks.keys() - listed
                for address in sorted(await self.find_removed(api, missing)):
                    yield RemovedItem(address)
        last_listed = now
        if last_pass is not None and not lists_all:
            last_listed = last_pass.listed
        self.next_cursor = PassCursor(self.scope, now, last_listed).encode()

    async def _list_once(
        self, api: ApiClient, since: datetime | None, listed: set[str]
    ) -> AsyncIterator[ListedDocument]:
        async for document in self.list_documents(api, since):
            if document.address in listed:
                continue
            if len(listed) >= self._rules.max_documents:
                raise SourceUnavailable(
                    f"{self.location} has more than {self._rules.max_documents:,} documents. "
                    "Give a location with fewer."
                )
            listed.add(document.address)
            yield document

    def _is_listing_due(self, last_pass: PassCursor, now: datetime, known_documents: int) -> bool:
        if known_documents <= self._rules.cheap_requests * self.page_size:
            return True
        return now - last_pass.listed >= timedelta(hours=self._rules.hours)


def _parse_time(text: str) -> datetime:
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or UTC)
