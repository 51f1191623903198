"""What a test needs of the machine, apart from pytest's configuration: benchmarks use it, too."""

import os

import pytest


def need(service: str, ok: bool, reason: str) -> None:
    """A test that cannot run without a service says so: in CI the service must be there, elsewhere the test
    is skipped."""
    if ok:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"{service} is needed in CI: {reason}", pytrace=False)
    pytest.skip(f"{service} is not here: {reason}")
