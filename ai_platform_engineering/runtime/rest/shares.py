"""REST routes for shared conversations: a link for others to read one, and what they read with it."""

import asyncio
import json
import re
import secrets
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.a2a.frame_json import frame_to_dict
from ai_platform_engineering.a2a.snapshots import encode_snapshot
from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.events import StoredEvent
from ai_platform_engineering.core.storage_settings import StorageSettings
from ai_platform_engineering.runtime.log.log_rows import RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.shares import Share, digest_token
from ai_platform_engineering.runtime.rest.paging import read_page_request
from ai_platform_engineering.runtime.rest.problems import NotFound, read_json_body, with_problem_responses
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request

_MAX_BODY_BYTES = 4096
_EXPECTED = 'Send JSON like {"context_id": "…"}.'
_TOKEN_BYTES = 32
_SHARE_ID = re.compile(r"[0-9a-f]{64}")
_MAX_TASKS = 20  # of a page: each holds all its events
_PAGE_PATH = "/c/-/shared/"
_OFF = "Conversations are not shared here: SHARES_MAX_PER_PERSON is 0."
_NOT_SHARED = "This conversation is not shared, or not any more."


class ShareBody(BaseModel):
    """The body of a POST request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    context_id: str = Field(min_length=1, max_length=2000)


@dataclass(frozen=True, slots=True)
class SharesApi:
    """REST routes with which an owner shares a conversation, and everybody with its token reads it.

    Whoever reads it must be able to use the server: a token replaces no key."""

    runs: Runs
    log: RunLog
    settings: StorageSettings

    def routes(self) -> list[Route]:
        return [
            Route("/v1/shares", with_problem_responses(self.list_shares)),
            Route("/v1/shares", with_problem_responses(self.share), methods=["POST"]),
            Route("/v1/shares/{token}", with_problem_responses(self.unshare), methods=["DELETE"]),
            Route("/v1/shared/{token}", with_problem_responses(self.read_shared)),
        ]

    async def share(self, request: Request) -> Response:
        context_id = _read_context_id(await read_json_body(request, _MAX_BODY_BYTES, _EXPECTED))
        if not self.settings.max_shares:
            raise Refused(_OFF)
        token = secrets.token_urlsafe(_TOKEN_BYTES)
        now = datetime.now(UTC)
        expires_at = now + timedelta(days=self.settings.share_days)
        share = Share(digest_token(token), owner_of_request(request), context_id, now, expires_at)
        if not await self.log.add_share(share, self.settings.max_shares):
            raise NotFound(f"There is no conversation {context_id}.")
        return AsciiJSONResponse(
            {"token": token, "path": f"{_PAGE_PATH}{token}", **_share_to_json(share)}, 201
        )

    async def list_shares(self, request: Request) -> Response:
        context_id = request.query_params.get("context_id") or None
        shares = await self.log.list_shares(owner_of_request(request), context_id, datetime.now(UTC))
        return AsciiJSONResponse({"shares": [_share_to_json(share) for share in shares]})

    async def unshare(self, request: Request) -> Response:
        """By the token, or by the id, which lists show."""
        token = request.path_params["token"]
        share_id = token if _SHARE_ID.fullmatch(token) else digest_token(token)
        if not await self.log.remove_share(owner_of_request(request), share_id):
            raise NotFound("You share nothing with this link.")
        return Response(status_code=204)

    async def read_shared(self, request: Request) -> Response:
        page_request = read_page_request(request)
        share = await self.log.find_share(digest_token(request.path_params["token"]), datetime.now(UTC))
        if share is None:
            raise NotFound(_NOT_SHARED)
        part = await self.log.read_conversation(
            share.owner,
            share.context_id,
            before=page_request.after or None,
            limit=min(page_request.size, _MAX_TASKS),
        )
        if part is None:
            raise NotFound(_NOT_SHARED)
        tasks = [await self._read_task(row) for row in part.rows]
        title = json.dumps(part.title)
        fields = [f'"title":{title}', f'"tasks":[{",".join(tasks)}]']
        if part.next_before is not None:
            fields.append(f'"next_page_token":"{part.next_before}"')
        return Response("{" + ",".join(fields) + "}", media_type="application/json")

    async def _read_task(self, row: RunRow) -> str:
        """The task as JSON text, made in a thread: a long run has many events."""
        events = await self.runs.events(row.run_id)
        return await asyncio.to_thread(_encode_task, row, events)


def _encode_task(row: RunRow, events: list[StoredEvent]) -> str:
    frame: dict[str, Any] = frame_to_dict(encode_snapshot(row.ref, events), is_v03=False)
    return json.dumps(frame["task"])


def _read_context_id(body: bytes) -> str:
    try:
        return ShareBody.model_validate_json(body).context_id
    except ValidationError:
        raise Refused(_EXPECTED) from None


def _share_to_json(share: Share) -> dict[str, str]:
    return {
        "id": share.share_id,
        "context_id": share.context_id,
        "created": share.created.isoformat(),
        "expires_at": share.expires_at.isoformat(),
    }
