"""Builds tickets with their history: created days ago, moved through the workflow, commented."""

import random
from datetime import datetime, timedelta

from ai_platform_engineering.demo.estate.company import Company, Person, Team
from ai_platform_engineering.demo.jira.state import (
    DONE,
    IN_PROGRESS,
    IN_REVIEW,
    ISSUE_TYPES,
    TO_DO,
    FieldChange,
    IssueLink,
    JiraIssue,
    JiraProject,
    JiraState,
    JiraStatus,
)

_TYPES = {issue_type.name: issue_type for issue_type in ISSUE_TYPES}
_STEPS = {
    TO_DO: (),
    IN_PROGRESS: (IN_PROGRESS,),
    IN_REVIEW: (IN_PROGRESS, IN_REVIEW),
    DONE: (IN_PROGRESS, DONE),
}


class TicketBuilder:
    def __init__(self, company: Company) -> None:
        self._company = company
        # Its own generator: a change of the tickets changes nothing else of the company.
        self._choice = random.Random(f"tickets-{company.seed}")
        self.state = JiraState()

    def add_project(self, team: Team) -> JiraProject:
        services = [service for service in self._company.services if service.team == team]
        project = JiraProject(
            id=self.state.next_id(),
            key=team.project,
            name=team.name,
            lead=team.on_call.login,
            components=tuple(service.name for service in services),
            versions=tuple(f"{service.name} {service.version}" for service in services),
        )
        self.state.projects[project.key] = project
        self.state.last_numbers[project.key] = self._choice.randint(110, 480)
        return project

    def add(
        self,
        project: JiraProject,
        type_name: str,
        summary: str,
        *,
        days: float,
        reporter: Person,
        assignee: Person | None = None,
        status: JiraStatus = TO_DO,
        priority: str = "Medium",
        labels: tuple[str, ...] = (),
        components: tuple[str, ...] = (),
        fix_versions: tuple[str, ...] = (),
        description: str = "",
        hours_of_work: float | None = None,
    ) -> JiraIssue:
        created = self._ago(days)
        issue = JiraIssue(
            id=self.state.next_id(),
            key=self.state.next_key(project, self._choice.randint(1, 7)),
            project=project,
            type=_TYPES[type_name],
            summary=summary,
            reporter=reporter.login,
            created=created,
            updated=created,
            description=description,
            priority=priority,
            assignee=assignee.login if assignee else None,
            labels=labels,
            components=components,
            fix_versions=fix_versions,
        )
        worker = assignee or reporter
        self._move(issue, worker, status, timedelta(hours=hours_of_work or days * 6))
        self.state.add_issue(issue)
        return issue

    def _move(self, issue: JiraIssue, worker: Person, status: JiraStatus, duration: timedelta) -> None:
        """Moves a new issue to its status, with the steps in its changelog."""
        steps = _STEPS[status]
        for number, target in enumerate(steps, start=1):
            moment = issue.created + duration * number / len(steps)
            items = [FieldChange("status", issue.status.name, target.name)]
            issue.status = target
            if target == DONE:
                issue.resolution = "Done"
                issue.resolved_at = moment
                items.append(FieldChange("resolution", "", "Done"))
            self.state.record_change(issue, worker.login, moment, *items)

    def comment(self, issue: JiraIssue, author: Person, days: float, body: str) -> None:
        self.state.add_comment(issue, author.login, body, self._ago(days))

    def link(self, issue: JiraIssue, key: str, type_name: str, outward: str, inward: str) -> None:
        link_id = self.state.next_id()
        issue.links.append(IssueLink(link_id, type_name, outward, is_outward=True, key=key))
        other = self.state.issues[key]
        other.links.append(IssueLink(link_id, type_name, inward, is_outward=False, key=issue.key))

    def _ago(self, days: float) -> datetime:
        return self._company.now - timedelta(days=days)
