"""TCP ports as people write them: a number, a list, or a text with ranges."""

import re
from collections.abc import Sequence

_RANGE = re.compile(r"(\d{1,5})(?:-(\d{1,5}))?")
_LAST_PORT = 65535


class TooManyPorts(ValueError):
    """More ports than the limit."""


def parse_ports(value: int | str | Sequence[int], *, limit: int) -> tuple[int, ...]:
    """The ports in their order, each once. Raises ValueError with a text for people."""
    if isinstance(value, int):
        numbers = [value]
    elif isinstance(value, str):
        numbers = []
        without_spaces = re.sub(r"\s*-\s*", "-", value.strip())
        for part in re.split(r"[,\s]+", without_spaces):
            numbers += _parse_range(part, limit)
            if len(numbers) > _LAST_PORT:  # whatever is written behind it
                raise TooManyPorts(f"These are too many ports. {_help(limit)}")
    else:
        numbers = list(value)
    ports = tuple(dict.fromkeys(numbers))
    if not ports or not all(1 <= port <= _LAST_PORT for port in ports):
        raise ValueError(f"That is not a port. {_help(limit)}")
    if len(ports) > limit:
        raise TooManyPorts(f"These are {len(ports)} ports. {_help(limit)}")
    return ports


def _parse_range(text: str, limit: int) -> range:
    match = _RANGE.fullmatch(text)
    if not match:
        raise ValueError(f"That is not a port. {_help(limit)}")
    first = int(match[1])
    last = int(match[2] or first)
    if last < first:
        raise ValueError(f"The range {first}-{last} is the wrong way round. {_help(limit)}")
    return range(first, last + 1)


def _help(limit: int) -> str:
    return (
        f"Write one port (443), a list (22,80,443) or a range (8000-8010), each from 1 to {_LAST_PORT}, "
        f"at most {limit} in all."
    )
