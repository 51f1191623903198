"""Errors of MCP servers: those that models and people read, and those of single requests."""

from typing import Any

from ai_platform_engineering.core.errors import AgentUnavailable, CaipeError


class McpUnavailable(AgentUnavailable):
    """The server cannot be started or reached; nothing was done."""

    code = "mcp_unavailable"

    def __init__(self, server: str, reason: str) -> None:
        super().__init__(f"The tool server {server} is not available: {reason}")
        self.reason = reason


class McpNoSlot(McpUnavailable):
    """The server was not started, since as many run as may; nothing is known against it."""

    code = "mcp_no_slot"


class McpLoginRequired(McpUnavailable):
    """The server wants a person to sign in first; nothing was done, and trying again does not help."""

    code = "mcp_login_required"
    retryable = False


class McpCallLost(CaipeError):
    """The call was given to the server and no answer came; nobody knows whether it took effect."""

    code = "mcp_call_lost"
    retryable = True
    outcome = "unknown"


class McpToolFailed(CaipeError):
    """The server answered that the call failed; the text is the server's."""

    code = "tool_failed"


class McpToolGone(CaipeError):
    """The server no longer has the tool."""

    code = "tool_gone"


class McpToolHeld(CaipeError):
    """The server has changed the tool since it was trusted, and nobody approved that; nothing was done."""

    code = "tool_held"


class McpRequestError(Exception):
    """A request to a server got no result; the subclasses tell its delivery status."""


class NotDeliveredError(McpRequestError):
    """The request cannot have reached the server. Sending it again is safe."""


class DeliveryUnknownError(McpRequestError):
    """The request may have reached the server, and no answer will come."""


class CallTimeoutError(McpRequestError):
    """No answer in time; the server may still be at work."""


class RequestRejectedError(McpRequestError):
    """The server answered with an error."""

    def __init__(self, text: str, code: int = 0, data: Any = None) -> None:
        super().__init__(text)
        self.code = code
        self.data = data


class InvalidAnswerError(RequestRejectedError):
    """The server's answer is not valid MCP."""
