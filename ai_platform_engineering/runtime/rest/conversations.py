"""REST routes for conversations: list with search, rename, delete."""

import base64
import json
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.storable_text import clean_text
from ai_platform_engineering.runtime.log.conversation_rows import (
    MAX_TITLE_CHARS,
    ConversationPosition,
    ConversationRow,
)
from ai_platform_engineering.runtime.log.log_rows import make_thread_id
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.rest.paging import read_page_size
from ai_platform_engineering.runtime.rest.problems import NotFound, read_json_body, with_problem_responses
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import principal_of_request
from ai_platform_engineering.runtime.server.identity import owner_of_request

_MAX_QUERY_CHARS = 200
_MAX_BODY_BYTES = 4096
_EXPECTED = 'Send JSON like {"title": "…"}.'


@dataclass(frozen=True, slots=True)
class ConversationsApi:
    """REST routes for an owner's conversations. `delete_thread` removes what the graph stored of one."""

    runs: Runs
    log: RunLog
    delete_thread: Callable[[str], Awaitable[None]]

    def routes(self) -> list[Route]:
        # A context id is free text and may hold slashes.
        conversation_path = "/v1/conversations/{context_id:path}"
        return [
            Route("/v1/conversations", with_problem_responses(self.list_page)),
            Route(conversation_path, with_problem_responses(self.rename), methods=["PATCH"]),
            Route(conversation_path, with_problem_responses(self.delete), methods=["DELETE"]),
        ]

    async def list_page(self, request: Request) -> Response:
        query = request.query_params.get("query", "")
        if len(query) > _MAX_QUERY_CHARS:
            raise Refused(f"query has at most {_MAX_QUERY_CHARS} characters.")
        page = await self.log.list_conversations(
            owner_of_request(request),
            query=query,
            after=_read_token(request.query_params.get("page_token", "")),
            limit=read_page_size(request),
        )
        body: dict[str, Any] = {"conversations": [_to_json(row) for row in page.rows]}
        if page.has_more:
            body["next_page_token"] = _make_token(page.rows[-1])
        return AsciiJSONResponse(body)

    async def rename(self, request: Request) -> Response:
        title = _read_title(await read_json_body(request, _MAX_BODY_BYTES, _EXPECTED))
        context_id = request.path_params["context_id"]
        if not await self.log.rename_conversation(owner_of_request(request), context_id, title):
            raise _not_found(context_id)
        return AsciiJSONResponse({"context_id": context_id, "title": title})

    async def delete(self, request: Request) -> Response:
        owner = owner_of_request(request)
        context_id = request.path_params["context_id"]
        if not await self.runs.delete_conversation(owner, context_id, principal_of_request(request)):
            raise _not_found(context_id)
        await self.delete_thread(make_thread_id(owner, context_id))
        return Response(status_code=204)


def _to_json(row: ConversationRow) -> dict[str, str]:
    return {
        "context_id": row.context_id,
        "title": row.title,
        "created": row.created.isoformat(),
        "updated": row.updated.isoformat(),
        "state": row.state,
    }


def _make_token(row: ConversationRow) -> str:
    position = json.dumps([row.updated.isoformat(), row.context_id])
    return base64.urlsafe_b64encode(position.encode()).decode()


def _read_token(token: str) -> ConversationPosition | None:
    """Raises Refused for a token that is none of ours."""
    if not token:
        return None
    try:
        updated, context_id = json.loads(base64.urlsafe_b64decode(token))
        position = ConversationPosition(datetime.fromisoformat(updated), str(context_id))
    except (ValueError, TypeError):
        raise Refused("page_token is the next_page_token of the page before.") from None
    if position.updated.tzinfo is None:
        raise Refused("page_token is the next_page_token of the page before.")
    return position


def _read_title(body: bytes) -> str:
    try:
        content = json.loads(body)
    except ValueError:
        raise Refused(_EXPECTED) from None
    if not isinstance(content, dict) or not isinstance(content.get("title"), str):
        raise Refused(_EXPECTED)
    title = " ".join(clean_text(content["title"]).split())
    if not 1 <= len(title) <= MAX_TITLE_CHARS:
        raise Refused(f"A title has 1 to {MAX_TITLE_CHARS} characters.")
    return title


def _not_found(context_id: str) -> NotFound:
    return NotFound(f"There is no conversation {context_id}.")
