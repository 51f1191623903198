"""The rules that every storage of the run log shares: pure functions of rows and events."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from pydantic import JsonValue

from ai_platform_engineering.core.errors import Fenced, Refused
from ai_platform_engineering.core.events import (
    Answered,
    AnyEvent,
    Cancelled,
    Failed,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    RunStarted,
    is_terminal,
)
from ai_platform_engineering.core.transcript import TranscriptState
from ai_platform_engineering.runtime.log.log_rows import (
    Attempt,
    JournalEntry,
    NextCallState,
    PendingRequest,
    RequestStatus,
    RunFilter,
    RunRow,
    RunStatus,
)

# Events that change neither the state of a run nor its messages: most of its events.
PROGRESS_KINDS = frozenset(
    {
        "text_delta",
        "text_ended",
        "text_discarded",
        "tool_started",
        "tool_progress",
        "tool_finished",
        "plan_updated",
    }
)


def check_epoch(row: RunRow, epoch: int) -> None:
    """Fencing: raises Fenced when this epoch may not write the run any more."""
    if epoch != row.epoch:
        raise Fenced("The run has another owner now.")
    if row.status == "ended":
        raise Fenced("The run has ended.")


def state_after(events: Sequence[AnyEvent]) -> TranscriptState | None:
    """The state of a run after the events, as its transcript has it; None when they do not change it."""
    state: TranscriptState | None = None
    for event in events:
        match event:
            case RunStarted(queued=True):
                state = "submitted"
            case RunStarted() | InputResolved():
                state = "working"
            case Notice(code="queue"):
                state = "working" if event.position is None else "submitted"
            case Paused():
                state = "input-required"
            case Answered():
                state = "completed"
            case Failed():
                state = "failed"
            case Cancelled():
                state = "canceled"
            case _:
                pass
    return state


def status_of(state: TranscriptState) -> RunStatus:
    """Whether a run in this state works, waits for people, or has ended."""
    match state:
        case "submitted" | "working":
            return "running"
        case "input-required":
            return "paused"
        case "completed" | "failed" | "canceled":
            return "ended"


def matches(run_filter: RunFilter, row: RunRow) -> bool:
    """Whether a list with this filter has the run."""
    if row.owner != run_filter.owner:
        return False
    if run_filter.context_id not in (None, row.context_id):
        return False
    if run_filter.state not in (None, row.state):
        return False
    return run_filter.since is None or row.state_at >= run_filter.since


def died_at_work(status: RunStatus, attempt: Attempt, *, has_checkpoint: bool) -> bool:
    """Whether the process of an unfinished run died while it worked on it: others only waited there."""
    if status != "running":
        return False
    if attempt == "first":
        return has_checkpoint  # it waited, or an earlier version of this program worked on it
    return attempt == "working"


def changes_requests(events: Iterable[AnyEvent]) -> bool:
    """Whether `requests_after` has anything to do: most events concern no request."""
    return any(isinstance(event, InputRequested | InputResolved) or is_terminal(event) for event in events)


def requests_after(
    run_id: str, events: Sequence[AnyEvent], requests: Iterable[PendingRequest], now: datetime
) -> list[PendingRequest]:
    """The requests of the run that the events change; the end of the run leaves none open."""
    before = {request.request_id: request for request in requests}
    after = dict(before)
    for event in events:
        open_requests = {key: request for key, request in after.items() if request.is_open}
        if isinstance(event, InputRequested) and event.request_id not in open_requests:
            after[event.request_id] = PendingRequest(event.request_id, run_id, event)
        elif isinstance(event, InputResolved) and event.request_id in open_requests:
            after[event.request_id] = _resolve(after[event.request_id], event, now)
        elif is_terminal(event):
            for key, request in open_requests.items():
                after[key] = replace(request, status="withdrawn", at=request.at or now)
    return [request for key, request in after.items() if request is not before.get(key)]


def _resolve(request: PendingRequest, event: InputResolved, now: datetime) -> PendingRequest:
    status: RequestStatus = "resolved"
    if event.resolution in ("expired", "withdrawn"):
        status = event.resolution
    if request.status == "claimed":
        return replace(request, status=status)
    return replace(request, status=status, answer=event.value, by=event.by, at=now)


def begin_entry(stored: JournalEntry | None, call: JournalEntry, *, idempotent: bool) -> JournalEntry:
    """The journal entry of a call that is about to be made.

    It may be made (again) when it never began, was withdrawn, or is idempotent. A call that began and has no
    outcome may have taken effect: its outcome is unknown.
    """
    if stored is None or stored.state == "withdrawn":
        return call
    if stored.state != "intent":
        return stored
    if idempotent:
        return replace(call, outcome=stored.outcome)
    return replace(stored, state="unknown")


def update_entry(stored: JournalEntry | None, state: NextCallState, outcome: JsonValue) -> JournalEntry:
    """The entry of a call that has begun, in its next state; one that has an outcome stays as it is."""
    if stored is None:
        raise Refused("The call never started.")
    if stored.state in ("done", "withdrawn"):
        return stored
    return replace(stored, state=state, outcome=outcome)


def can_settle(entry: JournalEntry, status: RunStatus) -> bool:
    """Whether only a person can still say what the outcome of the call was."""
    return entry.state == "unknown" or (entry.state in ("intent", "waiting") and status == "ended")
