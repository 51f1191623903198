"""Self-service workflows from the first word to what exists afterwards: in both placements, across kills, and
every way it can go wrong."""

import re
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, Literal

import pytest
import pytest_asyncio

from ai_platform_engineering.core.events import (
    AnyEvent,
    InputRequested,
    InputResolved,
    Notice,
    Paused,
    PlanUpdated,
    ToolFinished,
)
from tests.support.agent_services import CastingByTools, Where
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Call, Casting, Fail, Say, Script, Turn
from tests.support.harness import Client
from tests.support.placements import difference, normalize_events
from tests.support.providers import OPENAI
from tests.support.server_starts import is_server_start
from tests.support.workflow_processes import (
    ORG,
    GitHub,
    Person,
    Server,
    called_tools,
    random_name,
    serve_github,
    serve_github_agent,
    serve_supervisor,
    step_statuses,
)

CREATE = "Create GitHub Repo"
DONE = {CREATE: "completed", "Create the repository": "completed", "Open the first issue": "skipped"}
NEVER = Script(Turn(Fail(500, message="no model was to be asked")), name="never")
Killed = Literal["before the answer", "before the approval", "before both"]

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_hub() -> AsyncIterator[GitHub]:
    """One GitHub for all tests whose supervisor is shared."""
    async with serve_github() as hub:
        yield hub


