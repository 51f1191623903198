"""The connector of Slack: the threads of a channel. Those of a private channel are for its members only."""

import hashlib
import re
from collections.abc import AsyncGenerator, AsyncIterator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

from ai_platform_engineering.core.errors import ConfigurationError, Refused, SourceUnavailable
from ai_platform_engineering.core.source_settings import SourceSettings
from ai_platform_engineering.knowledge_bases.access import GROUP_PREFIX, VisibleTo
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
from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_names,
    read_text,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.slack_text import (
    Members,
    SlackMember,
    make_title,
    parse_timestamp,
    read_member,
    render_message,
)
from ai_platform_engineering.knowledge_bases.sources.source_items import (
    ChangedItem,
    GroupMembers,
    RemovedItem,
    SourceItem,
)

_CHANNEL_ID = re.compile(r"[CG][A-Z0-9]{6,20}")
_CHANNEL_NAME = re.compile(r"#?[^\s#,:/]{1,80}")
_PREFIX = "threads/"
# A thread changes for a while after it was begun: so far back a pass looks besides its cursor.
_OVERLAP = timedelta(days=14)
# A reply that is edited changes nothing that a listing shows: threads are read again while they are young.
_YOUNG = timedelta(days=2)
_READ_SUBTYPES = ("", "bot_message", "file_share", "me_message", "tombstone")
_MAX_LIST_PAGES = 100
_MAX_REPLY_PAGES = 20
_HINTS = {
    "not_in_channel": "Invite the app to the channel.",
    "channel_not_found": "Check the channel, and invite the app if it is private.",
    "missing_scope": "The app needs channels:history, channels:read, users:read and users:read.email, "
    "and groups:history and groups:read for private channels.",
    "invalid_auth": "Check SLACK_BOT_TOKEN.",
    "not_authed": "Check SLACK_BOT_TOKEN.",
    "token_revoked": "Check SLACK_BOT_TOKEN.",
}


@dataclass(frozen=True, slots=True)
class _Channel:
    channel_id: str
    name: str
    is_private: bool

    @property
    def group(self) -> str:
        """The group of its members; a slash keeps it apart from groups that people name."""
        return f"slack/{self.channel_id}"


class SlackRefused(SourceUnavailable):
    """Slack answered that something is wrong. `error` is its code for it."""

    def __init__(self, method: str, error: str) -> None:
        hint = _HINTS.get(error, "")
        super().__init__(f"Slack refuses {method} ({error or 'unknown error'}). {hint}".strip())
        self.error = error


