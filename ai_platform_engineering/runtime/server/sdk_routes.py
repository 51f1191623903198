"""Imports the SDK's route classes without FastAPI, which would take a tenth of the start-up time."""

import sys
from typing import Any

_hidden_modules: dict[str, Any] = {}
if "fastapi" not in sys.modules:
    _hidden_modules["fastapi"] = None  # as if it was not installed
sys.modules.update(_hidden_modules)
try:
    from a2a.server.routes.common import DefaultServerCallContextBuilder
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
finally:
    for _name in _hidden_modules:
        del sys.modules[_name]

__all__ = ["DefaultServerCallContextBuilder", "JsonRpcDispatcher"]
