"""What must be true of a run whose server was killed: checked on what its reader has, what is stored, and
what the ledger counted."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    InputRequested,
    InputResolved,
    Notice,
    PlanUpdated,
    TextDelta,
    TextDiscarded,
    TextEnded,
    ToolFinished,
    ToolStarted,
    is_terminal,
)
from ai_platform_engineering.core.transcript import fold
from tests.support.crash.ledger import Ledger
from tests.support.crash.script import texts
from tests.support.crash.stage import Reader, Stage, Stored

_CALLS = ["keep", "keep", "keeper", "look", "scout"]


@dataclass(frozen=True, slots=True)
class Verdict:
    """What is wrong with a run, whether the outcome of its write is unknown, and whether it had been written
    all the same."""

    wrong: tuple[str, ...]
    unknown: bool = False
    written: bool = False
    took: float | None = None  # from the start of the new process to the first new event


def judged(stage: Stage, reader: Reader, since: float | None = None) -> Verdict:
    """`since`: when the process was started that had to go on with the run."""
    tag, ledger = reader.tag, stage.ledger
    runs = stage.stored().get(tag, [])
    if len(runs) != 1:
        return Verdict((f"{len(runs)} runs of one question",))
    [stored] = runs
    events = [one.event for one in stored]
    unknown = any(
        isinstance(event, ToolFinished) and event.tool == "keep" and event.outcome == "unknown"
        for event in events
    )
    wrong = [
        *([f"the reader gave up: {reader.problem}"] if reader.problem else []),
        *_numbers(stored),
        *_reading(reader, stored),
        *_ending(events),
        *_texts(events, reader, ledger, unknown),
        *_calls(events, asks=reader.asks),
        *_plans(events),
        *_requests(events, reader),
        *_ledger(ledger, tag, unknown),
        *_remote(stage, tag),
    ]
    return Verdict(tuple(wrong), unknown, bool(ledger.writes.get(f"keeper-{tag}")), _took(stored, since))


def _took(stored: Sequence[Stored], since: float | None) -> float | None:
    """Until the first new event of a run that was taken over; one that waited for a person was not."""
    new = [one for one in stored if since is not None and one.at > since]
    taken_over = any(isinstance(one.event, Notice) and one.event.code == "recovery" for one in new)
    return new[0].at - since if taken_over and since is not None else None


def _numbers(stored: Sequence[Stored]) -> Iterator[str]:
    numbers = [one.seq for one in stored]
    if numbers != list(range(1, len(numbers) + 1)):
        yield f"numbers with gaps: {numbers}"


def _reading(reader: Reader, stored: Sequence[Stored]) -> Iterator[str]:
    """The reader has what is stored.

    A first look at a run that is under way joins texts: then their sum counts.
    """
    had, kept = [event for _, event in reader.events], [one.event for one in stored]
    numbers = [seq for seq, _ in reader.events]
    if numbers != sorted(set(numbers)):
        yield f"the reader has numbers twice or out of order: {numbers}"
    if numbers == list(range(1, len(kept) + 1)):
        by_number = dict(reader.events)
        yield from (
            f"the reader has another event {one.seq}: {by_number[one.seq]}"
            for one in stored
            if by_number[one.seq] != one.event
        )
    elif fold(had) != fold(kept) or numbers[-1:] != [len(kept)]:
        missing = sorted(set(range(1, len(kept) + 1)) - set(numbers))
        yield f"the reader lacks events: {missing} of {len(kept)}"


def _ending(events: Sequence[AnyEvent]) -> Iterator[str]:
    ends = [event for event in events if is_terminal(event)]
    if len(ends) != 1 or ends[0] is not events[-1]:
        yield f"not one end, at the end: {[event.kind for event in ends]}"
    elif not isinstance(ends[0], Answered):
        yield f"no answer: {ends[0]}"


def _texts(events: Sequence[AnyEvent], reader: Reader, ledger: Ledger, unknown: bool) -> Iterator[str]:
    """Every text is ended or taken back, once; what is left are the texts of the script, once each, and the
    last is the answer."""
    begun = {event.message_id for event in events if isinstance(event, TextDelta)}
    closed = Counter(event.message_id for event in events if isinstance(event, TextEnded))
    void = Counter(event.message_id for event in events if isinstance(event, TextDiscarded))
    for message_id in begun | set(closed) | set(void):
        if message_id not in begun or (closed[message_id], void[message_id]) not in ((1, 0), (0, 1), (1, 1)):
            ended, discarded = closed[message_id], void[message_id]
            yield f"the text {message_id} was ended {ended} times and taken back {discarded} times"
    expected = texts(reader.tag, ledger, name=reader.name if reader.asks else None, unknown=unknown)
    kept = [(span.agent, span.text) for span in fold(events).spans]
    if Counter(kept) != Counter(expected):
        more, less = Counter(kept) - Counter(expected), Counter(expected) - Counter(kept)
        yield f"texts too many: {dict(more)}, missing: {dict(less)}"
    last = events[-1]
    if isinstance(last, Answered) and last.text != expected[-1][1]:
        yield f"the answer is {last.text!r}, not {expected[-1][1]!r}"


def _calls(events: Sequence[AnyEvent], *, asks: bool) -> Iterator[str]:
    started = [event for event in events if isinstance(event, ToolStarted)]
    finished = [event for event in events if isinstance(event, ToolFinished)]
    if sorted(event.tool for event in started) != sorted(_CALLS + ["ask_form"] * asks):
        yield f"calls started: {sorted(event.tool for event in started)}"
    if sorted(event.call_id for event in started) != sorted(event.call_id for event in finished):
        ends = Counter(event.call_id for event in finished)
        yield f"calls started {len(started)}, finished {len(finished)}: {ends}"
    yield from (f"{event.tool} failed: {event.error}" for event in finished if event.outcome == "error")


def _plans(events: Sequence[AnyEvent]) -> Iterator[str]:
    """Each plan has the states of the delegations before it, and the last one is done."""
    outcomes: dict[str, dict[str, str | None]] = {}  # by step, then by call
    last: list[str] = []
    for event in events:
        if isinstance(event, ToolStarted | ToolFinished) and event.delegates:
            outcome = event.outcome if isinstance(event, ToolFinished) else None
            outcomes.setdefault(str(event.step_id), {})[event.call_id] = outcome
        if not isinstance(event, PlanUpdated):
            continue
        last = [step.status for step in event.steps]
        for step in event.steps:
            work = outcomes.get(step.step_id, {}).values()
            expected = "in_progress" if None in work else "completed"
            if work and step.status != expected:
                yield f"{step.step_id} is shown as {step.status}, and its calls are {list(work)}"
    if set(outcomes) != {"step-1", "step-2"} or set(last) != {"completed"} or len(last) != 3:
        yield f"the steps of the calls are {sorted(outcomes)}, the last plan is {last}"


def _requests(events: Sequence[AnyEvent], reader: Reader) -> Iterator[str]:
    asked = [event.request_id for event in events if isinstance(event, InputRequested)]
    resolved = [event.request_id for event in events if isinstance(event, InputResolved)]
    if asked != resolved or len(asked) != int(reader.asks):
        yield f"requests {asked}, resolved {resolved}"


def _ledger(ledger: Ledger, tag: str, unknown: bool) -> Iterator[str]:
    kept, scouted = len(ledger.writes.get(f"keeper-{tag}", ())), len(ledger.writes.get(f"scout-{tag}", ()))
    if kept > 1 or (kept == 0 and not unknown):
        yield f"written {kept} times"
    if scouted != 1:
        yield f"the agent elsewhere wrote {scouted} times"


def _remote(stage: Stage, tag: str) -> Iterator[str]:
    orders = stage.stored("scout").get(tag, [])
    if len(orders) != 1:
        yield f"{len(orders)} orders at the service"
    elif not isinstance(orders[0][-1].event, Answered):
        yield f"the order at the service ended with {orders[0][-1].event.kind}"
