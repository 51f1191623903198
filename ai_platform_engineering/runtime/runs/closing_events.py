"""What must still be said before a run ends, so that nothing stays open behind its last event."""

from collections.abc import Iterator

from ai_platform_engineering.core.events import AnyEvent, InputResolved, ToolFinished
from ai_platform_engineering.core.transcript import Transcript


def closing_events(seen: Transcript, *, answered: bool) -> Iterator[AnyEvent]:
    """Ends what runs (whether it took effect is not known), withdraws what was asked, and settles the plan."""
    for call in reversed(seen.running):
        yield ToolFinished(
            call_id=call.call_id,
            tool=call.tool,
            agent=call.agent,
            parent_call=call.parent_call,
            delegates=call.delegates,
            knowledge=call.knowledge,
            step_id=call.step_id,
            outcome="unknown",
            error="The run ended before the result arrived.",
        )
    for request in seen.requests:
        yield InputResolved(request_id=request.request_id, resolution="withdrawn", agent=request.agent)
    if seen.plan is not None and (settled := seen.plan.close(answered=answered)) != seen.plan:
        yield settled.to_event()
