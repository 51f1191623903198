"""`caipe ask`: one question, one answer, drawn from the transcript."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, Conversation, http_for
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.terminal.preset_answers import Given
from ai_platform_engineering.terminal.progress import FAILED, INTERRUPTED, TIMED_OUT, Report, Server, check_address


def ask_once(
    text: str,
    *,
    server: Server,
    token: str | None,
    context_id: str | None,
    as_json: bool,
    timeout: float | None,
    values: Mapping[str, Any] | None = None,
) -> int:
    """Asks the server and prints; the exit code. Forms that come up are answered with the values."""
    talk = Conversation(context_id) if context_id else Conversation()
    try:
        return asyncio.run(_ask(text, server, _Asking(token, talk, Given(values or {}), as_json=as_json), timeout))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _ask(text: str, server: Server, asking: "_Asking", timeout: float | None) -> int:
    async with server as url:
        return await asking.run(url, text, timeout)


class _Asking:
    def __init__(self, token: str | None, talk: Conversation, given: Given, *, as_json: bool) -> None:
        self._token, self._talk, self._given, self._report = token, talk, given, Report(as_json=as_json)

    async def run(self, url: str, text: str, timeout: float | None) -> int:
        try:
            check_address(url)
            async with http_for(url) as http:
                return await self._limited(A2AClient(url, http, token=self._token), text, timeout)
        except CaipeError as error:
            return self._report.refuse(error)

    async def _limited(self, client: A2AClient, text: str, timeout: float | None) -> int:
        try:
            async with asyncio.timeout(timeout):
                return await self._answer(client, text)
        except TimeoutError:
            await self._stop(client)
            return self._report.say(f"No answer within {timeout:g} s; the task was stopped.", TIMED_OUT)
        except asyncio.CancelledError:
            await self._stop(client)
            raise

    async def _answer(self, client: A2AClient, text: str) -> int:
        view = await self._report.follow(client.ask(text, self._talk), self._talk)
        while view.state == "input-required" and (answers := self._given.answers(view.requests)):
            view = await self._report.follow(client.answer(answers, self._talk), self._talk)
        code = self._report.finish(view, self._talk)
        for problem in self._given.problems(view.requests):
            self._report.say(problem, code)
        return code

    async def _stop(self, client: A2AClient) -> None:
        if self._talk.task_id:
            try:
                await client.cancel(self._talk.task_id)
            except CaipeError as error:
                self._report.say(f"The task could not be stopped: {error}", FAILED)
