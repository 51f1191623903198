"""Workflow files: where they may stand, both shapes, which workflow a text means, and the shipped ones
against real tools."""

import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import jsonschema
import pytest
from pydantic import JsonValue

from ai_platform_engineering.agents.agent_catalog import load_catalog, shipped_names
from ai_platform_engineering.core.forms import check_form
from ai_platform_engineering.core.workflow_actions import (
    AskModel,
    AskPerson,
    DelegateTask,
    DirectToolCall,
    FailStep,
    FinishWorkflow,
    StepOutcome,
    next_action,
)
from ai_platform_engineering.core.workflows import Workflow
from ai_platform_engineering.mcp_client.tool_types import read_tool_result
from ai_platform_engineering.mcp_servers.github.api import GitHubApi
from ai_platform_engineering.mcp_servers.github.server import create_server as github_server
from ai_platform_engineering.workflows.workflow_catalog import WorkflowCatalog, load_workflows
from tests.support.netutils_client import NetutilsClient, start_server

SHIPPED = ["check-a-service", "create-github-repo", "onboard-argocd-service"]
ONE = (
    "name: {name}\ntitle: {title}\ndescription: d\nsteps: [{{name: a, agent: jira, prompt: p}},"
    " {{name: b, agent: aws, prompt: p}}]\n"
)


def workflow_yaml(name: str, title: str = "One") -> str:
    return ONE.format(name=name, title=title)


def load(folder: Path, **files: str) -> WorkflowCatalog:
    """The workflows with those of a folder; `a_yaml` becomes `a.yaml`."""
    for name, content in files.items():
        (folder / name.replace("_", ".")).write_text(content, encoding="utf-8")
    return load_workflows([folder], ["jira"])


def test_files_of_a_folder_and_single_files_are_read_and_the_later_wins(tmp_path: Path) -> None:
    many = f"- {workflow_yaml('two', 'Two')}- {workflow_yaml('three', 'Three')}".replace(
        "\n", "\n  "
    ).replace("  - ", "- ")
    single = tmp_path / "elsewhere.txt"
    single.write_text(workflow_yaml("two", "Zwei"), encoding="utf-8")
    folder = tmp_path / "folder"
    folder.mkdir()
    load(
        folder,
        a_yaml=workflow_yaml("one"),
        b_yml=many,
        c_json='{"name": "j", "title": "J", "description": "d", "steps": [{"name": "a", "prompt": "p"}]}',
    )
    load(folder, d_yaml="# nothing\n", e_txt=workflow_yaml("unread"))
    (folder / ".hidden.yaml").write_text(workflow_yaml("hidden"), encoding="utf-8")
    catalog = load_workflows([folder, single], ["jira"])
    assert catalog.problems == ()
    ours = [
        (entry.workflow.title, entry.missing, Path(entry.source).name)
        for entry in catalog
        if not entry.source.startswith("workflows/")
    ]
    assert ours == [
        ("J", (), "c.json"),
        ("One", ("aws",), "a.yaml"),
        ("Three", ("aws",), "b.yml"),
        ("Zwei", ("aws",), "elsewhere.txt"),
    ]
    assert catalog.get("unread") is catalog.get("hidden") is None


