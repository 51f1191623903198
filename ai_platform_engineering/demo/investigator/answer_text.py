"""The texts of the scripted investigator: templates over what the systems' tools returned."""

import re

from ai_platform_engineering.demo.investigator.agent_tasks import TicketText
from ai_platform_engineering.demo.investigator.evidence import Evidence
from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.systems import SYSTEMS, DemoSystem

SIGNATURE = (
    "_Scripted investigation of the demo, no language model: the facts are what the systems' tools have just"
    " returned._"
)
NO_INVESTIGATION = (
    f"There is nothing to go by in this conversation yet. Ask first: “why is checkout failing?” {SIGNATURE}"
)
_SHORT_SHA = 9
_LINKED_TICKET = re.compile(r"^(?P<key>\S+) (?P<text>.*) (?P<link>https?://\S+)$")


def render_answer(evidence: Evidence) -> str:
    """The cause, the evidence of each system, what could not be seen, and what can be done."""
    sections = [_conclude(evidence), *_render_evidence(evidence), *_render_missing(evidence)]
    if evidence.is_failing:
        sections.append(_propose(evidence))
    return "\n\n".join([*sections, SIGNATURE])


def explain_missing_agent(system: DemoSystem) -> str:
    problem = f"I cannot do that: the {system.title} agent is not there. `caipe agents` says what it needs."
    return f"{problem} {SIGNATURE}"


# --- the cause ------------------------------------------------------------------------------------


def _conclude(evidence: Evidence) -> str:
    service = evidence.service
    health = evidence.argocd.get("health")
    if evidence.is_failing is None and health:
        return f"**{service} is {health} now**, by what Argo CD says. Ask again in a moment."
    if evidence.is_failing is None:
        return f"**I could not find out how {service} is:** no system that knows answered."
    if not evidence.is_failing:
        return f"**{service} does not fail now**, by what the systems say."
    release = f"release {evidence.version}" if evidence.version else "current release"
    if evidence.change_explains_it:
        return (
            f"**{service} fails because its {release} requires the setting `{evidence.missing_setting}`,"
            " which its deployment does not set.**"
        )
    if evidence.missing_setting:
        return (
            f"**{service} fails because the setting `{evidence.missing_setting}` is not set** in its"
            f" {release}. I could not see which change made it necessary."
        )
    return f"**{service} fails in its {release}.** I could not see the cause."


# --- the evidence ---------------------------------------------------------------------------------


def _render_evidence(evidence: Evidence) -> list[str]:
    lines = [
        _tell("Argo CD", _describe_application(evidence)),
        _tell("Kubernetes", _describe_pods(evidence.kubernetes)),
        _tell("GitHub", _describe_change(evidence)),
        _tell("PagerDuty", _describe_incident(evidence.pagerduty)),
        _tell("Jira", _describe_tickets(evidence.jira)),
        _tell("Confluence", _describe_runbook(evidence.confluence)),
    ]
    lines = [line for line in lines if line]
    return ["**Evidence**\n" + "\n".join(lines)] if lines else []


def _tell(title: str, text: str) -> str:
    return f"- {title}: {text}" if text else ""


def _describe_application(evidence: Evidence) -> str:
    report = evidence.argocd
    if not report.get("health"):
        return ""
    text = f"application `{evidence.service}` is {report.get('health')}"
    if report.get("revision"):
        text += f" with {evidence.version} (revision `{report.get('revision')[:_SHORT_SHA]}`)"
    if report.get("deployed at"):
        text += (
            f", deployed at {report.get('deployed at')} by {report.get('deployed by') or 'nobody it names'}"
        )
    if report.get("previous version"):
        text += f"; before it ran {report.get('previous version')}"
    return f"{text}."


def _describe_pods(report: Report) -> str:
    if not report.get("pods"):
        return ""
    text = report.get("pods")
    pod = report.get("failing pod")
    if pod:
        text += (
            f", for example `{pod}` ({report.get('pod status')}, {report.get('restarts') or 'no'} restarts)"
        )
    if report.get("last log line"):
        text += f"; its log ends with `{report.get('last log line')}`"
    return f"{text}."


