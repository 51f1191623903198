"""A Slack workspace on a loopback port: its Web API with the real limits, and its people, over Socket Mode or
signed HTTP.
"""

import asyncio
import contextlib
import itertools
import json
import re
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeVar
from urllib.parse import urlencode

import aiohttp
from aiohttp import WSMsgType, web
from slack_sdk.signature import SignatureVerifier

from . import slack_rules as rules
from .clock import ScaledClock
from .slack_rules import APP, BOT_ID, BOT_USER, TEAM, Json, Message, Session, SlackRefusal, require

SCOPES = (
    "app_mentions:read,assistant:write,chat:write,channels:history,groups:history,im:history,reactions:write,usergroups:read,"
    "users:read,users:read.email,files:read,files:write"
)
_JSON_FIELDS = frozenset(
    {"blocks", "chunks", "metadata", "view", "prompts", "loading_messages", "attachments"}
)
_TS = re.compile(r"\d+\.\d{6}")

T = TypeVar("T")


@dataclass
class ApiCall:
    """One call of the Web API; `answer` is `pending`, `ok`, `dropped`, `http_500` or an error code."""

    method: str
    params: Json
    token: str
    at: float
    answer: str = "pending"
    result: Json = field(default_factory=dict)


@dataclass
class Upload:
    """A file that the bot uploads: in three steps, and shown in a thread some time later."""

    name: str
    length: int
    content: bytes | None = None
    shared_in: tuple[str, str] | None = None  # channel and thread
    message: Message | None = None
    looks: int = 0

    @property
    def text(self) -> str:
        return (self.content or b"").decode()


@dataclass
class Fault:
    """What goes wrong, for the next `times` calls: a held call waits for the event and then goes on as the
    other fields say.
    """

    error: str | None = None
    needed: str | None = None  # the scope, with missing_scope
    retry_after: int | None = None
    status: int | None = None
    drop: Literal["before", "after"] | None = None
    hold_until: asyncio.Event | None = None
    times: int = 1


class Faults:
    """The faults to come, by method, in the order they were added."""

    def __init__(self) -> None:
        self._coming: dict[str, list[Fault]] = defaultdict(list)

    def add(self, method: str, fault: Fault) -> None:
        self._coming[method].extend([fault] * fault.times)

    def take(self, method: str) -> Fault:
        return self._coming[method].pop(0) if self._coming[method] else Fault()


class NotAcknowledged(Exception):
    """The bot's endpoint answered a delivery with something other than 200."""

    def __init__(self, status: int, body: str) -> None:
        super().__init__(f"{status}: {body:.200}")
        self.status = status


