"""An exception for a log line: its type and place, never its text, which may hold a secret."""

import traceback
from pathlib import Path


def format_traceback(error: BaseException) -> str:
    """The error for a log: its type and where it came from, without its text."""
    frames = traceback.extract_tb(error.__traceback__)[-4:]
    places = " < ".join(
        f"{Path(frame.filename).name}:{frame.lineno} {frame.name}" for frame in reversed(frames)
    )
    return f"{type(error).__name__} at {places or 'an unknown place'}"
