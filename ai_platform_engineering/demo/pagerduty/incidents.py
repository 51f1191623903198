"""Incidents with their notes and log, opened and resolved by the health of services."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import StrEnum

from ai_platform_engineering.demo.estate.company import CompanyService, Person
from ai_platform_engineering.demo.estate.estate import Estate, Health
from ai_platform_engineering.demo.pagerduty.directory import make_id

MAX_INCIDENTS = 500
MAX_NOTES = 100  # of one incident
MAX_TEXT_LENGTH = 10_000


class IncidentStatus(StrEnum):
    TRIGGERED = "triggered"
    ACKNOWLEDGED = "acknowledged"
    RESOLVED = "resolved"


class RefusedChange(ValueError):
    """A change of an incident that PagerDuty refuses."""


@dataclass(frozen=True, slots=True)
class IncidentNote:
    id: str
    author: Person
    content: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class IncidentLogEntry:
    """What happened to an incident; without an actor it was the monitoring."""

    id: str
    action: str
    created_at: datetime
    actor: Person | None = None


@dataclass(slots=True)
class PagerDutyIncident:
    number: int
    title: str
    service: CompanyService
    created_at: datetime
    assignee: Person
    urgency: str = "high"
    priority: str = "P2"
    details: dict[str, str] = field(default_factory=dict)
    by_person: bool = False
    status: IncidentStatus = IncidentStatus.TRIGGERED
    updated_at: datetime = field(init=False)
    resolved_at: datetime | None = None
    notes: list[IncidentNote] = field(default_factory=list)
    log: list[IncidentLogEntry] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.updated_at = self.created_at
        self.record("trigger", self.created_at)

    @property
    def id(self) -> str:
        return make_id("incident", str(self.number))

    @property
    def is_open(self) -> bool:
        return self.status != IncidentStatus.RESOLVED

    def record(self, action: str, moment: datetime, actor: Person | None = None) -> None:
        self.updated_at = moment
        identifier = make_id("log_entry", f"{self.number}/{len(self.log)}")
        self.log.append(IncidentLogEntry(identifier, action, moment, actor))

    def set_status(self, status: IncidentStatus, moment: datetime, actor: Person | None = None) -> None:
        """Raises RefusedChange: a resolved incident stays resolved."""
        if not self.is_open:
            raise RefusedChange("Incident Already Resolved")
        if status == self.status:
            return
        self.status = status
        if status == IncidentStatus.RESOLVED:
            self.resolved_at = moment
            self.record("resolve", moment, actor)
        else:
            self.record("acknowledge", moment, actor)

    def add_note(self, author: Person, content: str, moment: datetime) -> IncidentNote:
        """Raises RefusedChange."""
        if not content.strip() or len(content) > MAX_TEXT_LENGTH:
            raise RefusedChange(f"Content must have 1 to {MAX_TEXT_LENGTH} characters")
        if len(self.notes) >= MAX_NOTES:
            raise RefusedChange(f"An incident has at most {MAX_NOTES} notes")
        identifier = make_id("note", f"{self.number}/{len(self.notes)}")
        note = IncidentNote(identifier, author, content, moment)
        self.notes.append(note)
        self.record("annotate", moment, author)
        return note


class IncidentBook:
    """All incidents of the company.

    The monitoring opens one when a service becomes degraded, and resolves it when the service is healthy
    again; those that a person opened stay open.
    """

    def __init__(self, estate: Estate) -> None:
        self._estate = estate
        self._incidents: list[PagerDutyIncident] = []
        self._add_past_incidents()
        self._add_current_incident()
        estate.observe_health(self._follow_health)

    def __iter__(self) -> Iterator[PagerDutyIncident]:
        """The newest first."""
        return iter(sorted(self._incidents, key=lambda incident: incident.created_at, reverse=True))

    def list_records(self) -> dict[str, dict[str, str]]:
        """The incidents by number, as those see them who compare the estate with an earlier state of it."""
        return {
            str(incident.number): {
                "title": incident.title,
                "status": incident.status.value,
                "assignee": incident.assignee.login,
                "log_entries": str(len(incident.log)),
            }
            for incident in self._incidents
        }

    def find(self, identifier: str) -> PagerDutyIncident | None:
        """By id or by number."""
        for incident in self._incidents:
            if identifier in (incident.id, str(incident.number)):
                return incident
        return None

    def service_status(self, service: CompanyService) -> str:
        """In PagerDuty's words: critical with an open incident, a warning once it is acknowledged."""
        statuses = {incident.status for incident in self if incident.service == service and incident.is_open}
        if IncidentStatus.TRIGGERED in statuses:
            return "critical"
        return "warning" if statuses else "active"

    def open(
        self,
        service: CompanyService,
        title: str,
        urgency: str = "high",
        details: dict[str, str] | None = None,
        *,
        by_person: bool = False,
    ) -> PagerDutyIncident:
        """Raises RefusedChange."""
        if len(self._incidents) >= MAX_INCIDENTS:
            raise RefusedChange(f"An account has at most {MAX_INCIDENTS} incidents")
        number = 1 + max(incident.number for incident in self._incidents)
        incident = PagerDutyIncident(
            number,
            title,
            service,
            self._estate.now,
            service.team.on_call,
            urgency,
            details=details or {},
            by_person=by_person,
        )
        self._incidents.append(incident)
        return incident

    def _follow_health(self, service: CompanyService, health: Health) -> None:
        open_incidents = [
            incident
            for incident in self._incidents
            if incident.service == service and incident.is_open and not incident.by_person
        ]
        if health == Health.HEALTHY:
            for incident in open_incidents:
                incident.set_status(IncidentStatus.RESOLVED, self._estate.now)
        elif health == Health.DEGRADED and not open_incidents and len(self._incidents) < MAX_INCIDENTS:
            self.open(service, _alert_title(service), details=self._alert_details(service))

    def _add_current_incident(self) -> None:
        release = self._estate.company.failing_release
        service = release.service
        if self._estate.health(service) == Health.HEALTHY:
            return
        self._incidents.append(
            PagerDutyIncident(
                release.incident_number,
                _alert_title(service),
                service,
                release.incident_opened_at,
                service.team.on_call,
                priority="P1",
                details=self._alert_details(service),
            )
        )

    def _add_past_incidents(self) -> None:
        """Resolved ones; that of the failing service has similar symptoms and another cause."""
        company = self._estate.company
        number = company.failing_release.incident_number
        service = company.failing_release.service
        similar = PagerDutyIncident(
            number - 41,
            f"{service.name}: pods restart, orders fail",
            service,
            company.now - timedelta(days=9, hours=3),
            service.team.on_call,
            priority="P1",
            details={"alert": "HighErrorRate", "service": service.name},
        )
        self._resolve(
            similar,
            timedelta(minutes=50),
            "The payment provider answered slowly and requests timed out. Restarting the pods helped.",
        )
        other_service = next(item for item in company.services if item.team != service.team)
        unrelated = PagerDutyIncident(
            number - 12,
            f"{other_service.name}: certificate expires in 14 days",
            other_service,
            company.now - timedelta(days=2, hours=6),
            other_service.team.on_call,
            urgency="low",
            priority="P3",
            details={"alert": "CertificateExpiry", "service": other_service.name},
        )
        self._resolve(unrelated, timedelta(hours=4), "Renewed the certificate.")

    def _resolve(self, incident: PagerDutyIncident, duration: timedelta, note: str) -> None:
        acknowledged_at = incident.created_at + timedelta(minutes=5)
        resolved_at = incident.created_at + duration
        incident.set_status(IncidentStatus.ACKNOWLEDGED, acknowledged_at, incident.assignee)
        incident.add_note(incident.assignee, note, resolved_at)
        incident.set_status(IncidentStatus.RESOLVED, resolved_at, incident.assignee)
        self._incidents.append(incident)

    def _alert_details(self, service: CompanyService) -> dict[str, str]:
        deployment = self._estate.deployment(service)
        return {
            "alert": "DeploymentNotAvailable",
            "deployment": service.name,
            "namespace": self._estate.company.namespace,
            "ready_pods": f"0 of {deployment.replicas}",
        }


def _alert_title(service: CompanyService) -> str:
    return f"{service.name}: no pod is ready"
