"""On behalf of: how a client names the person it speaks for, in headers or in MCP's `_meta`, and the owner of
the conversation."""

import re
import unicodedata
from collections.abc import Sequence
from urllib.parse import quote, unquote

from ai_platform_engineering.core.errors import Refused

USER_HEADER = "X-CAIPE-User"
OWNER_HEADER = "X-CAIPE-Owner"
USER_META_KEY = "caipe.user"  # in the `_meta` of a tool call
LONGEST_NAME = 300  # characters

_PERCENT_ENCODED = re.compile(r"(?:[\x20-\x24\x26-\x7e]|%[0-9A-Fa-f]{2})*")
_LINE_BREAKING_CATEGORIES = ("Cc", "Zl", "Zp")


def on_behalf_of_headers(user: str, owner: str | None = None) -> dict[str, str]:
    """The headers of a request for the user, in a conversation of the owner or of the user's own."""
    headers = {USER_HEADER: quote(user, safe="")}
    if owner is not None:
        headers[OWNER_HEADER] = quote(owner, safe="")
    return headers


def read_name_header(header: str, values: Sequence[str]) -> str | None:
    """The name in a header, percent-encoded UTF-8, or None without the header. Raises Refused."""
    if not values:
        return None
    if len(values) > 1:
        raise Refused(f"{header} is sent {len(values)} times. Send it once.")
    if not _PERCENT_ENCODED.fullmatch(values[0]):
        raise Refused(f"{header} is not percent-encoded: write a name in UTF-8 and encode what is not ASCII.")
    try:
        name = unquote(values[0], errors="strict")
    except UnicodeDecodeError:
        raise Refused(f"{header} does not hold UTF-8 after it is decoded.") from None
    check_person_name(header, name)
    return name


def check_person_name(field: str, name: str) -> None:
    """Raises Refused for what cannot be a name; `field` says where it stands."""
    if not name.strip():
        raise Refused(f"{field} is empty.")
    if len(name) > LONGEST_NAME:
        raise Refused(f"{field} has {len(name)} characters, and {LONGEST_NAME} are the most.")
    if any(unicodedata.category(character) in _LINE_BREAKING_CATEGORIES for character in name):
        raise Refused(f"{field} holds control characters.")
