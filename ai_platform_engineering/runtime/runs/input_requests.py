"""What runs ask of people: answers are claimed once, wrong ones are sent back, and what nobody answers expires without a decision."""

import contextlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from ai_platform_engineering.core.errors import Fenced
from ai_platform_engineering.core.events import AnyEvent, InputRequested, InputResolved, Notice, Paused
from ai_platform_engineering.core.forms import next_request_id
from ai_platform_engineering.runtime.log.run_log import PendingRequest, RunLog, RunRow
from ai_platform_engineering.runtime.runs.answers import (
    ParsedAnswers,
    describe_requests,
    is_answer,
    plain_text,
    read_answers,
    read_request_ids,
)
from ai_platform_engineering.runtime.runs.incoming_message import IncomingMessage

_DROP = frozenset({"drop", "drop it", "drop them", "drop all", "start anew"})


@dataclass(frozen=True, slots=True)
class ClaimResult:
    """What became of an answer: the requests it was the first to answer, and what it came too late for."""

    claimed: Sequence[str] = ()
    answers: ParsedAnswers = field(default_factory=ParsedAnswers)
    late: Sequence[str] = ()

    @property
    def problem(self) -> str:
        return " ".join(filter(None, (*self.late, self.answers.complaints())))


@dataclass(frozen=True, slots=True)
class RequestsDropped:
    """The person wants what was asked to be dropped, and to go on with what was held back meanwhile."""

    held: str | None


def set_expiry(event: AnyEvent, seconds: float, now: datetime) -> AnyEvent:
    """A request with the time at which it expires; the one it brings with it counts when it is earlier."""
    if not isinstance(event, InputRequested) or math.isinf(seconds):
        return event
    latest = now + timedelta(seconds=seconds)
    expires_at = min(event.asked.expires_at or latest, latest)
    return event.model_copy(update={"asked": event.asked.model_copy(update={"expires_at": expires_at})})


