"""REST routes that find tasks and conversations by the beginning of their ids."""

from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.errors import Refused
from ai_platform_engineering.runtime.log.id_search import IdSearch
from ai_platform_engineering.runtime.rest.problems import with_problem_responses
from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.identity import owner_of_request

_MIN_CHARACTERS = 4
_MAX_CHARACTERS = 200
_MAX_MATCHES = 5  # enough to say that an id is not unique, and which ones it could be


@dataclass(frozen=True, slots=True)
class RunSearchApi:
    """REST routes over an owner's runs; those of others are not found."""

    log: IdSearch

    def routes(self) -> list[Route]:
        return [
            Route("/v1/ids/tasks", with_problem_responses(self.find_tasks)),
            Route("/v1/ids/conversations", with_problem_responses(self.find_conversations)),
        ]

    async def find_tasks(self, request: Request) -> Response:
        refs = await self.log.find_runs_by_prefix(
            owner_of_request(request), _read_prefix(request), _MAX_MATCHES
        )
        tasks = [{"task_id": ref.task_id, "context_id": ref.context_id} for ref in refs]
        return AsciiJSONResponse({"tasks": tasks})

    async def find_conversations(self, request: Request) -> Response:
        context_ids = await self.log.find_contexts_by_prefix(
            owner_of_request(request), _read_prefix(request), _MAX_MATCHES
        )
        conversations = [{"context_id": context_id} for context_id in context_ids]
        return AsciiJSONResponse({"conversations": conversations})


def _read_prefix(request: Request) -> str:
    """The beginning of an id in the query. Raises Refused."""
    prefix = request.query_params.get("prefix", "")
    if not _MIN_CHARACTERS <= len(prefix) <= _MAX_CHARACTERS:
        limits = f"{_MIN_CHARACTERS} to {_MAX_CHARACTERS} characters"
        raise Refused(f"Give the beginning of an id as ?prefix=, with {limits}.")
    return prefix
