"""What users may see and say without a model: facts that are remembered of them, and what became of calls with an unknown outcome."""

from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused, WrongState
from ai_platform_engineering.runtime.facts import Fact, Facts
from ai_platform_engineering.runtime.log.run_log import JournalEntry, RunLog, RunRow
from ai_platform_engineering.runtime.log.run_log_rules import can_settle
from ai_platform_engineering.runtime.rest.feedback import FeedbackApi
from ai_platform_engineering.runtime.rest.input_requests import InputRequestsApi
from ai_platform_engineering.runtime.rest.problems import NotFound, read_json_body, with_problem_responses
from ai_platform_engineering.runtime.runs.runs import Runs
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request, principal_of_request

_MOST_BYTES = 64 * 1024
_SOMEBODY = "the user"  # where nobody is authenticated
_EXPECTED = (
    'Send JSON: {"outcome": "done" or "not_done", "note": a text of at most 2000 characters, or none}.'
)


class OutcomeReport(BaseModel):
    """A person's word on a call."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    outcome: Literal["done", "not_done"]
    note: str = Field("", max_length=2000)

    def stored(self, tool: str, by: str) -> dict[str, str]:
        """As an outcome of the journal: `content` and `status` are what a model is told when its call is asked for again."""
        done = self.outcome == "done"
        text = (
            f"{by} says that {tool} {'took effect' if done else 'did not take effect'}. {self.note}".strip()
        )
        return {
            "content": text,
            "status": "success" if done else "error",
            "said": self.outcome,
            "note": self.note,
        }


@dataclass(frozen=True, slots=True)
class FactsAndOutcomesApi:
    """The requests of an owner for what is the owner's; everything else is not found. Facts are a person's own, whoever owns the talk."""

    runs: Runs
    log: RunLog
    facts: Facts | None = None

    def routes(self) -> list[Route]:
        of_calls = [
            Route("/v1/tasks/{task_id}/calls", with_problem_responses(self.list_calls)),
            # A key holds slashes.
            Route(
                "/v1/tasks/{task_id}/calls/{key:path}/outcome",
                with_problem_responses(self.settle),
                methods=["POST"],
            ),
        ]
        of_people = [*InputRequestsApi(self.log).routes(), *FeedbackApi(self.runs, self.log).routes()]
        if self.facts is None:
            return [*of_calls, *of_people]
        return [
            Route("/v1/facts", with_problem_responses(self.list_facts)),
            Route("/v1/facts/{fact_id}", with_problem_responses(self.forget_fact), methods=["DELETE"]),
            *of_calls,
            *of_people,
        ]

    async def list_facts(self, request: Request) -> Response:
        assert self.facts is not None
        return AsciiJSONResponse(
            {"facts": [_fact(fact) for fact in await self.facts.list_facts(principal_of_request(request))]}
        )

    async def forget_fact(self, request: Request) -> Response:
        assert self.facts is not None
        fact_id = request.path_params["fact_id"]
        if not await self.facts.forget(principal_of_request(request), fact_id):
            raise NotFound(f"There is no fact {fact_id}.")
        return Response(status_code=204)

    async def list_calls(self, request: Request) -> Response:
        row = await self.runs.get(request.path_params["task_id"], owner_of_request(request))
        return AsciiJSONResponse(
            {"calls": [_call(entry, row) for entry in await self.log.journal(row.run_id)]}
        )

    async def settle(self, request: Request) -> Response:
        by, key = principal_of_request(request) or _SOMEBODY, request.path_params["key"]
        row = await self.runs.get(request.path_params["task_id"], owner_of_request(request))
        said = await _said(request)
        before = await self._entry(row, key)
        outcome = said.stored(before.tool, by)
        if not await self.log.settle(row.run_id, key, outcome, by):
            now = await self._entry(row, key)
            if not now.settled_by or now.outcome != outcome:  # the same word again is no mistake
                raise WrongState(_not_open(now))
        return AsciiJSONResponse(_call(await self._entry(row, key), row))

    async def _entry(self, row: RunRow, key: str) -> JournalEntry:
        found = next((entry for entry in await self.log.journal(row.run_id) if entry.key == key), None)
        if found is None:
            raise NotFound(f"The task has no call {key}.")
        return found


def _not_open(entry: JournalEntry) -> str:
    if entry.settled_by:
        return f"{entry.settled_by} has said before what became of {entry.tool}."
    if entry.state == "intent":
        return f"{entry.tool} is being called: wait for the end of the task."
    return f"The outcome of {entry.tool} is known."


def _fact(fact: Fact) -> dict[str, str]:
    return {"id": fact.fact_id, "fact": fact.text, "added": fact.added.isoformat()}


def _call(entry: JournalEntry, row: RunRow) -> dict[str, Any]:
    """A call for people: one that was begun in a run that is over is unknown, whatever it has been before."""
    state = "unknown" if can_settle(entry, row.status) else entry.state
    said = {"settled_by": entry.settled_by, "outcome": entry.outcome} if entry.settled_by else {}
    return {"key": entry.key, "tool": entry.tool, "arguments": entry.arguments, "state": state, **said}


async def _said(request: Request) -> OutcomeReport:
    body = await read_json_body(request, _MOST_BYTES, _EXPECTED)
    try:
        return OutcomeReport.model_validate_json(body)
    except ValidationError:
        raise Refused(_EXPECTED) from None