@pytest.fixture
def hub(shared_hub: GitHub) -> GitHub:
    """GitHub, with nothing written since the test began."""
    shared_hub.wrote.clear()
    return shared_hub


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def client(shared_hub: GitHub, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Client]:
    """A supervisor without a model, and GitHub's agent in its process."""
    folder = tmp_path_factory.mktemp("in-process")
    async with serve_supervisor(folder, **shared_hub.settings) as shared_client:
        yield shared_client


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def remote_client(
    shared_hub: GitHub, tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[Client]:
    """A supervisor without a model, and GitHub's agent as a service."""
    folder = tmp_path_factory.mktemp("remote")
    async with (
        serve_github_agent("remote", folder, shared_hub) as env,
        serve_supervisor(folder, **env) as shared_client,
    ):
        yield shared_client


@pytest.fixture(params=["client", "remote_client"], ids=["in-process", "remote"])
def placed_client(request: pytest.FixtureRequest) -> Client:
    """Each of the two supervisors."""
    shared_client: Client = request.getfixturevalue(request.param)
    return shared_client


def posted(hub: GitHub) -> list[str]:
    """What came to GitHub to be changed, below the organisation."""
    return [
        request.removeprefix(f"POST /orgs/{ORG}/").removeprefix(f"POST /repos/{ORG}/")
        for request in hub.wrote
    ]


async def create(server: Server, repo: str, killed: Killed | None = None) -> Person:
    """The whole story of a repository without a first issue, as a person sees it."""
    person = Person(server.client)
    await person.say(CREATE)
    if killed in ("before the answer", "before both"):
        person.client = await server.restart()
    await person.fill(repo=repo, owner=ORG, description="Pays.", issue="")
    if killed in ("before the approval", "before both"):
        person.client = await server.restart()
    await person.approve()
    return person


# From the first word to a repository


@pytest.mark.full
async def test_a_repository_is_created_without_a_model_and_alike_in_both_placements(tmp_path: Path) -> None:
    events: dict[str, list[AnyEvent]] = {}
    repo = random_name()
    placements: tuple[Where, ...] = ("in-process", "remote")
    for where in placements:
        async with serve_github() as hub:
            async with (
                serve_github_agent(where, tmp_path, hub) as env,
                Server(tmp_path / where, **env) as server,
            ):
                person = await create(server, repo)
                events[where] = [_anywhere(event, hub) for event in person.stream.events]
            repository = await hub.repository(repo)
        assert repository is not None
        assert (repository["private"], repository["description"], repository["default_branch"]) == (
            True,
            "Pays.",
            "main",
        )
        assert posted(hub) == ["repos"]
        assert (person.stream.last.state, person.stream.answer) == (
            "completed",
            f"The repository {ORG}/{repo} exists: {repository['html_url']}",
        )
        assert step_statuses(person.stream.events) == DONE
        assert called_tools(person.stream.events) == ["supervisor/github", "github/create_repository"]
    here, there = (normalize_events(events[where]) for where in placements)
    assert here == there, difference(here, there)


def _anywhere(event: AnyEvent, hub: GitHub) -> AnyEvent:
    """The event as if every GitHub had the same address and everything happened at the same moment."""
    plain = re.sub(
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d",
        "2026-01-01T00:00:00",
        event.model_dump_json().replace(hub.url, "http://hub/"),
    )
    same = type(event).model_validate_json(plain)
    if isinstance(same, InputRequested):
        return same.model_copy(update={"asked": same.asked.model_copy(update={"expires_at": None})})
    return same.model_copy(update={"requests": ("the last one",)}) if isinstance(same, Paused) else same


@pytest.mark.parametrize(
    ("killed", "where"),
    [
        ("before both", "remote"),
        pytest.param("before both", "in-process", marks=pytest.mark.full),
        pytest.param("before the answer", "in-process", marks=pytest.mark.full),
        pytest.param("before the answer", "remote", marks=pytest.mark.full),
        pytest.param("before the approval", "in-process", marks=pytest.mark.full),
        pytest.param("before the approval", "remote", marks=pytest.mark.full),
    ],
)
async def test_a_killed_supervisor_loses_neither_the_form_nor_the_approval(
    tmp_path: Path, where: Where, killed: Killed
) -> None:
    repo = random_name()
    async with (
        serve_github() as hub,
        serve_github_agent(where, tmp_path, hub) as env,
        Server(tmp_path, **env) as server,
    ):
        person = await create(server, repo, killed)
        repository = await hub.repository(repo)
        assert "Traceback" not in server.process.err
    assert repository is not None
    assert posted(hub) == ["repos"]
    assert person.stream.last.state == "completed"
    assert person.stream.answer == f"The repository {ORG}/{repo} exists: {repository['html_url']}"
    assert step_statuses(person.stream.events) == DONE
    assert called_tools(person.stream.events) == ["supervisor/github", "github/create_repository"]
    resolved = [event.resolution for event in person.stream.events if isinstance(event, InputResolved)]
    assert resolved == ["answered", "approved"]


async def test_the_plan_the_form_and_the_approval_are_on_the_wire(hub: GitHub, client: Client) -> None:
    repo = random_name()
    person = Person(client)
    first = await person.say(CREATE)
    assert first.last.state == "input-required"
    [plan] = [event for event in first.events if isinstance(event, PlanUpdated)]
    assert [(step.title, step.agent, step.status) for step in plan.steps] == [
        (CREATE, "supervisor", "in_progress"),
        ("Create the repository", "github", "pending"),
        ("Open the first issue", "github", "pending"),
    ]
    [form] = [frame.artifact["parts"][0]["data"] for frame in first.named("UserInputMetaData")]
    assert (form["user_input"], form["input_title"]) == (True, CREATE)
    fields = {field["field_name"]: field for field in form["input_fields"]}
    assert list(fields) == ["repo", "owner", "description", "private", "readme", "issue"]
    assert [name for name, field in fields.items() if field["required"]] == ["repo", "private", "readme"]
    second = await person.fill(repo=repo, owner=ORG, private="no")
    assert second.last.state == "input-required"
    assert hub.wrote == []
    [metadata] = [frame.artifact["parts"][0]["data"] for frame in second.named("UserInputMetaData")]
    assert metadata["approval"] is True
    assert (metadata["agent"], metadata["tool"]) == ("github", "create_repository")
    assert metadata["arguments"] == {
        "owner": ORG,
        "name": repo,
        "description": "",
        "private": False,
        "auto_init": True,
    }
    await person.approve()
    repository = await hub.repository(repo)
    assert repository is not None
    assert repository["private"] is False


# How it is started


def scripted(tmp_path: Path, hub: GitHub, model: OpenAIServer) -> AbstractAsyncContextManager[Client]:
    """The supervisor with the model, and GitHub's agent in its process."""
    return serve_supervisor(tmp_path, **hub.settings, **OPENAI.settings(model))


def starts(name: str, **values: Any) -> Script:
    return Script(
        Turn(Call("run_workflow", {"name": name, "values": values})), Turn(Say("{{tool:run_workflow}}"))
    )


async def test_a_name_that_is_typed_exactly_asks_no_model(tmp_path: Path) -> None:
    repo = random_name()
    async with serve_github() as hub, serve_openai(NEVER) as model, scripted(tmp_path, hub, model) as client:
        person = Person(client)
        await person.say(CREATE)
        await person.fill(repo=repo, owner=ORG)
        await person.approve()
        assert await hub.repository(repo) is not None
    assert model.requests == []
    notices = [event for event in person.stream.events if isinstance(event, Notice)]
    assert all(is_server_start(notice) for notice in notices)


async def test_a_model_starts_it_with_what_the_user_has_said_already(tmp_path: Path) -> None:
    repo = random_name()
    script = starts("create-github-repo", repo=repo, owner=ORG, private=False, unknown="x", issue=7)
    async with serve_github() as hub, serve_openai(script) as model, scripted(tmp_path, hub, model) as client:
        person = Person(client)
        await person.say(f"I need a public place for {repo} on GitHub, in {ORG}.")
        field_values = {field.field_name: field.value for field in person.form.fields}
        assert field_values == {
            "repo": repo,
            "owner": ORG,
            "description": None,
            "private": False,
            "readme": None,
            "issue": "7",
        }
        assert "create-github-repo" in str(model.requests[0].raw)
        await person.fill(repo=repo, owner=ORG, private=False)
        await person.approve()
        assert await hub.repository(repo) is not None
    assert len(model.requests) == 1
    assert person.stream.answer.startswith(f"The repository {ORG}/{repo} exists:")
    assert called_tools(person.stream.events) == [
        "supervisor/run_workflow",
        "supervisor/github",
        "github/create_repository",
    ]


@pytest.mark.sample(1)
@pytest.mark.parametrize("model", [False, True], ids=["no model", "model"])
async def test_a_client_starts_it_with_a_data_part(tmp_path: Path, model: bool) -> None:
    repo = random_name()
    async with serve_github() as hub, serve_openai(NEVER) as far:
        env = {**hub.settings, **(OPENAI.settings(far) if model else {})}
        async with serve_supervisor(tmp_path, **env) as client:
            person = Person(client)
            await person.say({"workflow": "create-github-repo", "values": {"repo": repo, "private": False}})
            field_values = {
                field.field_name: field.value for field in person.form.fields if field.value is not None
            }
            assert field_values == {"repo": repo, "private": False}
            await person.fill(repo=repo, owner=ORG)
            await person.approve()
            assert await hub.repository(repo) is not None
    assert far.requests == []


async def test_an_unknown_name_is_answered_with_those_there_are(tmp_path: Path) -> None:
    async with (
        serve_github() as hub,
        serve_openai(starts("create-a-castle")) as model,
        scripted(tmp_path, hub, model) as client,
    ):
        person = Person(client)
        by_client = await person.say({"workflow": "create-a-castle"})
        assert model.requests == []
        by_model = await person.say("A castle, please.")
    answer = (
        "There is no workflow create-a-castle."
        " The workflows are: check-a-service, create-github-repo, onboard-argocd-service."
    )
    assert (by_client.last.state, by_client.answer) == ("completed", answer)
    assert by_model.answer == answer
    [finished] = [event for event in by_model.events if isinstance(event, ToolFinished)]
    assert (finished.tool, finished.outcome) == ("run_workflow", "error")


async def test_a_workflow_whose_agent_is_missing_names_it(tmp_path: Path) -> None:
    async with serve_supervisor(tmp_path) as client:
        person = Person(client)
        typed = await person.say(CREATE)
        sent = await person.say({"workflow": "create-github-repo"})
    assert typed.answer == sent.answer
    assert typed.answer == (
        "Create GitHub Repo cannot start. The agent github is not configured: "
        "set GITHUB_TOKEN or GITHUB_PERSONAL_ACCESS_TOKEN."
    )
    assert not [event for event in typed.events if isinstance(event, PlanUpdated | InputRequested)]


# The step that needs a model


def issue_model(repo: str) -> Script:
    call = Call("create_issue", {"owner": ORG, "repo": repo, "title": "Write a README"})
    return Script(Turn(call), Turn(Say("Opened #1.")), exhausted="error")


@pytest.mark.parametrize("where", ["in-process", pytest.param("remote", marks=pytest.mark.full)])
async def test_the_first_issue_is_opened_by_the_agents_own_model(tmp_path: Path, where: Where) -> None:
    repo = random_name()
    async with serve_github() as hub, serve_openai(CastingByTools(NEVER, issue_model(repo))) as model:
        llm = {"LLM_MODEL": "openai:scripted", "OPENAI_BASE_URL": model.url, "OPENAI_API_KEY": "scripted"}
        async with serve_github_agent(where, tmp_path, hub, **llm) as env:
            here = OPENAI.settings(model) if where == "in-process" else {}
            async with serve_supervisor(tmp_path, **env, **here) as client:
                person = Person(client)
                await person.say(CREATE)
                await person.fill(repo=repo, owner=ORG, issue="Write a README")
                await person.approve()
                assert person.approval.tool == "create_issue"
                await person.approve()
    assert [issue.title for issue in hub.state.repositories[f"{ORG}/{repo}"].issues.values()] == [
        "Write a README"
    ]
    assert posted(hub) == ["repos", f"{repo}/issues"]
    assert person.stream.answer.endswith("Opened #1.")
    assert step_statuses(person.stream.events)["Open the first issue"] == "completed"
    assert f"{ORG}/{repo}" in model.requests[0].last_user
    assert len(model.requests) == 2


@pytest.mark.sample(1)
@pytest.mark.parametrize("model", ["none", "broken"])
async def test_the_optional_step_fails_and_the_answer_says_so(tmp_path: Path, model: str) -> None:
    repo = random_name()
    broken: Casting = Script(Turn(Fail(400, message="no such model")))
    async with serve_github() as hub, serve_openai(broken) as far:
        env = OPENAI.settings(far) if model == "broken" else {}
        async with serve_supervisor(tmp_path, **hub.settings, **env) as client:
            person = Person(client)
            await person.say(CREATE)
            await person.fill(repo=repo, owner=ORG, issue="Write a README")
            await person.approve()
            repository = await hub.repository(repo)
    assert repository is not None
    assert person.stream.last.state == "completed"
    assert person.stream.answer.startswith(f"The repository {ORG}/{repo} exists: {repository['html_url']}")
    assert "Open the first issue (failed): " in person.stream.answer
    assert step_statuses(person.stream.events)["Open the first issue"] == "failed"
    assert posted(hub) == ["repos"]


# What goes wrong


def stopped(person: Person, reason: str) -> None:
    """The workflow has ended at its second step for a reason that is told, and nothing after it was tried."""
    assert person.stream.last.state == "completed"
    assert person.stream.answer.startswith(f"{CREATE} stopped: the step “Create the repository” failed: ")
    assert reason in person.stream.answer
    assert person.stream.answer.endswith("Not done: Open the first issue.")
    assert step_statuses(person.stream.events) == {
        CREATE: "completed",
        "Create the repository": "failed",
        "Open the first issue": "skipped",
    }


@pytest.mark.sample(1)
async def test_a_name_that_is_taken_stops_it(hub: GitHub, placed_client: Client) -> None:
    before = set(hub.state.repositories)
    person = Person(placed_client)
    await person.say(CREATE)
    await person.fill(repo="web", owner=ORG, issue="Never opened")
    await person.approve()
    stopped(person, f"There is already a repository web in {ORG}. Nothing was created: choose another name.")
    assert set(hub.state.repositories) == before
    assert posted(hub) == ["repos"]
    [call] = [
        event
        for event in person.stream.events
        if isinstance(event, ToolFinished) and event.tool == "create_repository"
    ]
    assert call.outcome == "error"


@pytest.mark.sample(1)
async def test_a_rejected_call_stops_it_with_the_persons_reason(hub: GitHub, placed_client: Client) -> None:
    person = Person(placed_client)
    await person.say(CREATE)
    await person.fill(repo=random_name(), owner=ORG, issue="Never opened")
    await person.decide({"type": "reject", "message": "Not before the review"})
    stopped(
        person, "A person rejected this call of create_repository: Not before the review. Nothing was done."
    )
    assert "Do not call it again" not in person.stream.answer  # that is for a model
    assert hub.wrote == []


async def test_an_edited_approval_creates_what_the_person_wrote(hub: GitHub, client: Client) -> None:
    repo = random_name()
    person = Person(client)
    await person.say(CREATE)
    await person.fill(repo=random_name("other"), owner=ORG)
    await person.decide({"type": "edit", "arguments": {**person.approval.arguments, "name": repo}})
    repository = await hub.repository(repo)
    assert repository is not None
    assert posted(hub) == ["repos"]
    assert person.stream.answer == f"The repository {ORG}/{repo} exists: {repository['html_url']}"


@pytest.mark.parametrize("message", ["I changed my mind", None])
async def test_a_declined_form_does_nothing(hub: GitHub, client: Client, message: str | None) -> None:
    person = Person(client)
    await person.say(CREATE)
    await person.decide({"type": "reject", **({"message": message} if message else {})})
    assert person.stream.last.state == "completed"
    assert person.stream.answer == (
        f"{CREATE} stopped: the step “{CREATE}” failed:"
        f" {message or 'The person does not want to answer.'}\n\n"
        "Not done: Create the repository, Open the first issue."
    )
    assert step_statuses(person.stream.events) == {
        CREATE: "failed",
        "Create the repository": "skipped",
        "Open the first issue": "skipped",
    }
    assert called_tools(person.stream.events) == []
    assert hub.wrote == []
