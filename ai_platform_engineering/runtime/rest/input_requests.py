"""What waits for people, what became of it, and which tools they let run without being asked, in REST."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Literal

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.a2a.codec import request_to_data
from ai_platform_engineering.runtime.log.run_log import Allowance, PendingRequest, RunLog, RunRow
from ai_platform_engineering.runtime.rest.problems import NotFound, with_problem_responses
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request

RequestStatus = Literal["pending", "answered", "expired", "withdrawn"]


@dataclass(frozen=True, slots=True)
class InputRequestsApi:
    """Of an owner's conversations alone; everything else is not found."""

    log: RunLog

    def routes(self) -> list[Route]:
        # A context id is free text and may hold slashes, as a tool's name does.
        allowances = "/v1/conversations/{context_id:path}/allowances"
        return [
            Route("/v1/requests", with_problem_responses(self.list_open)),
            Route("/v1/requests/{request_id}", with_problem_responses(self.show)),
            Route(allowances, with_problem_responses(self.list_allowances)),
            Route(f"{allowances}/{{tool:path}}", with_problem_responses(self.disallow), methods=["DELETE"]),
        ]

    async def list_open(self, request: Request) -> Response:
        now = datetime.now(UTC)
        found = [
            asked for asked in await self.log.open_requests(owner_of_request(request)) if asked.waits(now)
        ]
        rows = {
            run_id: row
            for run_id in {asked.run_id for asked in found}
            if (row := await self.log.get(run_id)) is not None
        }
        return AsciiJSONResponse(
            {"requests": [_shown(asked, rows[asked.run_id]) for asked in found if asked.run_id in rows]}
        )

    async def show(self, request: Request) -> Response:
        request_id = request.path_params["request_id"]
        asked = await self.log.request(request_id)
        row = await self.log.get(asked.run_id) if asked is not None else None
        if asked is None or row is None or row.owner != owner_of_request(request):
            raise NotFound(f"There is no request {request_id}.")
        return AsciiJSONResponse(_shown(asked, row))

    async def list_allowances(self, request: Request) -> Response:
        owner, context_id = owner_of_request(request), request.path_params["context_id"]
        if not await self.log.find_runs(owner, context_id):
            raise NotFound(f"There is no conversation {context_id}.")
        return AsciiJSONResponse(
            {"allowances": [_allowance(one) for one in await self.log.list_allowances(owner, context_id)]}
        )

    async def disallow(self, request: Request) -> Response:
        context_id, tool = request.path_params["context_id"], request.path_params["tool"]
        if not await self.log.disallow(owner_of_request(request), context_id, tool):
            raise NotFound(f"{tool} is not allowed without asking in the conversation {context_id}.")
        return Response(status_code=204)


def _shown(asked: PendingRequest, row: RunRow) -> dict[str, Any]:
    """`asked` is the same object that the stream carries."""
    status, expires_at = _status(asked), asked.event.asked.expires_at
    shown: dict[str, Any] = {
        "request_id": asked.request_id,
        "status": status,
        "task_id": row.run_id,
        "context_id": row.context_id,
        "agent": asked.event.agent,
        "expires_at": expires_at.isoformat() if expires_at else None,
        "asked": request_to_data(asked.event),
    }
    if status == "pending":
        return shown
    said = {"answer": asked.answer} if status == "answered" else {}
    return {**shown, "by": asked.by, "at": asked.at.isoformat() if asked.at else None, **said}


def _status(asked: PendingRequest) -> RequestStatus:
    match asked.status:
        case "claimed" | "resolved":
            return "answered"
        case "pending":  # it has expired when its time has come, whether that has been told or not
            if asked.waits(datetime.now(UTC)):
                return "pending"
            return "expired"
        case other:
            return other


def _allowance(one: Allowance) -> dict[str, str]:
    return {"tool": one.tool, "by": one.by, "at": one.at.isoformat()}
