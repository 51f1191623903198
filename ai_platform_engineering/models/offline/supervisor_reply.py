"""The router's reply as the supervisor: a plan, parallel delegations, an answer from their results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL, ToolTraits
from ai_platform_engineering.models.offline.agent_reply import find_route_calls, make_calls
from ai_platform_engineering.models.offline.answer_text import (
    capitalise,
    collect_citations,
    explain_missing_arguments,
    explain_no_routes,
    explain_omissions,
    format_title,
    join_sections,
    render_calls,
    reply_to_small_talk,
    shorten,
)
from ai_platform_engineering.models.offline.bound_tools import BoundTools
from ai_platform_engineering.models.offline.chat_history import ChatHistory, TurnCall
from ai_platform_engineering.models.offline.question_parser import (
    ParsedQuestion,
    ParsedRequest,
    parse_question,
)
from ai_platform_engineering.models.offline.router_reply import RoutedCall, RouterReply
from ai_platform_engineering.models.offline.routing import RequestRoute, route_requests
from ai_platform_engineering.models.offline.tool_results import truncate_text

_NUMBER_WORDS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")
_MAX_PLAN_TITLE = 80
_MAX_REASON_CHARS = 1000


@dataclass(frozen=True, slots=True)
class RoutedStep:
    """A part of the question with a target: an agent, or a tool of the supervisor."""

    route: RequestRoute
    context: tuple[str, ...] = ()  # the earlier texts that the agent is told

    @property
    def agent_name(self) -> str:
        return self.route.agent.name if self.route.agent else ""

    @property
    def target_name(self) -> str:
        return self.route.target.name if self.route.target else ""

    def make_calls(self, step_id: str | None = None) -> list[RoutedCall]:
        if not self.agent_name:
            return make_calls([self.route])
        arguments = self._delegation_arguments()
        if step_id:
            arguments["step_id"] = step_id
        return [RoutedCall(DELEGATION_TOOL, arguments)]

    def find_calls(self, history: ChatHistory) -> list[TurnCall]:
        """The calls of this turn that the step made."""
        if not self.agent_name:
            return find_route_calls(self.route, history.find_other_calls(DELEGATION_TOOL, PLANNING_TOOL))
        arguments = self._delegation_arguments()
        calls = list[TurnCall]()
        for call in history.find_calls(DELEGATION_TOOL):
            if all(call.arguments.get(name) == value for name, value in arguments.items()):
                calls.append(call)
        return calls

    def has_failed(self, history: ChatHistory) -> bool:
        return any(call.failed for call in self.find_calls(history))

    def _delegation_arguments(self) -> dict[str, str]:
        description = self.route.request.delegation_text(self.context)
        return {"description": description, "subagent_type": self.agent_name}


def reply_as_supervisor(history: ChatHistory, bound_tools: BoundTools) -> RouterReply:
    """The plan, then the calls of its steps, then the answer from their results."""
    question = parse_question(history.question, history.earlier_questions)
    routes = route_requests(question.requests, bound_tools)
    steps = _make_steps(routes)
    plan_calls = history.find_calls(PLANNING_TOOL)
    work_calls = history.find_other_calls(PLANNING_TOOL)
    needs_plan = bound_tools.can_plan and len(steps) > 1
    if steps and not work_calls:
        if needs_plan and not plan_calls:
            return RouterReply(_narrate(steps), (_make_plan(history.question, steps),))
        return RouterReply("" if plan_calls else _narrate(steps), _call_steps(steps, plan_calls))
    if work_calls and needs_plan and len(plan_calls) == 1 and not all(step.agent_name for step in steps):
        # Nobody else ends the steps that were done without an agent.
        return RouterReply("", (_finish_plan(history, steps, _read_step_ids(plan_calls, steps)),))
    answer = _answer(history, question, routes, steps, bound_tools)
    return RouterReply(answer, (), collect_citations(work_calls, question))


def _make_steps(routes: Sequence[RequestRoute]) -> list[RoutedStep]:
    steps = list[RoutedStep]()
    for route in routes:
        if route.agent or route.has_calls:
            steps.append(RoutedStep(route, _find_context(route, routes)))
    return steps


def _find_context(route: RequestRoute, routes: Sequence[RequestRoute]) -> tuple[str, ...]:
    """The earlier texts that a request may refer to.

    These are the other requests to this agent, and the conversation only when the request points to it.
    """
    request_texts = set[str]()
    same_agent_texts = set[str]()
    for other in routes:
        request_texts.add(other.request.text)
        if route.agent and other.agent is route.agent:
            same_agent_texts.add(other.request.text)
    context = list[str]()
    for text in route.request.context:
        is_conversation = text not in request_texts
        if text in same_agent_texts or (is_conversation and route.request.points_elsewhere):
            context.append(text)
    return tuple(context)


def _call_steps(steps: Sequence[RoutedStep], plan_calls: Sequence[TurnCall]) -> tuple[RoutedCall, ...]:
    calls = list[RoutedCall]()
    for step, step_id in zip(steps, _read_step_ids(plan_calls, steps), strict=True):
        calls += step.make_calls(step_id)
    return tuple(calls)


# --- the plan -------------------------------------------------------------------------------------


def _make_plan(question: str, steps: Sequence[RoutedStep]) -> RoutedCall:
    todos = list[Mapping[str, Any]]()
    for step in steps:
        todos.append(_make_todo(step, "pending" if step.agent_name else "in_progress"))
    return RoutedCall(
        PLANNING_TOOL, {"title": shorten(capitalise(question.strip()), _MAX_PLAN_TITLE), "todos": todos}
    )


def _make_todo(step: RoutedStep, status: str, step_id: str | None = None) -> Mapping[str, Any]:
    todo = {"agent": step.agent_name, "title": format_title(step.route.request), "status": status}
    if step_id:
        return {"id": step_id, **todo}
    return todo


def _finish_plan(
    history: ChatHistory, steps: Sequence[RoutedStep], step_ids: Sequence[str | None]
) -> RoutedCall:
    todos = list[Mapping[str, Any]]()
    for step, step_id in zip(steps, step_ids, strict=True):
        status = "failed" if step.has_failed(history) else "completed"
        todos.append(_make_todo(step, status, step_id))
    return RoutedCall(PLANNING_TOOL, {"todos": todos})


def _read_step_ids(plan_calls: Sequence[TurnCall], steps: Sequence[RoutedStep]) -> list[str | None]:
    """The ids that the plan gave, in the order of the steps; None when its result is not what we sent."""
    step_ids = list[str | None]()
    if plan_calls:
        try:
            for step in json.loads(plan_calls[0].result or "")["steps"]:
                step_ids.append(str(step["id"]))
        except (ValueError, TypeError, KeyError):
            step_ids = []
    if len(step_ids) != len(steps):
        return [None] * len(steps)
    return step_ids


def _narrate(steps: Sequence[RoutedStep]) -> str:
    """One sentence that says what is done next, and nothing more."""
    if len(steps) == 1:
        step = steps[0]
        request_text = shorten(step.route.request.text)
        if step.agent_name:
            return f"Asking {step.agent_name}: “{request_text}”"
        return f"Using {step.target_name} for “{request_text}”."
    target_names = list(dict.fromkeys(step.target_name for step in steps))
    count = str(len(steps))
    if len(steps) < len(_NUMBER_WORDS):
        count = _NUMBER_WORDS[len(steps)]
    targets = target_names[0]
    if len(target_names) > 1:
        targets = f"{', '.join(target_names[:-1])} and {target_names[-1]}"
    return f"{capitalise(count)} steps, in parallel: {targets}."


# --- the answer -----------------------------------------------------------------------------------


def _answer(
    history: ChatHistory,
    question: ParsedQuestion,
    routes: Sequence[RequestRoute],
    steps: Sequence[RoutedStep],
    bound_tools: BoundTools,
) -> str:
    if question.small_talk or not question.requests:
        return reply_to_small_talk(question.small_talk or "abilities", bound_tools)
    steps_by_route = {id(step.route): step for step in steps}
    sections = list[tuple[str, str]]()
    explained_ids = set[str]()
    for route in routes:
        step = steps_by_route.get(id(route))
        if step is not None:
            calls = step.find_calls(history)
            explained_ids.update(call.call_id for call in calls)
            sections.append((format_title(route.request, step.target_name), _render_step(step, calls)))
        elif route.tool_match:
            text = explain_missing_arguments(route.tool_match, route.request)
            sections.append((format_title(route.request), text))
    # Results that no step explains, as when the tools were taken away for the last turn.
    for call in history.find_other_calls(PLANNING_TOOL):
        if call.call_id not in explained_ids:
            sections.append(_render_unexplained_call(call))
    if bound_tools.can_delegate:
        sections.append(("", explain_no_routes([route for route in routes if route.target is None])))
    sections.append(("", explain_omissions(question, routes)))
    return join_sections(sections)


def _render_step(step: RoutedStep, calls: Sequence[TurnCall]) -> str:
    if not step.agent_name:
        return render_calls(calls, step.route.request)
    texts = [_render_delegation(call, step.agent_name) for call in calls]
    return "\n\n".join(texts) or f"{step.agent_name} was not asked."


def _render_delegation(call: TurnCall, agent_name: str) -> str:
    if call.result is not None and not call.failed:
        return call.result
    reason = (call.result or "no result").removeprefix(f"Agent {agent_name} failed:").strip()
    return f"This part failed: {truncate_text(reason, _MAX_REASON_CHARS)}"


def _render_unexplained_call(call: TurnCall) -> tuple[str, str]:
    if not ToolTraits.from_name(call.name).delegates:
        return call.name, render_calls([call], ParsedRequest.parse(""))
    agent_name = str(call.arguments.get("subagent_type") or "agent")
    description = shorten(str(call.arguments.get("description") or ""))
    return f"{description} ({agent_name})", _render_delegation(call, agent_name)
