"""The same rules as in `tests`: no network beyond this machine, no settings from outside, a folder of its own."""

from tests.conftest import _own_surroundings, pytest_configure, pytest_runtest_makereport

__all__ = ["_own_surroundings", "pytest_configure", "pytest_runtest_makereport"]
