"""Which shape of the event stream a client gets: rich, or plain."""

from collections.abc import Collection
from dataclasses import dataclass
from typing import Literal

# The agent's stream carries our events and sequence numbers, so it can be followed from a cursor.
EVENTS_EXTENSION = "urn:caipe:events:1"
EXTENSIONS_HEADER = "A2A-Extensions"
OLD_EXTENSIONS_HEADER = "X-A2A-Extensions"  # of protocol 0.3

ShapeName = Literal["rich", "plain"]


@dataclass(frozen=True, slots=True)
class ClientShape:
    """The frames that a client gets, and whether its texts may decide on approvals.

    A client that knows our extension sends decisions as data: it may let certain people alone decide, and a
    text of somebody else must not decide in their place.
    """

    name: ShapeName = "rich"
    text_decisions: bool = False


def choose_shape(
    extensions: Collection[str], *, is_v03: bool, v03_shape: ShapeName, text_decisions: bool
) -> ClientShape:
    """The shape for a client by the extensions that it activates, and by its protocol version."""
    if EVENTS_EXTENSION in extensions:
        return ClientShape("rich")
    if is_v03:
        return ClientShape(v03_shape, text_decisions)
    return ClientShape("plain", text_decisions)
