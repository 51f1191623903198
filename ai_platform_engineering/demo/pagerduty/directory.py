"""Users, teams, services, schedules and escalation policies of the company in the JSON of PagerDuty's API."""

import hashlib
from datetime import datetime, timedelta

from ai_platform_engineering.demo.estate.cluster_objects import Json, timestamp
from ai_platform_engineering.demo.estate.company import Company, CompanyService, Person, Team

SHIFT = timedelta(days=7)
SECONDS_BEFORE_ESCALATION = 30 * 60
PRIORITIES = ("P1", "P2", "P3")
_SHIFT_HOUR = 9  # shifts begin on Monday at nine
_SCHEDULE_LEVEL = 1
_LEAD_LEVEL = 2


def make_id(kind: str, name: str) -> str:
    """An id as PagerDuty's are: 14 letters and digits, the same for the same name."""
    return "P" + hashlib.sha256(f"{kind}/{name}".encode()).hexdigest()[:13].upper()


class PagerDutyDirectory:
    """What does not change: who is there, and who is called for what."""

    def __init__(self, company: Company) -> None:
        self.company = company
        self._host = f"https://{company.organization}.pagerduty.example"

    @property
    def account_owner(self) -> Person:
        """Whom the demo's API key belongs to."""
        return self.company.teams[-1].on_call

    def link(self, kind: str, name: str) -> str:
        return f"{self._host}/{kind}/{name}"

    def reference(self, kind: str, name: str, summary: str) -> Json:
        identifier = make_id(kind, name)
        return {
            "id": identifier,
            "type": f"{kind}_reference",
            "summary": summary,
            "self": self.link(f"{kind}s", identifier),
            "html_url": self.link(f"{kind}s", identifier),
        }

    def user_reference(self, person: Person) -> Json:
        return self.reference("user", person.login, person.name)

    def team_reference(self, team: Team) -> Json:
        return self.reference("team", team.name, team.name)

    def service_reference(self, service: CompanyService) -> Json:
        return self.reference("service", service.name, service.name)

    def policy_reference(self, team: Team) -> Json:
        return self.reference("escalation_policy", team.name, f"{team.name} escalation")

    def schedule_reference(self, team: Team) -> Json:
        return self.reference("schedule", team.name, f"{team.name} on-call")

    def priority_reference(self, name: str) -> Json:
        return self.reference("priority", name, name)

    def find_person(self, identifier: str) -> Person | None:
        for person in self.company.people:
            if make_id("user", person.login) == identifier or person.email == identifier:
                return person
        return None

    def find_service(self, identifier: str) -> CompanyService | None:
        for service in self.company.services:
            if make_id("service", service.name) == identifier:
                return service
        return None

    def user(self, person: Person) -> Json:
        teams = [team for team in self.company.teams if person in team.members]
        return {
            **self.user_reference(person),
            "type": "user",
            "name": person.name,
            "email": person.email,
            "time_zone": "Etc/UTC",
            "role": "admin" if person == self.account_owner else "limited_user",
            "job_title": "Engineer",
            "teams": [self.team_reference(team) for team in teams],
        }

    def team(self, team: Team) -> Json:
        description = f"The team {team.name}"
        return {**self.team_reference(team), "type": "team", "name": team.name, "description": description}

    def members(self, team: Team) -> list[Json]:
        return [{"user": self.user_reference(person), "role": "responder"} for person in team.members]

    def service(self, service: CompanyService, status: str) -> Json:
        return {
            **self.service_reference(service),
            "type": "service",
            "name": service.name,
            "description": service.description,
            "status": status,
            "created_at": timestamp(self.company.now - timedelta(days=200)),
            "escalation_policy": self.policy_reference(service.team),
            "teams": [self.team_reference(service.team)],
        }

    def dependencies(self, service: CompanyService) -> list[Json]:
        """Services that it depends on, and those that depend on it."""
        relationships: list[Json] = []
        for dependent in self.company.services:
            for name in dependent.depends_on:
                supporting = self.company.find_service(name)
                if supporting is None or service not in (dependent, supporting):
                    continue
                relationships.append(
                    {
                        "id": make_id("dependency", f"{dependent.name}/{name}"),
                        "type": "service_dependency",
                        "supporting_service": self._dependency_reference(supporting),
                        "dependent_service": self._dependency_reference(dependent),
                    }
                )
        return relationships

    def policy(self, team: Team) -> Json:
        services = [service for service in self.company.services if service.team == team]
        levels = (self.schedule_reference(team), self.user_reference(_lead(team)))
        rules = [
            {
                "id": make_id("rule", f"{team.name}/{level}"),
                "escalation_delay_in_minutes": SECONDS_BEFORE_ESCALATION // 60,
                "targets": [target],
            }
            for level, target in enumerate(levels, start=_SCHEDULE_LEVEL)
        ]
        return {
            **self.policy_reference(team),
            "type": "escalation_policy",
            "name": f"{team.name} escalation",
            "description": f"Who is called for services of the team {team.name}",
            "num_loops": 2,
            "on_call_handoff_notifications": "if_has_services",
            "escalation_rules": rules,
            "services": [self.service_reference(service) for service in services],
            "teams": [self.team_reference(team)],
        }

    def schedule(self, team: Team, now: datetime) -> Json:
        start = timestamp(_shift_start(now))
        layer = {
            "id": make_id("layer", team.name),
            "name": "Weekly",
            "start": start,
            "end": None,
            "rotation_virtual_start": start,
            "rotation_turn_length_seconds": int(SHIFT.total_seconds()),
            "users": [{"user": self.user_reference(person)} for person in team.members],
            "restrictions": [],
        }
        return {
            **self.schedule_reference(team),
            "type": "schedule",
            "name": f"{team.name} on-call",
            "description": f"On call for services of the team {team.name}",
            "time_zone": "Etc/UTC",
            "users": [self.user_reference(person) for person in team.members],
            "teams": [self.team_reference(team)],
            "escalation_policies": [self.policy_reference(team)],
            "schedule_layers": [layer],
        }

    def on_calls(self, team: Team, now: datetime) -> list[Json]:
        """The two levels of a team's policy: the schedule's shift, and the lead, who is always on call."""
        start = _shift_start(now)
        on_shift = {
            "escalation_policy": self.policy_reference(team),
            "escalation_level": _SCHEDULE_LEVEL,
            "schedule": self.schedule_reference(team),
            "user": self.user_reference(team.on_call),
            "start": timestamp(start),
            "end": timestamp(start + SHIFT),
        }
        lead = {
            "escalation_policy": self.policy_reference(team),
            "escalation_level": _LEAD_LEVEL,
            "schedule": None,
            "user": self.user_reference(_lead(team)),
            "start": None,
            "end": None,
        }
        return [on_shift, lead]

    def responder(self, team: Team, level: int) -> Person:
        return team.on_call if level <= _SCHEDULE_LEVEL else _lead(team)

    def _dependency_reference(self, service: CompanyService) -> Json:
        return {"id": make_id("service", service.name), "type": "technical_service_reference"}


def _lead(team: Team) -> Person:
    return team.members[-1]


def _shift_start(now: datetime) -> datetime:
    monday = now - timedelta(days=now.weekday())
    start = monday.replace(hour=_SHIFT_HOUR, minute=0, second=0, microsecond=0)
    return start if start <= now else start - SHIFT