class Workspace:
    """What the workspace holds, and the Web API that reads and changes it: a parameter `p` is what the client
    sent.
    """

    def __init__(self, clock: ScaledClock, streaming_error: str | None) -> None:
        self.clock = clock
        self.streaming_error = streaming_error
        self.bot_token, self.app_token = "xoxb-test", "xapp-test"
        self.messages: dict[tuple[str, str], Message] = {}
        self.ephemerals: list[Message] = []
        self.sessions: dict[tuple[str, str], Session] = {}
        self.statuses: dict[tuple[str, str], str] = {}
        self.prompts: dict[str, list[Json]] = {}
        self.users: dict[str, Json] = {}
        self.usergroups: dict[str, list[str]] = {}
        self.views: dict[str, Json] = {}
        self.scopes = SCOPES
        self.hides_uploads = False  # Slack takes an upload and never shows it
        self.uploads: dict[str, Upload] = {}
        self.trigger_seconds = rules.TRIGGER_SECONDS
        self._triggers: dict[str, tuple[float, bool]] = {}
        self._count = itertools.count(1)
        self._origin = ""
        for user, name in (("U1", "first"), ("U2", "second"), ("U3", "third")):
            self.add_user(user, name, email=f"{name}@example.com")
        self.add_user(BOT_USER, "caipe", is_bot=True)

    def thread(self, channel: str, thread_ts: str) -> list[Message]:
        """What the thread shows, its root first."""
        self._expire()
        mine = (
            message
            for message in self.messages.values()
            if message.channel == channel and not message.deleted
        )
        return [message for message in mine if thread_ts in (message.ts, message.thread_ts)]

    def text_of(self, channel: str, thread_ts: str) -> str:
        """All that the bot says in the thread, verbatim."""
        return "".join(
            message.shown for message in self.thread(channel, thread_ts) if message.bot_id == BOT_ID
        )

    def _ts(self) -> str:
        return f"{int(self.clock.now())}.{next(self._count):06d}"

    def _handle(self, call: ApiCall) -> Json:
        handler = getattr(self, "_api_" + call.method.replace(".", "_"), None)
        if handler is None:
            raise SlackRefusal("unknown_method")
        require(call.token, "not_authed")
        require(call.token in (self.bot_token, self.app_token), "invalid_auth")
        app_level = call.method == "apps.connections.open"
        require(call.token == (self.app_token if app_level else self.bot_token), "not_allowed_token_type")
        if call.method.endswith("Stream") and self.streaming_error:
            raise SlackRefusal(self.streaming_error)
        self._expire()
        answer: Json = handler(call.params)
        return answer

    def add_user(
        self,
        user: str,
        name: str,
        real_name: str = "",
        email: str = "",
        is_bot: bool = False,
        tz: str = "UTC",
    ) -> None:
        profile = {"real_name": real_name or name, "display_name": name} | ({"email": email} if email else {})
        more = {"is_bot": is_bot, "tz": tz, "deleted": False, "team_id": TEAM}
        self.users[user] = {
            "id": user,
            "name": name,
            "real_name": real_name or name,
            "profile": profile,
        } | more

    # -- the Web API

    def _api_auth_test(self, p: Json) -> Json:
        names = {"url": f"http://{self._origin}/", "team": "Workspace", "user": "caipe"}
        return names | {
            "team_id": TEAM,
            "user_id": BOT_USER,
            "bot_id": BOT_ID,
            "is_enterprise_install": False,
        }

    def _api_apps_connections_open(self, p: Json) -> Json:
        return {"url": f"ws://{self._origin}/link?ticket={uuid.uuid4()}"}

    def _api_chat_startStream(self, p: Json) -> Json:
        channel, thread_ts = self._channel(p), str(p.get("thread_ts") or "")
        require(thread_ts, "invalid_arguments", "thread_ts is required")
        self._check_root(channel, thread_ts)
        if not channel.startswith("D"):
            require(p.get("recipient_user_id"), "missing_recipient_user_id")
            require(p.get("recipient_team_id"), "missing_recipient_team_id")
        require(
            p.get("task_display_mode") in {None, *rules.DISPLAY_MODES},
            "invalid_arguments",
            "task_display_mode",
        )
        message = self._new(channel, thread_ts, "streaming", display_mode=p.get("task_display_mode"))
        message.recipient = (p.get("recipient_team_id"), p.get("recipient_user_id"))
        message.add_chunks(_chunks(p))
        return self._keep(message)

    def _api_chat_appendStream(self, p: Json) -> Json:
        message = self._stream(p)
        require(chunks := _chunks(p), "invalid_arguments", "chunks or markdown_text is required")
        message.add_chunks(chunks)
        return {"channel": message.channel, "ts": message.ts}

    def _api_chat_stopStream(self, p: Json) -> Json:
        message = self._stream(p)
        chunks, blocks, status = (
            _chunks(p),
            rules.check_blocks(p.get("blocks") or []),
            p.get("session_status"),
        )
        require(status in {None, *rules.SESSION_STATES}, "invalid_arguments", "session_status")
        message.add_chunks(chunks)
        message.state, message.stop_blocks, message.metadata, message.session_status = (
            "done",
            blocks,
            p.get("metadata"),
            status,
        )
        if status:
            self._set_session(message.channel, str(message.thread_ts), status, None)
        return {"channel": message.channel, "ts": message.ts, "message": message.as_json()}

    def _api_chat_postMessage(self, p: Json) -> Json:
        channel = self._channel(p, people=True)
        text, blocks = _content(p)
        if thread_ts := p.get("thread_ts"):
            self._check_root(channel, thread_ts)
        message = self._new(
            channel, thread_ts, "posted", text=text or "", blocks=blocks or [], metadata=p.get("metadata")
        )
        return self._keep(message) | {"message": message.as_json()}

    def _api_chat_update(self, p: Json) -> Json:
        message = self._message(p)
        require(message.bot_id == BOT_ID, "cant_update_message")
        require(message.state != "streaming", "streaming_state_conflict")
        text, blocks = _content(p)
        message.replace(text, blocks)
        message.metadata = p.get("metadata", message.metadata)
        return {
            "channel": message.channel,
            "ts": message.ts,
            "text": message.text,
            "message": message.as_json(),
        }

    def _api_chat_delete(self, p: Json) -> Json:
        message = self._message(p)
        require(message.bot_id == BOT_ID, "message_not_found")
        message.deleted = True
        return {"channel": message.channel, "ts": message.ts}

    def _api_chat_postEphemeral(self, p: Json) -> Json:
        channel = self._channel(p)
        require(p.get("user") in self.users, "user_not_in_channel")
        text, blocks = _content(p)
        message = self._new(channel, p.get("thread_ts"), "ephemeral", text=text or "", blocks=blocks or [])
        message.recipient = (TEAM, p["user"])
        self.ephemerals.append(message)
        return {"message_ts": message.ts}

    def _api_chat_getPermalink(self, p: Json) -> Json:
        message = self._message({"channel": p.get("channel"), "ts": p.get("message_ts")})
        thread = f"?thread_ts={message.thread_ts}&cid={message.channel}" if message.thread_ts else ""
        link = (
            f"https://workspace.slack.test/archives/{message.channel}/p{message.ts.replace('.', '')}{thread}"
        )
        return {"channel": message.channel, "permalink": link}

    def _api_files_getUploadURLExternal(self, p: Json) -> Json:
        self._check_scope("files:write")
        require(p.get("filename"), "invalid_arguments", "filename is required")
        require(str(p.get("length", "")).isdigit(), "invalid_arguments", "length must be a number")
        key = f"F{next(self._count)}"
        self.uploads[key] = Upload(str(p["filename"]), int(p["length"]))
        return {"file_id": key, "upload_url": f"http://{self._origin}/upload/{key}"}

    def _api_files_completeUploadExternal(self, p: Json) -> Json:
        """Takes the file; the message with it comes later, as in Slack, so the answer does not name it."""
        self._check_scope("files:write")
        channel = self._channel({"channel": p.get("channel_id")})
        self._check_root(channel, str(p.get("thread_ts")))
        items = json.loads(p["files"]) if isinstance(p.get("files"), str) else p.get("files")
        require(items, "invalid_arguments", "files is required")
        for item in items:
            upload = self.uploads.get(item["id"])
            if upload is None or upload.content is None:
                raise SlackRefusal("file_not_found")
            upload.shared_in = (channel, str(p["thread_ts"]))
        return {"files": [{"id": item["id"], "title": item.get("title"), "shares": {}} for item in items]}

    def _api_files_info(self, p: Json) -> Json:
        self._check_scope("files:read")
        upload = self.uploads.get(str(p.get("file")))
        if upload is None:
            raise SlackRefusal("file_not_found")
        self._show_upload(str(p["file"]), upload)
        shares: Json = {}
        if upload.message is not None:
            share = {"ts": upload.message.ts, "thread_ts": upload.message.thread_ts}
            shares = {"public": {upload.message.channel: [share]}}
        return {"file": {"id": p["file"], "name": upload.name, "shares": shares}}

    def _show_upload(self, key: str, upload: "Upload") -> None:
        """The second look finds the file in the thread."""
        upload.looks += 1
        if upload.shared_in is None or upload.message is not None or upload.looks < 2 or self.hides_uploads:
            return
        channel, thread_ts = upload.shared_in
        upload.message = self._new(channel, thread_ts, "posted", files=[{"id": key, "name": upload.name}])
        self._keep(upload.message)

    def _check_scope(self, scope: str) -> None:
        if scope not in self.scopes.split(","):
            raise SlackRefusal("missing_scope", needed=scope)

    def _api_conversations_replies(self, p: Json) -> Json:
        channel, root = self._channel(p), str(p.get("ts"))
        self._check_root(channel, root)
        inclusive = str(p.get("inclusive", "")).lower() in {"1", "true"}
        low, high = float(p.get("oldest") or 0), float(p.get("latest") or "inf")
        found = [
            m
            for m in self.thread(channel, root)
            if m.ts == root or low < float(m.ts) < high or (inclusive and float(m.ts) in (low, high))
        ]
        start, size = int(p.get("cursor") or 0), int(p.get("limit") or 1000)
        page = [message.as_json() for message in found[start : start + size]]
        more = start + size < len(found)
        return {
            "messages": page,
            "has_more": more,
            "response_metadata": {"next_cursor": str(start + size) if more else ""},
        }

    def _api_conversations_info(self, p: Json) -> Json:
        channel = self._channel(p)
        direct = channel.startswith("D")
        names = (
            {"user": "U" + channel[1:]}
            if direct
            else {"name": f"channel-{channel.lower()}", "is_member": True}
        )
        return {
            "channel": {
                "id": channel,
                "is_im": direct,
                "is_channel": channel.startswith("C"),
                "is_archived": False,
            }
            | names
        }

    def _api_conversations_open(self, p: Json) -> Json:
        return {"channel": {"id": self._channel({"channel": p.get("users")}, people=True)}}

    def _api_users_info(self, p: Json) -> Json:
        require(p.get("user") in self.users, "user_not_found")
        return {"user": self.users[p["user"]]}

    def _api_usergroups_users_list(self, p: Json) -> Json:
        require(p.get("usergroup") in self.usergroups, "no_such_subteam")
        return {"users": self.usergroups[p["usergroup"]]}

    def _api_views_open(self, p: Json) -> Json:
        require(p.get("trigger_id") in self._triggers, "invalid_trigger_id")
        issued, used = self._triggers[p["trigger_id"]]
        require(not used, "exchanged_trigger_id")
        require(self.clock.now() - issued <= self.trigger_seconds, "expired_trigger_id")
        view = self._open_view(p.get("view"))
        self._triggers[p["trigger_id"]] = (issued, True)
        return {"view": view}

    def _api_views_update(self, p: Json) -> Json:
        named = (
            view
            for view in self.views.values()
            if p.get("external_id") and view.get("external_id") == p["external_id"]
        )
        old = self.views.get(p.get("view_id", "")) or next(named, None)
        if old is None:
            raise SlackRefusal("not_found")
        require(p.get("hash") in (None, old["hash"]), "hash_conflict")
        return {"view": self._open_view(p.get("view"), old["id"])}

    def _api_agents_sessions_setStatus(self, p: Json) -> Json:
        channel, thread_ts = self._place(p)
        require(p.get("status") in rules.SESSION_STATES, "invalid_arguments", "status")
        require(len(p.get("title") or "") <= rules.SESSION_TITLE_LIMIT, "invalid_arguments", "title")
        self._set_session(channel, thread_ts, p["status"], p.get("title"))
        return {}

    def _api_agents_sessions_rename(self, p: Json) -> Json:
        session = self.sessions.get(self._place(p))
        require(0 < len(p.get("title") or "") <= rules.SESSION_TITLE_LIMIT, "invalid_arguments", "title")
        if session is None:
            raise SlackRefusal("session_not_found")
        session.title = p["title"]
        return {}

    def _api_assistant_threads_setStatus(self, p: Json) -> Json:
        place, loading = self._place(p), p.get("loading_messages") or []
        require(isinstance(p.get("status"), str), "invalid_arguments", "status")
        require(
            len(loading) <= 10 and all(0 < len(text) <= 50 for text in loading),
            "invalid_arguments",
            "loading_messages",
        )
        self.statuses[place] = p["status"]
        return {}

    def _api_assistant_threads_setSuggestedPrompts(self, p: Json) -> Json:
        channel, prompts = self._channel({"channel": p.get("channel_id")}), p.get("prompts")
        require(isinstance(prompts, list) and 0 < len(prompts) <= 4, "invalid_arguments", "1 to 4 prompts")
        require(
            all(prompt.get("title") and prompt.get("message") for prompt in prompts or []),
            "invalid_arguments",
            "prompts",
        )
        self.prompts[channel] = prompts or []
        return {}

    def _api_reactions_add(self, p: Json) -> Json:
        message = self._message({"channel": p.get("channel"), "ts": p.get("timestamp")})
        require(p.get("name"), "invalid_name")
        require(p["name"] not in message.reactions, "already_reacted")
        message.reactions.append(p["name"])
        return {}

    # -- what the methods share

    def _channel(self, p: Json, people: bool = False) -> str:
        channel = str(p.get("channel") or "")
        if people and channel in self.users:
            return "D" + channel[1:]
        require(re.fullmatch("[CDG][A-Z0-9]+", channel), "channel_not_found")
        return channel

    def _place(self, p: Json) -> tuple[str, str]:
        channel, thread_ts = self._channel({"channel": p.get("channel_id")}), str(p.get("thread_ts") or "")
        if thread_ts or not channel.startswith("D"):
            self._check_root(channel, thread_ts)
        return channel, thread_ts

    def _check_root(self, channel: str, thread_ts: str) -> None:
        require(_TS.fullmatch(str(thread_ts)), "invalid_thread_ts")
        root = self.messages.get((channel, thread_ts))
        require(root and not root.deleted, "thread_not_found")

    def _message(self, p: Json) -> Message:
        message = self.messages.get((self._channel(p), str(p.get("ts"))))
        if message is None or message.deleted:
            raise SlackRefusal("message_not_found")
        return message

    def _stream(self, p: Json) -> Message:
        message = self._message(p)
        require(message.bot_id == BOT_ID and message.state == "streaming", "message_not_in_streaming_state")
        return message

    def _expire(self) -> None:
        for message in self.messages.values():
            if message.state == "streaming" and self.clock.now() - message.created_at >= rules.STREAM_SECONDS:
                message.state = "done"

    def _new(self, channel: str, thread_ts: str | None, state: Any, **more: Any) -> Message:
        return Message(
            channel, self._ts(), thread_ts, BOT_USER, state, BOT_ID, created_at=self.clock.now(), **more
        )

    def _keep(self, message: Message) -> Json:
        self.messages[message.channel, message.ts] = message
        self.statuses.pop(
            (message.channel, message.thread_ts or ""), None
        )  # a message of the bot ends the "is working" line
        return {"channel": message.channel, "ts": message.ts}

    def _set_session(self, channel: str, thread_ts: str, status: str, title: str | None) -> None:
        session = self.sessions.setdefault((channel, thread_ts), Session(status, title))
        session.status = status
        session.history.append(status)

    def _open_view(self, view: object, view_id: str | None = None) -> Json:
        key = view_id or f"V{next(self._count)}"
        made = {
            "id": key,
            "root_view_id": key,
            "team_id": TEAM,
            "app_id": APP,
            "bot_id": BOT_ID,
            "state": {"values": {}},
        }
        self.views[key] = (
            {"private_metadata": "", "callback_id": ""}
            | rules.check_view(view)
            | made
            | {"hash": str(uuid.uuid4())}
        )
        return self.views[key]