def _describe_change(evidence: Evidence) -> str:
    report = evidence.github
    if not report.get("commit"):
        return ""
    text = (
        f"commit [`{report.get('sha')[:_SHORT_SHA]}`]({report.get('commit link')}) “{report.get('commit')}”"
    )
    if report.get("author"):
        text += f" by {report.get('author')}"
    if report.get("pull request"):
        text += f" (pull request [{report.get('pull request')}]({report.get('pull request link')}))"
    files = report.get_all("changed file")
    if files:
        text += f" changed {', '.join(f'`{file}`' for file in files)}"
    setting = evidence.missing_setting
    if evidence.change_explains_it:
        others = ", ".join(f"`{name}`" for name in report.get_all("manifest sets"))
        text += f"; `{report.get('manifest')}` at this commit sets {others or 'nothing'}, not `{setting}`"
    return f"{text}."


def _describe_incident(report: Report) -> str:
    incident = report.get("incident")
    if not incident:
        return report.get("no incident")
    text = f"incident {incident} “{report.get('incident title')}”"
    text += f" is {report.get('incident status')}"
    if report.get("opened at"):
        text += f" since {report.get('opened at')}"
    if report.get("assigned to"):
        text += f", assigned to {report.get('assigned to')}"
    return f"{text}."


def _describe_tickets(report: Report) -> str:
    tickets = [
        _LINKED_TICKET.sub(r"[\g<key>](\g<link>) \g<text>", ticket) for ticket in report.get_all("ticket")
    ]
    return "; ".join(tickets) or report.get("no ticket")


def _describe_runbook(report: Report) -> str:
    title = report.get("runbook")
    if not title:
        return report.get("no runbook")
    text = f"runbook [{title}]({report.get('runbook link')})"
    if report.get("runbook says"):
        text += f" says: “{report.get('runbook says')}”"
    return text


def _render_missing(evidence: Evidence) -> list[str]:
    asked_agents = evidence.reports.keys()
    lines = [f"- {title}: {what}" for title, what in evidence.missing]
    lines += [
        f"- {system.title}: its agent is not there" for system in SYSTEMS if system.agent not in asked_agents
    ]
    return ["**What I could not see**\n" + "\n".join(lines)] if lines else []


def _propose(evidence: Evidence) -> str:
    lines: list[str] = []
    previous = evidence.argocd.get("previous version") or evidence.argocd.get("previous revision")
    if previous:
        lines.append(f"- Roll back to {previous}: say “roll back {evidence.service}”. You approve it first.")
    if evidence.change_explains_it:
        lines.append(
            f"- Or set `{evidence.missing_setting}` in `{evidence.github.get('manifest')}` and deploy again."
        )
    lines.append("- Write it down: say “create a ticket”. You approve that, too.")
    return "**What can be done**\n" + "\n".join(lines)


# --- the ticket and the rollback ------------------------------------------------------------------


def write_ticket(evidence: Evidence) -> TicketText:
    release = f" {evidence.version}" if evidence.version else ""
    summary = f"{evidence.service}{release} fails"
    if evidence.missing_setting:
        summary += f": setting {evidence.missing_setting} is not set"
    sections = [_conclude(evidence), *_render_evidence(evidence), *_render_missing(evidence)]
    return TicketText(summary, "\n\n".join(sections))


def render_ticket_result(report: Report) -> str:
    key = report.get("created")
    if not key:
        reason = report.get("not done") or "; ".join(report.missing) or "Jira gave no key"
        return f"**No ticket was created:** {reason}\n\n{SIGNATURE}"
    link = report.get("ticket link")
    name = f"[{key}]({link})" if link else key
    return f"**{name} was created:** {report.get('summary')}\n\n{SIGNATURE}"


def render_rollback(service: str, change: Report, pods: Report) -> str:
    if not change.get("after"):
        reason = change.get("not done") or "; ".join(change.missing) or "Argo CD gave no result"
        lines = [f"**{service} was not rolled back:** {reason}"]
        if pods.get("pods"):
            lines.append(f"- Kubernetes: {_describe_pods(pods)}")
        return "\n\n".join([*lines, SIGNATURE])
    lines = [
        f"- before: {change.get('before')}",
        f"- now: {change.get('after')}",
    ]
    if pods.get("pods"):
        lines.append(f"- Kubernetes: {_describe_pods(pods)}")
    lines += [f"- not seen: {what}" for what in (*change.missing, *pods.missing)]
    return "\n\n".join([f"**{service} was rolled back.**", "\n".join(lines), SIGNATURE])
