"""Imports of the client libraries of databases, which are optional packages."""

import importlib
from types import ModuleType

from ai_platform_engineering.core.errors import DatabaseUnavailable
from ai_platform_engineering.core.optional_packages import explain_extra
from ai_platform_engineering.databases.database_choice import DatabaseChoice


def import_optional(name: str, extra: str, choice: DatabaseChoice) -> ModuleType:
    """Imports an optional package. Raises DatabaseUnavailable, which says how a missing one is installed."""
    try:
        return importlib.import_module(name)
    except ImportError:
        problem = f"{choice.label} cannot be used: its client is not installed."
        raise DatabaseUnavailable(problem, explain_extra(*extra.split(","))) from None
