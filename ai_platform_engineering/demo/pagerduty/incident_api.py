"""Routes of incidents: lists, one with all that belongs to it, and changes."""

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from ai_platform_engineering.demo.estate.cluster_objects import Json
from ai_platform_engineering.demo.estate.company import Person
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.pagerduty.api_requests import (
    filter_by_ids,
    filter_by_time,
    invalid,
    not_found,
    page_response,
    read_body,
    read_reference_ids,
)
from ai_platform_engineering.demo.pagerduty.directory import PagerDutyDirectory
from ai_platform_engineering.demo.pagerduty.incident_renderer import IncidentRenderer
from ai_platform_engineering.demo.pagerduty.incidents import (
    MAX_TEXT_LENGTH,
    IncidentBook,
    IncidentStatus,
    PagerDutyIncident,
    RefusedChange,
)

_INCIDENT = "/incidents/{id}"
_MAX_CHANGED_INCIDENTS = 100
_URGENCIES = ("high", "low")
_SIMILARITY = 45.0

Handler = Callable[[Request], Awaitable[Response]]


class IncidentApi:
    def __init__(
        self, estate: Estate, directory: PagerDutyDirectory, book: IncidentBook, renderer: IncidentRenderer
    ) -> None:
        self._estate = estate
        self._directory = directory
        self._book = book
        self._renderer = renderer

    def routes(self) -> tuple[tuple[str, str, Handler], ...]:
        return (
            ("GET", "/incidents", self.list_incidents),
            ("POST", "/incidents", self.create_incident),
            ("PUT", "/incidents", self.update_incidents),
            ("GET", _INCIDENT, self.show_incident),
            ("PUT", _INCIDENT, self.update_incident),
            ("GET", f"{_INCIDENT}/alerts", self.list_alerts),
            ("GET", f"{_INCIDENT}/alerts/{{alert}}", self.show_alert),
            ("GET", f"{_INCIDENT}/log_entries", self.list_incident_log),
            ("GET", f"{_INCIDENT}/notes", self.list_notes),
            ("POST", f"{_INCIDENT}/notes", self.add_note),
            ("GET", f"{_INCIDENT}/past_incidents", self.list_past_incidents),
            ("GET", f"{_INCIDENT}/related_incidents", self.list_related_incidents),
            ("GET", f"{_INCIDENT}/related_change_events", self.list_related_changes),
            ("GET", "/log_entries", self.list_log),
            ("GET", "/log_entries/{id}", self.show_log_entry),
        )

    async def list_incidents(self, request: Request) -> Response:
        items = [self._renderer.incident(incident) for incident in self._book]
        items = filter_by_ids(request, "statuses", items, lambda item: [item["status"]])
        items = filter_by_ids(request, "urgencies", items, lambda item: [item["urgency"]])
        items = filter_by_ids(request, "service_ids", items, read_reference_ids("service"))
        items = filter_by_ids(request, "team_ids", items, read_reference_ids("teams"))
        items = filter_by_ids(request, "priority_ids", items, read_reference_ids("priority"))
        items = filter_by_ids(request, "user_ids", items, _read_assignees)
        return page_response(request, "incidents", filter_by_time(request, items, "created_at"))

    async def show_incident(self, request: Request) -> Response:
        return JSONResponse({"incident": self._renderer.incident(self._find(request))})

    async def create_incident(self, request: Request) -> Response:
        body = _read_object(await read_body(request), "incident")
        title = body.get("title")
        if not isinstance(title, str) or not 0 < len(title) <= MAX_TEXT_LENGTH:
            raise invalid(f"title must have 1 to {MAX_TEXT_LENGTH} characters")
        service = self._directory.find_service(str(_read_object(body, "service").get("id")))
        if service is None:
            raise invalid("Service not found")
        urgency = body.get("urgency", "high")
        if urgency not in _URGENCIES:
            raise invalid(f"urgency is one of {', '.join(_URGENCIES)}")
        try:
            incident = self._book.open(service, title, urgency, by_person=True)
        except RefusedChange as error:
            raise invalid(str(error)) from error
        return JSONResponse({"incident": self._renderer.incident(incident)}, 201)

    async def update_incidents(self, request: Request) -> Response:
        changes = (await read_body(request)).get("incidents")
        if not isinstance(changes, list) or not 0 < len(changes) <= _MAX_CHANGED_INCIDENTS:
            raise invalid(f"incidents must be a list of 1 to {_MAX_CHANGED_INCIDENTS} items")
        incidents: list[PagerDutyIncident] = []
        for change in changes:
            incident = self._book.find(str(change.get("id"))) if isinstance(change, dict) else None
            if incident is None:
                raise invalid("Incident not found")
            incidents.append(incident)
        for incident, change in zip(incidents, changes, strict=True):
            self._change(incident, change, self._read_actor(request))
        return JSONResponse({"incidents": [self._renderer.incident(item) for item in incidents]})

    async def update_incident(self, request: Request) -> Response:
        incident = self._find(request)
        change = _read_object(await read_body(request), "incident")
        self._change(incident, change, self._read_actor(request))
        return JSONResponse({"incident": self._renderer.incident(incident)})

    async def list_alerts(self, request: Request) -> Response:
        return page_response(request, "alerts", [self._renderer.alert(self._find(request))])

    async def show_alert(self, request: Request) -> Response:
        alert = self._renderer.alert(self._find(request))
        if alert["id"] != request.path_params["alert"]:
            raise not_found()
        return JSONResponse({"alert": alert})

    async def list_notes(self, request: Request) -> Response:
        """The newest first; PagerDuty does not page them."""
        notes = [self._renderer.note(note) for note in reversed(self._find(request).notes)]
        return JSONResponse({"notes": notes})

    async def add_note(self, request: Request) -> Response:
        incident = self._find(request)
        content = str(_read_object(await read_body(request), "note").get("content", ""))
        try:
            note = incident.add_note(self._read_actor(request), content, self._estate.now)
        except RefusedChange as error:
            raise invalid(str(error)) from error
        return JSONResponse({"note": self._renderer.note(note)}, 201)

    async def list_past_incidents(self, request: Request) -> Response:
        incident = self._find(request)
        earlier = [
            item
            for item in self._book
            if item.service == incident.service and item.created_at < incident.created_at
        ]
        items = [self._renderer.past_incident(item, _SIMILARITY - age) for age, item in enumerate(earlier)]
        return page_response(request, "past_incidents", items)

    async def list_related_incidents(self, request: Request) -> Response:
        """Other open incidents of services that this one's service depends on."""
        incident = self._find(request)
        items: list[Json] = []
        for other in self._book:
            if not other.is_open or other.service.name not in incident.service.depends_on:
                continue
            metadata = {"dependent_services": [self._directory.service_reference(incident.service)]}
            relationship = {"type": "service_dependency", "metadata": metadata}
            reference = self._renderer.past_incident(other, _SIMILARITY)["incident"]
            items.append({"incident": reference, "relationships": [relationship]})
        return JSONResponse({"related_incidents": items})

    async def list_related_changes(self, request: Request) -> Response:
        events = self._renderer.related_change_events(self._find(request))
        return page_response(request, "change_events", events)

    async def list_incident_log(self, request: Request) -> Response:
        return page_response(request, "log_entries", self._log_entries([self._find(request)]))

    async def list_log(self, request: Request) -> Response:
        entries = self._log_entries(list(self._book))
        entries = filter_by_ids(request, "team_ids", entries, read_reference_ids("teams"))
        return page_response(request, "log_entries", filter_by_time(request, entries, "created_at"))

    async def show_log_entry(self, request: Request) -> Response:
        for entry in self._log_entries(list(self._book)):
            if entry["id"] == request.path_params["id"]:
                return JSONResponse({"log_entry": entry})
        raise not_found()

    def _find(self, request: Request) -> PagerDutyIncident:
        incident = self._book.find(request.path_params["id"])
        if incident is None:
            raise not_found()
        return incident

    def _read_actor(self, request: Request) -> Person:
        """Who makes a change: PagerDuty takes the header From, an e-mail address, for that."""
        person = self._directory.find_person(request.headers.get("From", ""))
        return person or self._directory.account_owner

    def _log_entries(self, incidents: list[PagerDutyIncident]) -> list[Json]:
        """The newest first."""
        entries: list[Json] = []
        for incident in incidents:
            entries += [self._renderer.log_entry(incident, entry) for entry in incident.log]
        return sorted(entries, key=lambda entry: str(entry["created_at"]), reverse=True)

    def _change(self, incident: PagerDutyIncident, change: Json, actor: Person) -> None:
        """Raises PagerDutyApiError; nothing is changed then."""
        status = _read_status(change.get("status"))
        urgency = change.get("urgency", incident.urgency)
        if urgency not in _URGENCIES:
            raise invalid(f"urgency is one of {', '.join(_URGENCIES)}")
        assignee = self._read_assignee(incident, change)
        try:
            if status is not None:
                incident.set_status(status, self._estate.now, actor)
        except RefusedChange as error:
            raise invalid(str(error)) from error
        if assignee != incident.assignee:
            incident.assignee = assignee
            incident.record("assign", self._estate.now, actor)
        if urgency != incident.urgency:
            incident.urgency = urgency
            incident.record("urgency_change", self._estate.now, actor)

    def _read_assignee(self, incident: PagerDutyIncident, change: Json) -> Person:
        level = change.get("escalation_level")
        if isinstance(level, int):
            return self._directory.responder(incident.service.team, level)
        assignments = change.get("assignments")
        if not isinstance(assignments, list) or not assignments:
            return incident.assignee
        assignee = _read_object(assignments[0], "assignee")
        person = self._directory.find_person(str(assignee.get("id")))
        if person is None:
            raise invalid("User not found")
        return person


def _read_object(body: Any, key: str) -> Json:
    value = body.get(key) if isinstance(body, dict) else None
    if not isinstance(value, dict):
        raise invalid(f"{key} is required")
    return value


def _read_status(value: Any) -> IncidentStatus | None:
    if value is None:
        return None
    if value not in (IncidentStatus.ACKNOWLEDGED, IncidentStatus.RESOLVED):
        raise invalid("status is one of acknowledged, resolved")
    return IncidentStatus(value)


def _read_assignees(incident: Json) -> list[str]:
    return [assignment["assignee"]["id"] for assignment in incident["assignments"]]