class SlackSource(ApiSource):
    """The threads of a channel, each with its replies. Addresses are `threads/` and the id of the first
    message; marks tell edits of it, new replies and deleted ones."""

    kind = "slack"
    page_size = 200
    batch_size = 1  # the first message of a thread is in the listing

    def __init__(
        self, channel: str, endpoint: ApiEndpoint, access: ApiAccess, rules: ListingRules | None = None
    ) -> None:
        super().__init__(f"slack:{channel}", endpoint, access, rules)
        self._address = channel
        self._channel = _Channel("", "", is_private=True)
        self._members: Members = {}
        self._workspace_url = ""
        self._listed: Mapping[str, Any] = {}  # the message that was listed last

    @property
    def scope(self) -> str:
        """A channel that becomes private is read again as a whole: it is for other people then."""
        return f"{super().scope} {self._channel.channel_id} {self._channel.is_private}"

    async def items(
        self, known_marks: Mapping[str, str], cursor: str = ""
    ) -> AsyncGenerator[SourceItem, None]:
        async with self._access.open(self._endpoint) as api:
            identity = await _call(api, "auth.test", {})
            self._workspace_url = read_text(identity, "url")
            self._channel = await self._find_channel(api)
            self._members = await _list_members(api, read_text(identity, "team_id"))
            if self._channel.is_private:
                yield GroupMembers(self._channel.group, await self._list_principals(api))
        async with aclosing(super().items(known_marks, cursor)) as items:
            async for item in items:
                yield item

    async def check(self, api: ApiClient) -> None:
        await _call(api, "conversations.history", {"channel": self._channel.channel_id, "limit": 1})

    async def list_documents(self, api: ApiClient, since: datetime | None) -> AsyncIterator[ListedDocument]:
        query: dict[str, str | int] = {"channel": self._channel.channel_id, "limit": self.page_size}
        if since is not None:
            query["oldest"] = f"{(since - _OVERLAP).timestamp():.6f}"
        now = api.server_time or self._access.clock()
        async for page in _call_pages(api, "conversations.history", query, self._access_pages):
            for message in read_list(page, "messages"):
                ts = read_text(message, "ts")
                if ts and read_text(message, "subtype") in _READ_SUBTYPES:
                    self._listed = message
                    yield ListedDocument(f"{_PREFIX}{ts}", self._compute_mark(message, now), ts)

    async def fetch(self, api: ApiClient, documents: Sequence[ListedDocument]) -> AsyncIterator[SourceItem]:
        for document in documents:
            messages = [self._listed]
            if self._listed.get("reply_count"):
                try:
                    messages = await self._fetch_thread(api, document.key)
                except SlackRefused as error:
                    if error.error != "thread_not_found":
                        raise
                    yield RemovedItem(document.address)
                    continue
            yield ChangedItem(self._create_document(document.address, messages), document.mark)

    # --- requests

    @property
    def _access_pages(self) -> int:
        return self._access.limits.max_pages

    async def _find_channel(self, api: ApiClient) -> _Channel:
        if _CHANNEL_ID.fullmatch(self._address):
            answer = await _call(api, "conversations.info", {"channel": self._address})
            return self._read_channel(read_mapping(answer, "channel"))
        name = self._address.removeprefix("#").lower()
        query: Query = {"types": "public_channel,private_channel", "limit": 1000}
        async for page in _call_pages(api, "conversations.list", query, _MAX_LIST_PAGES):
            for channel in read_list(page, "channels"):
                if read_text(channel, "name").lower() == name:
                    return self._read_channel(channel)
        raise SourceUnavailable(
            f"Slack shows no channel {name}. Check its name, and invite the app if it is private."
        )

    def _read_channel(self, channel: Mapping[str, Any]) -> _Channel:
        if channel.get("is_im") or channel.get("is_mpim"):
            raise SourceUnavailable("Direct messages are not read, only channels.")
        # Private unless Slack says clearly that it is not.
        is_public = channel.get("is_channel") is True and channel.get("is_private") is False
        return _Channel(read_text(channel, "id"), read_text(channel, "name"), is_private=not is_public)

    async def _list_principals(self, api: ApiClient) -> tuple[str, ...]:
        """By which names the members of the channel ask questions."""
        principals: list[str] = []
        query: Query = {"channel": self._channel.channel_id, "limit": 1000}
        async for page in _call_pages(api, "conversations.members", query, _MAX_LIST_PAGES):
            for user_id in read_names(page, "members"):
                if user_id in self._members:
                    principals.append(self._members[user_id].principal)
        return tuple(principals)

    async def _fetch_thread(self, api: ApiClient, ts: str) -> list[Mapping[str, Any]]:
        messages: list[Mapping[str, Any]] = []
        query: Query = {"channel": self._channel.channel_id, "ts": ts, "limit": self.page_size}
        async for page in _call_pages(api, "conversations.replies", query, _MAX_REPLY_PAGES, cut=True):
            messages += read_list(page, "messages")
        return messages or [self._listed]

    # --- documents

    def _create_document(self, address: str, messages: Sequence[Mapping[str, Any]]) -> RawDocument:
        first = messages[0]
        title = make_title(first, self._members)
        text = "\n\n".join(render_message(message, self._members) for message in messages)
        visible_to: VisibleTo = None
        if self._channel.is_private:
            visible_to = (f"{GROUP_PREFIX}{self._channel.group}",)
        ts = address.removeprefix(_PREFIX)
        return RawDocument(
            address,
            text.encode(errors="replace"),
            "text/markdown",
            link=self._build_link(ts),
            changed=parse_timestamp(read_text(messages[-1], "ts")),
            title=title,
            headings=(f"#{self._channel.name}", title),
            visible_to=visible_to,
        )

    def _build_link(self, ts: str) -> str | None:
        if not self._workspace_url.startswith("https://"):
            return None
        return f"{self._workspace_url.rstrip('/')}/archives/{self._channel.channel_id}/p{ts.replace('.', '')}"

    def _compute_mark(self, message: Mapping[str, Any], now: datetime) -> str:
        edited = read_text(read_mapping(message, "edited"), "ts")
        latest = read_text(message, "latest_reply")
        parts = [read_text(message, "text"), edited, latest, read_text(message, "reply_count")]
        parts.append(str(self._channel.is_private))
        last_reply = parse_timestamp(latest)
        if last_reply is not None and now - last_reply < _YOUNG:
            parts.append(now.isoformat())
        return hashlib.sha256("\0".join(parts).encode(errors="replace")).hexdigest()[:32]


@dataclass(frozen=True, slots=True)
class SlackConnector:
    """Creates the sources of `slack:CHANNEL`."""

    settings: SourceSettings
    access: ApiAccess
    rules: ListingRules
    kind = "slack"
    example = "slack:CHANNEL"
    options = ()

    def create(self, address: str, options: Mapping[str, str]) -> SlackSource:
        if not _CHANNEL_NAME.fullmatch(address):
            raise Refused(
                "Give a channel by its name or id, for example slack:platform-help or slack:C0123ABCD."
            )
        if self.settings.slack_token is None:
            raise ConfigurationError("Slack is not configured. Set SLACK_BOT_TOKEN, the token of an app.")
        token = self.settings.slack_token.get_secret_value()
        endpoint = ApiEndpoint(
            "Slack",
            self.settings.slack_url,
            "SLACK_API_URL",
            "SLACK_BOT_TOKEN",
            {"Authorization": f"Bearer {token}"},
            (token,),
        )
        return SlackSource(address.removeprefix("#"), endpoint, self.access, self.rules)


async def _list_members(api: ApiClient, team: str) -> Members:
    """The users of the workspace by their ids; one who has left is nobody."""
    members: dict[str, SlackMember] = {}
    async for page in _call_pages(api, "users.list", {"limit": 1000}, _MAX_LIST_PAGES):
        for user in read_list(page, "members"):
            if not user.get("deleted"):
                members[read_text(user, "id")] = read_member(user, team)
    return members


async def _call_pages(
    api: ApiClient, method: str, query: Query, max_pages: int, *, cut: bool = False
) -> AsyncIterator[Any]:
    """The pages of a method that Slack lists by a cursor. `cut`: what is beyond the limit is left out."""
    cursor = ""
    for _ in range(max_pages):
        page_query = dict(query)
        if cursor:
            page_query["cursor"] = cursor
        page = await _call(api, method, page_query)
        yield page
        cursor = read_text(read_mapping(page, "response_metadata"), "next_cursor")
        if not cursor:
            return
    if not cut:
        raise SourceUnavailable(f"Slack returns more from {method} than the limit allows.")


async def _call(api: ApiClient, method: str, query: Query) -> Any:
    answer = await api.get_json(f"/{method}", query)
    if not isinstance(answer, dict) or answer.get("ok") is not True:
        raise SlackRefused(method, read_text(answer, "error"))
    return answer
