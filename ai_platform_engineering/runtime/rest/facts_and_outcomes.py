"""REST routes for facts that are remembered of users, and for reported outcomes of tool calls."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused, WrongState
from ai_platform_engineering.runtime.facts import Fact, Facts
from ai_platform_engineering.runtime.log.log_rows import JournalEntry, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.log.run_log_rules import can_settle
from ai_platform_engineering.runtime.rest.feedback import FeedbackApi
from ai_platform_engineering.runtime.rest.input_requests import InputRequestsApi
from ai_platform_engineering.runtime.rest.problems import NotFound, read_json_body, with_problem_responses
from ai_platform_engineering.runtime.rest.run_search import RunSearchApi
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.authentication import principal_of_request
from ai_platform_engineering.runtime.server.identity import owner_of_request

_MAX_BODY_BYTES = 64 * 1024
_UNNAMED_USER = "the user"  # without authentication
_EXPECTED = (
    'Send JSON: {"outcome": "done" or "not_done", "note": a text of at most 2000 characters, or none}.'
)


class OutcomeReport(BaseModel):
    """A user's report of what became of a tool call with an unknown outcome."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Literal["done", "not_done"]
    note: str = Field("", max_length=2000)

    def to_journal(self, tool: str, by: str) -> dict[str, str]:
        """The report as an outcome of the journal; `content` and `status` are the tool's result if a model
        repeats the call."""
        if self.outcome == "done":
            status = "success"
            content = f"{by} says that {tool} took effect. {self.note}"
        else:
            status = "error"
            content = f"{by} says that {tool} did not take effect. {self.note}"
        return {"content": content.strip(), "status": status, "said": self.outcome, "note": self.note}


@dataclass(frozen=True, slots=True)
class FactsAndOutcomesApi:
    """REST routes for an owner's tasks; tasks of others are not found.

    Facts belong to the principal, whoever owns the conversation."""

    runs: Runs
    log: RunLog
    facts: Facts | None = None

    def routes(self) -> list[Route]:
        call_routes = [
            Route("/v1/tasks/{task_id}/calls", with_problem_responses(self.list_calls)),
            # A call's key holds slashes.
            Route(
                "/v1/tasks/{task_id}/calls/{key:path}/outcome",
                with_problem_responses(self.settle_call),
                methods=["POST"],
            ),
        ]
        request_routes = InputRequestsApi(self.log).routes()
        feedback_routes = FeedbackApi(self.runs, self.log).routes()
        search_routes = RunSearchApi(self.log).routes()
        if self.facts is None:
            return [*call_routes, *request_routes, *feedback_routes, *search_routes]
        return [
            Route("/v1/facts", with_problem_responses(self.list_facts)),
            Route("/v1/facts/{fact_id}", with_problem_responses(self.delete_fact), methods=["DELETE"]),
            *call_routes,
            *request_routes,
            *feedback_routes,
            *search_routes,
        ]

    async def list_facts(self, request: Request) -> Response:
        assert self.facts is not None
        facts = await self.facts.list_facts(principal_of_request(request))
        return AsciiJSONResponse({"facts": [_fact_to_json(fact) for fact in facts]})

    async def delete_fact(self, request: Request) -> Response:
        assert self.facts is not None
        fact_id = request.path_params["fact_id"]
        if not await self.facts.forget(principal_of_request(request), fact_id):
            raise NotFound(f"There is no fact {fact_id}.")
        return Response(status_code=204)

    async def list_calls(self, request: Request) -> Response:
        row = await self.runs.get(request.path_params["task_id"], owner_of_request(request))
        entries = await self.log.journal(row.run_id)
        return AsciiJSONResponse({"calls": [_call_to_json(entry, row) for entry in entries]})

    async def settle_call(self, request: Request) -> Response:
        by = principal_of_request(request) or _UNNAMED_USER
        key = request.path_params["key"]
        row = await self.runs.get(request.path_params["task_id"], owner_of_request(request))
        report = await _read_report(request)
        entry = await self._find_entry(row, key)
        outcome = report.to_journal(entry.tool, by)
        if not await self.log.settle(row.run_id, key, outcome, by):
            entry = await self._find_entry(row, key)
            if not entry.settled_by or entry.outcome != outcome:  # the same report again is no error
                raise WrongState(_describe_settled(entry))
        return AsciiJSONResponse(_call_to_json(await self._find_entry(row, key), row))

    async def _find_entry(self, row: RunRow, key: str) -> JournalEntry:
        for entry in await self.log.journal(row.run_id):
            if entry.key == key:
                return entry
        raise NotFound(f"The task has no call {key}.")


def _describe_settled(entry: JournalEntry) -> str:
    if entry.settled_by:
        return f"{entry.settled_by} has already recorded the outcome of {entry.tool}."
    if entry.state in ("intent", "waiting"):
        return f"{entry.tool} is still running: wait for the task to end."
    return f"The outcome of {entry.tool} is known."


def _fact_to_json(fact: Fact) -> dict[str, str]:
    return {"id": fact.fact_id, "fact": fact.text, "added": fact.added.isoformat()}


def _call_to_json(entry: JournalEntry, row: RunRow) -> dict[str, Any]:
    """A tool call of the journal; one that a run began and did not end before its own end is unknown."""
    state = "unknown" if can_settle(entry, row.status) else entry.state
    fields = {"key": entry.key, "tool": entry.tool, "arguments": entry.arguments, "state": state}
    if entry.settled_by:
        fields["settled_by"] = entry.settled_by
        fields["outcome"] = entry.outcome
    return fields


async def _read_report(request: Request) -> OutcomeReport:
    body = await read_json_body(request, _MAX_BODY_BYTES, _EXPECTED)
    try:
        return OutcomeReport.model_validate_json(body)
    except ValidationError:
        raise Refused(_EXPECTED) from None
