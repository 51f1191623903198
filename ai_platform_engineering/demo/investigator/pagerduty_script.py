"""What the scripted investigator does as the PagerDuty agent."""

from typing import Any

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun


def investigate(run: ScriptRun, service: str) -> str:
    """The open incident of the service."""
    report = Report()
    heading = f"PagerDuty on {service}:"
    listing = run.read("list_incidents", _has_incidents, statuses=["triggered", "acknowledged"])
    if listing.failed:
        report.add_missing("its incidents", listing.reason)
        return report.render(heading)
    incidents = listing.data["response"]
    for incident in incidents:
        if _is_about(incident, service):
            _add_incident(report, incident)
            return report.render(heading)
    report.add("no incident", f"none of the {len(incidents)} open incidents is about {service}")
    return report.render(heading)


def _has_incidents(outcome: CallOutcome) -> bool:
    return isinstance(outcome.data, dict) and isinstance(outcome.data.get("response"), list)


def _is_about(incident: dict[str, Any], service: str) -> bool:
    name = str((incident.get("service") or {}).get("summary", "")).lower()
    return service in name.split() or service in str(incident.get("title", "")).lower().split()


def _add_incident(report: Report, incident: dict[str, Any]) -> None:
    report.add("incident", f"#{incident.get('incident_number')}")
    report.add("incident title", incident.get("title"))
    report.add("incident status", incident.get("status"))
    report.add("opened at", incident.get("created_at"))
    for assignment in incident.get("assignments") or []:
        report.add("assigned to", (assignment.get("assignee") or {}).get("summary"))
