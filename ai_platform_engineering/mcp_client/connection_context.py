"""What connections share: time limits, environment, sandbox, the reaper of orphans, access tokens."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.json_limits import JsonLimits
from ai_platform_engineering.mcp_client.oauth.access_tokens import AccessTokens
from ai_platform_engineering.mcp_client.sandbox import Sandbox
from ai_platform_engineering.mcp_client.server_process import OrphanReaper
from ai_platform_engineering.mcp_client.server_slots import ServerSlots
from ai_platform_engineering.mcp_client.working_folders import WorkingFolders
from ai_platform_engineering.net.bounded_responses import ResponseLimits

ProgressCallback = Callable[[float, float | None, str | None], None]
"""Takes the progress of a call: how much is done, of how much, and a text."""


@dataclass(frozen=True)
class McpLimits:
    """Time limits, in seconds, and the size of what a server may send."""

    connect: float = 30.0
    call: float = 60.0
    """Without a sign of life from the server."""
    idle: float = 600.0
    """Without use before a session is closed; 0 for never."""
    backoff: float = 60.0
    """The longest wait between two starts."""
    question: float = 3600.0
    """How long a server waits, with its call open, for a person's answer."""
    message_bytes: int = 16 * 1024 * 1024
    message_values: int = 100_000

    @property
    def longest_call(self) -> float:
        """Progress prolongs a call, but not for ever."""
        return 10 * self.call

    @property
    def response_limits(self) -> ResponseLimits:
        """The limits of one message of a server."""
        return ResponseLimits(self.message_bytes, JsonLimits(self.message_values))


@dataclass(frozen=True, slots=True)
class ConnectionContext:
    """What every connection of a process has in common, but for the tokens."""

    limits: McpLimits
    environment: Mapping[str, str]
    reaper: OrphanReaper
    folders: WorkingFolders
    sandbox: Sandbox
    slots: ServerSlots | None = None
    """How many processes of servers may run; None for any number."""
    tokens: AccessTokens | None = None
    """The access tokens of a session with a server that wants them."""


@dataclass(slots=True)
class OutgoingRequest:
    """A request on its way; it has an id as soon as it was handed to the transport."""

    request_id: str | int | None = None
    result: dict[str, Any] | None = None
    """What the server answered, as it wrote it."""
