"""What is used of the SDK's routes, without FastAPI: the package imports it wherever it is installed, a tenth of the time of a start."""

import sys
from typing import Any

_hidden: dict[str, Any] = (
    {} if "fastapi" in sys.modules else {"fastapi": None}
)  # None: as if it was not installed
sys.modules.update(_hidden)
try:
    from a2a.server.routes.common import DefaultServerCallContextBuilder
    from a2a.server.routes.jsonrpc_dispatcher import JsonRpcDispatcher
finally:
    for _name in _hidden:
        del sys.modules[_name]

__all__ = ["DefaultServerCallContextBuilder", "JsonRpcDispatcher"]
