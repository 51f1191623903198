"""What people think of a run: each person's last word on it, in REST."""

import logging
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.runtime.log.run_log import Feedback, FeedbackScore, RunLog, RunRow
from ai_platform_engineering.runtime.rest.problems import NotFound, read_json_body, with_problem_responses
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import derive_trace_id
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request, principal_of_request

log = logging.getLogger(__name__)

_MOST_BYTES = 64 * 1024
_EXPECTED = 'Send JSON: {"score": "up" or "down", "reason": a text of at most 2000 characters, or none}.'


class FeedbackBody(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    score: FeedbackScore
    reason: str | None = Field(None, max_length=2000)


@dataclass(frozen=True, slots=True)
class FeedbackApi:
    """On runs of an owner's conversations alone; everything else is not found."""

    runs: Runs
    log: RunLog

    def routes(self) -> list[Route]:
        path = "/v1/tasks/{task_id}/feedback"
        return [
            Route(path, with_problem_responses(self.list_feedback)),
            Route(path, with_problem_responses(self.put_feedback), methods=["PUT"]),
            Route(path, with_problem_responses(self.delete_feedback), methods=["DELETE"]),
        ]

    async def list_feedback(self, request: Request) -> Response:
        row = await self._row(request)
        found = await self.log.feedback(row.run_id)
        return AsciiJSONResponse(
            {"trace_id": derive_trace_id(row.run_id), "feedback": [_shown(one) for one in found]}
        )

    async def put_feedback(self, request: Request) -> Response:
        row, said = await self._row(request), await _said(request)
        stored = await self.log.rate(
            row.run_id, principal_of_request(request), said.score, said.reason or None
        )
        log.info("run %s, trace %s: feedback %s", row.run_id, derive_trace_id(row.run_id), stored.score)
        return AsciiJSONResponse(_shown(stored))

    async def delete_feedback(self, request: Request) -> Response:
        row = await self._row(request)
        if not await self.log.unrate(row.run_id, principal_of_request(request)):
            raise NotFound(f"You have given no feedback on the task {row.run_id}.")
        log.info("run %s, trace %s: feedback taken back", row.run_id, derive_trace_id(row.run_id))
        return Response(status_code=204)

    async def _row(self, request: Request) -> RunRow:
        return await self.runs.get(request.path_params["task_id"], owner_of_request(request))


def _shown(one: Feedback) -> dict[str, Any]:
    return {"by": one.by, "score": one.score, "reason": one.reason, "at": one.at.isoformat()}


async def _said(request: Request) -> FeedbackBody:
    body = await read_json_body(request, _MOST_BYTES, _EXPECTED)
    try:
        return FeedbackBody.model_validate_json(body)
    except ValidationError:
        raise Refused(_EXPECTED) from None
