"""The agents jira and confluence with the real tool server on the estate, reading and, approved, writing."""

import json
from collections.abc import AsyncIterator
from dataclasses import dataclass

import pytest
import pytest_asyncio

from ai_platform_engineering.demo.confluence import app as confluence_app
from ai_platform_engineering.demo.confluence.runbooks import outdated_runbook_title
from ai_platform_engineering.demo.confluence.sample_pages import build_confluence_state
from ai_platform_engineering.demo.confluence.state import ConfluenceState, ContentPage
from ai_platform_engineering.demo.estate.company import Company
from ai_platform_engineering.demo.estate.estate import build_estate
from ai_platform_engineering.demo.jira import app as jira_app
from ai_platform_engineering.demo.jira.sample_tickets import KeyTickets, build_jira_state, find_key_tickets
from ai_platform_engineering.demo.jira.state import JiraState
from tests.support.agent_services import Where
from tests.support.estate_agents import (
    EstateServers,
    delegate,
    run_estate_servers,
    run_estate_supervisor,
)
from tests.support.fakes.script import Call, Say, Script, Turn

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(300)]

everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])


@dataclass(frozen=True, slots=True)
class Atlassian:
    company: Company
    jira: JiraState
    confluence: ConfluenceState
    servers: EstateServers

    @property
    def tickets(self) -> KeyTickets:
        return find_key_tickets(self.company)

    def page(self, space: str, title: str) -> ContentPage:
        page = self.confluence.find_page_by_title(space, title)
        assert page is not None
        return page


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def atlassian(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Atlassian]:
    estate = build_estate(23)
    jira = build_jira_state(estate.company)
    confluence = build_confluence_state(estate.company)
    apps = {
        jira_app.STAND_IN: jira_app.create_app(estate, jira),
        confluence_app.STAND_IN: confluence_app.create_app(estate, confluence),
    }
    async with run_estate_servers(tmp_path_factory.mktemp("atlassian"), apps) as servers:
        yield Atlassian(estate.company, jira, confluence, servers)


@everywhere
async def test_jira_finds_the_release_ticket_and_its_history(atlassian: Atlassian, where: Where) -> None:
    release = atlassian.company.failing_release
    jql = 'project = STORE AND labels = release AND text ~ "checkout" ORDER BY created DESC'
    agent = Script(
        Turn(Call("jira_search", {"jql": jql, "fields": "summary,status,assignee"})),
        Turn(
            Call("jira_get_issue", {"issue_key": "{{tool:jira_search.issues.0.key}}", "expand": "changelog"})
        ),
        Turn(
            Say(
                "{{tool:jira_get_issue.key}} ({{tool:jira_search.total}} found) is"
                " {{tool:jira_get_issue.status.name}}, assigned to"
                " {{tool:jira_get_issue.assignee.display_name}}: {{tool:jira_get_issue.description}}"
                " {{tool:jira_get_issue.comments.0.body}}"
                " {{tool:jira_get_issue.changelogs.0.items.0.to_string}}"
            )
        ),
    )
    model = delegate("jira", "Find the release ticket.")
    async with run_estate_supervisor(atlassian.servers, where, model, {"jira": {"^Find": agent}}) as run:
        stream = await run.ask("Which ticket belongs to the release?")
    assert run.refusals == []
    assert stream.states[-1] == "completed"
    assert f"So: {atlassian.tickets.release} (1 found) is In Progress" in stream.answer
    assert f"assigned to {release.author.name}" in stream.answer
    assert f"`{release.new_setting}` is set in `deploy/deployment.yaml`" in stream.answer
    assert "Tests are green. Release notes are written. In Progress" in stream.answer


@everywhere
async def test_a_query_that_jira_does_not_know_tells_the_model_why(
    atlassian: Atlassian, where: Where
) -> None:
    agent = Script(Turn(Call("jira_search", {"jql": "sprint = 7"})), Turn(Say("{{tool:jira_search}}")))
    model = delegate("jira", "Ask for a sprint.")
    async with run_estate_supervisor(atlassian.servers, where, model, {"jira": {"^Ask": agent}}) as run:
        stream = await run.ask("What is in the sprint?")
    assert "Field 'sprint' does not exist or you do not have permission to view it." in stream.answer


@everywhere
async def test_jira_creates_moves_and_comments_a_ticket_only_when_approved(
    atlassian: Atlassian, where: Where
) -> None:
    release = atlassian.company.failing_release
    summary = f"checkout {release.service.version} crashes ({where})"
    ticket = {
        "project_key": "STORE",
        "summary": summary,
        "issue_type": "Bug",
        "assignee": release.author.email,
        "description": f"`{release.new_setting}` is **not set**.",
        "components": "checkout",
        "additional_fields": json.dumps({"labels": ["incident"], "priority": {"name": "High"}}),
    }
    created_key = "{{tool:jira_create_issue.issue.key}}"
    agent = Script(
        Turn(Call("jira_create_issue", ticket)),
        Turn(Call("jira_get_transitions", {"issue_key": created_key})),
        Turn(
            Call(
                "jira_transition_issue",
                {"issue_key": created_key, "transition_id": "{{tool:jira_get_transitions.0.id}}"},
            )
        ),
        Turn(Call("jira_add_comment", {"issue_key": created_key, "body": "Rolling back."})),
        Turn(Say(f"{created_key} is {{{{tool:jira_transition_issue.issue.status.name}}}}")),
    )
    model = delegate("jira", "Create a ticket.")
    async with run_estate_supervisor(atlassian.servers, where, model, {"jira": {"^Create": agent}}) as run:
        stream = await run.ask("Create a ticket for the failure.")
        issues_before = [issue for issue in atlassian.jira.issues.values() if issue.summary == summary]
        states = [stream.states[-1]]
        for _ in range(3):
            stream = await run.decide(stream, "approve")
            states.append(stream.states[-1])
    [issue] = [issue for issue in atlassian.jira.issues.values() if issue.summary == summary]
    assert run.refusals == []
    assert issues_before == []
    assert states == ["input-required", "input-required", "input-required", "completed"]
    assert stream.answer == f"So: {issue.key} is In Progress"
    assert issue.description == f"{{{{{release.new_setting}}}}} is *not set*."
    assert (issue.assignee, issue.components) == (release.author.login, ("checkout",))
    assert (issue.labels, issue.priority, issue.status.name) == (("incident",), "High", "In Progress")
    assert [comment.body for comment in issue.comments] == ["Rolling back."]


