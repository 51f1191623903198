"""What the scripted investigator does as the supervisor: plans, delegates and answers."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from langchain_core.messages import BaseMessage

from ai_platform_engineering.core.tool_traits import DELEGATION_TOOL, PLANNING_TOOL
from ai_platform_engineering.demo.investigator import agent_tasks
from ai_platform_engineering.demo.investigator.answer_text import (
    NO_INVESTIGATION,
    SIGNATURE,
    explain_missing_agent,
    render_answer,
    render_rollback,
    render_ticket_result,
    write_ticket,
)
from ai_platform_engineering.demo.investigator.evidence import Evidence
from ai_platform_engineering.demo.investigator.orders import (
    InvestigationOrder,
    RollbackOrder,
    StoryOrder,
    TicketOrder,
    read_order,
)
from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun, play
from ai_platform_engineering.demo.investigator.systems import (
    ARGOCD,
    GITHUB,
    JIRA,
    KUBERNETES,
    SYSTEMS,
    DemoSystem,
)
from ai_platform_engineering.models.offline.bound_tools import BoundTools
from ai_platform_engineering.models.offline.chat_history import ChatHistory, TurnCall, read_calls
from ai_platform_engineering.models.offline.router_reply import RoutedCall, RouterReply


@dataclass(frozen=True, slots=True)
class _PlannedStep:
    system: DemoSystem
    title: str


def find_supervisor_script(
    history: ChatHistory, messages: Sequence[BaseMessage], bound_tools: BoundTools
) -> RouterReply | None:
    """The reply to a question of the story; None to any other."""
    order = read_order(history.question)
    if order is None:
        return None
    agents = {agent.name for agent in bound_tools.agents}
    if not agents:  # the tools were taken away for the last turn
        agents = {str(call.arguments.get("subagent_type")) for call in history.find_calls(DELEGATION_TOOL)}
    systems = [system for system in SYSTEMS if system.agent in agents]
    evidence = read_evidence(messages)
    script = partial(_run_order, order=order, systems=systems, evidence=evidence)
    reply = play(script, history.turn_calls)
    if reply.calls and not bound_tools.can_delegate:
        # Nothing can be called any more: the answer from what there is.
        return RouterReply(render_answer(evidence)) if evidence else None
    return reply


def _run_order(
    run: ScriptRun, order: StoryOrder, systems: Sequence[DemoSystem], evidence: Evidence | None
) -> str:
    match order:
        case InvestigationOrder(service=service):
            return _investigate(run, service, systems)
        case TicketOrder():
            return _create_ticket(run, systems, evidence)
        case RollbackOrder(service=service):
            return _roll_back(run, service or (evidence.service if evidence else None), systems)


# --- the investigation ----------------------------------------------------------------------------


def _investigate(run: ScriptRun, service: str, systems: Sequence[DemoSystem]) -> str:
    """Asks all systems but GitHub at once, then GitHub for the change that Argo CD has deployed."""
    if not systems:
        return (
            f"None of the demo's systems can be asked now, so I cannot say why {service} fails. {SIGNATURE}"
        )
    steps = [_PlannedStep(system, system.question.format(service=service)) for system in systems]
    step_ids = _plan(run, f"Why is {service} failing?", steps)
    first_systems = [system for system in systems if system != GITHUB]
    delegations = [
        _delegate(system, agent_tasks.investigation_task(service, system.title), step_ids)
        for system in first_systems
    ]
    outcomes = run.call_once(delegations, f"I ask {_join([s.title for s in first_systems])}.")
    reports = {
        system.agent: _read_report(outcome) for system, outcome in zip(first_systems, outcomes, strict=True)
    }
    if GITHUB in systems:
        task, narration = _choose_github_task(service, reports.get(ARGOCD.agent, Report()))
        [outcome] = run.call_once([_delegate(GITHUB, task, step_ids)], narration)
        reports[GITHUB.agent] = _read_report(outcome)
    return render_answer(Evidence(service, reports))


def _choose_github_task(service: str, deployed: Report) -> tuple[str, str]:
    repository = deployed.get("repository").removesuffix(".git").removesuffix("/")
    repository = "/".join(repository.rsplit("/", 2)[-2:])
    revision = deployed.get("revision")
    if not repository or not revision:
        return (
            agent_tasks.investigation_task(service, GITHUB.title),
            "Argo CD did not say what is deployed: I look for the newest change in GitHub.",
        )
    version = deployed.get("version") or revision[:9]
    return agent_tasks.change_task(repository, revision), f"What did {version} change? I ask GitHub."


def _read_report(outcome: CallOutcome) -> Report:
    if outcome.failed:
        return Report.of_missing([outcome.reason])
    return Report.parse(outcome.text)


# --- the ticket and the rollback ------------------------------------------------------------------


def _create_ticket(run: ScriptRun, systems: Sequence[DemoSystem], evidence: Evidence | None) -> str:
    if evidence is None:
        return NO_INVESTIGATION
    if JIRA not in systems:
        return explain_missing_agent(JIRA)
    project = evidence.find_project()
    if not project:
        return f"I do not know in which Jira project to create it: no ticket was found before. {SIGNATURE}"
    task = agent_tasks.ticket_task(project, write_ticket(evidence))
    narration = f"I write down what was found in a ticket of {project}; you approve it before it is created."
    [outcome] = run.call_once([_delegate(JIRA, task, {})], narration)
    return render_ticket_result(_read_report(outcome))


def _roll_back(run: ScriptRun, service: str | None, systems: Sequence[DemoSystem]) -> str:
    if service is None:
        return NO_INVESTIGATION
    if ARGOCD not in systems:
        return explain_missing_agent(ARGOCD)
    steps = [_PlannedStep(ARGOCD, f"Roll {service} back to the revision before the current one")]
    if KUBERNETES in systems:
        steps.append(_PlannedStep(KUBERNETES, f"Check the pods of {service}"))
    step_ids = _plan(run, f"Roll back {service}", steps)
    narration = "I ask Argo CD for the earlier revision; you approve the change before it is made."
    task = agent_tasks.rollback_task(service)
    [outcome] = run.call_once([_delegate(ARGOCD, task, step_ids)], narration)
    change = _read_report(outcome)
    pods = Report()
    if KUBERNETES in systems:
        task = agent_tasks.pods_task(service)
        [outcome] = run.call_once([_delegate(KUBERNETES, task, step_ids)], "What do its pods say?")
        pods = _read_report(outcome)
    return render_rollback(service, change, pods)


# --- plan and delegations -------------------------------------------------------------------------


def _plan(run: ScriptRun, title: str, steps: Sequence[_PlannedStep]) -> Mapping[str, str]:
    """Writes the plan; the ids of its steps by agent."""
    if len(steps) < 2:
        return {}
    todos = [{"agent": step.system.agent, "title": step.title, "status": "pending"} for step in steps]
    [outcome] = run.call_once([RoutedCall(PLANNING_TOOL, {"title": title, "todos": todos})], "")
    try:
        return {str(step["agent"]): str(step["id"]) for step in json.loads(outcome.text)["steps"]}
    except (ValueError, TypeError, KeyError):
        return {}


def _delegate(system: DemoSystem, task: str, step_ids: Mapping[str, str]) -> RoutedCall:
    arguments = {"description": task, "subagent_type": system.agent}
    if system.agent in step_ids:
        arguments["step_id"] = step_ids[system.agent]
    return RoutedCall(DELEGATION_TOOL, arguments)


def read_evidence(messages: Sequence[BaseMessage]) -> Evidence | None:
    """The reports of the latest investigation in the conversation; None when there was none."""
    service = ""
    reports: dict[str, Report] = {}
    for call in read_calls(messages):
        task = str(call.arguments.get("description", ""))
        investigated = agent_tasks.read_investigated_service(task)
        if call.name != DELEGATION_TOOL or call.result is None or investigated is None:
            continue
        if investigated and investigated != service:
            service = investigated
            reports = {}
        reports[str(call.arguments.get("subagent_type"))] = _report_of(call)
    return Evidence(service, reports) if service else None


def _report_of(call: TurnCall) -> Report:
    return _read_report(CallOutcome(call.result or "", call.failed))


def _join(names: Sequence[str]) -> str:
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"
