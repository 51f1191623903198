"""The offline model as the supervisor: a plan, one honest sentence, delegations in parallel, an answer from their results."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL
from ai_platform_engineering.models.offline.compose import (
    RoutedCall,
    RouterReply,
    abilities,
    body_of,
    capitalised,
    citations,
    lacking,
    not_routed,
    remarks,
    sections,
    shortened,
    title_of,
)
from ai_platform_engineering.models.offline.conversation import ChatHistory, TurnCall
from ai_platform_engineering.models.offline.questions import ParsedQuestion, ParsedRequest, ask
from ai_platform_engineering.models.offline.render import bounded
from ai_platform_engineering.models.offline.routing import RequestRoute, route
from ai_platform_engineering.models.offline.tools import BoundTools
from ai_platform_engineering.models.offline.worker import calls_of, done_for

_NUMBERS = ("no", "one", "two", "three", "four", "five", "six", "seven", "eight")


@dataclass(frozen=True, slots=True)
class RoutedStep:
    """A part of the question that somebody takes: an agent, or a tool of our own."""

    route: RequestRoute
    context: tuple[str, ...] = ()  # what the agent is told besides

    @property
    def agent(self) -> str:
        if self.route.agent:
            return self.route.agent.name
        return ""

    @property
    def tool(self) -> str:
        if self.route.use:
            return self.route.use.tool.name
        return ""

    def calls(self, step_id: str | None = None) -> list[RoutedCall]:
        if not self.agent:
            return calls_of([self.route])
        arguments = {"description": self.route.request.assignment(self.context), "subagent_type": self.agent}
        return [RoutedCall(DELEGATION_TOOL, {**arguments, **({"step_id": step_id} if step_id else {})})]

    def done(self, conversation: ChatHistory) -> list[TurnCall]:
        if not self.agent:
            return done_for(self.route, conversation.work(DELEGATION_TOOL, PLANNING_TOOL))
        wanted = self.calls()[0].arguments
        given = conversation.calls(DELEGATION_TOOL)
        return [
            one for one in given if all(one.arguments.get(name) == value for name, value in wanted.items())
        ]

    def has_failed(self, conversation: ChatHistory) -> bool:
        return any(one.failed for one in self.done(conversation))


def supervise(conversation: ChatHistory, offer: BoundTools) -> RouterReply:
    question = ask(conversation.question, conversation.before)
    routes = route(question.requests, offer)
    steps = [
        RoutedStep(one, _context(one, routes))
        for one in routes
        if one.agent or (one.use and one.use.filled.rows)
    ]
    plans, work = conversation.calls(PLANNING_TOOL), conversation.work(PLANNING_TOOL)
    planned = offer.plans and len(steps) > 1
    if not work and steps:
        if planned and not plans:
            return RouterReply(_narration(steps), (_plan(conversation.question, steps),))
        ids = _step_ids(plans, steps)
        calls = [call for step, step_id in zip(steps, ids, strict=True) for call in step.calls(step_id)]
        return RouterReply("" if plans else _narration(steps), tuple(calls))
    if work and planned and len(plans) == 1 and not all(step.agent for step in steps):
        # Nobody else ends the steps that were done without an agent.
        return RouterReply("", (_settled(conversation, steps, _step_ids(plans, steps)),))
    return RouterReply(_answer(conversation, question, routes, steps, offer), (), citations(work))


def _context(one: RequestRoute, routes: Sequence[RequestRoute]) -> tuple[str, ...]:
    """What a request may refer to: what else this agent is asked now, and the conversation only when the request points to it."""
    asked = {other.request.text for other in routes}
    same = {other.request.text for other in routes if one.agent and other.agent is one.agent}
    return tuple(
        text
        for text in one.request.context
        if text in same or (text not in asked and one.request.points_elsewhere)
    )


# --- the plan ----------------------------------------------------------------------------------------------------------


def _plan(question: str, steps: Sequence[RoutedStep]) -> RoutedCall:
    todos = [_todo(step, "pending" if step.agent else "in_progress") for step in steps]
    return RoutedCall(PLANNING_TOOL, {"title": shortened(capitalised(question.strip()), 80), "todos": todos})


def _todo(step: RoutedStep, status: str, step_id: str | None = None) -> Mapping[str, Any]:
    known = {"id": step_id} if step_id else {}
    return {**known, "agent": step.agent, "title": title_of(step.route.request), "status": status}


def _settled(conversation: ChatHistory, steps: Sequence[RoutedStep], ids: Sequence[str | None]) -> RoutedCall:
    ends = ["failed" if step.has_failed(conversation) else "completed" for step in steps]
    return RoutedCall(
        PLANNING_TOOL,
        {"todos": [_todo(step, end, step_id) for step, end, step_id in zip(steps, ends, ids, strict=True)]},
    )


def _step_ids(plans: Sequence[TurnCall], steps: Sequence[RoutedStep]) -> list[str | None]:
    """The ids that the plan gave, in the order of the steps; none when the answer is not what we sent."""
    try:
        given = json.loads(plans[0].result or "")["steps"] if plans else []
        ids = [str(step["id"]) for step in given]
    except (ValueError, TypeError, KeyError):
        ids = []
    if len(ids) == len(steps):
        return list(ids)
    return [None] * len(steps)


def _narration(steps: Sequence[RoutedStep]) -> str:
    """One sentence that says what is done next, and nothing more."""
    if len(steps) == 1:
        step = steps[0]
        what = shortened(step.route.request.text)
        if step.agent:
            return f"I ask {step.agent}: “{what}”"
        return f"I use {step.tool} for “{what}”."
    takers = list(dict.fromkeys(step.agent or step.tool for step in steps))
    count = _NUMBERS[len(steps)] if len(steps) < len(_NUMBERS) else str(len(steps))
    if len(takers) == 1:
        return f"This needs {count} steps; I give them to {takers[0]} at the same time."
    return f"This needs {count} steps; I give them to {', '.join(takers[:-1])} and {takers[-1]} at the same time."


# --- the answer --------------------------------------------------------------------------------------------------------


def _answer(
    conversation: ChatHistory,
    question: ParsedQuestion,
    routes: Sequence[RequestRoute],
    steps: Sequence[RoutedStep],
    offer: BoundTools,
) -> str:
    if not steps and not conversation.work(PLANNING_TOOL):
        return _nothing_done(question, routes, offer)
    by_route = {id(step.route): step for step in steps}
    parts = [_section(one, by_route.get(id(one)), conversation, offer) for one in routes]
    told = {one.call_id for step in steps for one in step.done(conversation)}
    # Results that no step explains, as when the tools were taken away for the last turn.
    parts += [_unexplained(one) for one in conversation.work(PLANNING_TOOL) if one.call_id not in told]
    return sections([*parts, ("", remarks(question, routes))])


def _section(
    one: RequestRoute, step: RoutedStep | None, conversation: ChatHistory, offer: BoundTools
) -> tuple[str, str]:
    if step is None:
        body = lacking(one.use, one.request) if one.use else not_routed(one.request, offer)
        return title_of(one.request), body if offer.delegates else ""
    done = step.done(conversation)
    if not step.agent:
        return title_of(one.request, step.tool), body_of(done, one.request)
    texts = [
        _failed(call, step.agent) if call.failed or call.result is None else call.result for call in done
    ]
    return title_of(one.request, step.agent), "\n\n".join(texts) or f"{step.agent} was not asked."


def _failed(call: TurnCall, agent: str) -> str:
    reason = (call.result or "no result came").removeprefix(f"Agent {agent} failed:").strip()
    return f"This part failed: {bounded(reason, 1000)}"


def _unexplained(call: TurnCall) -> tuple[str, str]:
    if call.name != DELEGATION_TOOL:
        return call.name, body_of([call], ParsedRequest.of(""))
    agent = str(call.arguments.get("subagent_type") or "agent")
    text = _failed(call, agent) if call.failed or call.result is None else call.result
    return f"{shortened(str(call.arguments.get('description') or ''))} ({agent})", text


def _nothing_done(question: ParsedQuestion, routes: Sequence[RequestRoute], offer: BoundTools) -> str:
    missing = [(title_of(one.request), lacking(one.use, one.request)) for one in routes if one.use]
    unknown = [not_routed(one.request, offer) for one in routes if one.use is None]
    if missing and not unknown:
        return sections([*missing, ("", remarks(question, routes))])
    parts = [
        sections(missing),
        " ".join(unknown),
        remarks(question, routes),
        abilities(offer, greeting=question.greeting),
    ]
    return "\n\n".join(part for part in parts if part)
