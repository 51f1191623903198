"""Answers to requests of runs: finds a request by its id, and makes what approve, reject and answer send."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol
from urllib.parse import quote

from ai_platform_engineering.a2a.request_data import request_from_data
from ai_platform_engineering.a2a.rest_client import RestApi, read_all_pages
from ai_platform_engineering.core.decisions import answer_approve, answer_edit, answer_reject
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.core.transcript import PendingInput

RequestRow = Mapping[str, Any]  # a request as the REST API lists it


class AnswerFactory(Protocol):
    """What a person decided on the command line; `min_id_chars` of the request's id must be given."""

    min_id_chars: ClassVar[int]

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        """The answer to send. Raises CaipeError where the decision does not fit the request."""
        ...


@dataclass(frozen=True, slots=True)
class Approve:
    """Lets a tool call run, with some arguments changed or without asking again.

    By a few characters another call could be meant: the one that was seen may have been answered meanwhile.
    """

    min_id_chars: ClassVar[int] = 8
    changes: Mapping[str, str] = field(default_factory=dict)
    always: bool = False

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        approval = request.asked
        if isinstance(approval, Form):
            request_id = request.request_id
            raise CaipeError(
                f"{request_id} is a form. Fill it in with: {command_name()} answer {request_id} name=value …"
            )
        if self.changes:
            return answer_edit(self._change_arguments(approval), approval.digest)
        return answer_approve(approval.digest, always=self.always)

    def _change_arguments(self, approval: Approval) -> dict[str, Any]:
        # A misspelt name would let the call run with the argument that was to be changed.
        unknown_names = [name for name in self.changes if name not in approval.arguments]
        if unknown_names:
            argument_names = ", ".join(approval.arguments) or "none"
            raise CaipeError(
                f"{approval.tool} is not called with {', '.join(unknown_names)};"
                f" its arguments are {argument_names}."
            )
        arguments = dict(approval.arguments)
        for name, text in self.changes.items():
            arguments[name] = _parse_argument(text, approval.arguments[name])
        return arguments


@dataclass(frozen=True, slots=True)
class Reject:
    """Refuses a tool call or declines a form."""

    min_id_chars: ClassVar[int] = 1
    reason: str = ""

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        return answer_reject(self.reason)


@dataclass(frozen=True, slots=True)
class FillIn:
    """Fills in a form."""

    min_id_chars: ClassVar[int] = 1
    values: Mapping[str, Any]

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        if isinstance(request.asked, Approval):
            name, request_id = command_name(), request.request_id
            raise CaipeError(
                f"{request_id} needs a decision: {name} approve {request_id}, or {name} reject {request_id}"
            )
        return self.values


async def find_request(api: RestApi, request_id: str, min_chars: int = 1) -> RequestRow:
    """Finds a request by its id, or by a prefix that only one open request has. Raises CaipeError.

    A request that is not open any more is found by its whole id: the server says what became of it,
    or asks again.
    """
    if not request_id:  # a prefix of every id
        raise CaipeError(f"No id. `{command_name()} pending` lists the open requests.")
    open_requests = await read_all_pages(api, "/v1/requests", "requests")
    rows = [row for row in open_requests if row["request_id"].startswith(request_id)]
    if len(rows) > 1:
        ids = ", ".join(row["request_id"] for row in rows)
        raise CaipeError(f"Several requests begin with {request_id}: {ids}.")
    if rows and len(request_id) < min_chars:
        raise CaipeError(f"Type at least {min_chars} characters of the id.")
    if rows:
        return dict(rows[0])
    return dict(await api("GET", f"/v1/requests/{quote(request_id, safe='')}"))


def parse_request(row: RequestRow) -> PendingInput:
    """The request of a row of the REST API."""
    form_or_approval = request_from_data({**row["asked"], "expires_at": row["expires_at"]})
    return PendingInput(row["request_id"], form_or_approval, row["agent"])


def _parse_argument(text: str, current_value: Any) -> Any:
    """Parses JSON, or takes the text as it is.

    Where the argument is a string now, only a JSON string counts as JSON: "1.10" is no number then.
    """
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        return text
    if isinstance(current_value, str) and not isinstance(value, str):
        return text
    return value
