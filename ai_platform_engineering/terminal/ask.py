"""`caipe ask`: one question and its answer."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Mapping
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.exit_codes import FAILED, INTERRUPTED, TIMED_OUT
from ai_platform_engineering.terminal.preset_answers import PresetAnswers
from ai_platform_engineering.terminal.run_ids import find_context_id
from ai_platform_engineering.terminal.run_reporter import RunReporter, ServerContext, check_server_url
from ai_platform_engineering.terminal.server_info import fetch_server_info


def ask_once(
    text: str,
    *,
    reporter: RunReporter,
    server: ServerContext,
    token: str | None,
    context_id: str | None,
    timeout: float | None,
    reconnect_seconds: float,
    values: Mapping[str, Any] | None = None,
) -> int:
    """Asks the server and prints the answer; the exit code. The values answer forms that come up."""
    question = _Question(text, context_id, PresetAnswers(values or {}), reporter)
    with reporter:
        try:
            return asyncio.run(_ask(question, server, token, timeout, reconnect_seconds))
        except KeyboardInterrupt:
            return INTERRUPTED


async def _ask(
    question: "_Question",
    server: ServerContext,
    token: str | None,
    timeout: float | None,
    reconnect_seconds: float,
) -> int:
    async with server as url:
        try:
            check_server_url(url)
            async with create_http_client(url) as http:
                client = A2AClient(url, http, token=token, reconnect_seconds=reconnect_seconds)
                return await question.ask(client, timeout)
        except CaipeError as error:
            return question.report_error(error)


class _Question:
    """A question from asking to its result; after a timeout or Ctrl-C its task is cancelled."""

    def __init__(
        self, text: str, context_id: str | None, preset_answers: PresetAnswers, reporter: RunReporter
    ) -> None:
        self._text = text
        self._context_id = context_id
        self._conversation = ClientConversation()
        self._preset_answers = preset_answers
        self._reporter = reporter

    async def ask(self, client: A2AClient, timeout: float | None) -> int:
        """Asks, and reports the run until it ends; the exit code."""
        try:
            async with asyncio.timeout(timeout):
                return await self._run_to_end(client)
        except TimeoutError:
            await self._cancel_task(client)
            message = f"No answer within {timeout:g} s; the run was stopped."
            return self._reporter.print_message(message, TIMED_OUT)
        except asyncio.CancelledError:
            await self._cancel_task(client)
            raise

    def report_error(self, error: CaipeError) -> int:
        return self._reporter.report_error(error, self._conversation)

    async def _run_to_end(self, client: A2AClient) -> int:
        if self._context_id:
            self._conversation.context_id = await find_context_id(client, self._context_id)
        self._conversation.on_retry = self._reporter.show_retry
        async with self._named_model(client):
            events = client.ask(self._text, self._conversation)
            transcript = await self._reporter.show_events(events, self._conversation)
            while answers := self._take_answers(transcript):
                events = client.answer(answers, self._conversation)
                transcript = await self._reporter.show_events(events, self._conversation)
        code = self._reporter.print_result(transcript, self._conversation)
        for problem in self._preset_answers.describe_problems(transcript.requests):
            self._reporter.print_message(problem, code)
        return code

    @contextlib.asynccontextmanager
    async def _named_model(self, client: A2AClient) -> AsyncIterator[None]:
        """Asks for the model's name beside the question, where it is shown."""
        if not self._reporter.is_live:
            yield
            return

        async def name_model() -> None:
            info = await fetch_server_info(client)
            self._reporter.set_model(info.model)

        task = asyncio.create_task(name_model())
        try:
            yield
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)

    def _take_answers(self, transcript: Transcript) -> Mapping[str, Mapping[str, Any]]:
        if transcript.state != "input-required":
            return {}
        return self._preset_answers.take_answers(transcript.requests)

    async def _cancel_task(self, client: A2AClient) -> None:
        if not self._conversation.task_id:
            return
        try:
            await client.cancel(self._conversation.task_id)
        except CaipeError as error:
            self._reporter.print_message(f"The run could not be stopped: {error}", FAILED)
