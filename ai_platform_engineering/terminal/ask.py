"""`caipe ask`: one question and its answer."""

import asyncio
from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.terminal.exit_codes import FAILED, INTERRUPTED, TIMED_OUT
from ai_platform_engineering.terminal.preset_answers import PresetAnswers
from ai_platform_engineering.terminal.run_reporter import RunReporter, ServerContext, check_server_url


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
    """Asks the server and prints the answer; the exit code. The values answer forms that come up."""
    conversation = ClientConversation(context_id) if context_id else ClientConversation()
    question = _Question(text, conversation, PresetAnswers(values or {}), RunReporter(as_json=as_json))
    try:
        return asyncio.run(_ask(question, server, token, timeout))
    except KeyboardInterrupt:
        return INTERRUPTED


async def _ask(question: "_Question", server: ServerContext, token: str | None, timeout: float | None) -> int:
    async with server as url:
        try:
            check_server_url(url)
            async with create_http_client(url) as http:
                return await question.ask(A2AClient(url, http, token=token), timeout)
        except CaipeError as error:
            return question.reporter.report_error(error)


class _Question:
    """A question from asking to its result; after a timeout or Ctrl-C its task is cancelled."""

    def __init__(
        self,
        text: str,
        conversation: ClientConversation,
        preset_answers: PresetAnswers,
        reporter: RunReporter,
    ) -> None:
        self.reporter = reporter
        self._text = text
        self._conversation = conversation
        self._preset_answers = preset_answers

    async def ask(self, client: A2AClient, timeout: float | None) -> int:
        """Asks, and reports the run until it ends; the exit code."""
        try:
            async with asyncio.timeout(timeout):
                return await self._run_to_end(client)
        except TimeoutError:
            await self._cancel_task(client)
            message = f"No answer within {timeout:g} s; the task was stopped."
            return self.reporter.print_message(message, TIMED_OUT)
        except asyncio.CancelledError:
            await self._cancel_task(client)
            raise

    async def _run_to_end(self, client: A2AClient) -> int:
        events = client.ask(self._text, self._conversation)
        transcript = await self.reporter.show_events(events, self._conversation)
        while answers := self._take_answers(transcript):
            events = client.answer(answers, self._conversation)
            transcript = await self.reporter.show_events(events, self._conversation)
        code = self.reporter.print_result(transcript, self._conversation)
        for problem in self._preset_answers.describe_problems(transcript.requests):
            self.reporter.print_message(problem, code)
        return code

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
            self.reporter.print_message(f"The task could not be stopped: {error}", FAILED)
