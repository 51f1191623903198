"""Fixtures of `tests`: no network beyond this machine, no settings from outside, a folder for each test."""

from tests.conftest import _isolated_environment, pytest_configure, pytest_runtest_makereport

__all__ = ["_isolated_environment", "pytest_configure", "pytest_runtest_makereport"]
