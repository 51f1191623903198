"""The offline model as a domain agent: tools by words, arguments by schema, an answer from the results."""

from collections.abc import Sequence

from ai_platform_engineering.models.offline.calls import MOST_CALLS
from ai_platform_engineering.models.offline.compose import (
    RoutedCall,
    RouterReply,
    abilities,
    body_of,
    lacking,
    not_routed,
    remarks,
    sections,
    title_of,
)
from ai_platform_engineering.models.offline.conversation import ChatHistory, TurnCall
from ai_platform_engineering.models.offline.questions import ParsedQuestion, ParsedRequest, ask
from ai_platform_engineering.models.offline.routing import RequestRoute, route
from ai_platform_engineering.models.offline.tools import BoundTools

_MOST_AT_ONCE = 2 * MOST_CALLS


def work(conversation: ChatHistory, offer: BoundTools) -> RouterReply:
    question = ask(conversation.question, conversation.before)
    routes = route(question.requests, offer)
    if conversation.done:
        return RouterReply(_answer(conversation.done, question, routes, offer))
    calls = calls_of(routes)
    if calls:
        return RouterReply(calls=tuple(calls[:_MOST_AT_ONCE]))
    return RouterReply(_nothing_done(question, routes, offer))


def calls_of(routes: Sequence[RequestRoute]) -> list[RoutedCall]:
    found = [RoutedCall(one.use.tool.name, row) for one in routes if one.use for row in one.use.filled.rows]
    return [call for index, call in enumerate(found) if call not in found[:index]]


def done_for(one: RequestRoute, done: Sequence[TurnCall]) -> list[TurnCall]:
    """The calls of this turn that a route made."""
    if one.use is None:
        return []
    return [
        call
        for call in done
        if call.name == one.use.tool.name and dict(call.arguments) in one.use.filled.rows
    ]


def _answer(
    done: Sequence[TurnCall], question: ParsedQuestion, routes: Sequence[RequestRoute], offer: BoundTools
) -> str:
    parts = [(title_of(one.request), _section(one, done, offer)) for one in routes]
    told = {call.call_id for one in routes for call in done_for(one, done)}
    # Calls that no route explains, as when the tools were taken away for the last turn.
    rest = [call for call in done if call.call_id not in told]
    if rest:
        parts.append(
            ("", body_of(rest, ParsedRequest.of(question.requests[0].text if question.requests else "")))
        )
    return sections([*parts, ("", remarks(question, routes))])


def _section(one: RequestRoute, done: Sequence[TurnCall], offer: BoundTools) -> str:
    if found := done_for(one, done):
        return body_of(found, one.request)
    if one.use and (one.use.filled.missing or one.use.filled.problems):
        return lacking(one.use, one.request)
    if offer.tools and one.use is None:
        return not_routed(one.request, offer)
    return ""


def _nothing_done(question: ParsedQuestion, routes: Sequence[RequestRoute], offer: BoundTools) -> str:
    if question.small_talk or not routes:
        return abilities(offer, greeting=question.greeting)
    told = [(title_of(one.request), _section(one, (), offer)) for one in routes]
    text = sections([*told, ("", remarks(question, routes))])
    if any(one.use is None for one in routes):
        if text:
            return f"{text}\n\n{abilities(offer)}"
        return abilities(offer)
    return text
