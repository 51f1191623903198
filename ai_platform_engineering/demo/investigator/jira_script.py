"""What the scripted investigator does as the Jira agent."""

from typing import Any

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun

_MAX_TICKETS = 3
_CREATE = "jira_create_issue"


def investigate(run: ScriptRun, service: str) -> str:
    """Open tickets that mention the service, the newest first."""
    report = Report()
    heading = f"Jira on {service}:"
    listing = run.read(
        "jira_search",
        _has_issues,
        jql=f'text ~ "{service}" AND statusCategory != Done ORDER BY created DESC',
        fields="summary,status,assignee",
        limit=_MAX_TICKETS,
    )
    if listing.failed:
        report.add_missing("its tickets", listing.reason)
        return report.render(heading)
    issues = listing.data["issues"]
    for issue in issues:
        report.add("ticket", _describe(issue))
    if not issues:
        report.add("no ticket", f"no open ticket mentions {service}")
    return report.render(heading)


def _has_issues(outcome: CallOutcome) -> bool:
    return isinstance(outcome.data, dict) and isinstance(outcome.data.get("issues"), list)


def create_ticket(run: ScriptRun, project: str, summary: str, description: str) -> str:
    """Creates a bug, which a person approves."""
    arguments = {
        "project_key": project,
        "issue_type": "Bug",
        "summary": summary,
        "description": description,
    }
    outcome = run.change(_CREATE, arguments)
    issue = outcome.data.get("issue") if isinstance(outcome.data, dict) else None
    report = Report()
    if not isinstance(issue, dict) or not issue.get("key"):
        report.add("not done", outcome.reason)
        return report.render("The ticket was not created:")
    report.add("created", issue["key"])
    report.add("summary", issue.get("summary") or summary)
    report.add("ticket link", issue.get("browse_url"))
    return report.render("The ticket was created:")


def _describe(issue: dict[str, Any]) -> str:
    """As in "STORE-404 (In Progress) Release checkout v3.24.0"; the key comes first."""
    status = (issue.get("status") or {}).get("name", "")
    link = issue.get("browse_url")
    text = f"{issue.get('key')} ({status}) “{issue.get('summary')}”"
    return f"{text} {link}" if link else text
