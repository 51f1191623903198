"""The agent github with our own tool server on the estate: the cause in a commit and, approved, an issue."""

import re
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from ai_platform_engineering.demo.github.app import STAND_IN
from tests.support.agent_services import Where
from tests.support.estate_agents import delegate, run_estate_supervisor
from tests.support.estate_stage import EstateStage, run_estate_stage
from tests.support.fakes.script import Call, Request, Say, Script, Turn

pytestmark = [pytest.mark.full, pytest.mark.asyncio(loop_scope="module")]

everywhere = pytest.mark.parametrize("where", ["in-process", "remote"])


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def stage(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[EstateStage]:
    async with run_estate_stage(tmp_path_factory.mktemp("github"), STAND_IN) as running:
        yield running


def read_newest_commit(owner: str) -> Script:
    repository = {"owner": owner, "repo": "checkout"}

    def get_commit(request: Request) -> Turn:
        match = re.search(r"\b[0-9a-f]{40}\b", request.tool_results["list_commits"][-1])
        assert match is not None
        return Turn(Call("get_commit", {**repository, "ref": match[0], "patches": True}))

    return Script(
        Turn(Call("list_commits", repository), Call("list_pull_requests", {**repository, "state": "closed"})),
        get_commit,
        Turn(Call("get_file_contents", {**repository, "path": "deploy/deployment.yaml"})),
        Turn(Say("{{tool:get_commit}}\n{{tool:list_pull_requests}}\n{{tool:get_file_contents}}")),
    )


@everywhere
async def test_it_finds_the_commit_that_renames_the_setting_and_the_manifest_without_it(
    stage: EstateStage, where: Where
) -> None:
    agent = read_newest_commit(stage.estate.company.organization)
    model = delegate("github", "Look at checkout.")
    async with run_estate_supervisor(stage.servers, where, model, {"github": {"^Look": agent}}) as run:
        stream = await run.ask("What changed in checkout?")
    release = stage.release
    manifest = stream.answer[stream.answer.index("kind: Deployment") :]
    assert run.refusals == []
    assert release.pull_request_title in stream.answer
    assert release.author.login in stream.answer
    assert f'+value = os.environ[\\"{release.new_setting}\\"]' in stream.answer
    assert release.new_setting not in manifest
    assert f"name: {release.old_setting}" in manifest


@everywhere
async def test_an_issue_is_created_when_it_is_approved(stage: EstateStage, where: Where) -> None:
    organization = stage.estate.company.organization
    issues = stage.estate.github.repositories[f"{organization}/checkout"].issues
    title = f"checkout needs {stage.release.new_setting} ({where})"
    issue = {"owner": organization, "repo": "checkout", "title": title, "body": "It crashes."}
    agent = Script(Turn(Call("create_issue", issue)), Turn(Say("Issue {{tool:create_issue.number}}")))
    declined = Script(
        Turn(Call("create_issue", {**issue, "title": "Unwanted"})), Turn(Say("It was not created."))
    )
    model = delegate("github", "{{user}}")
    agents = {"github": {"^Create": agent, "^Try": declined}}
    async with run_estate_supervisor(stage.servers, where, model, agents) as run:
        rejected = await run.decide(await run.ask("Try to create an issue."), "reject")
        question = await run.ask("Create an issue.")
        titles_while_asked = {item.title for item in issues.values()}
        stream = await run.decide(question, "approve")
    (number,) = (number for number, item in issues.items() if item.title == title)
    assert run.refusals == []
    assert rejected.answer == "So: It was not created."
    assert not {title, "Unwanted"} & titles_while_asked
    assert stream.answer == f"So: Issue {number}"
