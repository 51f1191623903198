"""`caipe ask`: one question, one answer, drawn from the transcript."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.terminal.preset_answers import PresetAnswers
from ai_platform_engineering.terminal.run_reporter import (
    FAILED,
    INTERRUPTED,
    TIMED_OUT,
    RunReporter,
    ServerContext,
    check_server_url,
)


def ask_once(
    text: str,
    *,
    server: ServerContext,
    token: str | None,
    context_id: str | None,
    as_json: bool,
    timeout: float | None,
    values: Mapping[str, Any] | None = None,
) -> int:
    """Asks the server and prints; the exit code. Forms that come up are answered with the values."""
    talk = ClientConversation(context_id) if context_id else ClientConversation()
    try:
        return asyncio.run(
            _ask(text, server, _Asking(token, talk, PresetAnswers(values or {}), as_json=as_json), timeout)
        )
    except KeyboardInterrupt:
        return INTERRUPTED


async def _ask(text: str, server: ServerContext, asking: "_Asking", timeout: float | None) -> int:
    async with server as url:
        return await asking.run(url, text, timeout)


class _Asking:
    def __init__(
        self, token: str | None, talk: ClientConversation, given: PresetAnswers, *, as_json: bool
    ) -> None:
        self._token = token
        self._talk = talk
        self._given = given
        self._report = RunReporter(as_json=as_json)

    async def run(self, url: str, text: str, timeout: float | None) -> int:
        try:
            check_server_url(url)
            async with create_http_client(url) as http:
                return await self._limited(A2AClient(url, http, token=self._token), text, timeout)
        except CaipeError as error:
            return self._report.report_error(error)

    async def _limited(self, client: A2AClient, text: str, timeout: float | None) -> int:
        try:
            async with asyncio.timeout(timeout):
                return await self._answer(client, text)
        except TimeoutError:
            await self._stop(client)
            return self._report.print_message(
                f"No answer within {timeout:g} s; the task was stopped.", TIMED_OUT
            )
        except asyncio.CancelledError:
            await self._stop(client)
            raise

    async def _answer(self, client: A2AClient, text: str) -> int:
        view = await self._report.show_events(client.ask(text, self._talk), self._talk)
        while view.state == "input-required" and (answers := self._given.take_answers(view.requests)):
            view = await self._report.show_events(client.answer(answers, self._talk), self._talk)
        code = self._report.print_result(view, self._talk)
        for problem in self._given.describe_problems(view.requests):
            self._report.print_message(problem, code)
        return code

    async def _stop(self, client: A2AClient) -> None:
        if self._talk.task_id:
            try:
                await client.cancel(self._talk.task_id)
            except CaipeError as error:
                self._report.print_message(f"The task could not be stopped: {error}", FAILED)