class FakeSlack(Workspace):
    """The workspace on a port, and its people: `async with FakeSlack() as fake` serves it until the end of
    the block.
    """

    def __init__(
        self,
        clock: ScaledClock | None = None,
        streaming: bool = True,
        limits: Mapping[str, int] | None = None,
        streaming_error: str = "unknown_method",
    ) -> None:
        super().__init__(clock or ScaledClock(), None if streaming else streaming_error)
        self.ack_seconds = rules.ACK_SECONDS
        self.transport: Literal["socket", "http"] = "socket"
        self.calls: list[ApiCall] = []
        self.limited: list[ApiCall] = []
        self.faults = Faults()
        self.responses: list[Json] = []
        self.sockets: list[web.WebSocketResponse] = []
        self.receiver: web.WebSocketResponse | None = None  # gets deliveries while it is open, else the last
        self.delivered: list[Json] = []
        self.base_url = ""
        self._rates = rules.Rates(limits or {})
        self._files: dict[str, tuple[Json, bytes]] = {}
        self._response_urls: dict[str, list[Message | None]] = {}
        self._acks: dict[str, asyncio.Future[Json | None]] = {}
        self._retries: dict[str, int] = defaultdict(int)
        self._news = asyncio.Event()
        self.endpoint, self._secret = "", ""

    async def __aenter__(self) -> Self:
        app = web.Application(client_max_size=4 << 20)
        app.router.add_route("*", "/api/{method}", self._api)
        app.router.add_get("/link", self._socket)
        app.router.add_get("/files/{id}/{name}", self._file)
        app.router.add_post("/upload/{id}", self._upload)
        app.router.add_get("/login", self._login)
        app.router.add_post("/respond/{id}", self._response)
        self._runner = web.AppRunner(app, access_log=None, shutdown_timeout=0.1)
        await self._runner.setup()
        self._site = web.TCPSite(self._runner, "127.0.0.1", 0)
        await self._site.start()
        self._origin = f"127.0.0.1:{self._runner.addresses[0][1]}"
        self.base_url = f"http://{self._origin}/api/"
        self._http = aiohttp.ClientSession()
        return self

    async def __aexit__(self, *error: object) -> None:
        await self._http.close()
        for socket in list(self.sockets):
            await socket.close()
        await self._runner.cleanup()

    async def go_away(self) -> None:
        """The network to Slack is down: sockets drop, and nobody can connect."""
        await self._site.stop()
        for socket in list(self.sockets):
            await socket.close()

    async def come_back(self) -> None:
        self._site = web.TCPSite(
            self._runner, "127.0.0.1", int(self._origin.rpartition(":")[2]), reuse_address=True
        )
        await self._site.start()

    async def wait(self, predicate: Callable[[], T], timeout: float = 120.0) -> T:
        """What the predicate returns once that is true; it is asked after every call, socket and response."""
        try:
            async with asyncio.timeout(timeout):
                while not (value := predicate()):
                    await self._news.wait()
                return value
        except TimeoutError:
            seen = [
                f"  {call.method} {json.dumps(call.params, default=str)[:200]} -> {call.answer}"
                for call in self.calls
            ]
            raise AssertionError(
                "\n".join([f"not so within {timeout:g} s; {len(seen)} calls:", *seen])
            ) from None

    def called(self, method: str) -> list[ApiCall]:
        return [call for call in self.calls if call.method == method]

    async def _api(self, request: web.Request) -> web.Response:
        params = await _params(request)
        token = request.headers.get("Authorization", "").removeprefix("Bearer ") or str(
            params.pop("token", "")
        )
        method = request.match_info["method"]
        if method == "files.getUploadURLExternal" and request.content_type == "application/json":
            params = {}  # Slack reads no JSON here
        call = ApiCall(method, params, token, self.clock.now())
        self.calls.append(call)
        self._changed()
        try:
            return await self._answer(request, call, self.faults.take(call.method))
        finally:
            self._changed()

    async def _answer(self, request: web.Request, call: ApiCall, fault: Fault) -> web.Response:
        if fault.hold_until:
            await fault.hold_until.wait()
        if fault.drop == "before":
            return _drop(request, call)
        if fault.status is not None:
            call.answer = f"http_{fault.status}"
            return web.Response(status=fault.status, text="unavailable")
        wait = fault.retry_after or self._rates.seconds_to_wait(
            call.method, str(call.params.get("channel", "")), self.clock.now()
        )
        if wait:
            call.answer = "ratelimited"
            self.limited.append(call)
            return web.json_response(
                {"ok": False, "error": "ratelimited"}, status=429, headers={"Retry-After": str(wait)}
            )
        try:
            require(fault.error is None, str(fault.error))
            call.result = self._handle(call)
            call.answer = "ok"
        except SlackRefusal as refused:
            call.answer, call.result = refused.code, refused.answer
        if fault.needed is not None:
            call.result = {**call.result, "needed": fault.needed, "provided": self.scopes}
        if fault.drop == "after":
            return _drop(request, call)
        return web.json_response(
            {"ok": call.answer == "ok"} | call.result, headers={"x-oauth-scopes": self.scopes}
        )

    def _changed(self) -> None:
        news, self._news = self._news, asyncio.Event()
        news.set()

    # -- files and response URLs

    def add_file(self, name: str, content: bytes, mimetype: str) -> Json:
        """The file as it stands in events; its addresses need the bot's token."""
        key = f"F{next(self._count)}"
        url = f"http://{self._origin}/files/{key}/{name}"
        names = {
            "id": key,
            "name": name,
            "title": name,
            "mimetype": mimetype,
            "filetype": name.rpartition(".")[2],
        }
        self._files[key] = (
            names | {"size": len(content), "mode": "hosted", "url_private": url, "url_private_download": url},
            content,
        )
        return self._files[key][0]

    async def _file(self, request: web.Request) -> web.Response:
        if request.headers.get("Authorization") != f"Bearer {self.bot_token}":
            raise web.HTTPFound("/login")
        info, content = self._files[request.match_info["id"]]
        return web.Response(body=content, content_type=info["mimetype"])

    async def _upload(self, request: web.Request) -> web.Response:
        upload = self.uploads.get(request.match_info["id"])
        content = await request.read()
        if upload is None or len(content) != upload.length:
            return web.Response(status=400, text="not what was announced")
        upload.content = content
        return web.Response(text=f"OK - {len(content)}")

    async def _login(self, request: web.Request) -> web.Response:
        return web.Response(text="<html>Sign in</html>", content_type="text/html")

    async def _response(self, request: web.Request) -> web.Response:
        payload: Json = await request.json()
        uses = self._response_urls.get(request.match_info["id"], [])
        if not uses:
            return web.Response(status=404, text="used_url")
        message = uses.pop()
        try:
            text, blocks = (None, None) if payload.get("delete_original") else _content(payload)
        except SlackRefusal as refused:
            return web.Response(status=400, text=refused.code)
        if message and payload.get("delete_original"):
            message.deleted = True
        elif message and payload.get("replace_original"):
            message.replace(text, blocks)
        self.responses.append(payload)
        self._changed()
        return web.Response(text="ok")

    # -- deliveries

    def post_to(self, url: str, signing_secret: str) -> None:
        """From now on deliveries are signed requests to this address."""
        self.transport, self.endpoint, self._secret = "http", url, signing_secret

    async def disconnect(self, reason: Literal["warning", "refresh_requested"] = "refresh_requested") -> None:
        """Asks the last socket to go; deliveries wait for the one that comes in its place."""
        await self.sockets.pop().send_json(
            {"type": "disconnect", "reason": reason, "debug_info": {"host": "fake"}}
        )

    async def _socket(self, request: web.Request) -> web.WebSocketResponse:
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        await socket.send_json(
            {"type": "hello", "num_connections": len(self.sockets) + 1, "connection_info": {"app_id": APP}}
        )
        self.sockets.append(socket)
        self._changed()
        async for frame in socket:
            ack = json.loads(frame.data) if frame.type == WSMsgType.TEXT else {}
            if (waiting := self._acks.pop(ack.get("envelope_id", ""), None)) and not waiting.done():
                waiting.set_result(ack.get("payload"))
        with contextlib.suppress(ValueError):
            self.sockets.remove(socket)
        self._changed()
        return socket

    async def _send(self, kind: str, payload: Json, retry: int | None = None) -> Json | None:
        if self.transport == "http":
            return await self._post(kind, payload, retry)
        await self.wait(lambda: self.sockets, 10)
        key = str(uuid.uuid4())
        waiting: asyncio.Future[Json | None] = asyncio.get_running_loop().create_future()
        self._acks[key] = waiting
        envelope = {
            "envelope_id": key,
            "type": kind,
            "payload": payload,
            "accepts_response_payload": kind != "events_api",
        }
        if kind == "events_api":
            envelope |= {"retry_attempt": retry or 0, "retry_reason": "timeout" if retry else ""}
        receiver = self.receiver if self.receiver in self.sockets else self.sockets[-1]
        assert receiver is not None
        await receiver.send_json(envelope)
        async with asyncio.timeout(self.ack_seconds):
            return await waiting

    async def _post(self, kind: str, payload: Json, retry: int | None) -> Json | None:
        if kind == "events_api":
            body, content_type = json.dumps(payload), "application/json"
        else:
            form = {"payload": json.dumps(payload)} if kind == "interactive" else payload
            body, content_type = urlencode(form), "application/x-www-form-urlencoded"
        stamp = str(int(time.time()))  # real time: whoever checks the signature has no other clock
        signature = SignatureVerifier(self._secret).generate_signature(timestamp=stamp, body=body)
        headers = {
            "Content-Type": content_type,
            "X-Slack-Request-Timestamp": stamp,
            "X-Slack-Signature": str(signature),
        }
        if retry:
            headers |= {"X-Slack-Retry-Num": str(retry), "X-Slack-Retry-Reason": "http_timeout"}
        limit = aiohttp.ClientTimeout(total=self.ack_seconds)
        async with self._http.post(
            self.endpoint, data=body.encode(), headers=headers, timeout=limit
        ) as response:
            text = await response.text()
            if response.status != 200:
                raise NotAcknowledged(response.status, text)
            answer: Json = (
                json.loads(text) if text and response.content_type == "application/json" else {"text": text}
            )
            return answer if text else None

    async def deliver(self, event: Json, event_id: str | None = None, retry: int | None = None) -> None:
        """Delivers one event until the bot has acknowledged it; a new message is stored."""
        self._hear(event)
        head = {
            "type": "event_callback",
            "team_id": TEAM,
            "api_app_id": APP,
            "token": "verification",
            "event": event,
        }
        ids = {"event_id": event_id or f"Ev{next(self._count)}", "event_time": int(self.clock.now())}
        bots = [
            {
                "team_id": TEAM,
                "user_id": BOT_USER,
                "is_bot": True,
                "enterprise_id": None,
                "is_enterprise_install": False,
            }
        ]
        self.delivered.append(head | ids | {"authorizations": bots})
        await self._send("events_api", self.delivered[-1], retry)

    def _hear(self, event: Json) -> None:
        said = event["type"] in {"message", "app_mention"} and "subtype" not in event
        if said and (event["channel"], event["ts"]) not in self.messages:
            heard = Message(
                event["channel"],
                event["ts"],
                event.get("thread_ts"),
                event.get("user", ""),
                "user",
                event.get("bot_id"),
            )
            heard.text = event["text"]
            self.messages[heard.channel, heard.ts] = heard

    async def redeliver(self, n: int = 1) -> None:
        """The last n events again, as Slack does when it saw no acknowledgement."""
        for payload in self.delivered[-n:]:
            self._retries[payload["event_id"]] += 1
            await self._send("events_api", payload, self._retries[payload["event_id"]])

    # -- people

    async def say(
        self,
        text: str,
        user: str = "U1",
        channel: str = "C1",
        thread_ts: str | None = None,
        mention: bool = False,
        files: Sequence[Json] = (),
        **more: Any,
    ) -> str:
        """Somebody writes; a mention in a channel arrives twice, as a mention and as a message.

        Returns the message's ts.
        """
        text = f"<@{BOT_USER}> {text}" if mention else text
        said = Message(
            channel, self._ts(), thread_ts, user, "user", more.get("bot_id"), text, files=list(files)
        )
        self.messages[channel, said.ts] = said
        event = said.as_json() | {"channel": channel, "event_ts": said.ts} | more
        direct = channel.startswith("D")
        message = event | {"channel_type": _kind(channel)} | ({"subtype": "file_share"} if files else {})
        mentions = [event | {"type": "app_mention"}] if mention and not direct else []
        await asyncio.gather(*(self.deliver(one) for one in [*mentions, message]))
        return said.ts

    async def edit(self, ts: str, text: str) -> None:
        message = self._by_ts(ts)
        before, message.text = message.as_json(), text
        edited = message.as_json() | {"edited": {"user": message.user, "ts": self._ts()}}
        await self._hidden(message.channel, "message_changed", message=edited, previous_message=before)

    async def remove(self, ts: str) -> None:
        message = self._by_ts(ts)
        message.deleted = True
        await self._hidden(
            message.channel, "message_deleted", deleted_ts=ts, previous_message=message.as_json()
        )

    def delete_thread(self, channel: str, ts: str) -> None:
        """The whole thread is gone and the bot has not heard of it."""
        for message in self.thread(channel, ts):
            message.deleted = True

    async def _hidden(self, channel: str, subtype: str, **more: Any) -> None:
        ts = self._ts()
        head = {
            "type": "message",
            "subtype": subtype,
            "channel": channel,
            "channel_type": _kind(channel),
            "hidden": True,
        }
        await self.deliver(head | {"ts": ts, "event_ts": ts} | more)

    def _by_ts(self, ts: str) -> Message:
        return next(message for (_, key), message in self.messages.items() if key == ts)

    async def click(
        self, message: Message, action_id: str, user: str = "U1", value: str | None = None
    ) -> Json | None:
        """Presses what the message shows; `value` picks among feedback buttons, options, or buttons of the
        same action.
        """
        offered = [
            (block, element)
            for block, element in rules.elements(message.all_blocks)
            if element["action_id"] == action_id
        ]
        found = (
            (block, action) for block, element in offered if (action := rules.build_action(element, value))
        )
        block, action = next(found, (None, None))
        if action is None or message.deleted:
            shown = [element["action_id"] for _, element in rules.elements(message.all_blocks)]
            raise ValueError(f"nothing to press for {action_id} with {value!r}; the message shows {shown}")
        hidden = message.state == "ephemeral"
        place = {
            "type": "message",
            "message_ts": message.ts,
            "channel_id": message.channel,
            "is_ephemeral": hidden,
        }
        payload = self._interaction("block_actions", user) | {
            "container": place | ({"thread_ts": message.thread_ts} if message.thread_ts else {}),
            "channel": {"id": message.channel, "name": "channel"},
            "response_url": self._response_url(message),
            "actions": [action | {"block_id": block, "action_ts": self._ts()}],
            "state": {"values": {}},
        }
        return await self._send(
            "interactive", payload if hidden else payload | {"message": message.as_json()}
        )

    async def submit(self, view: Json, values: Mapping[str, Any], user: str = "U1") -> Json | None:
        """Fills in and sends the form; what comes back closes, changes or keeps it, as in Slack."""
        filled = view | {"state": {"values": rules.form_values(view, values)}}
        answer = await self._send(
            "interactive", self._interaction("view_submission", user) | {"view": filled, "response_urls": []}
        )
        action = (answer or {}).get("response_action")
        if action == "errors":
            unknown = set((answer or {})["errors"]) - set(filled["state"]["values"])
            if unknown:
                raise AssertionError(f"errors for blocks that the form has not as inputs: {sorted(unknown)}")
        elif action in {"update", "push"}:
            self._open_view((answer or {})["view"], view["id"] if action == "update" else None)
        else:
            self.views.pop(view["id"], None)
        self._changed()
        return answer

    async def suggest(self, view: Json, block_id: str, typed: str, user: str = "U1") -> list[Json]:
        """What the bot offers while somebody types in a select of the form whose options are its business."""
        element = next(block["element"] for block in view["blocks"] if block.get("block_id") == block_id)
        if not element["type"].endswith("external_select") or len(typed) < element.get("min_query_length", 3):
            raise ValueError(f"{block_id} asks nobody for options to {typed!r}")
        asked = {"action_id": element["action_id"], "block_id": block_id, "value": typed, "view": view}
        place = {"type": "view", "view_id": view["id"]}
        answer = await self._send(
            "interactive", self._interaction("block_suggestion", user) | asked | {"container": place}
        )
        offered: list[Json] = (answer or {})["options"]
        if len(offered) > 100:
            raise AssertionError(f"{len(offered)} options are offered, and 100 are the most")
        return offered

    async def slash(
        self, text: str, user: str = "U1", channel: str = "C1", command: str = "/caipe"
    ) -> Json | None:
        """What the bot answers at once; what it sends later is in `responses`."""
        head = {
            "token": "verification",
            "team_id": TEAM,
            "team_domain": "workspace",
            "api_app_id": APP,
            "command": command,
        }
        who = {
            "user_id": user,
            "user_name": self.users[user]["name"],
            "channel_id": channel,
            "channel_name": "channel",
            "text": text,
        }
        return await self._send(
            "slash_commands",
            head | who | {"trigger_id": self._trigger(), "response_url": self._response_url(None)},
        )

    async def stop(self, channel: str, thread_ts: str, user: str = "U1") -> None:
        """Somebody presses Slack's own stop button: the streams of the thread are closed before the bot hears
        of it.
        """
        streams = [message for message in self.thread(channel, thread_ts) if message.state == "streaming"]
        for message in streams:
            message.state = "done"
        event = {
            "type": "agent_session_stopped",
            "channel": channel,
            "thread_ts": thread_ts,
            "user": user,
            "event_ts": self._ts(),
        }
        await self.deliver(event | {"streaming_message_ts": [message.ts for message in streams]})

    async def open_messages_tab(self, user: str = "U1") -> str:
        """Somebody opens the bot's Messages tab; returns the channel."""
        channel = "D" + user[1:]
        await self.deliver(
            {
                "type": "app_home_opened",
                "user": user,
                "channel": channel,
                "tab": "messages",
                "event_ts": self._ts(),
            }
        )
        return channel

    def _interaction(self, kind: str, user: str) -> Json:
        name = self.users[user]["name"]
        head = {
            "type": kind,
            "team": {"id": TEAM, "domain": "workspace"},
            "api_app_id": APP,
            "token": "verification",
        }
        who = {
            "user": {"id": user, "username": name, "name": name, "team_id": TEAM},
            "enterprise": None,
            "is_enterprise_install": False,
        }
        return head | who | {"trigger_id": self._trigger()}

    def _trigger(self) -> str:
        key = f"{next(self._count)}.1.{uuid.uuid4().hex}"
        self._triggers[key] = (self.clock.now(), False)
        return key

    def _response_url(self, message: Message | None) -> str:
        key = uuid.uuid4().hex
        self._response_urls[key] = [message] * rules.RESPONSE_URL_USES
        return f"http://{self._origin}/respond/{key}"


