"""The company's spaces and pages: homes, runbooks, architecture, and how releases and settings work."""

import random
from collections.abc import Sequence
from datetime import datetime, timedelta

from ai_platform_engineering.demo.confluence.runbooks import (
    OUTDATED_RUNBOOK_DAYS,
    outdated_runbook_title,
    runbook_title,
    write_outdated_runbook,
    write_runbook,
)
from ai_platform_engineering.demo.confluence.state import (
    ConfluenceSpace,
    ConfluenceState,
    ContentPage,
    PageComment,
    PageVersion,
)
from ai_platform_engineering.demo.confluence.storage_format import (
    Block,
    Heading,
    ListBlock,
    Paragraph,
    read_text,
    write_storage,
)
from ai_platform_engineering.demo.estate.company import Company, Person, Team
from ai_platform_engineering.demo.jira.sample_tickets import find_key_tickets

ENGINEERING_SPACE = "ENG"


def build_confluence_state(company: Company) -> ConfluenceState:
    return _SamplePages(company).build()


class _SamplePages:
    def __init__(self, company: Company) -> None:
        self._company = company
        self._choice = random.Random(f"pages-{company.seed}")
        self._state = ConfluenceState()
        self._tickets = find_key_tickets(company)

    def build(self) -> ConfluenceState:
        platform_lead = self._company.teams[-1].on_call
        engineering = self._add_space(ENGINEERING_SPACE, "Engineering", platform_lead)
        self._add_engineering_pages(engineering, platform_lead)
        for team in self._company.teams:
            space = self._add_space(team.project, team.name, team.on_call)
            self._add_team_pages(space, team)
        return self._state

    def _add_engineering_pages(self, home: ContentPage, author: Person) -> None:
        release = self._company.failing_release
        self._add_page(home, "Release process", author, 160, self._write_release_process(), ["process"])
        page = self._add_page(home, "Settings of services", author, 90, self._write_settings(), ["settings"])
        self._revise(
            page,
            release.author,
            14,
            [*self._write_settings(), *self._write_rename()],
            f"{release.old_setting} becomes {release.new_setting}",
        )
        self._add_page(home, "On-call handbook", author, 200, self._write_on_call(), ["on-call"])

    def _add_team_pages(self, home: ContentPage, team: Team) -> None:
        services = [service for service in self._company.services if service.team == team]
        lead = team.on_call
        self._add_page(
            home, f"Architecture of {team.name}", lead, 120, self._write_architecture(team), ["architecture"]
        )
        runbooks = self._add_page(
            home, f"Runbooks of {team.name}", lead, 150, [Paragraph("A page for each service.")], []
        )
        for service in services:
            blocks = write_runbook(self._company, service)
            days = self._choice.randint(20, 60)
            self._add_page(
                runbooks, runbook_title(service), team.members[2], days, blocks, ["runbook", service.name]
            )
        if self._company.failing_release.service in services:
            self._add_outdated_runbook(runbooks, team)

    def _add_outdated_runbook(self, runbooks: ContentPage, team: Team) -> None:
        service = self._company.failing_release.service
        author = self._company.teams[-1].members[2]
        page = self._add_page(
            runbooks,
            outdated_runbook_title(self._company),
            author,
            OUTDATED_RUNBOOK_DAYS,
            write_outdated_runbook(self._company),
            ["runbook", service.name],
        )
        self._comment(
            page,
            team.members[1],
            95,
            f"{service.name} has no database of its own any more. Is this page still right?",
        )

    def _write_release_process(self) -> Sequence[Block]:
        release = self._company.failing_release
        return [
            Paragraph("How a version of a service gets to production."),
            Heading("Steps"),
            ListBlock(
                (
                    "Merge the pull request; CI builds the image and creates the release in GitHub.",
                    "Create a release ticket in the team's Jira project with the fix version."
                    " The release needs it: all its points are done before the rollout.",
                    "Sync the application in Argo CD.",
                    "Close the ticket when the application has been Healthy for an hour.",
                ),
                is_numbered=True,
            ),
            Heading("Example"),
            Paragraph(
                f"{self._tickets.release} is the release ticket of {release.service.name}"
                f" {release.service.version}."
            ),
        ]

    def _write_settings(self) -> Sequence[Block]:
        return [
            Paragraph(
                "A service reads its settings from environment variables and does not start without them."
            ),
            Heading("Where a setting is"),
            ListBlock(
                (
                    "Its name is in config/required-settings.txt of the service's repository.",
                    "Its value is in deploy/deployment.yaml of the same repository.",
                    "CI does not compare the two yet.",
                )
            ),
        ]

    def _write_rename(self) -> Sequence[Block]:
        release = self._company.failing_release
        return [
            Heading("Renamed settings"),
            Paragraph(
                f"{release.old_setting} becomes {release.new_setting} in all services"
                f" ({self._tickets.rename}). Code and manifest change in the same release."
            ),
        ]

    def _write_on_call(self) -> Sequence[Block]:
        people = tuple(f"{team.name}: {team.on_call.name}" for team in self._company.teams)
        return [
            Paragraph("Who answers when a service fails, and what the person does first."),
            Heading("On call this week"),
            ListBlock(people),
            Heading("First steps"),
            ListBlock(
                (
                    "Acknowledge the incident in PagerDuty.",
                    "Open the runbook of the service.",
                    "Say in the team's channel what you are going to change before you change it.",
                ),
                is_numbered=True,
            ),
        ]

    def _write_architecture(self, team: Team) -> Sequence[Block]:
        blocks: list[Block] = [Paragraph(f"Services of the team {team.name} and what they call.")]
        for service in self._company.services:
            if service.team != team:
                continue
            callers = [other.name for other in self._company.services if service.name in other.depends_on]
            blocks += [
                Heading(service.name),
                Paragraph(f"{service.description}. Written in {service.language}."),
                ListBlock(
                    (
                        f"Calls: {', '.join(service.depends_on) or 'no other service'}",
                        f"Called by: {', '.join(callers) or 'no other service'}",
                    )
                ),
            ]
        return blocks

    def _add_space(self, key: str, name: str, author: Person) -> ContentPage:
        """The home page of a new space."""
        space = ConfluenceSpace(int(self._state.next_id()), key, name)
        self._state.spaces[key] = space
        home = self._create_page(space, "", name, author, 300, [Paragraph(f"Home of {name}.")])
        space.homepage_id = home.id
        return home

    def _add_page(
        self,
        parent: ContentPage,
        title: str,
        author: Person,
        days: float,
        blocks: Sequence[Block],
        labels: list[str],
    ) -> ContentPage:
        page = self._create_page(parent.space, parent.id, title, author, days, blocks)
        page.labels = labels
        return page

    def _create_page(
        self,
        space: ConfluenceSpace,
        parent_id: str,
        title: str,
        author: Person,
        days: float,
        blocks: Sequence[Block],
    ) -> ContentPage:
        created = self._ago(days)
        body = write_storage(blocks)
        page = ContentPage(
            id=self._state.next_id(self._choice.randint(1, 40)),
            space=space,
            parent_id=parent_id,
            position=len(self._state.list_children(parent_id)),
            creator=author.login,
            created=created,
            versions=[PageVersion(1, title, body, read_text(body), author.login, created)],
        )
        self._state.add_page(page)
        return page

    def _revise(
        self, page: ContentPage, author: Person, days: float, blocks: Sequence[Block], message: str
    ) -> None:
        body = write_storage(blocks)
        current = page.current
        version = PageVersion(
            current.number + 1, current.title, body, read_text(body), author.login, self._ago(days), message
        )
        self._state.add_version(page, version)

    def _comment(self, page: ContentPage, author: Person, days: float, text: str) -> None:
        body = write_storage([Paragraph(text)])
        comment = PageComment(self._state.next_id(), author.login, body, text, self._ago(days))
        self._state.add_comment(page, comment)

    def _ago(self, days: float) -> datetime:
        return self._company.now - timedelta(days=days)
