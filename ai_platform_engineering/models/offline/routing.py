"""Routing: the agent or the tool that fits the words of a request best, or none."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from ai_platform_engineering.models.offline.argument_filling import fill_arguments
from ai_platform_engineering.models.offline.bound_tools import BoundTools, RoutableAgent, RoutableTool
from ai_platform_engineering.models.offline.change_orders import find_ordered_changes
from ai_platform_engineering.models.offline.clauses import split_enumeration
from ai_platform_engineering.models.offline.document_passages import asks_for_explanation, asks_how_to
from ai_platform_engineering.models.offline.entities import SALIENT_KINDS, EntityKind
from ai_platform_engineering.models.offline.filled_arguments import FilledArguments
from ai_platform_engineering.models.offline.lexicon import SERVICES, word_set
from ai_platform_engineering.models.offline.question_parser import ParsedRequest
from ai_platform_engineering.models.offline.word_matching import (
    FitScore,
    Profile,
    is_generic,
    match_word,
    score_profiles,
    split_words,
    stem,
    stem_words,
)

MIN_SCORE = 0.9  # a request with a lower score is routed to nobody
_MIN_OWN_SCORE = 0.4  # below it, the words of the text that a request refers to are taken in
_CONTEXT_WEIGHT = 0.4  # of a word in the text that a request refers to
# The weight of a word that an entity stands for: an IP address is about addresses. Among the tools of one
# agent all are about such entities, so it counts less there.
_ENTITY_WEIGHT_FOR_AGENTS = 0.75
_ENTITY_WEIGHT_FOR_TOOLS = 0.5
_MAX_FILLED_TOOLS = 24  # tools for which arguments are looked for

_WORDS_OF_KIND: dict[EntityKind, tuple[str, ...]] = {
    "url": ("url", "http"),
    "host": ("host",),
    "ip": ("ip",),
    "cidr": ("cidr",),
    "port": ("port",),
    "email": ("email",),
    "key": ("ticket",),
    "slug": ("repo",),
}
# The subject of a question about an entity, by the words beside it: the address of a name is a matter of DNS.
_SUBJECTS: tuple[tuple[EntityKind, frozenset[str], str], ...] = (
    ("host", word_set("ip address addresses ips"), "dns"),
    ("ip", word_set("name names hostname host called whose"), "reverse"),
)
_REACHABILITY_WORDS = word_set("open closed listening reachable running blocked up")
_PREPOSITIONS = word_set("by in of for with from to on at about since until per")
_SEARCH_WORDS = word_set("search ask query")
_WRITING_VERBS = word_set("write draft compose translate generate rewrite refactor")
_ALMOST_BEST = 0.6  # of the best rank: several agents may do the same work
_MAX_UNAVAILABLE = 3  # agents named in one refusal


@dataclass(frozen=True, slots=True)
class ToolMatch:
    """A tool for a request, with its arguments or with what they lack."""

    tool: RoutableTool
    filled: FilledArguments


@dataclass(frozen=True, slots=True)
class RequestRoute:
    """A request and its target: an agent, a tool, or nobody."""

    request: ParsedRequest
    agent: RoutableAgent | None = None
    tool_match: ToolMatch | None = None
    unavailable_agents: tuple[RoutableAgent, ...] = ()  # that could do it, were they configured

    @property
    def target(self) -> RoutableAgent | RoutableTool | None:
        if self.agent:
            return self.agent
        if self.tool_match:
            return self.tool_match.tool
        return None

    @property
    def has_calls(self) -> bool:
        """Whether it is a tool with all its arguments."""
        return self.tool_match is not None and bool(self.tool_match.filled.argument_sets)


def route_requests(requests: Sequence[ParsedRequest], bound_tools: BoundTools) -> list[RequestRoute]:
    """A route for each request; one that names the work of several targets becomes several."""
    routes = list[RequestRoute]()
    for request in requests:
        request_routes = _route_parts(request, bound_tools)
        previous_agent = routes[-1].agent if routes else None
        has_target = any(route.target for route in request_routes)
        if previous_agent and request.points_elsewhere and not has_target:
            # "what happened in incident 4711, and did it happen before?"
            request_routes = [RequestRoute(request, agent=previous_agent)]
        routes += request_routes
    return routes


def _route_parts(request: ParsedRequest, bound_tools: BoundTools) -> list[RequestRoute]:
    """The routes of the parts of an enumeration, or the route of the request as a whole.

    "the DNS records and the certificate of example.org": each part has a target of its own, and they share
    the subject.
    """
    whole_route = _route_request(request, bound_tools)
    parts = split_enumeration(request.text)
    if not 2 <= len(parts) <= 4 or any(map(_starts_with_preposition, parts)):
        return [whole_route]
    part_routes = [_route_request(_parse_part(part, request), bound_tools) for part in parts]
    if _can_be_split(request, part_routes):
        return part_routes
    return [whole_route]


def _starts_with_preposition(part: str) -> bool:
    return part.partition(" ")[0].lower() in _PREPOSITIONS


def _can_be_split(request: ParsedRequest, part_routes: Sequence[RequestRoute]) -> bool:
    """Whether each part names a target of its own that can do it."""
    # A part of a question is no order, whatever word it begins with.
    allows_changes = bool(find_ordered_changes(request))
    target_ids = set[int]()
    for route in part_routes:
        if route.target is None or not _is_target_named(route):
            return False
        if route.tool_match and not route.has_calls:
            return False
        if not allows_changes and find_ordered_changes(route.request):
            return False
        target_ids.add(id(route.target))
    return len(target_ids) == len(part_routes)


def _parse_part(text: str, whole: ParsedRequest) -> ParsedRequest:
    """A part of a request; it has the entities of the whole when it has none of its own."""
    part = ParsedRequest.parse(text, (whole.text, *whole.context))
    if any(entity.kind != "number" for entity in part.entities):
        return part
    return replace(part, entities=whole.entities, assignments=whole.assignments)


def _is_target_named(route: RequestRoute) -> bool:
    """Whether the words themselves, and not only entities in them, name the agent or the tool."""
    name_profile: Profile = ()
    if route.agent:
        name_profile = route.agent.profile[:3]
    elif route.tool_match:
        name_profile = route.tool_match.tool.profile[:1]
    return any(match_word(name_profile, word) >= 1.0 for word in stem_words(route.request.wording))


def _route_request(request: ParsedRequest, bound_tools: BoundTools) -> RequestRoute:
    tools = [tool for tool in bound_tools.tools if _is_allowed(tool, request)]
    if not bound_tools.can_delegate:
        return RequestRoute(request, tool_match=pick_tool(tools, request))
    if _wants_new_text(request):
        return RequestRoute(request)
    agents = (*bound_tools.agents, *bound_tools.unavailable_agents)
    profiles = [agent.profile for agent in agents]
    profiles += [tool.profile for tool in tools]
    scores = _score(profiles, request, _ENTITY_WEIGHT_FOR_AGENTS)
    best = _find_best(score.rank for score in scores)
    best_agent = agents[best] if 0 <= best < len(agents) else None
    if _wants_documents(request, best_agent):
        search = _find_search_tool(tools, request)
        if search is not None:
            return RequestRoute(request, tool_match=search)
    if best >= 0 and scores[best].absolute >= MIN_SCORE:
        if best_agent is None:
            return RequestRoute(request, tool_match=pick_tool(tools, request))
        if not best_agent.unavailable:
            return RequestRoute(request, agent=best_agent)
        min_rank = _ALMOST_BEST * scores[best].rank
        others = [agent for agent, score in zip(agents, scores, strict=False) if score.rank >= min_rank]
        unavailable = [agent for agent in others if agent.unavailable]
        return RequestRoute(request, unavailable_agents=tuple(unavailable[:_MAX_UNAVAILABLE]))
    return RequestRoute(request, tool_match=_find_search_tool(tools, request))


def _wants_new_text(request: ParsedRequest) -> bool:
    """Whether something is to be written, which takes a language model."""
    return not _WRITING_VERBS.isdisjoint(split_words(request.text)[:1])


def _find_best(ranks: Iterable[float]) -> int:
    """The index of the highest rank, the first of equal ones; -1 when there is none."""
    best = -1
    best_rank = float("-inf")
    for index, rank in enumerate(ranks):
        if rank > best_rank:
            best = index
            best_rank = rank
    return best


# --- tools ----------------------------------------------------------------------------------------


def pick_tool(tools: Sequence[RoutableTool], request: ParsedRequest) -> ToolMatch | None:
    """The tool that fits best by its words and by what it can be called with."""
    scored_tools = _find_likely_tools(tools, request)
    if not scored_tools or _is_beyond_tools(request, [tool for tool, _ in scored_tools]):
        return None
    matches = list[ToolMatch]()
    totals = list[float]()
    for tool, score in scored_tools:
        filled = fill_arguments(tool, request)
        matches.append(ToolMatch(tool, filled))
        totals.append(score.rank + _weigh_arguments(filled, score.rank))
    best = _find_best(totals)
    _, best_score = scored_tools[best]
    if totals[best] < MIN_SCORE and best_score.absolute < MIN_SCORE:
        return None
    return matches[best]


def _find_likely_tools(
    tools: Sequence[RoutableTool], request: ParsedRequest
) -> list[tuple[RoutableTool, FitScore]]:
    """The tools with their scores by words; of many tools only the best, in their original order."""
    scores = _score([tool.profile for tool in tools], request, _ENTITY_WEIGHT_FOR_TOOLS)
    scored_tools = list(zip(tools, scores, strict=True))
    if len(tools) <= _MAX_FILLED_TOOLS:
        return scored_tools
    best_first = sorted(range(len(tools)), key=lambda index: -scores[index].rank)
    return [scored_tools[index] for index in sorted(best_first[:_MAX_FILLED_TOOLS])]


def _is_beyond_tools(request: ParsedRequest, tools: Sequence[RoutableTool]) -> bool:
    """Whether it is an order whose verb and all other words are unknown here.

    That a tool could take the address in it means nothing then.
    """
    words = stem_words(request.wording)
    if not words or request.is_question or is_generic(words[0]) or request.lacks_subject:
        return False
    return not any(_has_any_word(tool, words) for tool in tools)


def _has_any_word(tool: RoutableTool, words: Sequence[str]) -> bool:
    return any(match_word(tool.profile, word) for word in words)


def _weigh_arguments(filled: FilledArguments, word_score: float) -> float:
    # A name guessed from the place of a word is no sign that the tool is meant: without a word for the tool
    # it counts little.
    if word_score > 0:
        return filled.fit
    return min(filled.fit, 1.0) * 0.9


def _is_allowed(tool: RoutableTool, request: ParsedRequest) -> bool:
    """Whether the tool may be used for the request.

    A tool that changes something is used only for an order to do just that; an order to change is not met by
    reading.
    """
    ordered_changes = find_ordered_changes(request)
    if not tool.change_kinds and not ordered_changes:
        return True
    return bool(tool.change_kinds & ordered_changes)


# --- documents ------------------------------------------------------------------------------------


def _wants_documents(request: ParsedRequest, best_agent: RoutableAgent | None) -> bool:
    """Whether an explanation is wanted and nothing particular is looked at.

    Then not even the agent that fits best is named by its words.
    """
    if any(entity.kind in SALIENT_KINDS for entity in request.entities):
        return False
    if asks_how_to(request.text):
        return True
    if not asks_for_explanation(request.text):
        return False
    return best_agent is None or not _is_target_named(RequestRoute(request, agent=best_agent))


def _find_search_tool(tools: Sequence[RoutableTool], request: ParsedRequest) -> ToolMatch | None:
    """A tool that searches with one text: what nobody takes may be in a knowledge base."""
    for tool in tools:
        if _SEARCH_WORDS.isdisjoint(split_words(tool.name)):
            continue
        required_slots = tool.required_slots
        if len(required_slots) == 1 and required_slots[0].is_free_text:
            return ToolMatch(tool, fill_arguments(tool, request))
    return None


# --- scores ---------------------------------------------------------------------------------------


def _score(profiles: Sequence[Profile], request: ParsedRequest, entity_weight: float) -> list[FitScore]:
    """How well each profile fits the words of the request.

    The text that the request refers to counts only when the request says too little itself.
    """
    word_weights = _weigh_words(request, entity_weight)
    if request.points_elsewhere and _says_too_little(profiles, request):
        context_weight = 2 * _CONTEXT_WEIGHT if request.refers_back else _CONTEXT_WEIGHT
        for word in stem_words(" ".join(request.context[:1])):
            word_weights.setdefault(word, context_weight)
    return score_profiles(profiles, word_weights)


def _says_too_little(profiles: Sequence[Profile], request: ParsedRequest) -> bool:
    own_weights = dict.fromkeys(stem_words(request.wording), 1.0)
    own_scores = score_profiles(profiles, own_weights)
    return all(score.absolute < _MIN_OWN_SCORE for score in own_scores)


def _weigh_words(request: ParsedRequest, entity_weight: float) -> dict[str, float]:
    """The words of a request with their weights, and the words that its entities stand for."""
    words = set(split_words(request.wording))
    kinds = {entity.kind for entity in request.entities}
    weights = dict.fromkeys(stem_words(request.wording), 1.0)
    for kind, words_beside, subject in _SUBJECTS:
        if kind in kinds and words_beside & words:
            weights.setdefault(stem(subject), 1.0)
    if words & SERVICES.keys() and words & _REACHABILITY_WORDS:
        weights.setdefault("port", 1.0)  # "is ssh open on db01?"
    for entity in request.entities:
        weight = 0.5 * entity_weight if entity.derived else entity_weight
        for word in _WORDS_OF_KIND.get(entity.kind, ()):
            weights.setdefault(stem(word), weight)
    return weights
