"""What a server says of a message that answered no request of a run that waits."""

from ai_platform_engineering.core.transcript import Transcript


def describe_pause(before: Transcript, after: Transcript) -> str:
    """Why the run still waits after a message to it: a wrong value, an expired request, an unclear text.

    Empty when the run pauses for the first time or went on in between: then its requests say everything.
    """
    was_waiting = bool(before.question)
    new_resolutions = after.resolved[len(before.resolved) :]
    went_on = any(resolved.resolution != "expired" for resolved in new_resolutions)
    if after.state != "input-required" or not was_waiting or went_on:
        return ""
    return after.waiting_for