def test_a_file_of_ones_own_replaces_a_shipped_workflow_and_a_broken_one_does_not(tmp_path: Path) -> None:
    replaced = load(tmp_path, a_yaml=workflow_yaml("check-a-service", "Mine")).get("check-a-service")
    assert replaced
    assert replaced.workflow.title == "Mine"
    catalog = load(tmp_path, a_yaml="name: check-a-service\ntitle: Mine\n")
    entry = catalog.get("check-a-service")
    assert entry
    assert entry.source == "workflows/check-a-service.yaml"
    assert len(catalog.problems) == 1


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("a: [\n", "is not valid YAML, line 2: "),
        ("a: 1\nb: 2\na: 3\n", "is not valid YAML, line 1: `a` is written twice"),
        (
            "answer: {{ x }}\n",
            "is not valid YAML, line 1: a value that begins with {{ needs quotes around it",
        ),
        ("just words", "a workflow must be a mapping of keys and values"),
        ("a: \x07", "is not valid YAML"),
        ("[" * 600 + "]" * 600, "is not valid YAML"),
        ("&a [*a]", "is not valid YAML, line 1: a value contains itself"),
        (workflow_yaml("Bad Name"), "`name` is made of a-z, 0-9 and -, and starts with a letter or a digit"),
        (
            workflow_yaml("x") + "form: {fields: [{name: d, type: date, default: 2026-13-01}]}",
            "the form, field `d`: `default`: d must be a date",
        ),
        (workflow_yaml("x") + 'answer: "{{ c }}"\n', "`answer`: `c` names no form and no step before it"),
        ("Deploy: {tasks: []}", "`Deploy`: `tasks` must be a list with at least one task"),
        ("Deploy: {tasks: [{display_text: x}]}", "`Deploy`, task 1: `llm_prompt` is missing"),
        ("Deploy: {tasks: [{llm_prompt: [x]}]}", "`Deploy`, task 1: `llm_prompt` must be text"),
        (
            "Deploy: {tasks: [{llm_prompt: x, subagent: a b}]}",
            "step `step-1`: `agent` is the name of an agent",
        ),
        (
            "Deploy it: {tasks: [{llm_prompt: x}]}\ndeploy-it: {tasks: [{llm_prompt: x}]}",
            "two workflows have the name `deploy-it`; the second was left out",
        ),
    ],
)
def test_a_broken_file_is_reported_and_left_out(
    tmp_path: Path, content: str, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        catalog = load(tmp_path, bad_yaml=content, good_yaml=workflow_yaml("good"))
    assert catalog.get("good")
    assert len(catalog.problems) == 1
    assert catalog.problems[0].startswith(f"{tmp_path / 'bad.yaml'}: {problem}")
    assert catalog.problems[0] in caplog.text


def test_files_that_cannot_be_read_are_reported(tmp_path: Path) -> None:
    (tmp_path / "bytes.yaml").write_bytes(b"\xff\xfe\xff")
    missing = tmp_path / "missing.yaml"
    assert sorted(load_workflows([tmp_path, missing], []).problems) == [
        f"{tmp_path / 'bytes.yaml'}: is not UTF-8 text",
        f"{missing}: there is no such file or folder",
    ]


# The older shape

OLDER = """
Create GitHub Repo & Docs:
  tasks:
    - display_text: Collect the details
      llm_prompt: "Ask for {name} and {{ organisation }} as {'a': {{}}}"
      subagent: user_input
    - display_text: Create it
      llm_prompt: Create the repository.
      subagent: GitHub
    - llm_prompt: "Use {{ results }} alone."
Deploy:
  tasks: [{display_text: Deploy, llm_prompt: Deploy it., subagent: caipe, unknown: 1}]
"""


def test_the_older_shape_gives_one_workflow_per_name(tmp_path: Path) -> None:
    catalog = load(tmp_path, task_yaml=OLDER)
    assert catalog.problems == ()
    entry, deploy = catalog.get("create-github-repo-docs"), catalog.get("deploy")
    assert entry
    assert deploy
    assert (entry.workflow.title, entry.missing, deploy.missing) == (
        "Create GitHub Repo & Docs",
        ("github",),
        (),
    )
    assert entry.workflow.description == "Create GitHub Repo & Docs: Collect the details; Create it; Step 3."

    story: list[StepOutcome] = []
    prompt = "Ask for {name} and {{ organisation }} as {'a': {{}}}"
    assert next_action(entry.workflow, {}, story) == AskModel("step-1", prompt)
    story.append(StepOutcome("step-1", ok=True, value="web in octo"))
    order = "Create the repository.\n\nWhat earlier steps gave:\n\nCollect the details: web in octo"
    assert next_action(entry.workflow, {}, story) == DelegateTask("step-2", "github", order)
    story.append(StepOutcome("step-2", ok=True, value="octo/web"))
    handed_on = "Collect the details: web in octo\n\nCreate it: octo/web"
    assert next_action(entry.workflow, {}, story) == AskModel("step-3", f"Use {handed_on} alone.")
    assert next_action(deploy.workflow, {}, []) == AskModel("step-1", "Deploy it.")


def test_a_title_without_latin_letters_has_a_name_too(tmp_path: Path) -> None:
    assert load(tmp_path, task_yaml="日本: {tasks: [{llm_prompt: x}]}").get("workflow-1")


# Which workflow a text means

PHRASES = """
- {name: first, title: Zero, description: d, steps: &s [{name: a, prompt: p}]}
- {name: create-repo, title: Create GitLab Repo, description: d,
   phrases: [new repo, "create a git repository"], steps: *s}
- {name: create-team, title: Create GitLab Team, description: d, phrases: [new team], steps: *s}
- {name: run-tests, title: Run tests, description: d, phrases: [test everything], steps: *s}
- {name: tests, title: All the tests, description: d, phrases: [test everything], steps: *s}
- {name: repo, title: The a, description: d, steps: *s}
"""


@pytest.fixture(scope="module")
def phrases(tmp_path_factory: pytest.TempPathFactory) -> WorkflowCatalog:
    return load(tmp_path_factory.mktemp("phrases"), all_yaml=PHRASES)


def name_of(workflow: Workflow | None) -> str | None:
    return workflow.name if workflow else None


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("create-repo", "create-repo"),
        ("/create-repo", "create-repo"),
        ("Create GitLab Repo", "create-repo"),
        ("  please RUN create gitlab repo!!", "create-repo"),
        ("start: Create GitLab Repo, please.", "create-repo"),
        ("New repo", "create-repo"),
        ("run tests", "run-tests"),
        ("run run tests", "run-tests"),
        ("start tests", "tests"),
        ("repo", "repo"),
        ("test everything", None),  # two say it
        ("create gitlab repo now", None),
        ("create gitlab", None),
        ("please", None),
        ("", None),
        ("?!", None),
    ],
)
def test_a_text_names_a_workflow_exactly(phrases: WorkflowCatalog, text: str, name: str | None) -> None:
    assert name_of(phrases.find_by_name(text)) == name


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("Could you create a new GitLab repo for payments?", "create-repo"),
        ("I need the repo, a new one", "create-repo"),
        ("gitlab: please create the team core", "create-team"),
        ("create a gitlab repo and run tests", "create-repo"),  # three words beat two
        ("create a gitlab repo and a gitlab team", None),  # as long
        ("new team, new repo", None),
        ("do not create a gitlab repo", None),
        ("Don’t create a GitLab repo", None),
        ("the a", None),  # articles alone say nothing
        ("what is a gitlab repository?", None),
        ("", None),
    ],
)
def test_a_text_speaks_of_a_workflow(phrases: WorkflowCatalog, text: str, name: str | None) -> None:
    assert name_of(phrases.find_mentioned(text)) == name


