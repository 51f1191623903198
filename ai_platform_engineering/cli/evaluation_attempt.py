"""One attempt at a case: its questions are asked over A2A, requests are answered, and the checks applied."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.cli.evaluation_servers import AttemptServer, EstateControl
from ai_platform_engineering.core.decisions import APPROVE, REJECT
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import AnyEvent, Approval, Usage
from ai_platform_engineering.core.transcript import Transcript
from ai_platform_engineering.demo.estate.estate_state import EstateState
from ai_platform_engineering.demo.evaluation.case_checks import AttemptRecord, find_failures
from ai_platform_engineering.demo.evaluation.case_format import EvaluationCase
from ai_platform_engineering.demo.evaluation.results import (
    MAX_ANSWER_CHARS,
    AttemptEnd,
    AttemptFailure,
    AttemptResult,
)
from ai_platform_engineering.terminal.preset_answers import PresetAnswers

_MAX_PAUSES = 20  # of one question; a run that asks more often goes round in circles
_CANCEL_SECONDS = 10.0
_SETTLE_SECONDS = 30.0  # a deployment takes six
_SETTLE_POLL_SECONDS = 0.5


async def run_attempt(
    case: EvaluationCase, server: AttemptServer, *, seed: int, timeout: float
) -> AttemptResult:
    """Asks the questions of the case, one after another. Raises CaipeError when the server is away."""
    before = await _read_state(server.control)
    async with create_http_client(server.url) as http:
        attempt = CaseAttempt(case, A2AClient(server.url, http, token=server.token))
        started_at = asyncio.get_running_loop().time()
        await attempt.run(case.timeout or timeout)
        seconds = asyncio.get_running_loop().time() - started_at
    after = await _read_settled_state(server.control)
    failures = [AttemptFailure(text=problem) for problem in attempt.problems]
    if attempt.end == "completed":
        for failure in find_failures(case, attempt.to_record(before, after)):
            failures.append(AttemptFailure(text=failure.text, check=failure.check))
    return AttemptResult(
        seed=seed,
        end=attempt.end,
        failures=tuple(failures),
        seconds=round(seconds, 3),
        usage=attempt.usage,
        used_fallback=attempt.used_fallback,
        agents=tuple(sorted(attempt.agents)),
        tools=tuple(sorted(attempt.tools)),
        answers=tuple(answer[:MAX_ANSWER_CHARS] for answer in attempt.answers),
    )


class CaseAttempt:
    """Drives one conversation; what it saw is in its attributes."""

    def __init__(self, case: EvaluationCase, client: A2AClient) -> None:
        self.end: AttemptEnd = "completed"
        self.problems: list[str] = []
        self.answers: list[str] = []
        self.agents: set[str] = set()
        self.tools: set[str] = set()
        self.usage = Usage(model_calls=0, tool_calls=0)
        self.used_fallback = False
        self._case = case
        self._client = client
        self._conversation = ClientConversation()
        self._preset_answers = PresetAnswers(case.forms)

    async def run(self, timeout: float) -> None:
        """All questions; a run that does not complete, or takes too long, ends the attempt."""
        try:
            async with asyncio.timeout(timeout):
                for question in self._case.questions:
                    if self.end == "completed":
                        await self._ask(question)
        except TimeoutError:
            self.end = "timeout"
            self.problems.append(f"no answer within {timeout:g} s")
            await self._cancel()

    def to_record(self, before: EstateState | None, after: EstateState | None) -> AttemptRecord:
        return AttemptRecord(
            tuple(self.answers), frozenset(self.agents), frozenset(self.tools), before=before, after=after
        )

    async def _ask(self, question: str) -> None:
        transcript = await _fold(self._client.ask(question, self._conversation))
        for _ in range(_MAX_PAUSES):
            answers = self._answer_requests(transcript)
            if not answers:
                break
            transcript = await _fold(self._client.answer(answers, self._conversation))
        self._record(transcript)

    def _answer_requests(self, transcript: Transcript) -> Mapping[str, Any]:
        if transcript.state != "input-required":
            return {}
        answers: dict[str, Any] = dict(self._preset_answers.take_answers(transcript.requests))
        for request in transcript.requests:
            if isinstance(request.asked, Approval):
                answers[request.request_id] = {"type": self._decide(request.asked)}
        return answers

    def _decide(self, approval: Approval) -> str:
        for pattern, decision in self._case.approvals.items():
            if fnmatchcase(approval.tool, pattern):
                return APPROVE if decision == "approve" else REJECT
        return REJECT

    def _record(self, transcript: Transcript) -> None:
        for call in transcript.calls:
            if call.delegates:
                self.agents.add(call.tool)
            else:
                self.tools.add(call.tool)
        self.used_fallback |= any(notice.code == "fallback" for notice in transcript.notices)
        self._add_usage(transcript.usage)
        self.answers.append(transcript.answer or "")
        if transcript.state != "completed":
            self._record_failed_run(transcript)

    def _record_failed_run(self, transcript: Transcript) -> None:
        match transcript.state:
            case "input-required":
                self.end = "input-required"
                self.problems.append(f"still waits for an answer: {transcript.waiting_for}")
            case "canceled":
                self.end = "canceled"
                self.problems.append("the run was canceled")
            case _:
                self.end = "failed"
                self.problems.append(f"the run failed: {transcript.error or 'without a reason'}")

    def _add_usage(self, usage: Usage | None) -> None:
        """Sums of all turns; calls that were not counted make the sum unknown."""
        if usage is None:
            self.usage = self.usage.model_copy(update={"model_calls": None, "tool_calls": None})
            return
        calls = {
            "model_calls": _add(self.usage.model_calls, usage.model_calls),
            "tool_calls": _add(self.usage.tool_calls, usage.tool_calls),
        }
        self.usage = self.usage.plus(usage.model_dump()).model_copy(update=calls)

    async def _cancel(self) -> None:
        if self._conversation.task_id is None:
            return
        try:
            async with asyncio.timeout(_CANCEL_SECONDS):
                await self._client.cancel(self._conversation.task_id)
        except (CaipeError, TimeoutError):
            self.problems.append("the run could not be stopped")


async def _fold(events: AsyncIterator[AnyEvent]) -> Transcript:
    transcript = Transcript()
    async for event in events:
        transcript = transcript.apply(event)
    return transcript


def _add(first: int | None, second: int | None) -> int | None:
    return None if first is None or second is None else first + second


async def _read_state(control: EstateControl | None) -> EstateState | None:
    return await control.read_state() if control is not None else None


async def _read_settled_state(control: EstateControl | None) -> EstateState | None:
    """The state after deployments that are on their way."""
    if control is None:
        return None
    deadline = asyncio.get_running_loop().time() + _SETTLE_SECONDS
    state = await control.read_state()
    while not state.is_settled and asyncio.get_running_loop().time() < deadline:
        await asyncio.sleep(_SETTLE_POLL_SECONDS)
        state = await control.read_state()
    return state
