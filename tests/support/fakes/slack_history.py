"""A stand-in of the methods of Slack's Web API that read channels: history, replies, members, users."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.fakes.api_stand_in import ApiStandIn

TOKEN = "xoxb-token-of-a-reader"
PAGE_SIZE = 2
CHANNEL = "C0123ABCD"


class SlackHistory(ApiStandIn):
    """One channel with its messages: first messages of threads, and replies to them, by their ids."""

    def __init__(self) -> None:
        super().__init__(f"Bearer {TOKEN}")
        self.now = datetime(2026, 3, 20, 12, tzinfo=UTC)
        self.is_private = False
        self.error = ""  # of conversations.history
        self.members = ["U1", "U2", "U3"]
        self.messages: dict[str, dict[str, Any]] = {}
        self.replies: dict[str, dict[str, dict[str, Any]]] = {}
        self.users = [
            _user("U1", "Ann", "Ann@example.org"),
            _user("U2", "Bob", "bob@example.org"),
            {**_user("U3", "Left", "left@example.org"), "deleted": True},
            {**_user("U4", "Guest", "guest@elsewhere.org"), "team_id": "T9"},
        ]

    def write(self, text: str, user: str = "U1", *, thread: str | None = None, **more: Any) -> str:
        """A message that is written now; its id."""
        ts = f"{self.now.timestamp():.6f}"
        message = {"type": "message", "ts": ts, "user": user, "text": text, **more}
        if thread is None:
            self.messages[ts] = message
        else:
            self.replies.setdefault(thread, {})[ts] = {**message, "thread_ts": thread}
        return ts

    def routes(self) -> Sequence[Route]:
        methods: dict[str, Callable[[Request], dict[str, Any]]] = {
            "auth.test": lambda _: {"url": "https://team.slack.test/", "team_id": "T1"},
            "conversations.info": lambda _: {"channel": self._channel()},
            "conversations.list": lambda _: {"channels": [{"id": "C9", "name": "other"}, self._channel()]},
            "conversations.members": lambda request: self._page(request, "members", self.members),
            "users.list": lambda request: self._page(request, "members", self.users),
            "conversations.history": self._history,
            "conversations.replies": self._thread,
        }
        return [Route(f"/api/{name}", self._serve(method)) for name, method in methods.items()]

    def _channel(self) -> dict[str, Any]:
        return {"id": CHANNEL, "name": "help", "is_channel": True, "is_private": self.is_private}

    def _history(self, request: Request) -> dict[str, Any]:
        if self.error:
            return {"ok": False, "error": self.error}
        oldest = float(request.query_params.get("oldest", "0"))
        messages: list[dict[str, Any]] = []
        for ts, message in sorted(self.messages.items(), reverse=True):
            replies = self.replies.get(ts, {})
            listed = dict(message)
            if replies:
                listed |= {"reply_count": len(replies), "latest_reply": max(replies)}
            if float(ts) >= oldest:
                messages.append(listed)
        return self._page(request, "messages", messages)

    def _thread(self, request: Request) -> dict[str, Any]:
        ts = request.query_params["ts"]
        if ts not in self.messages:
            return {"ok": False, "error": "thread_not_found"}
        replies = self.replies.get(ts, {})
        return self._page(
            request, "messages", [self.messages[ts], *(replies[key] for key in sorted(replies))]
        )

    def _page(self, request: Request, key: str, values: Sequence[Any]) -> dict[str, Any]:
        start = int(request.query_params.get("cursor", "0"))
        end = start + PAGE_SIZE
        following = str(end) if end < len(values) else ""
        return {key: values[start:end], "response_metadata": {"next_cursor": following}}

    def _serve(self, method: Callable[[Request], dict[str, Any]]) -> Callable[[Request], Any]:
        async def serve(request: Request) -> Response:
            date = self.now.strftime("%a, %d %b %Y %H:%M:%S GMT")
            return JSONResponse({"ok": True, **method(request)}, headers={"Date": date})

        return serve


def _user(user_id: str, name: str, mail: str) -> dict[str, Any]:
    return {
        "id": user_id,
        "team_id": "T1",
        "name": name.lower(),
        "profile": {"real_name": name, "email": mail},
    }
