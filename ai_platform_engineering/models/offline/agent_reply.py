"""The router's reply as a domain agent: tools by words, arguments by schema, an answer from the results."""

from collections.abc import Iterator, Sequence

from ai_platform_engineering.models.offline.answer_text import (
    describe_abilities,
    explain_missing_arguments,
    explain_no_routes,
    explain_omissions,
    format_title,
    join_sections,
    render_calls,
    reply_to_small_talk,
)
from ai_platform_engineering.models.offline.bound_tools import BoundTools
from ai_platform_engineering.models.offline.call_arguments import MAX_CALLS
from ai_platform_engineering.models.offline.chat_history import ChatHistory, TurnCall
from ai_platform_engineering.models.offline.question_parser import (
    ParsedQuestion,
    ParsedRequest,
    parse_question,
)
from ai_platform_engineering.models.offline.router_reply import RoutedCall, RouterReply
from ai_platform_engineering.models.offline.routing import RequestRoute, route_requests

_MAX_CALLS_PER_TURN = 2 * MAX_CALLS


def reply_as_agent(history: ChatHistory, bound_tools: BoundTools) -> RouterReply:
    """The calls that the question needs, or the answer from their results."""
    question = parse_question(history.question, history.earlier_questions)
    routes = route_requests(question.requests, bound_tools)
    calls = make_calls(routes)
    if calls and not history.turn_calls:
        return RouterReply(calls=tuple(calls[:_MAX_CALLS_PER_TURN]))
    if question.small_talk and bound_tools.tools:
        return RouterReply(reply_to_small_talk(question.small_talk, bound_tools))
    return RouterReply(_answer(history.turn_calls, question, routes, bound_tools))


def make_calls(routes: Sequence[RequestRoute]) -> list[RoutedCall]:
    """The tool calls of the routes, each once."""
    calls = list[RoutedCall]()
    for call in _iterate_calls(routes):
        if call not in calls:
            calls.append(call)
    return calls


def _iterate_calls(routes: Sequence[RequestRoute]) -> Iterator[RoutedCall]:
    for route in routes:
        if route.tool_match is None:
            continue
        for arguments in route.tool_match.filled.argument_sets:
            yield RoutedCall(route.tool_match.tool.name, arguments)


def find_route_calls(route: RequestRoute, turn_calls: Sequence[TurnCall]) -> list[TurnCall]:
    """The calls of this turn that a route made."""
    calls = list[TurnCall]()
    if route.tool_match is None:
        return calls
    argument_sets = route.tool_match.filled.argument_sets
    for call in turn_calls:
        if call.name == route.tool_match.tool.name and dict(call.arguments) in argument_sets:
            calls.append(call)
    return calls


def _answer(
    turn_calls: Sequence[TurnCall],
    question: ParsedQuestion,
    routes: Sequence[RequestRoute],
    bound_tools: BoundTools,
) -> str:
    sections = list[tuple[str, str]]()
    explained_ids = set[str]()
    for route in routes:
        route_calls = find_route_calls(route, turn_calls)
        explained_ids.update(call.call_id for call in route_calls)
        if route_calls:
            sections.append((format_title(route.request), render_calls(route_calls, route.request)))
        elif route.tool_match and not route.has_calls:
            text = explain_missing_arguments(route.tool_match, route.request)
            sections.append((format_title(route.request), text))
    # Calls that no route explains, as when the tools were taken away for the last turn.
    other_calls = [call for call in turn_calls if call.call_id not in explained_ids]
    if other_calls:
        text = question.requests[0].text if question.requests else ""
        sections.append(("", render_calls(other_calls, ParsedRequest.parse(text))))
    if bound_tools.tools:
        sections.append(("", explain_no_routes([route for route in routes if route.target is None])))
    sections.append(("", explain_omissions(question, routes)))
    return join_sections(sections) or describe_abilities(bound_tools)
