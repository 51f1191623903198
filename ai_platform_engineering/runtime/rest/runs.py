"""REST route for the list of runs: by state, by agent, by words of the question."""

from dataclasses import dataclass
from typing import Any, get_args

from pydantic import TypeAdapter, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.core.events import Usage
from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.runtime.log.run_details import MAX_AGENT_CHARS, DetailsFilter, RunDetails
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.rest.paging import read_page_request
from ai_platform_engineering.runtime.rest.problems import with_problem_responses
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request

_MAX_QUERY_CHARS = 200
_state: TypeAdapter[TranscriptState] = TypeAdapter(TranscriptState)


@dataclass(frozen=True, slots=True)
class RunsApi:
    """REST route for an owner's runs; those of others are not listed."""

    log: RunLog

    def routes(self) -> list[Route]:
        return [Route("/v1/runs", with_problem_responses(self.list_page))]

    async def list_page(self, request: Request) -> Response:
        page_request = read_page_request(request)
        page = await self.log.list_details(
            _read_filter(request), after=page_request.after or None, limit=page_request.size
        )
        body: dict[str, Any] = {"runs": [_to_json(details) for details in page.items]}
        if page.has_more:
            body["next_page_token"] = str(page.items[-1].number)
        return AsciiJSONResponse(body)


def _read_filter(request: Request) -> DetailsFilter:
    """Raises Refused."""
    query = request.query_params.get("query", "")
    if len(query) > _MAX_QUERY_CHARS:
        raise Refused(f"query has at most {_MAX_QUERY_CHARS} characters.")
    agent = request.query_params.get("agent", "")
    if len(agent) > MAX_AGENT_CHARS:
        raise Refused(f"agent has at most {MAX_AGENT_CHARS} characters.")
    state = _read_state(request.query_params.get("state", ""))
    return DetailsFilter(owner_of_request(request), state, agent or None, query)


def _read_state(text: str) -> TranscriptState | None:
    if not text:
        return None
    try:
        return _state.validate_python(text)
    except ValidationError:
        raise Refused(f"state is one of {', '.join(get_args(TranscriptState))}.") from None


def _to_json(details: RunDetails) -> dict[str, Any]:
    row = details.row
    return {
        "task_id": row.run_id,
        "context_id": row.context_id,
        "question": details.question,
        "state": row.state,
        "agents": list(details.agents),
        "started": row.created.isoformat(),
        "updated": row.updated.isoformat(),
        "tokens": _usage_to_json(details.usage),
    }


def _usage_to_json(usage: Usage | None) -> dict[str, int] | None:
    """None while the run works, and where nobody counted."""
    if usage is None:
        return None
    return usage.model_dump(exclude_none=True)
