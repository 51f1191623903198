"""Who does what: the agent or the tool that the words of a request fit best, or nobody."""

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace

from ai_platform_engineering.models.offline.arguments import FilledArguments, fill
from ai_platform_engineering.models.offline.documents import wants_documents
from ai_platform_engineering.models.offline.entities import SALIENT, EntityKind
from ai_platform_engineering.models.offline.lexicon import ALSO_READ, NOUNS_AFTER, SERVICES, word_set
from ai_platform_engineering.models.offline.questions import ParsedRequest, segments
from ai_platform_engineering.models.offline.tools import BoundTools, RoutableAgent, RoutableTool, changes_of
from ai_platform_engineering.models.offline.words import (
    FitScore,
    Profile,
    is_generic,
    match,
    plain_words,
    scores,
    stem,
    stems,
)

ENOUGH = 0.9  # what a request must fit at least, or it is not taken for anybody's
_SAYS_ENOUGH = 0.4  # what the words of a request must fit at least, or those that it refers to are taken in
_OF_CONTEXT = 0.4  # what a word counts that stands in the text that a request refers to
# What a word counts that a thing stands for: an address is about addresses. Among the tools of one agent all are about such things.
_OF_THING_FOR_AGENTS, _OF_THING_FOR_TOOLS = 0.75, 0.5

_STANDS_FOR: dict[EntityKind, tuple[str, ...]] = {
    "url": ("url", "http"),
    "host": ("host",),
    "ip": ("ip",),
    "cidr": ("cidr",),
    "port": ("port",),
    "email": ("email",),
    "key": ("ticket",),
    "slug": ("repo",),
}
# What is asked of a thing when these words stand beside it: the address of a name is a matter of DNS.
_ASKED_OF: tuple[tuple[EntityKind, frozenset[str], str], ...] = (
    ("host", frozenset({"ip", "address", "addresses", "ips"}), "dns"),
    ("ip", frozenset({"name", "names", "hostname", "host", "called", "whose"}), "reverse"),
)
_REACHED = word_set("open closed listening reachable running blocked up")
_PREPOSITIONS = word_set("by in of for with from to on at about since until per")
_MOST_TRIED = 24  # tools for which arguments are looked for


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """A tool for a request, with its calls or with what they lack."""

    tool: RoutableTool
    filled: FilledArguments


@dataclass(frozen=True, slots=True)
class RequestRoute:
    """A request and who takes it: an agent, a tool, or nobody."""

    request: ParsedRequest
    agent: RoutableAgent | None = None
    use: ToolMatch | None = None


def route(requests: Sequence[ParsedRequest], offer: BoundTools) -> list[RequestRoute]:
    """A route for each request; one that names the work of several becomes several."""
    routes = list[RequestRoute]()
    for request in requests:
        found = _routes(request, offer)
        last = routes[-1].agent if routes else None
        if last and request.points_elsewhere and not any(one.agent or one.use for one in found):
            found = [
                RequestRoute(request, agent=last)
            ]  # "what happened in incident 4711, and did it happen before?"
        routes += found
    return routes


def _routes(request: ParsedRequest, offer: BoundTools) -> list[RequestRoute]:
    whole = _route(request, offer)
    parts = segments(request.text)
    if not 2 <= len(parts) <= 4 or any(part.partition(" ")[0].lower() in _PREPOSITIONS for part in parts):
        return [whole]
    # "the DNS records and the certificate of example.org": each part has a taker of its own, and they share the subject.
    found = [_route(_part(part, request), offer) for part in parts]
    takers = [one.agent or (one.use.tool if one.use else None) for one in found]
    if (
        None in takers
        or len({id(taker) for taker in takers}) < len(takers)
        or not all(_is_named(one) for one in found)
    ):
        return [whole]
    if any(one.use and not one.use.filled.rows for one in found):
        return [whole]
    if not changes_ordered(request) and any(changes_ordered(one.request) for one in found):
        return [whole]  # a part of a question is no order, whatever word it begins with
    return found


def _part(text: str, whole: ParsedRequest) -> ParsedRequest:
    part = ParsedRequest.of(text, (whole.text, *whole.context))
    has_own = any(entity.kind != "number" for entity in part.entities)
    if has_own:
        return part
    return replace(part, entities=whole.entities, assignments=whole.assignments)


def _is_named(found: RequestRoute) -> bool:
    """The words themselves, and not only things in them, name the agent or the tool."""
    if found.agent:
        name = found.agent.profile[:3]
    elif found.use:
        name = found.use.tool.profile[:1]
    else:
        name = ()
    return any(match(name, word) >= 1.0 for word in stems(found.request.wording))


def _route(request: ParsedRequest, offer: BoundTools) -> RequestRoute:
    tools = [tool for tool in offer.tools if _may(tool, request)]
    if not offer.delegates:
        return RequestRoute(request, use=pick(tools, request))
    fits = _scores(
        [*(agent.profile for agent in offer.agents), *(tool.profile for tool in tools)],
        request,
        _OF_THING_FOR_AGENTS,
    )
    best = max(range(len(fits)), key=lambda at: (fits[at].rank, -at), default=-1)
    if _is_for_documents(request, offer, best) and (use := _searching(tools, request)) is not None:
        return RequestRoute(request, use=use)
    if best >= 0 and fits[best].plain >= ENOUGH:
        if best < len(offer.agents):
            return RequestRoute(request, agent=offer.agents[best])
        return RequestRoute(request, use=pick(tools, request))
    return RequestRoute(request, use=_searching(tools, request))