async def _params(request: web.Request) -> Json:
    given: Json = (
        await request.json()
        if request.content_type == "application/json" and request.can_read_body
        else dict(await request.post())
    )
    params = {**request.query, **given}
    for name in _JSON_FIELDS & params.keys():
        if isinstance(params[name], str):
            with contextlib.suppress(ValueError):
                params[name] = json.loads(params[name])
    return params


def _drop(request: web.Request, call: ApiCall) -> web.Response:
    call.answer = "dropped"
    if request.transport is not None:
        request.transport.abort()
    return web.Response()


def _chunks(p: Json) -> list[Json]:
    require(
        not (p.get("chunks") and p.get("markdown_text")),
        "invalid_arguments",
        "chunks and markdown_text exclude each other",
    )
    if text := p.get("markdown_text"):
        return rules.check_chunks([{"type": "markdown_text", "text": text}])
    return rules.check_chunks(p.get("chunks") or [])


def _content(p: Json) -> tuple[str | None, list[Json] | None]:
    """Text and blocks of a message, if Slack would show them."""
    text, blocks, markdown = p.get("text"), p.get("blocks"), p.get("markdown_text")
    require(not markdown or not (text or blocks), "markdown_text_conflict")
    require(
        len(markdown or "") <= rules.MARKDOWN_LIMIT and len(text or "") <= rules.TEXT_LIMIT, "msg_too_long"
    )
    require(text or blocks or markdown, "no_text")
    return markdown or text, None if blocks is None else rules.check_blocks(blocks)


def _kind(channel: str) -> str:
    return {"D": "im", "G": "group"}.get(channel[0], "channel")
