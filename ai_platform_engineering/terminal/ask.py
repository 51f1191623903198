"""`caipe ask`: one question, one answer, drawn from the transcript."""

import asyncio

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.progress import FAILED, INTERRUPTED, TIMED_OUT, Report, Server, check_address
from ai_platform_engineering.utils.a2a_common.client import A2AClient, Conversation, http_for


def ask_once(text: str, *, server: Server, token: str | None, context_id: str | None, as_json: bool, timeout: float | None) -> int:
    """Asks the server and prints; the exit code."""
    talk = Conversation(context_id) if context_id else Conversation()
    try:
        return asyncio.run(_ask(text, server, _Asking(token, talk, as_json=as_json), timeout))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _ask(text: str, server: Server, asking: "_Asking", timeout: float | None) -> int:
    async with server as url:
        return await asking.run(url, text, timeout)


class _Asking:
    def __init__(self, token: str | None, talk: Conversation, *, as_json: bool) -> None:
        self._token, self._talk, self._report = token, talk, Report(as_json=as_json)

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
        view = Transcript()
        async for event in client.ask(text, self._talk):
            view = view.apply(event)
            self._report.show(event)
        return self._report.finish(view, self._talk)

    async def _stop(self, client: A2AClient) -> None:
        if self._talk.task_id:
            try:
                await client.cancel(self._talk.task_id)
            except CaipeError as error:
                self._report.say(f"The task could not be stopped: {error}", FAILED)
