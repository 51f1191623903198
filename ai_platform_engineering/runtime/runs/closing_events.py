"""The events that close what is still open in a run, written just before its last event."""

from collections.abc import Iterator

from ai_platform_engineering.core.events import AnyEvent, InputResolved, ToolFinished
from ai_platform_engineering.core.transcript import Transcript


def closing_events(transcript: Transcript, *, answered: bool) -> Iterator[AnyEvent]:
    """Ends running tool calls (their outcome is unknown), withdraws open requests, and closes the plan."""
    for call in reversed(transcript.running):
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
    for request in transcript.requests:
        yield InputResolved(request_id=request.request_id, resolution="withdrawn", agent=request.agent)
    if transcript.plan is None:
        return
    closed_plan = transcript.plan.close(
        answered=answered,
        worked_on={call.step_id for call in transcript.calls if call.step_id and call.outcome == "ok"},
        cut_off={call.step_id for call in transcript.running if call.step_id and call.delegates},
    )
    if closed_plan != transcript.plan:
        yield closed_plan.to_event()