def test_a_text_that_matches_nothing_does_not_mean_the_only_workflow(phrases: WorkflowCatalog) -> None:
    assert WorkflowCatalog(phrases.entries[:1]).find_mentioned("something else") is None


# The shipped ones


@pytest.fixture(scope="module")
def shipped() -> WorkflowCatalog:
    return load_workflows([], shipped_names())


def test_the_shipped_workflows_are_right_and_need_shipped_agents(shipped: WorkflowCatalog) -> None:
    assert shipped.problems == ()
    assert sorted(entry.workflow.name for entry in shipped) == SHIPPED
    assert [entry.missing for entry in shipped] == [()] * 3
    titles = [entry.workflow.title for entry in shipped]
    assert titles == ["Check a service", "Create GitHub Repo", "Onboard a service to Argo CD"]
    for entry in shipped:
        assert (
            shipped.find_by_name(entry.workflow.title)
            is shipped.find_mentioned(f"please {entry.workflow.title} for me")
            is entry.workflow
        )
        assert Path(entry.source).stem == entry.workflow.name


def workflow_of(shipped: WorkflowCatalog, name: str) -> Workflow:
    entry = shipped.get(name)
    assert entry
    return entry.workflow


def walked(
    workflow: Workflow, typed: dict[str, JsonValue], answer: Callable[[DelegateTask], StepOutcome]
) -> tuple[list[DelegateTask], FinishWorkflow]:
    """The orders of a whole story, in which a person types these values."""
    story: list[StepOutcome] = []
    orders: list[DelegateTask] = []
    while True:
        match next_action(workflow, {}, story):
            case AskPerson(step, form):
                values, wrong = check_form(form, typed)
                assert wrong == {}
                story.append(StepOutcome(step, ok=True, value=values))
            case DelegateTask() as order:
                orders.append(order)
                story.append(answer(order))
            case FinishWorkflow() as end:
                return orders, end
            case AskModel() | FailStep() as other:
                raise AssertionError(other)


@pytest.fixture(scope="module")
def netutils(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NetutilsClient]:
    with start_server(tmp_path_factory.mktemp("netutils")) as served:
        yield served


def asking(netutils: NetutilsClient) -> Callable[[DelegateTask], StepOutcome]:
    """Has each call done by the real server, and hands on the text that a model would get."""

    def answer(order: DelegateTask) -> StepOutcome:
        assert order.call
        done = netutils.portal.call(netutils.session.call_tool, order.call.tool, order.call.arguments)
        found = read_tool_result(
            [block.model_dump() for block in done.content],
            done.structured_content,
            failed=bool(done.is_error),
        )
        return StepOutcome(order.step, ok=not found.failed, value=found.text)

    return answer


