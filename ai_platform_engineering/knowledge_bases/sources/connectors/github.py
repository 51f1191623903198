"""The connector of GitHub: issues, pull requests, discussions and the wiki of a repository. Attachments are
not read."""

import base64
import re
from collections.abc import AsyncGenerator, AsyncIterator, Collection, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import quote

from ai_platform_engineering.core.errors import ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.knowledge_bases.documents import RawDocument
from ai_platform_engineering.knowledge_bases.reading.text_cleanup import to_single_line
from ai_platform_engineering.knowledge_bases.sources.connectors.api_client import (
    ApiAccess,
    ApiClient,
    ApiEndpoint,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.api_errors import ApiError
from ai_platform_engineering.knowledge_bases.sources.connectors.api_source import (
    ApiSource,
    ListedDocument,
    ListingRules,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.github_queries import (
    DISCUSSIONS,
    LISTED_AT_ONCE,
    PARTS,
    REPOSITORY,
    GitHubPart,
    build_comments,
    build_fetch,
    build_listing,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.github_text import render_conversation
from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_text,
    read_time,
)
from ai_platform_engineering.knowledge_bases.sources.fetcher import Fetcher
from ai_platform_engineering.knowledge_bases.sources.git_source import GitSource
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    GroupMembers,
    RemovedItem,
    SkippedItem,
    SourceItem,
    UnchangedItem,
)
from ai_platform_engineering.net.git_process import GitLimits
from ai_platform_engineering.net.git_remotes import GitRemote

WIKI = "wiki"
INCLUDED = ("issues", "discussions")  # where nothing else is asked for

_GRAPHQL = "/graphql"
_REPOSITORY = re.compile(r"([A-Za-z0-9](?:[\w-]{0,98}))/([\w.-]{1,100})(?:/(\w{1,20}))?")
_OVERLAP = timedelta(minutes=2)  # between the times of several servers
_MAX_LISTING_PAGES = 2_000
_MAX_COMMENT_PAGES = 10
_MAX_MESSAGE_CHARS = 300
_TIMEOUTS = (HTTPStatus.BAD_GATEWAY, HTTPStatus.GATEWAY_TIMEOUT)


@dataclass(frozen=True, slots=True)
class GitAccess:
    """How repositories are fetched: into which folder, with which variables, within which limits."""

    cache: Path
    variables: Mapping[str, str]
    limits: GitLimits


class GitHubSource(ApiSource):
    """Conversations of a repository, and the pages of its wiki if that is asked for. Addresses are like
    `issues/12` and `wiki/Home.md`; the mark of a conversation is the time of its last change."""

    kind = "github"
    page_size = LISTED_AT_ONCE
    batch_size = 10

    def __init__(
        self,
        repository: str,
        included: Sequence[str],
        location: str,
        endpoint: ApiEndpoint,
        access: ApiAccess,
        rules: ListingRules | None = None,
        *,
        required: Collection[str] = (),
        wiki: GitSource | None = None,
    ) -> None:
        super().__init__(location, endpoint, access, rules)
        self._repository = repository
        self._parts = [PARTS[name] for name in included if name in PARTS]
        self._included = included
        self._required = required
        self._wiki = wiki

    @property
    def scope(self) -> str:
        return f"{super().scope} {','.join(self._included)}"

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        prefix = f"{WIKI}/"
        wiki_marks: dict[str, str] = {}
        other_marks: dict[str, str] = {}
        for address, mark in known_marks.items():
            if self._wiki is not None and address.startswith(prefix):
                wiki_marks[address.removeprefix(prefix)] = mark
            else:
                other_marks[address] = mark
        async with aclosing(super().items(other_marks, cursor)) as conversations:
            async for item in conversations:
                yield item
        if self._wiki is None:
            return
        async with aclosing(self._wiki.items(wiki_marks)) as pages:
            async for page in pages:
                yield self._place_wiki_item(page)

    async def check(self, api: ApiClient) -> None:
        answer = await self._query(api, REPOSITORY, {})
        if self._wiki is not None and answer.get("hasWikiEnabled") is False:
            raise SourceUnavailable(f"{self._repository} has no wiki.")
        if DISCUSSIONS in self._parts and answer.get("hasDiscussionsEnabled") is False:
            if DISCUSSIONS.name in self._required:
                raise SourceUnavailable(f"{self._repository} has no discussions.")
            self._parts = [part for part in self._parts if part is not DISCUSSIONS]

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        for part in self._parts:
            async for document in self._list_part(api, part, since):
                yield document

    async def _list_part(
        self, api: ApiClient, part: GitHubPart, since: datetime | None
    ) -> AsyncIterator[ListedDocument]:
        query = build_listing(part, newest_first=since is not None)
        after: str | None = None
        for _ in range(_MAX_LISTING_PAGES):
            answer = await self._query(api, query, {"after": after})
            page = read_mapping(answer, part.listing)
            for node in read_list(page, "nodes"):
                changed = read_time(node, "updatedAt")
                if since is not None and changed is not None and changed < since - _OVERLAP:
                    return
                number = read_text(node, "number")
                if number.isdecimal():
                    mark = read_text(node, "updatedAt")
                    yield ListedDocument(f"{part.name}/{number}", mark, number)
            after = _read_next(page)
            if after is None:
                return
        raise SourceUnavailable(f"{self._repository} has more {part.name} than the limit allows.")

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        for part in PARTS.values():
            batch = [document for document in documents if document.address.startswith(f"{part.name}/")]
            if not batch:
                continue
            nodes = await self._fetch_nodes(api, part, batch)
            for document in batch:
                node = nodes.get(document.key)
                if node:
                    yield await self._create_item(api, part, document, node)
                else:
                    yield RemovedItem(document.address)  # deleted or transferred since it was listed

    async def _fetch_nodes(
        self, api: ApiClient, part: GitHubPart, documents: Sequence[ListedDocument]
    ) -> dict[str, Mapping[str, Any]]:
        """Conversations by number. GitHub gives up on a query that takes it too long, so then there are two
        smaller ones."""
        numbers = [int(document.key) for document in documents]
        try:
            answer = await self._query(api, build_fetch(part, numbers), {})
        except ApiError as error:
            if error.status not in _TIMEOUTS or len(documents) == 1:
                raise
            half = len(documents) // 2
            first_nodes = await self._fetch_nodes(api, part, documents[:half])
            return first_nodes | await self._fetch_nodes(api, part, documents[half:])
        return {document.key: read_mapping(answer, f"n{document.key}") for document in documents}

    async def _create_item(
        self, api: ApiClient, part: GitHubPart, document: ListedDocument, node: Mapping[str, Any]
    ) -> ChangedItem:
        connection = read_mapping(node, "comments")
        comments = read_list(connection, "nodes")
        after = _read_next(connection)
        for _ in range(_MAX_COMMENT_PAGES):
            if after is None:
                break
            variables = {"number": int(document.key), "after": after}
            answer = await self._query(api, build_comments(part), variables)
            connection = read_mapping(read_mapping(answer, part.single), "comments")
            comments += read_list(connection, "nodes")
            after = _read_next(connection)
        text = render_conversation(node, comments, after is not None)
        link = read_text(node, "url")
        raw = RawDocument(
            document.address,
            text.encode(errors="replace"),
            "text/markdown",
            link=link if link.startswith(("http://", "https://")) else None,
            changed=read_time(node, "updatedAt"),
            title=f"{read_text(node, 'title')} ({self._repository}#{document.key})",
        )
        return ChangedItem(raw, read_text(node, "updatedAt"))

    async def _query(self, api: ApiClient, query: str, variables: Mapping[str, Any]) -> Mapping[str, Any]:
        """What a query says of the repository. A single conversation that is gone is missing in it."""
        owner, _, name = self._repository.partition("/")
        answer = await api.query_graphql(_GRAPHQL, query, {"owner": owner, "name": name, **variables})
        repository = read_mapping(read_mapping(answer, "data"), "repository")
        for error in read_list(answer, "errors"):
            if repository and read_text(error, "type") == "NOT_FOUND":
                continue
            raise self._create_query_error(error)
        if not repository:
            raise self._create_query_error({})
        return repository

    def _create_query_error(self, error: Mapping[str, Any]) -> SourceUnavailable:
        kind = read_text(error, "type")
        if not error or kind == "NOT_FOUND":
            return SourceUnavailable(
                f"GitHub has no repository {self._repository}, or the account of "
                f"{self._endpoint.credential_variables} may not see it."
            )
        if kind in ("FORBIDDEN", "INSUFFICIENT_SCOPES"):
            return SourceUnavailable(
                f"GitHub does not let this account read {self._repository}. "
                f"Check what the token of {self._endpoint.credential_variables} may read."
            )
        message = to_single_line(read_text(error, "message"))[:_MAX_MESSAGE_CHARS]
        return SourceUnavailable(f"GitHub refused a query. It says: {message or kind}")

    def _place_wiki_item(self, item: SourceItem) -> SourceItem:
        """The item of the wiki's repository as one of this source."""
        if isinstance(item, GroupMembers):  # a repository tells none
            return item
        address = f"{WIKI}/{item.address}"
        match item:
            case ChangedItem(raw, mark):
                page = raw.address.rpartition("/")[2].rpartition(".")[0] or raw.address
                link = f"{_find_web_address(self._endpoint.base_url)}/{self._repository}/wiki/{quote(page)}"
                title = page.replace("-", " ")
                return ChangedItem(replace(raw, address=address, link=link, title=title), mark)
            case UnchangedItem(_, mark):
                return UnchangedItem(address, mark)
            case SkippedItem(_, reason):
                return SkippedItem(address, reason)
            case RemovedItem():
                return RemovedItem(address)


@dataclass(frozen=True, slots=True)
class GitHubConnector:
    """Creates the sources of `github:owner/repository`, with a part behind another slash or in the option
    `include`."""

    settings: SourceSettings
    access: ApiAccess
    rules: ListingRules
    git: GitAccess
    kind = "github"
    example = "github:owner/repository"
    options = ("include",)

    def create(self, address: str, options: Mapping[str, str]) -> GitHubSource:
        match = _REPOSITORY.fullmatch(address.removesuffix("/").removesuffix(".git"))
        if match is None or match[2] in (".", ".."):
            raise Refused("Give a repository, for example github:octo-org/web.")
        repository = f"{match[1]}/{match[2]}"
        location = f"github:{repository}"
        asked_for = options.get("include", "")
        if match[3]:
            location += f"/{match[3].lower()}"
            asked_for = match[3]
        included = _parse_included(asked_for)
        endpoint, secret = self._create_endpoint()
        wiki = None
        if WIKI in included:
            wiki = self._create_wiki(repository, location, endpoint, secret)
        return GitHubSource(
            repository,
            included,
            location,
            endpoint,
            self.access,
            self.rules,
            required=included if asked_for else (),
            wiki=wiki,
        )

    def _create_endpoint(self) -> tuple[ApiEndpoint, str]:
        token = self.settings.github_token or self.settings.github_other_token
        if token is None:
            raise ConfigurationError(
                "GitHub is not configured. Set GITHUB_TOKEN to a token that may read the repository, and "
                "GITHUB_API_URL for a server of your own (https://HOST/api/v3)."
            )
        secret = token.get_secret_value()
        base_url = self.settings.github_url.rstrip("/")
        if base_url.endswith("/api/v3"):
            base_url = base_url.removesuffix("/v3")  # the queries of Enterprise Server are beside it
        headers = {"Authorization": f"Bearer {secret}"}
        endpoint = ApiEndpoint("GitHub", base_url, "GITHUB_API_URL", "GITHUB_TOKEN", headers, (secret,))
        return endpoint, secret

    def _create_wiki(self, repository: str, location: str, endpoint: ApiEndpoint, secret: str) -> GitSource:
        web_address = _find_web_address(endpoint.base_url)
        remote = GitRemote(f"{web_address}/{repository}.wiki.git", endpoint.parse().scheme)
        login = base64.b64encode(f"x-access-token:{secret}".encode()).decode()
        header = {f"http.{web_address}/.extraHeader": f"Authorization: Basic {login}"}
        git = self.git
        return GitSource(
            remote,
            location,
            git.cache,
            git.variables,
            # The operator has set the address, so it may be private.
            Fetcher(allow_private=True, connector=self.access.network),
            git.limits,
            secret_settings=header,
        )


def _parse_included(text: str) -> tuple[str, ...]:
    if not text:
        return INCLUDED
    names = tuple(dict.fromkeys(name.strip().lower() for name in text.split(",") if name.strip()))
    all_parts = (*PARTS, WIKI)
    if not names or any(name not in all_parts for name in names):
        raise Refused(f"Of a repository, these parts can be read: {', '.join(all_parts)}.")
    return names


def _find_web_address(api_url: str) -> str:
    """The web address that belongs to the address of an API."""
    address = api_url.rstrip("/")
    if address.endswith("/api"):
        return address.removesuffix("/api")  # Enterprise Server
    return re.sub(r"^(https?://)api\.", r"\1", address)


def _read_next(page: Mapping[str, Any]) -> str | None:
    information = read_mapping(page, "pageInfo")
    if information.get("hasNextPage") is not True:
        return None
    return read_text(information, "endCursor") or None