class InputRequests:
    """The pending requests of runs. Whoever calls holds the conversation's door, where it says so."""

    def __init__(self, run_log: RunLog, seconds: float) -> None:
        self._log, self._seconds = run_log, seconds

    async def is_answered(self, run_id: str) -> bool:
        """There are answers that the run has not taken in."""
        return any(request.status == "claimed" for request in await self._log.requests(run_id))

    async def claim(self, row: RunRow, message: IncomingMessage) -> ClaimResult:
        """Claims what the message answers. What else it says wrong is noted in the run, which goes on."""
        requests = await self._log.requests(row.run_id)
        waiting = [request.event for request in requests if request.waits(datetime.now(UTC))]
        answers = read_answers(message.parts, waiting)
        claimed = (
            await self._log.claim_requests(message.answer(row), answers.values, message.principal)
            if answers.values
            else []
        )
        meant = {*read_request_ids(message.parts), *answers.values} - {*claimed, *answers.wrong}
        claim = ClaimResult(
            claimed,
            answers,
            await self._late(row, meant, message, nothing=not (claimed or answers.wrong or answers.stray)),
        )
        if claimed and claim.problem:
            with contextlib.suppress(Fenced):
                await self._log.append(row.run_id, row.epoch, [Notice(code="info", text=claim.problem)])
        return claim

    async def _late(
        self, row: RunRow, meant: set[str], message: IncomingMessage, *, nothing: bool
    ) -> list[str]:
        """Why requests cannot be answered any more. One that has only expired is asked again instead, while its run waits."""
        requests = {request.request_id: request for request in await self._log.requests(row.run_id)}
        if nothing and not meant and is_answer(message.parts):  # it names none: what else could it have meant
            meant = {
                request_id
                for request_id, request in requests.items()
                if request.status in ("claimed", "resolved")
            }
            meant = set() if any(request.status == "pending" for request in requests.values()) else meant
        found = [requests.get(request_id) for request_id in sorted(meant)]
        return [
            _too_late(one) for one in found if row.status != "paused" or one is None or not _is_expired(one)
        ]

    async def answer_back(
        self, row: RunRow, message: IncomingMessage, claim: ClaimResult
    ) -> RequestsDropped | None:
        """Says what is wrong with a message that answered nothing; the run waits on. The caller holds the conversation's door."""
        text = plain_text(message.parts)
        named = read_request_ids(message.parts)
        now = datetime.now(UTC)
        requests = await self._log.requests(row.run_id)
        if text.lower().strip(" .!\"'") in _DROP and not is_answer(message.parts):
            return RequestsDropped(await self._held(row))
        waiting = [request.event for request in requests if request.waits(now)]
        renewed = self._renewed(
            [one for one in requests if _is_expired(one) and (one.request_id in named or not waiting)],
            requests,
            now,
        )
        pending = [*waiting, *renewed]
        said = text if not claim.answers.wrong and not is_answer(message.parts) else ""
        held = "\n\n".join(filter(None, (await self._held(row), said))) or None
        events: list[AnyEvent] = [*renewed, self._paused(claim, pending, renewed, held)]
        await self._log.store_answer(message.answer(row))
        await self._log.append(row.run_id, row.epoch, [*_expiries(requests, now), *events])
        return None

    def _paused(
        self,
        claim: ClaimResult,
        pending: Sequence[InputRequested],
        renewed: Sequence[InputRequested],
        held: str | None,
    ) -> Paused:
        ids = tuple(request.request_id for request in pending)
        if renewed:
            text = f"It had expired and is asked again: {describe_requests(renewed)}."
        elif problem := claim.problem:
            text = f"I still need your input: {problem} Answer the request, or cancel the task."
        else:
            text = f"I still need your input: {describe_requests(pending)}."
        if held is not None:
            them = "it" if len(pending) == 1 else "them"
            text += f' Answer {them}, or send "drop" to drop {them} and start anew with what you said.'
        return Paused(text=text, requests=ids, wrong=claim.answers.wrong, held=held)

    def _renewed(
        self, gone: Sequence[PendingRequest], known: Sequence[PendingRequest], now: datetime
    ) -> list[InputRequested]:
        """The same questions under new ids: whoever answers the old one late does not answer the new one by accident."""
        ids = {request.request_id for request in known}
        again = [one.event.model_copy(update={"request_id": next_request_id(one.request_id)}) for one in gone]
        bare = [
            one.model_copy(update={"asked": one.asked.model_copy(update={"expires_at": None})})
            for one in again
        ]
        return [
            event
            for one in bare
            if one.request_id not in ids
            and isinstance(event := set_expiry(one, self._seconds, now), InputRequested)
        ]

    async def _held(self, row: RunRow) -> str | None:
        held: str | None = None
        after = 0
        while items := await self._log.read(row.run_id, after):
            after = items[-1].seq
            for item in items:
                held = item.event.held or held if isinstance(item.event, Paused) else held
        return held

    # --- expiry -------------------------------------------------------------------------------------------------------

    async def overdue(self) -> list[str]:
        """The runs with requests whose time has come and that nobody has told of it."""
        now = datetime.now(UTC)
        return list(
            dict.fromkeys(
                request.run_id for request in await self._log.open_requests() if not request.waits(now)
            )
        )

    async def tell_expired(self, run_id: str) -> None:
        """An expired request is no decision: the run waits until it is asked again. The caller holds the conversation's door."""
        row, now = await self._log.get(run_id), datetime.now(UTC)
        if row is None or row.status != "paused" or await self.is_answered(run_id):
            return
        requests = await self._log.requests(run_id)
        gone = _expiries(requests, now)
        if not gone:
            return
        left = tuple(request.request_id for request in requests if request.waits(now))
        what = describe_requests([request.event for request in requests if _is_overdue(request, now)])
        text = f"Nobody answered in time: {what}. Nothing was decided. Send a message to be asked again, or cancel the task."
        with contextlib.suppress(Fenced):
            await self._log.append(
                run_id, row.epoch, [*gone, Paused(text=text, requests=left, held=await self._held(row))]
            )


def _is_overdue(request: PendingRequest, now: datetime) -> bool:
    return request.status == "pending" and not request.waits(now)


def _is_expired(request: PendingRequest) -> bool:
    return request.status == "expired" or _is_overdue(request, datetime.now(UTC))


def _expiries(requests: Sequence[PendingRequest], now: datetime) -> list[InputResolved]:
    overdue = [request for request in requests if _is_overdue(request, now)]
    return [
        InputResolved(request_id=one.request_id, resolution="expired", agent=one.event.agent)
        for one in overdue
    ]


def _too_late(request: PendingRequest | None) -> str:
    if request is None:
        return "There is no such request in this task."
    what, at = request.event.asked.describe(), f" at {request.at:%Y-%m-%d %H:%M:%S} UTC" if request.at else ""
    if request.status in ("claimed", "resolved"):
        return f"{_capital(what)} was already answered by {request.by or 'somebody'}{at}."
    if _is_expired(request):
        return f"{_capital(what)} has expired; nothing was decided."
    return f"{_capital(what)} is not asked any more: it was withdrawn{at}."


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]