def pick(tools: Sequence[RoutableTool], request: ParsedRequest) -> ToolMatch | None:
    """The tool that fits best by its words and by what it can be called with."""
    by_words = _scores([tool.profile for tool in tools], request, _OF_THING_FOR_TOOLS)
    if len(tools) > _MOST_TRIED:
        likely = sorted(sorted(range(len(tools)), key=lambda at: -by_words[at].rank)[:_MOST_TRIED])
        tools, by_words = [tools[at] for at in likely], [by_words[at] for at in likely]
    uses = [ToolMatch(tool, fill(tool, request)) for tool in tools]
    total = [words.rank + _weighed(use.filled, words.rank) for words, use in zip(by_words, uses, strict=True)]
    best = max(range(len(uses)), key=lambda at: (total[at], -at), default=-1)
    if best < 0 or (total[best] < ENOUGH and by_words[best].plain < ENOUGH) or _is_beyond(request, tools):
        return None
    return uses[best]


def _is_beyond(request: ParsedRequest, tools: Sequence[RoutableTool]) -> bool:
    """An order whose verb and all other words are unknown here: that a tool could take the address in it means nothing."""
    words = stems(request.wording)
    if not words or request.is_question or is_generic(words[0]) or request.lacks_subject:
        return False
    return not any(match(tool.profile, word) for tool in tools for word in words)


def _weighed(filled: FilledArguments, words: float) -> float:
    # A name guessed from the place of a word is no sign that the tool is meant: without a word for the tool it counts little.
    if words > 0:
        return filled.fit
    return min(filled.fit, 1.0) * 0.9


def _is_for_documents(request: ParsedRequest, offer: BoundTools, best: int) -> bool:
    """An explanation is wanted and no particular thing is looked at: not even the agent that fits best is named by its words."""
    if "fetch_document" not in {tool.name for tool in offer.tools} or any(
        entity.kind in SALIENT for entity in request.entities
    ):
        return False
    if wants_documents(request.text, surely=True):
        return True
    named = 0 <= best < len(offer.agents) and _is_named(RequestRoute(request, agent=offer.agents[best]))
    return wants_documents(request.text) and not named


def _searching(tools: Sequence[RoutableTool], request: ParsedRequest) -> ToolMatch | None:
    """What nobody takes may be in a knowledge base."""
    for tool in tools:
        required = tool.required
        if (
            {"search", "ask", "query"} & set(plain_words(tool.name))
            and len(required) == 1
            and required[0].is_free_text
        ):
            return ToolMatch(tool, fill(tool, request))
    return None


def _scores(profiles: Sequence[Profile], request: ParsedRequest, of_thing: float) -> list[FitScore]:
    """The fit of each by the words of the request; what it refers to counts only when it says too little itself."""
    words = _words(request, of_thing)
    said = scores(profiles, dict.fromkeys(stems(request.wording), 1.0))
    if max((one.plain for one in said), default=0.0) >= _SAYS_ENOUGH or not request.points_elsewhere:
        return scores(profiles, words)
    for word in stems(" ".join(request.context[:1])):
        words.setdefault(word, _OF_CONTEXT * (2.0 if request.refers else 1.0))
    return scores(profiles, words)


def _words(request: ParsedRequest, of_thing: float) -> dict[str, float]:
    """The words of a request with their weights, and the words that the things in it stand for."""
    said = set(plain_words(request.wording))
    weights = dict.fromkeys(stems(request.wording), 1.0)
    for kind, beside, word in _ASKED_OF:
        if beside & said and any(entity.kind == kind for entity in request.entities):
            weights.setdefault(stem(word), 1.0)
    if said & SERVICES.keys() and said & _REACHED:
        weights.setdefault("port", 1.0)  # "is ssh open on db01?"
    for entity in request.entities:
        for word in _STANDS_FOR.get(entity.kind, ()):
            weights.setdefault(stem(word), of_thing * (0.5 if entity.derived else 1.0))
    return weights


def _may(tool: RoutableTool, request: ParsedRequest) -> bool:
    """A tool that changes something is used only for an order to do just that; an order to change is not met by reading."""
    ordered = changes_ordered(request)
    if tool.changes or ordered:
        return bool(tool.changes & ordered)
    return True


_ASKED_POLITELY = re.compile(r"(?:can|could|would|will) you\b|please\b|kindly\b", re.IGNORECASE)
_WANTED = re.compile(r"(?:i|we)(?: would|'d)? (?:want|need|like) to ", re.IGNORECASE)


def changes_ordered(request: ParsedRequest) -> frozenset[str]:
    """What a request orders to change: an imperative with a verb of change in front. In doubt it is no order."""
    text = request.text.strip()
    if text.endswith("?") and not _ASKED_POLITELY.match(text):
        return frozenset()
    wanted = _WANTED.match(text)
    words = plain_words(text[wanted.end() :] if wanted else text)
    words = [
        word for word in words if word not in ("can", "could", "would", "will", "you", "please", "kindly")
    ]
    if not words or set(words[1:2]) & NOUNS_AFTER:
        return frozenset()
    # "open a ticket" changes something, "open ports on a host" does not.
    if words[0] in ALSO_READ and not (
        words[0] in ("open", "file", "make") and set(words[1:3]) & {"a", "an", "new"}
    ):
        return frozenset()
    return changes_of(words[0])