def test_a_service_on_this_machine_is_checked_by_tools_alone(
    shipped: WorkflowCatalog, netutils: NetutilsClient
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
        workflow = workflow_of(shipped, "check-a-service")
        orders, end = walked(workflow, {"host": "localhost", "port": str(port)}, asking(netutils))
    assert [order.call.tool for order in orders if order.call] == ["dns_lookup", "check_port"]
    opening, name, open_port = end.text.split("\n\n")
    assert opening == "Results for localhost, checked from the server:"
    assert name.startswith("Look up the name: localhost has 1 A record: 127.0.0.1 (")
    assert open_port.startswith(f"Check the port: Port {port} on localhost (")
    assert "is open" in open_port
    assert not end.failed
    assert "{" not in end.text


def test_a_service_that_is_down_is_a_finding(shipped: WorkflowCatalog, netutils: NetutilsClient) -> None:
    with socket.socket() as bound:  # bound and not listening: nobody else gets the port, and it refuses
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
        typed: dict[str, JsonValue] = {"host": "127.0.0.1", "port": port, "url": f"http://127.0.0.1:{port}/"}
        orders, end = walked(workflow_of(shipped, "check-a-service"), typed, asking(netutils))
    assert [order.step for order in orders] == ["name", "port", "web"]
    _, name, closed, web = end.text.split("\n\n")
    assert name.startswith("Look up the name (failed): 127.0.0.1 is an address, not a name.")
    assert (
        closed
        == f"Check the port: Port {port} on 127.0.0.1 is closed: connection refused, nothing listens there."
    )
    assert web.startswith("Fetch the address (failed): ")
    assert not end.failed


def plain(order: DelegateTask) -> StepOutcome:
    """An agent that answers in words, and a tool that answers as GitHub's does."""
    value = (
        '{"full_name": "octo/web", "html_url": "https://github.example/octo/web"}'
        if order.call
        else f"Done: {order.step}."
    )
    return StepOutcome(order.step, ok=True, value=value)


@pytest.mark.parametrize(
    ("typed", "arguments"),
    [
        (
            {"repo": "web", "owner": "octo", "description": "The web.", "private": "no", "readme": False},
            {"owner": "octo", "name": "web", "description": "The web.", "private": False, "auto_init": False},
        ),
        (
            {"repo": "web"},
            {"owner": "", "name": "web", "description": "", "private": True, "auto_init": True},
        ),
    ],
)
async def test_a_repository_is_created_with_the_arguments_of_our_server(
    shipped: WorkflowCatalog, typed: dict[str, JsonValue], arguments: dict[str, JsonValue]
) -> None:
    orders, end = walked(workflow_of(shipped, "create-github-repo"), typed, plain)
    assert [(order.agent, order.call) for order in orders] == [
        ("github", DirectToolCall("create_repository", arguments))
    ]
    assert end == FinishWorkflow(
        "The repository octo/web exists: https://github.example/octo/web", failed=False
    )
    tools = {
        tool.name: tool.input_schema
        for tool in await github_server(GitHubApi("http://127.0.0.1:9", "t")).list_tools()
    }
    jsonschema.validate(arguments, tools["create_repository"])
    assert arguments.keys() <= tools["create_repository"]["properties"].keys()


def test_a_first_issue_is_opened_when_one_is_wanted(shipped: WorkflowCatalog) -> None:
    workflow = workflow_of(shipped, "create-github-repo")
    orders, end = walked(workflow, {"repo": "web", "issue": "Add owners"}, plain)
    assert (orders[1].step, orders[1].agent, orders[1].call) == ("issue", "github", None)
    assert "octo/web" in orders[1].text
    assert "\nAdd owners\n" in orders[1].text
    assert end.text.endswith("\n\nDone: issue.")

    def refused(order: DelegateTask) -> StepOutcome:
        return (
            plain(order)
            if order.step == "create"
            else StepOutcome(order.step, ok=False, value="Issues are switched off.")
        )

    _, end = walked(workflow, {"repo": "web", "issue": "Add owners"}, refused)
    assert end == FinishWorkflow(
        (
            "The repository octo/web exists: https://github.example/octo/web\n\nOpen the first issue"
            " (failed): Issues are switched off."
        ),
        failed=False,
    )


def test_a_service_is_onboarded_in_words_by_an_agent_that_asks_first(shipped: WorkflowCatalog) -> None:
    typed: dict[str, JsonValue] = {
        "service": "payments",
        "repository": "https://git.example/infra",
        "namespace": "pay",
    }
    orders, end = walked(workflow_of(shipped, "onboard-argocd-service"), typed, plain)
    assert [(order.step, order.agent, order.call) for order in orders] == [
        ("create", "argocd", None),
        ("health", "argocd", None),
    ]
    for text in (
        "payments",
        "https://git.example/infra",
        "namespace pay",
        "path: .",
        "HEAD",
        "project: default",
        "sync policy: manual",
    ):
        assert text in orders[0].text
    assert "Done: create." in orders[1].text
    assert end == FinishWorkflow("Done: health.", failed=False)
    argocd = load_catalog({}, agents_config=None).get("argocd")
    assert argocd
    assert argocd.definition.tools.permission("create_application") == "ask"
