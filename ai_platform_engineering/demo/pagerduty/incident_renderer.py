"""Incidents, alerts, notes, log entries and change events in the JSON of PagerDuty's API."""

from datetime import timedelta

from ai_platform_engineering.demo.estate.cluster_objects import Json, timestamp
from ai_platform_engineering.demo.estate.company import CompanyService
from ai_platform_engineering.demo.estate.estate import DeployedRevision, Estate
from ai_platform_engineering.demo.pagerduty.directory import PagerDutyDirectory, make_id
from ai_platform_engineering.demo.pagerduty.incidents import (
    IncidentLogEntry,
    IncidentNote,
    PagerDutyIncident,
)

_MONITORING = "Cluster monitoring"
_DEPLOYMENTS = "Argo CD"
_RELATED_CHANGES = timedelta(days=1)  # changes of a service so long before its incident belong to it


class IncidentRenderer:
    def __init__(self, estate: Estate, directory: PagerDutyDirectory) -> None:
        self._estate = estate
        self._directory = directory

    def incident(self, incident: PagerDutyIncident) -> Json:
        team = incident.service.team
        assignment = {
            "at": timestamp(incident.created_at),
            "assignee": self._directory.user_reference(incident.assignee),
        }
        return {
            **self.reference(incident),
            "type": "incident",
            "incident_number": incident.number,
            "title": incident.title,
            "description": incident.title,
            "status": incident.status.value,
            "urgency": incident.urgency,
            "priority": self._directory.priority_reference(incident.priority),
            "created_at": timestamp(incident.created_at),
            "updated_at": timestamp(incident.updated_at),
            "resolved_at": timestamp(incident.resolved_at) if incident.resolved_at else None,
            "service": self._directory.service_reference(incident.service),
            "escalation_policy": self._directory.policy_reference(team),
            "teams": [self._directory.team_reference(team)],
            "assignments": [assignment] if incident.is_open else [],
            "alert_counts": {
                "all": 1,
                "triggered": int(incident.is_open),
                "resolved": int(not incident.is_open),
            },
        }

    def reference(self, incident: PagerDutyIncident) -> Json:
        return {
            "id": incident.id,
            "type": "incident_reference",
            "summary": f"[#{incident.number}] {incident.title}",
            "self": self._directory.link("incidents", incident.id),
            "html_url": self._directory.link("incidents", incident.id),
        }

    def past_incident(self, incident: PagerDutyIncident, score: float) -> Json:
        reference = {
            "id": incident.id,
            "created_at": timestamp(incident.created_at),
            "self": self._directory.link("incidents", incident.id),
            "title": incident.title,
        }
        return {"incident": reference, "score": score}

    def alert(self, incident: PagerDutyIncident) -> Json:
        identifier = make_id("alert", str(incident.number))
        return {
            "id": identifier,
            "type": "alert",
            "summary": incident.title,
            "self": self._directory.link("alerts", identifier),
            "html_url": self._directory.link("alerts", identifier),
            "created_at": timestamp(incident.created_at),
            "status": "triggered" if incident.is_open else "resolved",
            "alert_key": f"{incident.service.name}/{incident.number}",
            "severity": "critical" if incident.urgency == "high" else "warning",
            "suppressed": False,
            "service": self._directory.service_reference(incident.service),
            "incident": self.reference(incident),
            "body": {"type": "alert_body", "details": incident.details, "contexts": []},
            "integration": self._integration(_MONITORING),
        }

    def note(self, note: IncidentNote) -> Json:
        return {
            "id": note.id,
            "content": note.content,
            "created_at": timestamp(note.created_at),
            "user": self._directory.user_reference(note.author),
            "channel": {"summary": "The PagerDuty website or APIs"},
        }

    def log_entry(self, incident: PagerDutyIncident, entry: IncidentLogEntry) -> Json:
        agent = self._integration(_MONITORING)
        if entry.actor is not None:
            agent = self._directory.user_reference(entry.actor)
        return {
            "id": entry.id,
            "type": f"{entry.action}_log_entry",
            "summary": f"{_past_tense(entry.action)} by {agent['summary']}",
            "self": self._directory.link("log_entries", entry.id),
            "created_at": timestamp(entry.created_at),
            "agent": agent,
            "channel": {"type": "api" if entry.actor is None else "website"},
            "service": self._directory.service_reference(incident.service),
            "incident": self.reference(incident),
            "teams": [self._directory.team_reference(incident.service.team)],
        }

    def change_events(self, service: CompanyService) -> list[Json]:
        """One for each deployment, the newest first."""
        history = self._estate.deployment(service).history
        return [self._change_event(service, entry) for entry in reversed(history)]

    def related_change_events(self, incident: PagerDutyIncident) -> list[Json]:
        """Changes of the service in the day before the incident began."""
        earliest = timestamp(incident.created_at - _RELATED_CHANGES)
        latest = timestamp(incident.created_at)
        events = self.change_events(incident.service)
        return [event for event in events if earliest <= event["timestamp"] <= latest]

    def _change_event(self, service: CompanyService, entry: DeployedRevision) -> Json:
        repository = f"{self._estate.company.organization}/{service.name}"
        details = {
            "version": entry.revision.version,
            "revision": entry.revision.sha,
            "repository": repository,
            "initiated_by": entry.initiated_by,
        }
        return {
            "id": make_id("change_event", f"{service.name}/{entry.id}"),
            "type": "change_event",
            "summary": f"Deployed {service.name} {entry.revision.version}",
            "timestamp": timestamp(entry.started_at),
            "source": "argocd",
            "services": [self._directory.service_reference(service)],
            "integration": self._integration(_DEPLOYMENTS),
            "custom_details": details,
            "links": [],
        }

    def _integration(self, name: str) -> Json:
        return self._directory.reference("inbound_integration", name, name)


def _past_tense(action: str) -> str:
    irregular = {"annotate": "Note added", "urgency_change": "Urgency changed"}
    return irregular.get(action, f"{action.capitalize().removesuffix('e')}ed")
