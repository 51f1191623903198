"""What waits for people: listed from the server's routes, answered over A2A, and followed like a question."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote

import click

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.cli.rest_requests import RestApi, open_api_at
from ai_platform_engineering.cli.server_address import find_or_start_server
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import Approval, Form
from ai_platform_engineering.core.transcript import PendingInput
from ai_platform_engineering.terminal.request_text import render_request
from ai_platform_engineering.terminal.run_reporter import INTERRUPTED, RunReporter, check_server_url
from ai_platform_engineering.terminal.screen import sanitize_line

Entry = Mapping[str, Any]


class Decision(Protocol):
    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        """What is sent. Raises CaipeError where it is no answer to the request."""
        ...


@dataclass(frozen=True, slots=True)
class Approve:
    changes: Mapping[str, str] = field(default_factory=dict)
    always: bool = False

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        asked = request.asked
        if isinstance(asked, Form):
            raise CaipeError(
                f"{request.request_id} is a form. Fill it in with: caipe answer {request.request_id} name=value …"
            )
        if not self.changes:
            return {"type": "approve", **({"always": True} if self.always else {})}
        # A misspelt name would let the call run with the argument that was to be changed.
        if unknown := [name for name in self.changes if name not in asked.arguments]:
            known = ", ".join(asked.arguments) or "none"
            raise CaipeError(
                f"{asked.tool} is not called with {', '.join(unknown)}; its arguments are {known}."
            )
        changed = {name: _argument(value, asked.arguments[name]) for name, value in self.changes.items()}
        return {"type": "edit", "arguments": {**asked.arguments, **changed}}


@dataclass(frozen=True, slots=True)
class Reject:
    reason: str = ""

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        return {"type": "reject", **({"message": self.reason} if self.reason else {})}


@dataclass(frozen=True, slots=True)
class FillIn:
    values: Mapping[str, Any]

    def answer_to(self, request: PendingInput) -> Mapping[str, Any]:
        if isinstance(request.asked, Approval):
            named = request.request_id
            raise CaipeError(f"{named} wants a decision: caipe approve {named}, or caipe reject {named}")
        return self.values


def list_pending(url: str | None, token: str | None, *, as_json: bool) -> int:
    async def run() -> None:
        async with find_or_start_server(url) as address, open_api_at(address, token) as api:
            found = (await api("GET", "/v1/requests"))["requests"]
            if as_json:
                click.echo(json.dumps(found, indent=2))
                return
            for entry in found:
                where = (
                    f"(task {sanitize_line(entry['task_id'])}, context {sanitize_line(entry['context_id'])})"
                )
                click.echo(f"{render_request(_request(entry))}\n  {where}\n")
            for context_id in dict.fromkeys(entry["context_id"] for entry in found):
                _show_allowances(context_id, await _allowances(api, context_id))
            if not found:
                click.echo("Nothing waits for you.", err=True)

    asyncio.run(run())
    return 0


def answer_request(
    named: str, decision: Decision, url: str | None, token: str | None, *, as_json: bool
) -> int:
    """Sends the decision and shows what comes of it, like `caipe ask`; the exit code."""

    async def run() -> int:
        report = RunReporter(as_json=as_json)
        async with find_or_start_server(url) as address:
            try:
                check_server_url(address)
                async with open_api_at(address, token) as api, create_http_client(address) as http:
                    entry = await _meant(api, named)
                    talk = ClientConversation(str(entry["context_id"]), str(entry["task_id"]))
                    given = {str(entry["request_id"]): decision.answer_to(_request(entry))}
                    view = await report.show_events(
                        A2AClient(address, http, token=token).answer(given, talk), talk
                    )
                    return report.print_result(view, talk)
            except CaipeError as error:
                return report.report_error(error)

    try:
        return asyncio.run(run())
    except KeyboardInterrupt:
        return INTERRUPTED


def list_allowances(context_id: str, url: str | None, token: str | None) -> int:
    async def run() -> None:
        async with find_or_start_server(url) as address, open_api_at(address, token) as api:
            found = await _allowances(api, context_id)
        _show_allowances(context_id, found)
        if not found:
            click.echo("Every tool that needs an approval asks for it.", err=True)

    asyncio.run(run())
    return 0


def remove_allowance(context_id: str, tool: str, url: str | None, token: str | None) -> int:
    async def run() -> None:
        async with find_or_start_server(url) as address, open_api_at(address, token) as api:
            await api("DELETE", f"{_path(context_id)}/{quote(tool, safe='')}")
        click.echo(f"{tool} asks again.", err=True)

    asyncio.run(run())
    return 0


async def _meant(api: RestApi, named: str) -> Entry:
    """The request by its id or by a beginning that only one open request has. One that is not open any more is found by its whole id:
    the server says what became of it, or asks again."""
    if not named:  # every id begins so
        raise CaipeError("There is no id. `caipe pending` lists what is open.")
    found = [
        entry
        for entry in (await api("GET", "/v1/requests"))["requests"]
        if entry["request_id"].startswith(named)
    ]
    if len(found) > 1:
        raise CaipeError(
            f"Several requests begin with {named}: {', '.join(entry['request_id'] for entry in found)}."
        )
    if found:
        return dict(found[0])
    return dict(await api("GET", f"/v1/requests/{quote(named, safe='')}"))


def _request(entry: Entry) -> PendingInput:
    asked = entry["asked"]
    if asked.get("approval"):
        return PendingInput(entry["request_id"], Approval.model_validate(asked), entry["agent"])
    named = {
        "title": asked["input_title"],
        "description": asked["input_description"],
        "fields": asked["input_fields"],
    }
    form = Form.model_validate({**named, "response": asked["response"], "expires_at": entry["expires_at"]})
    return PendingInput(entry["request_id"], form, entry["agent"])


def _argument(given: str, now: Any) -> Any:
    """JSON where it is JSON; where a text stands now, a text unless it is written as JSON: "1.10" is no number then."""
    try:
        value = json.loads(given)
    except ValueError:
        return given
    if isinstance(now, str) and not isinstance(value, str):
        return given
    return value


async def _allowances(api: RestApi, context_id: str) -> Sequence[Entry]:
    return list((await api("GET", _path(context_id)))["allowances"])


def _show_allowances(context_id: str, found: Sequence[Entry]) -> None:
    for one in found:
        tool, by = sanitize_line(one["tool"]), f", allowed by {sanitize_line(one['by'])}" if one["by"] else ""
        click.echo(f"{tool} runs without asking in {sanitize_line(context_id)}{by}.")
        click.echo(f"  caipe allowances {sanitize_line(context_id)} --remove {tool}")


def _path(context_id: str) -> str:
    return f"/v1/conversations/{quote(context_id, safe='')}/allowances"
