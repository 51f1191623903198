"""The questions and orders of the demo's story, told from all others by their words."""

import re
from dataclasses import dataclass

_SERVICE = r"(?:the )?(?:service |application |app )?(?P<service>[a-z][a-z0-9-]{1,40})(?: service)?"
_TROUBLE = (
    r"(?:failing|fails?|down|broken|degraded|crashing|crash(?:es|ed)?|unhealthy|red|not working|not healthy)"
)
_INVESTIGATIONS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        rf"why (?:is|does|did|has) {_SERVICE}(?: been)? {_TROUBLE}(?: now| today)?",
        rf"what(?:'s|’s| is) (?:wrong|the matter|the problem|going on) with {_SERVICE}(?: now| today)?",
        rf"(?:please )?investigate (?:why )?{_SERVICE}(?: is| has been)?(?: {_TROUBLE})?",
    )
)
_TICKET = re.compile(
    r"(?:please |can you |could you )?(?:create|open|file|write|raise|make) (?:a|the|an|me a) (?:new )?"
    r"(?:jira )?(?:ticket|issue|bug)(?: (?:for|about) (?:it|this|that|the .{1,60}|[a-z][a-z0-9-]{1,40}))?"
    r"(?: in jira)?(?: please)?",
    re.IGNORECASE,
)
_ROLLBACK = re.compile(
    r"(?:please |can you |could you )?(?:roll ?back|rollback|revert|undo|roll) (?:the )?"
    r"(?:release of |deployment of |last release of )?"
    r"(?P<service>[a-z][a-z0-9-]{1,40})(?: back)?(?: to .{1,60})?(?: please)?",
    re.IGNORECASE,
)
_PRONOUNS = frozenset({"it", "this", "that", "release", "deployment", "change"})


@dataclass(frozen=True, slots=True)
class InvestigationOrder:
    """Why does this service fail?"""

    service: str


@dataclass(frozen=True, slots=True)
class TicketOrder:
    """Create a ticket about the last investigation."""


@dataclass(frozen=True, slots=True)
class RollbackOrder:
    """Roll this service back; without a name, the one of the last investigation."""

    service: str | None


StoryOrder = InvestigationOrder | TicketOrder | RollbackOrder


def read_order(question: str) -> StoryOrder | None:
    """The order that a question is; None when it is not one of the story."""
    text = " ".join(question.split()).rstrip(" ?!.")
    for pattern in _INVESTIGATIONS:
        match = pattern.fullmatch(text)
        if match is not None:
            return InvestigationOrder(match["service"].lower())
    if _TICKET.fullmatch(text):
        return TicketOrder()
    match = _ROLLBACK.fullmatch(text)
    if match is None:
        return None
    service = match["service"].lower()
    return RollbackOrder(None if service in _PRONOUNS else service)
