"""The event loop's clock under the control of a test: limits expire when the test says so, not by waiting."""

import asyncio

import pytest


def advance_clock(monkeypatch: pytest.MonkeyPatch, seconds: float) -> None:
    """Lets so many seconds pass at once for every timer of the running loop."""
    loop = asyncio.get_running_loop()
    time_before = loop.time
    monkeypatch.setattr(loop, "time", lambda: time_before() + seconds)
