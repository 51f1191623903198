"""REST routes for feedback on runs: one score for each user and run."""

import logging
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.runtime.log.log_rows import Feedback, FeedbackScore, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.rest.problems import NotFound, read_json_body, with_problem_responses
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.runs.turn import derive_trace_id
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import principal_of_request
from ai_platform_engineering.runtime.server.identity import owner_of_request

log = logging.getLogger(__name__)

_MAX_BODY_BYTES = 64 * 1024
_EXPECTED = 'Send JSON: {"score": "up" or "down", "reason": a text of at most 2000 characters, or none}.'


class FeedbackBody(BaseModel):
    """The body of a PUT request."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    score: FeedbackScore
    reason: str | None = Field(None, max_length=2000)


@dataclass(frozen=True, slots=True)
class FeedbackApi:
    """REST routes for feedback on an owner's runs; runs of others are not found."""

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
        row = await self._find_run(request)
        entries = [_feedback_to_json(feedback) for feedback in await self.log.feedback(row.run_id)]
        return AsciiJSONResponse({"trace_id": derive_trace_id(row.run_id), "feedback": entries})

    async def put_feedback(self, request: Request) -> Response:
        row = await self._find_run(request)
        body = await _read_feedback(request)
        principal = principal_of_request(request)
        feedback = await self.log.rate(row.run_id, principal, body.score, body.reason or None)
        log.info("run %s, trace %s: feedback %s", row.run_id, derive_trace_id(row.run_id), feedback.score)
        return AsciiJSONResponse(_feedback_to_json(feedback))

    async def delete_feedback(self, request: Request) -> Response:
        row = await self._find_run(request)
        if not await self.log.unrate(row.run_id, principal_of_request(request)):
            raise NotFound(f"You have given no feedback on the task {row.run_id}.")
        log.info("run %s, trace %s: feedback withdrawn", row.run_id, derive_trace_id(row.run_id))
        return Response(status_code=204)

    async def _find_run(self, request: Request) -> RunRow:
        return await self.runs.get(request.path_params["task_id"], owner_of_request(request))


def _feedback_to_json(feedback: Feedback) -> dict[str, Any]:
    return {
        "by": feedback.by,
        "score": feedback.score,
        "reason": feedback.reason,
        "at": feedback.at.isoformat(),
    }


async def _read_feedback(request: Request) -> FeedbackBody:
    body = await read_json_body(request, _MAX_BODY_BYTES, _EXPECTED)
    try:
        return FeedbackBody.model_validate_json(body)
    except ValidationError:
        raise Refused(_EXPECTED) from None
