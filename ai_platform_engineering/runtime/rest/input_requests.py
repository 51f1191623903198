"""REST routes for requests (forms and approvals) and for allowances (tools that need no approval)."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.a2a.request_data import request_to_data
from ai_platform_engineering.runtime.log.log_rows import Allowance, PendingRequest, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.rest.paging import read_page_request
from ai_platform_engineering.runtime.rest.problems import NotFound, with_problem_responses
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request

RestRequestStatus = Literal["pending", "answered", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class InputRequestsApi:
    """REST routes for requests of an owner's conversations; those of others are not found."""

    log: RunLog

    def routes(self) -> list[Route]:
        # A context id is free text and may hold slashes, as may a tool's name.
        allowances = "/v1/conversations/{context_id:path}/allowances"
        return [
            Route("/v1/requests", with_problem_responses(self.list_pending)),
            Route("/v1/requests/{request_id}", with_problem_responses(self.get_request)),
            Route(allowances, with_problem_responses(self.list_allowances)),
            Route(
                f"{allowances}/{{tool:path}}",
                with_problem_responses(self.delete_allowance),
                methods=["DELETE"],
            ),
        ]

    async def list_pending(self, request: Request) -> Response:
        page_request = read_page_request(request)
        page = await self.log.list_open_requests(
            owner_of_request(request), after=page_request.after, limit=page_request.size
        )
        body: dict[str, Any] = {"requests": [_request_to_json(pending, row) for pending, row in page.items]}
        if page.next_after is not None:
            body["next_page_token"] = str(page.next_after)
        return AsciiJSONResponse(body)

    async def get_request(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        pending = await self.log.request(request_id)
        if pending is None:
            raise _request_not_found(request_id)
        row = await self.log.get(pending.run_id)
        if row is None or row.owner != owner_of_request(request):
            raise _request_not_found(request_id)
        return AsciiJSONResponse(_request_to_json(pending, row))

    async def list_allowances(self, request: Request) -> Response:
        owner = owner_of_request(request)
        context_id = request.path_params["context_id"]
        if not await self.log.has_conversation(owner, context_id):
            raise NotFound(f"There is no conversation {context_id}.")
        allowances = await self.log.list_allowances(owner, context_id)
        return AsciiJSONResponse({"allowances": [_allowance_to_json(allowance) for allowance in allowances]})

    async def delete_allowance(self, request: Request) -> Response:
        context_id = request.path_params["context_id"]
        tool = request.path_params["tool"]
        if not await self.log.disallow(owner_of_request(request), context_id, tool):
            raise NotFound(f"{tool} is not allowed without asking in the conversation {context_id}.")
        return Response(status_code=204)


def _request_not_found(request_id: str) -> NotFound:
    return NotFound(f"There is no request {request_id}.")


def _request_to_json(request: PendingRequest, row: RunRow) -> dict[str, Any]:
    """A request with its status; the field `asked` is the same object as in the stream."""
    status = _request_status(request)
    fields: dict[str, Any] = {
        "request_id": request.request_id,
        "status": status,
        "task_id": row.run_id,
        "context_id": row.context_id,
        "agent": request.event.agent,
        "expires_at": _time_to_json(request.event.asked.expires_at),
        "asked": request_to_data(request.event),
    }
    if status == "pending":
        fields["waiting_since"] = _time_to_json(row.state_at)
    else:
        fields["by"] = request.by
        fields["at"] = _time_to_json(request.at)
    if status == "answered":
        fields["answer"] = request.answer
    return fields


def _time_to_json(time: datetime | None) -> str | None:
    if time is None:
        return None
    return time.isoformat()


def _request_status(request: PendingRequest) -> RestRequestStatus:
    match request.status:
        case "claimed" | "resolved":
            return "answered"
        case "pending":  # it is expired at its time, even before the expiry is stored
            if request.waits(datetime.now(UTC)):
                return "pending"
            return "expired"
        case other:
            return other


def _allowance_to_json(allowance: Allowance) -> dict[str, str]:
    return {"tool": allowance.tool, "by": allowance.by, "at": allowance.at.isoformat()}