@everywhere
async def test_a_ticket_that_a_person_rejects_is_not_created(atlassian: Atlassian, where: Where) -> None:
    agent = Script(
        Turn(Call("jira_create_issue", {"project_key": "PAY", "summary": "Unwanted", "issue_type": "Task"})),
        Turn(Say("It was not created.")),
    )
    model = delegate("jira", "Create another one.")
    async with run_estate_supervisor(atlassian.servers, where, model, {"jira": {"^Create": agent}}) as run:
        stream = await run.decide(await run.ask("Create it."), "reject")
    assert stream.answer == "So: It was not created."
    assert "Unwanted" not in {issue.summary for issue in atlassian.jira.issues.values()}


@everywhere
async def test_confluence_finds_the_runbook_and_that_the_other_page_is_old(
    atlassian: Atlassian, where: Where
) -> None:
    company = atlassian.company
    outdated = atlassian.page("STORE", outdated_runbook_title(company))
    agent = Script(
        Turn(Call("confluence_search", {"query": "why is checkout failing"})),
        Turn(Call("confluence_get_page", {"page_id": "{{tool:confluence_search.0.id}}"})),
        Turn(Call("confluence_get_comments", {"page_id": outdated.id})),
        Turn(
            Say(
                "{{tool:confluence_get_page.metadata.title}}:"
                " {{tool:confluence_get_page.metadata.content.value}}\n"
                "The other one is of {{tool:confluence_search.1.updated}}:"
                " {{tool:confluence_search.1.title}}, {{tool:confluence_get_comments.0.body}}"
            )
        ),
    )
    model = delegate("confluence", "Find the runbook.")
    agents = {"confluence": {"^Find": agent}}
    async with run_estate_supervisor(atlassian.servers, where, model, agents) as run:
        stream = await run.ask("What does the runbook say?")
    on_call = company.failing_release.service.team.on_call
    assert run.refusals == []
    assert stream.answer.startswith("So: Runbook: checkout: ")
    assert "Find the previous deployment in the history of the application checkout" in stream.answer
    assert f"{on_call.name} ({on_call.email}), on call for the team Store" in stream.answer
    assert f"The other one is of {outdated.current.when:%Y-%m-%d}" in stream.answer
    assert f"{outdated.current.title}, checkout has no database of its own any more." in stream.answer


@everywhere
async def test_confluence_writes_pages_comments_and_labels_only_when_approved(
    atlassian: Atlassian, where: Where
) -> None:
    title = f"Review of the failure ({where})"
    home = atlassian.confluence.spaces["STORE"].homepage_id
    content = "## What happened\n\nA setting & its name.\n\n## Next\n\n- a check in CI\n"
    page_id = "{{tool:confluence_create_page.page.id}}"
    section = {"page_id": page_id, "heading_text": "Next", "new_content": "Done **already**."}
    agent = Script(
        Turn(
            Call(
                "confluence_create_page",
                {"space_key": "STORE", "title": title, "content": content, "parent_id": home},
            )
        ),
        Turn(Call("confluence_update_page_section", section)),
        Turn(Call("confluence_add_comment", {"page_id": page_id, "body": "Please read it."})),
        Turn(Call("confluence_add_label", {"page_id": page_id, "name": "review"})),
        Turn(
            Say(
                "Version {{tool:confluence_update_page_section.page.version}} of"
                " {{tool:confluence_create_page.page.url}}"
            )
        ),
    )
    model = delegate("confluence", "Write the review.")
    agents = {"confluence": {"^Write": agent}}
    async with run_estate_supervisor(atlassian.servers, where, model, agents) as run:
        stream = await run.ask("Write a review of the failure.")
        before = atlassian.confluence.find_page_by_title("STORE", title)
        for _ in range(4):
            assert stream.states[-1] == "input-required"
            stream = await run.decide(stream, "approve")
    page = atlassian.page("STORE", title)
    assert run.refusals == []
    assert before is None
    assert stream.answer.startswith("So: Version 2 of http://127.0.0.1:")
    assert stream.answer.endswith(f"/pages/viewpage.action?pageId={page.id}")
    assert page.parent_id == home
    assert page.versions[0].text.splitlines() == [
        "What happened",
        "A setting & its name.",
        "Next",
        "a check in CI",
    ]
    assert page.current.text.splitlines() == [
        "What happened",
        "A setting & its name.",
        "Next",
        "Done already.",
    ]
    assert [comment.text for comment in page.comments] == ["Please read it."]
    assert page.labels == ["review"]
