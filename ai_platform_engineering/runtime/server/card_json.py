"""The agent card as JSON for clients of both protocols."""

from typing import Any

from a2a.compat.v0_3.conversions import to_compat_agent_card
from a2a.types import AgentCard
from a2a.utils.errors import VersionNotSupportedError
from google.protobuf.json_format import MessageToDict


def card_to_json(card: AgentCard) -> dict[str, Any]:
    """The card of protocol 1.0 with the fields of 0.3 beside its own: what the SDK's server sends."""
    content = MessageToDict(card)
    try:
        old_content = to_compat_agent_card(card).model_dump(exclude_none=True)
    except VersionNotSupportedError:
        return content
    if not old_content.get("supportsAuthenticatedExtendedCard"):
        old_content.pop("supportsAuthenticatedExtendedCard", None)
    _add_missing(content, old_content)
    return content


def _add_missing(content: Any, additions: Any) -> None:
    """Adds the fields that are missing, also in nested objects; what is there stays."""
    if isinstance(content, dict) and isinstance(additions, dict):
        for name, value in additions.items():
            if name in content:
                _add_missing(content[name], value)
            else:
                content[name] = value
    elif isinstance(content, list) and isinstance(additions, list):
        for item, addition in zip(content, additions, strict=False):
            if isinstance(item, dict):
                _add_missing(item, addition)
