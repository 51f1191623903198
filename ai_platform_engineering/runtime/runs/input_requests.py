"""The pending requests of runs: claimed by one answer each, reported when an answer is wrong, or expired."""

import asyncio
import contextlib
import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ai_platform_engineering.core.errors import Fenced
from ai_platform_engineering.core.events import (
    AnyEvent,
    InputRequested,
    InputResolved,
    MessageReceived,
    Notice,
    Paused,
)
from ai_platform_engineering.core.forms import next_request_id
from ai_platform_engineering.core.request_text import number_requests
from ai_platform_engineering.core.sentences import begin_sentence
from ai_platform_engineering.runtime.log.log_rows import PendingRequest, RunRow
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.runs.answers import (
    ParsedAnswers,
    describe_requests,
    find_resolution,
    is_answer,
    join_text,
    read_answers,
    read_request_ids,
)
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage

_DROP_WORDS = frozenset({"drop", "drop it", "drop them", "drop all", "start anew"})


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What an answer achieved: the requests that it claimed, and why it came too late for others."""

    claimed: Sequence[str] = ()
    answers: ParsedAnswers = field(default_factory=ParsedAnswers)
    late: Sequence[str] = ()

    @property
    def problem(self) -> str:
        """Everything that is wrong with the answer, in sentences."""
        return " ".join(filter(None, (*self.late, self.answers.describe_problems())))


@dataclass(frozen=True, slots=True)
class RequestsDropped:
    """The person drops the requests. `held_text` is what they said meanwhile: the next question."""

    held_text: str | None


def set_expiry(event: AnyEvent, seconds: float, now: datetime) -> AnyEvent:
    """A request with the time at which it expires; a time of its own counts when it is earlier."""
    if not isinstance(event, InputRequested) or math.isinf(seconds):
        return event
    latest = now + timedelta(seconds=seconds)
    return _with_expiry(event, min(event.asked.expires_at or latest, latest))


class InputRequests:
    """Claims, reports and expires the requests of runs.

    Where a method says so, its caller holds the conversation's lock.
    """

    def __init__(self, run_log: RunLog, seconds: float) -> None:
        """`seconds`: how long a request waits before it expires."""
        self._log = run_log
        self._seconds = seconds

    async def has_claimed(self, run_id: str) -> bool:
        """Whether there are answers that the run has not processed yet."""
        return any(request.status == "claimed" for request in await self._log.requests(run_id))

    async def claim(self, row: RunRow, message: IncomingMessage) -> ClaimResult:
        """Claims the requests that the message answers.

        Its other answers are noted in the run, which goes on.
        """
        requests = await self._log.requests(row.run_id)
        waiting = _waiting_events(requests, datetime.now(UTC))
        # In a thread: a form or a schema of somebody else's takes as long to check as it is large.
        numbered = number_requests([request.event for request in requests])
        answers = await asyncio.to_thread(
            read_answers, message.parts, waiting, numbered, text_decisions=message.text_decisions
        )
        claimed: list[str] = []
        if answers.values:
            claimed = await self._log.claim_requests(
                message.to_answer(row), answers.values, message.principal
            )
        missed_ids = {*read_request_ids(message.parts), *answers.values} - {*claimed, *answers.wrong}
        if not (missed_ids or claimed or answers.wrong or answers.unmatched) and is_answer(message.parts):
            missed_ids = await self._find_answered(row)
        claim = ClaimResult(claimed, answers, await self._explain_late(row, missed_ids))
        if claimed:
            await self.note_message(row, message)
        if claimed and claim.problem:
            with contextlib.suppress(Fenced):
                await self._log.append(row.run_id, row.epoch, [Notice(code="info", text=claim.problem)])
        return claim

    async def note_message(self, row: RunRow, message: IncomingMessage) -> None:
        """Stores the person's message in the run that it answers, for the history of its task."""
        with contextlib.suppress(Fenced):
            await self._log.append(row.run_id, row.epoch, [_received_event(message)])

    async def _find_answered(self, row: RunRow) -> set[str]:
        """The requests that an answer without an id came too late for; none while any is pending."""
        requests = await self._log.requests(row.run_id)
        if any(request.status == "pending" for request in requests):
            return set()
        return {request.request_id for request in requests if request.status in ("claimed", "resolved")}

    async def _explain_late(self, row: RunRow, request_ids: Iterable[str]) -> list[str]:
        """Why requests cannot be answered any more.

        An expired one is asked again instead, while its run waits.
        """
        requests = {request.request_id: request for request in await self._log.requests(row.run_id)}
        sentences: list[str] = []
        for request_id in sorted(request_ids):
            request = requests.get(request_id)
            if row.status == "paused" and request is not None and _is_expired(request):
                continue
            sentences.append(_describe_late(request))
        return sentences

    async def report_problem(
        self, row: RunRow, message: IncomingMessage, claim: ClaimResult
    ) -> RequestsDropped | None:
        """Pauses the run again with what is wrong with a message that claimed nothing.

        The caller holds the conversation's lock.
        """
        text = join_text(message.parts)
        is_text = not is_answer(message.parts)
        held_text = await self._read_held_text(row)
        if is_text and text.lower().strip(" .!\"'") in _DROP_WORDS:
            return RequestsDropped(held_text)
        now = datetime.now(UTC)
        requests = await self._log.requests(row.run_id)
        waiting = _waiting_events(requests, now)
        named_ids = read_request_ids(message.parts)
        renewed: list[InputRequested] = []
        for request in requests:
            if _is_expired(request) and (request.request_id in named_ids or not waiting):
                renewed += self._renew(request, requests, now)
        if is_text and not claim.answers.wrong and not claim.answers.unmatched:
            held_text = "\n\n".join(filter(None, (held_text, text))) or None
        paused = self._paused_event(claim, waiting, renewed, held_text)
        await self._log.store_answer(message.to_answer(row))
        events: list[AnyEvent] = [_received_event(message), *_expiry_events(requests, now), *renewed, paused]
        await self._log.append(row.run_id, row.epoch, events)
        return None

    def _paused_event(
        self,
        claim: ClaimResult,
        waiting: Sequence[InputRequested],
        renewed: Sequence[InputRequested],
        held_text: str | None,
    ) -> Paused:
        pending = [*waiting, *renewed]
        if renewed:
            text = f"It had expired, so here it is again: {describe_requests(renewed)}"
        elif claim.problem:
            text = f"I still need your input: {claim.problem} Answer the request, or cancel the task."
        else:
            text = f"I still need your input: {describe_requests(pending)}"
        if held_text is not None:
            them = "it" if len(pending) == 1 else "them"
            text += f' Answer {them}, or send "drop" to drop {them} and start over with your message.'
        return Paused(text=text, requests=_ids_of(pending), wrong=claim.answers.wrong, held=held_text)

    def _renew(
        self, request: PendingRequest, requests: Sequence[PendingRequest], now: datetime
    ) -> list[InputRequested]:
        """The same request under a new id, unless it was renewed before.

        The id is new so that a late answer to the old request does not answer the new one by accident.
        """
        new_id = next_request_id(request.request_id)
        if any(other.request_id == new_id for other in requests):
            return []
        event = request.event.model_copy(update={"request_id": new_id})
        renewed = set_expiry(_with_expiry(event, None), self._seconds, now)
        if not isinstance(renewed, InputRequested):
            return []
        return [renewed]

    async def _read_held_text(self, row: RunRow) -> str | None:
        """What was said while the run waited, and was no answer."""
        held_text: str | None = None
        after = 0
        while items := await self._log.read(row.run_id, after):
            after = items[-1].seq
            for item in items:
                if isinstance(item.event, Paused) and item.event.held:
                    held_text = item.event.held
        return held_text

    # --- expiry ---------------------------------------------------------------------------------------------

    async def expire(self, run_id: str) -> None:
        """Marks overdue requests as expired. That is no decision: the run waits until they are asked again.

        The caller holds the conversation's lock.
        """
        now = datetime.now(UTC)
        row = await self._log.get(run_id)
        if row is None or row.status != "paused" or await self.has_claimed(run_id):
            return
        requests = await self._log.requests(run_id)
        overdue = [request.event for request in requests if _is_overdue(request, now)]
        if not overdue:
            return
        text = (
            f"Nobody answered in time: {describe_requests(overdue)} Nothing was decided. "
            "Send a message to be asked again, or cancel the task."
        )
        waiting = _waiting_events(requests, now)
        paused = Paused(text=text, requests=_ids_of(waiting), held=await self._read_held_text(row))
        with contextlib.suppress(Fenced):
            await self._log.append(run_id, row.epoch, [*_expiry_events(requests, now), paused])


