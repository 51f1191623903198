"""The tasks that the scripted investigator gives to agents, and what it does with them as the agent."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ai_platform_engineering.demo.investigator import (
    argocd_script,
    confluence_script,
    github_script,
    jira_script,
    kubernetes_script,
    pagerduty_script,
)
from ai_platform_engineering.demo.investigator.script_run import ScriptRun, play
from ai_platform_engineering.models.offline.bound_tools import BoundTools
from ai_platform_engineering.models.offline.chat_history import ChatHistory
from ai_platform_engineering.models.offline.router_reply import RouterReply

AgentScript = Callable[[ScriptRun], str]

_INVESTIGATE = re.compile(r"Investigate (?P<service>[a-z][a-z0-9-]*) in (?P<system>[A-Z][A-Za-z ]+)\b")
_CHANGE = re.compile(
    r"Investigate the change (?P<revision>\w+) of (?P<repository>[\w.-]+/[\w.-]+) in GitHub\b"
)
_CHECK_PODS = re.compile(r"Check the pods of (?P<service>[a-z][a-z0-9-]*) in Kubernetes\b")
_TICKET = re.compile(
    r"Create a ticket in the Jira project (?P<project>[A-Z][A-Z0-9]*)\.\nSummary: (?P<summary>[^\n]+)\n"
    r"Description:\n(?P<description>.+)",
    re.DOTALL,
)
_ROLL_BACK = re.compile(r"Roll (?P<service>[a-z][a-z0-9-]*) back in Argo CD\b")


def investigation_task(service: str, system: str) -> str:
    return f"Investigate {service} in {system}."


def change_task(repository: str, revision: str) -> str:
    return f"Investigate the change {revision} of {repository} in GitHub."


def rollback_task(service: str) -> str:
    return f"Roll {service} back in Argo CD to the revision before the current one."


def pods_task(service: str) -> str:
    return f"Check the pods of {service} in Kubernetes."


@dataclass(frozen=True, slots=True)
class TicketText:
    summary: str
    description: str


def ticket_task(project: str, text: TicketText) -> str:
    summary = " ".join(text.summary.split())
    order = f"Create a ticket in the Jira project {project}."
    return f"{order}\nSummary: {summary}\nDescription:\n{text.description}"


def read_investigated_service(task: str) -> str | None:
    """The service that a task investigates; empty for one about a change, None for any other task."""
    match = _INVESTIGATE.match(task)
    if match is not None:
        return match["service"]
    return "" if _CHANGE.match(task) else None


def find_agent_script(history: ChatHistory, bound_tools: BoundTools) -> RouterReply | None:
    """The reply of an agent to a task of the investigator; None to any other question.

    Without its tools, as after too many calls, an agent answers from what it has.
    """
    script = _find_script(history.question)
    if script is None:
        return None
    reply = play(script, history.turn_calls)
    if not reply.calls:
        return reply
    tool_names = {tool.name for tool in bound_tools.tools}
    unknown_names = sorted({call.name for call in reply.calls} - tool_names)
    if unknown_names:
        return RouterReply(f"- not seen: {', '.join(unknown_names)} (this agent has no such tool now)")
    return reply


def _find_script(task: str) -> AgentScript | None:
    match = _CHANGE.match(task)
    if match is not None:
        repository = match["repository"]
        return partial(github_script.investigate, repository=repository, revision=match["revision"])
    match = _ROLL_BACK.match(task)
    if match is not None:
        return partial(argocd_script.roll_back, service=match["service"])
    match = _CHECK_PODS.match(task)
    if match is not None:
        return partial(kubernetes_script.investigate, service=match["service"])
    match = _TICKET.match(task)
    if match is not None:
        return partial(
            jira_script.create_ticket,
            project=match["project"],
            summary=match["summary"],
            description=match["description"],
        )
    match = _INVESTIGATE.match(task)
    if match is None:
        return None
    investigate = _INVESTIGATIONS.get(match["system"])
    return None if investigate is None else partial(investigate, service=match["service"])


_INVESTIGATIONS: dict[str, Callable[..., str]] = {
    "Argo CD": argocd_script.investigate,
    "Confluence": confluence_script.investigate,
    "GitHub": github_script.investigate_newest_change,
    "Jira": jira_script.investigate,
    "Kubernetes": kubernetes_script.investigate,
    "PagerDuty": pagerduty_script.investigate,
}