def _received_event(message: IncomingMessage) -> MessageReceived:
    return MessageReceived(message_id=message.message_id, parts=message.parts, principal=message.principal)


def _with_expiry(event: InputRequested, expires_at: datetime | None) -> InputRequested:
    request = event.asked.model_copy(update={"expires_at": expires_at})
    return event.model_copy(update={"asked": request})


def _ids_of(events: Sequence[InputRequested]) -> tuple[str, ...]:
    return tuple(event.request_id for event in events)


def _waiting_events(requests: Sequence[PendingRequest], now: datetime) -> list[InputRequested]:
    return [request.event for request in requests if request.waits(now)]


def _is_overdue(request: PendingRequest, now: datetime) -> bool:
    return request.status == "pending" and not request.waits(now)


def _is_expired(request: PendingRequest) -> bool:
    return request.status == "expired" or _is_overdue(request, datetime.now(UTC))


def _expiry_events(requests: Sequence[PendingRequest], now: datetime) -> list[InputResolved]:
    events: list[InputResolved] = []
    for request in requests:
        if _is_overdue(request, now):
            agent = request.event.agent
            events.append(InputResolved(request_id=request.request_id, resolution="expired", agent=agent))
    return events


def _describe_late(request: PendingRequest | None) -> str:
    """Why the request takes no answer any more."""
    if request is None:
        return "There is no such request in this task."
    subject = begin_sentence(request.event.asked.describe())
    at = ""
    if request.at:
        at = f" at {request.at:%Y-%m-%d %H:%M:%S} UTC"
    if request.status in ("claimed", "resolved"):
        return f"{subject} was already answered by {request.by or 'somebody'}{at}{_describe_change(request)}."
    if _is_expired(request):
        return f"{subject} has expired; nothing was decided."
    return f"{subject} is no longer open: it was withdrawn{at}."


def _describe_change(request: PendingRequest) -> str:
    """That the call is not what a late person saw, as the end of a sentence."""
    if isinstance(request.answer, dict) and find_resolution(request.event.asked, request.answer) == "edited":
        return ", with different arguments"
    return ""
