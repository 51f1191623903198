"""Workflows as people configure them: on the embedded agents alone, from files of their own, listed,
reloaded, and killed in the middle."""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import pytest_asyncio

from ai_platform_engineering.core.events import InputRequested, Notice, Paused, ToolFinished, ToolStarted
from ai_platform_engineering.workflows.workflow_catalog import load_workflows
from tests.conftest import ROOT
from tests.multi_agents.test_reload import reload
from tests.support.agent_services import CastingByTools
from tests.support.fakes.network import Web
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client
from tests.support.providers import OPENAI
from tests.support.workflow_processes import (
    ORG,
    GitHub,
    Person,
    Server,
    called_tools,
    random_name,
    serve_github,
    serve_supervisor,
    step_statuses,
    write_workflow,
)

CHECK = "Check a service"


async def listing(client: Client) -> dict[str, Any]:
    workflows: dict[str, Any] = (await client.http.get(f"{client.url}workflows")).json()
    return workflows


def row(workflows: dict[str, Any], name: str) -> dict[str, Any]:
    [entry] = [entry for entry in workflows["workflows"] if entry["name"] == name]
    return dict(entry)


def calls(person: Person, tool: str) -> list[dict[str, Any]]:
    return [
        dict(event.arguments)
        for event in person.stream.events
        if isinstance(event, ToolStarted) and event.tool == tool
    ]


# On the embedded agents alone


async def test_a_service_is_checked_without_a_key_or_a_model(tmp_path: Path) -> None:
    with Web(body="ok", secret="").serving() as web:
        await check_localhost(tmp_path, web)


async def check_localhost(tmp_path: Path, web: Web) -> None:
    async with serve_supervisor(tmp_path) as client:
        port = httpx.URL(client.url).port
        for words in (CHECK, "please check a service for me"):
            person = Person(client)
            await person.say(words)
            assert person.form.title == CHECK
            await person.fill(host="localhost", port=99999)
            assert person.stream.last.state == "input-required"
            assert person.stream.last.status_text.startswith(
                "I still need your input: Port must be at most 65535."
            )
            [*_, still] = [event for event in person.stream.events if isinstance(event, Paused)]
            assert still.wrong == {person.request.request_id: {"port": "Port must be at most 65535."}}
            await person.fill(host="localhost", port=port, url=web.address("/ok"))
            assert person.stream.last.state == "completed"
            assert called_tools(person.stream.events) == [
                called for tool in ("dns_lookup", "check_port", "http_check") for called in _both(tool)
            ]
            assert calls(person, "check_port") == [{"host": "localhost", "port": port}]
            assert person.stream.answer.startswith(
                "Results for localhost, checked from the server:\n\nLook up the name: "
            )
            assert f"Check the port: Port {port} on localhost (127.0.0.1) is open: " in person.stream.answer
            assert "Fetch the address: " in person.stream.answer
            assert "{" not in person.stream.answer  # words, no data
            assert step_statuses(person.stream.events) == dict.fromkeys(
                (CHECK, "Look up the name", "Check the port", "Fetch the address"), "completed"
            )


def _both(tool: str) -> tuple[str, str]:
    return "supervisor/netutils", f"netutils/{tool}"


async def test_a_failed_check_is_shown_and_the_others_go_on(tmp_path: Path) -> None:
    with Web(body="ok", secret="").serving() as web:
        async with serve_supervisor(tmp_path) as client:
            person = Person(client)
            await person.say(CHECK)
            await person.fill(host="no_such-name.invalid..", port="", url=web.address("/ok"))
    assert person.stream.last.state == "completed"
    assert "Look up the name (failed): " in person.stream.answer
    assert "Check the port" not in person.stream.answer
    assert f"Fetch the address: GET {web.address('/ok')} answered 200 OK" in person.stream.answer
    assert step_statuses(person.stream.events) == {
        CHECK: "completed",
        "Look up the name": "failed",
        "Check the port": "skipped",
        "Fetch the address": "completed",
    }


async def test_other_words_start_nothing_with_a_model(tmp_path: Path) -> None:
    async with (
        serve_openai(Script(Turn(Say("What for?")))) as model,
        serve_supervisor(tmp_path, **OPENAI.settings(model)) as client,
    ):
        person = Person(client)
        await person.say("please check a service for me")
        assert person.stream.answer == "What for?"
        assert len(model.requests) == 1


# Files of their own

NETWORK = {
    "name": "plan-a-network",
    "title": "Plan a network",
    "description": "Looks at a network, then at a port.",
    "form": {
        "fields": [
            {"name": "cidr", "label": "Network"},
            {"name": "tags", "type": "multiselect", "values": ["a", "b", "c"]},
        ]
    },
    "steps": [
        {
            "name": "net",
            "title": "Look at it",
            "agent": "netutils",
            "tool": "cidr_info",
            "arguments": {"cidr": "{{ input.cidr }}"},
        },
        {
            "name": "broken",
            "agent": "netutils",
            "tool": "ip_info",
            "arguments": {"address": "{{ input.tags }}"},
            "on_error": "continue",
        },
        {
            "name": "ask",
            "title": "Which port",
            "form": {
                "description": "Of {{ net.addresses }} addresses one is wanted.",
                "fields": [
                    {"name": "port", "type": "integer", "default": "{{ net.prefix }}"},
                    {"name": "wait", "type": "number", "minimum": 0.1},
                    {"name": "really", "type": "boolean", "default": True},
                ],
            },
        },
        {
            "name": "port",
            "title": "Look at the port",
            "when": "{{ ask.really }}",
            "agent": "netutils",
            "tool": "check_port",
            "arguments": {"host": "localhost", "port": ["{{ ask.port }}"], "timeout": "{{ ask.wait }}"},
        },
        {
            "name": "never",
            "when": "{{ broken }}",
            "agent": "netutils",
            "tool": "ip_info",
            "arguments": {"address": "127.0.0.1"},
        },
    ],
    "answer": (
        "Tags {{ input.tags }}, {{ net.addresses }} addresses,"
        " port {{ port.ports[0].port }} of {{ ask.port }}."
    ),
}


async def test_values_of_several_types_flow_by_name_through_a_form_in_the_middle(tmp_path: Path) -> None:
    write_workflow(tmp_path / "workflows", NETWORK)
    async with serve_supervisor(tmp_path, WORKFLOWS_CONFIG=str(tmp_path / "workflows")) as client:
        port = httpx.URL(client.url).port
        person = Person(client)
        await person.say({"workflow": "plan-a-network", "values": {"cidr": "10.0.0.0/22", "wait": 2}})
        await person.fill(cidr="10.0.0.0/22", tags=["a", "c"])
        assert person.form.description == "Of 1024 addresses one is wanted."
        assert [(field.default_value, field.value) for field in person.form.fields] == [
            (22, None),
            (None, 2),
            (True, None),
        ]
        assert step_statuses(person.stream.events)["Which port"] == "in_progress"
        await person.fill(port=port, wait="0.5")
    assert calls(person, "check_port") == [{"host": "localhost", "port": [port], "timeout": 0.5}]
    assert calls(person, "ip_info") == [{"address": ["a", "c"]}]
    answer, failure = person.stream.answer.split("\n\n")
    assert answer == f'Tags ["a", "c"], 1024 addresses, port {port} of {port}.'
    assert failure.startswith("Broken (failed): ")
    assert step_statuses(person.stream.events) == {
        "Plan a network": "completed",
        "Look at it": "completed",
        "Broken": "failed",
        "Which port": "completed",
        "Look at the port": "completed",
        "Never": "skipped",
    }


OLDER = """
Order a Network:
  tasks:
    - display_text: Ask which one
      llm_prompt: Ask the user with a form which {network} is wanted.
      subagent: user_input
    - display_text: Look at it
      llm_prompt: Describe the network that was asked for.
      subagent: netutils
"""


def _supervisor(request: Request) -> Turn:
    """Asks with a form, then says what it was given."""
    configured = [
        json.loads(message.text) for message in request.since_user if message.tool == "CAIPEAgentResponse"
    ]
    if configured:
        return Turn(Say(f"It is {configured[-1]['network']}."))
    return Turn(
        Call("CAIPEAgentResponse", {"response": "Which?", "input_fields": [{"field_name": "network"}]})
    )


async def test_the_older_shape_asks_with_a_model_and_hands_on_what_it_gave(tmp_path: Path) -> None:
    path = tmp_path / "task_config.yaml"
    path.write_text(OLDER)
    agent = Script(Turn(Say("Described.")))
    async with (
        serve_openai(CastingByTools(Script(_supervisor), agent)) as model,
        serve_supervisor(tmp_path, TASK_CONFIG_PATH=str(path), **OPENAI.settings(model)) as client,
    ):
        person = Person(client)
        await person.say("order a network")
        assert (person.form.response, [field.field_name for field in person.form.fields]) == (
            "Which?",
            ["network"],
        )
        assert step_statuses(person.stream.events) == {
            "Ask which one": "in_progress",
            "Look at it": "pending",
        }
        await person.fill(network="10.0.0.0/22")
    form_request, answer_request, step_request = model.requests
    assert "Ask the user with a form which {network} is wanted." in form_request.system
    assert "run_workflow" not in form_request.tools
    assert "Ask the user with a form which {network} is wanted." in answer_request.system
    assert step_request.last_user.startswith("Describe the network that was asked for.")
    assert "Ask which one: It is 10.0.0.0/22." in step_request.last_user
    assert (
        person.stream.answer
        == "Order a Network: done.\n\nAsk which one: It is 10.0.0.0/22.\n\nLook at it: Described."
    )
    assert step_statuses(person.stream.events) == {"Ask which one": "completed", "Look at it": "completed"}
    assert person.stream.streamed_texts == ["It is 10.0.0.0/22.", person.stream.answer]


async def test_a_step_for_the_supervisors_model_fails_without_one(tmp_path: Path) -> None:
    path = tmp_path / "task_config.yaml"
    path.write_text(OLDER)
    async with serve_supervisor(tmp_path, TASK_CONFIG_PATH=str(path)) as client:
        person = Person(client)
        await person.say("Order a Network")
    assert person.stream.answer == (
        "Order a Network stopped: the step “Ask which one” failed:"
        " This step needs a language model, and none is configured.\n\n"
        "Not done: Look at it."
    )
    assert step_statuses(person.stream.events) == {"Ask which one": "failed", "Look at it": "skipped"}


# The list


def test_the_examples_of_the_documentation_are_workflows(tmp_path: Path) -> None:
    examples = re.findall(
        r"(?s)```yaml\n(.*?)```", (ROOT / "docs" / "workflows.md").read_text(encoding="utf-8")
    )
    for number, example in enumerate(examples):
        (tmp_path / f"{number}.yaml").write_text(example)
    catalog = load_workflows([tmp_path], ["github"])
    assert catalog.problems == ()
    assert [entry.missing for entry in catalog if entry.workflow.name == "create-github-repo"] == [()]
    assert len(examples) == 2


async def test_the_list_says_what_there_is_and_what_is_wrong(tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    write_workflow(folder, NETWORK)
    (folder / "broken.yaml").write_text(
        "name: broken\ntitle: Broken\ndescription: Is.\nsteps: [{name: one, agnet: netutils, tool: x}]\n"
    )
    async with serve_supervisor(tmp_path, WORKFLOWS_CONFIG=str(folder)) as client:
        workflows = await listing(client)
    assert list(workflows) == ["workflows", "problems"]
    assert [entry["name"] for entry in workflows["workflows"]] == [
        "check-a-service",
        "create-github-repo",
        "onboard-argocd-service",
        "plan-a-network",
    ]
    own = row(workflows, "plan-a-network")
    assert own == {
        "name": "plan-a-network",
        "title": "Plan a network",
        "description": "Looks at a network, then at a port.",
        "phrases": [],
        "available": True,
        "missing": [],
        "input_fields": own["input_fields"],
        "steps": [
            {"name": "input", "title": "Plan a network", "agent": "supervisor"},
            {"name": "net", "title": "Look at it", "agent": "netutils"},
            {"name": "broken", "title": "Broken", "agent": "netutils"},
            {"name": "ask", "title": "Which port", "agent": "supervisor"},
            {"name": "port", "title": "Look at the port", "agent": "netutils"},
            {"name": "never", "title": "Never", "agent": "netutils"},
        ],
    }
    assert [(field["field_name"], field["field_type"]) for field in own["input_fields"]] == [
        ("cidr", "text"),
        ("tags", "multiselect"),
    ]
    repo = row(workflows, "create-github-repo")
    assert (repo["available"], repo["missing"]) == (False, ["github"])
    [problem] = workflows["problems"]
    assert problem.endswith("broken.yaml: step `one`: unknown key `agnet`; did you mean `agent`?")


def ping(address: str, title: str) -> dict[str, Any]:
    """A workflow that says which of its definitions it is."""
    step = {
        "name": "look",
        "title": title,
        "agent": "netutils",
        "tool": "ip_info",
        "arguments": {"address": address},
    }
    form = {"fields": [{"name": "note", "required": False}, {"name": "why"}]}
    return {
        "name": "ping",
        "title": "Ping",
        "description": "Looks.",
        "form": form,
        "steps": [step],
        "answer": title,
    }


@pytest.mark.full
async def test_a_changed_file_counts_for_what_begins_afterwards(tmp_path: Path) -> None:
    folder = tmp_path / "workflows"
    write_workflow(folder, ping("10.0.0.1", "Old"))
    async with Server(tmp_path, WORKFLOWS_CONFIG=str(folder)) as server:
        old = Person(server.client)
        await old.say("Ping")
        assert row(await listing(server.client), "ping")["steps"][1]["title"] == "Old"
        write_workflow(folder, ping("10.0.0.2", "New"))
        await reload(server.process)
        assert row(await listing(server.client), "ping")["steps"][1]["title"] == "New"
        old.client = await server.restart()
        await old.fill(why="because")
        new = Person(server.client)
        await new.say("Ping")
        await new.fill(why="because")
    assert (old.stream.answer, new.stream.answer) == ("Old", "New")
    assert (calls(old, "ip_info"), calls(new, "ip_info")) == (
        [{"address": "10.0.0.1"}],
        [{"address": "10.0.0.2"}],
    )


# Killed in the middle

REPO = {
    "name": "repo",
    "title": "Begin a repo",
    "description": "Creates, looks, opens an issue.",
    "form": {"fields": [{"name": "repo"}, {"name": "note", "required": False}]},
    "steps": [
        {
            "name": "create",
            "agent": "github",
            "tool": "create_repository",
            "arguments": {"owner": ORG, "name": "{{ input.repo }}", "auto_init": True},
        },
        {
            "name": "look",
            "agent": "github",
            "tool": "get_repository",
            "arguments": {"owner": ORG, "repo": "{{ input.repo }}"},
        },
        {
            "name": "issue",
            "agent": "github",
            "tool": "create_issue",
            "arguments": {"owner": ORG, "repo": "{{ input.repo }}", "title": "In {{ look.full_name }}"},
        },
        {"name": "last", "agent": "github", "tool": "get_me"},
    ],
    "answer": "Issue {{ issue.number }}.",
}


@dataclass(frozen=True, slots=True)
class KilledRuns:
    """Two runs whose server was killed in a step, one that reads and one that writes, as they ended."""

    hub: GitHub
    reading: Person
    reading_repo: str
    writing: Person
    writing_repo: str

    def written(self, repo: str) -> list[str]:
        """The requests that were to change this repository."""
        return [request for request in self.hub.wrote if f"/{repo}/" in request]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def killed_runs(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[KilledRuns]:
    """Kills the server while GitHub holds a request of each run, and comes back to both."""
    folder = tmp_path_factory.mktemp("killed")
    write_workflow(folder / "workflows", REPO)
    reading_repo, writing_repo = random_name(), random_name()
    async with serve_github() as hub:
        read_hold = hub.hold("before", f"GET /repos/{ORG}/{reading_repo}")
        write_hold = hub.hold("after", f"POST /repos/{ORG}/{writing_repo}/issues")
        async with Server(folder, WORKFLOWS_CONFIG=str(folder / "workflows"), **hub.settings) as server:
            reading, writing = Person(server.client), Person(server.client)
            for person, repo in ((reading, reading_repo), (writing, writing_repo)):
                await person.say("Begin a repo")
                await person.fill(repo=repo)
            await writing.approve()
            approvals = [asyncio.create_task(person.approve()) for person in (reading, writing)]
            await read_hold.wait()
            await write_hold.wait()
            hub.holds.clear()
            client = await server.restart()
            await asyncio.gather(*approvals, return_exceptions=True)
            reading.client = writing.client = client
            await writing.follow()
            await reading.follow()
            assert reading.approval.tool == "create_issue"
            assert reading.approval.arguments["title"] == f"In {ORG}/{reading_repo}"
            await reading.approve()
        yield KilledRuns(hub, reading, reading_repo, writing, writing_repo)


@pytest.mark.full
async def test_a_step_that_only_reads_is_done_again_after_a_kill(killed_runs: KilledRuns) -> None:
    person, repo = killed_runs.reading, killed_runs.reading_repo
    assert killed_runs.hub.wrote.count(f"POST /orgs/{ORG}/repos") == 2  # one for each run
    assert killed_runs.written(repo) == [f"POST /repos/{ORG}/{repo}/issues"]
    assert person.stream.answer == "Issue 1."
    assert set(step_statuses(person.stream.events).values()) == {"completed"}
    assert (
        len(
            [
                event
                for event in person.stream.events
                if isinstance(event, Notice) and event.code == "recovery"
            ]
        )
        == 1
    )
    assert called_tools(person.stream.events).count("supervisor/github") == 4
    assert [event.asked.type for event in person.stream.events if isinstance(event, InputRequested)] == [
        "form",
        "approval",
        "approval",
    ]


@pytest.mark.full
async def test_a_step_that_may_have_written_is_not_done_again_after_a_kill(killed_runs: KilledRuns) -> None:
    person, repo = killed_runs.writing, killed_runs.writing_repo
    assert killed_runs.hub.wrote.count(f"POST /orgs/{ORG}/repos") == 2  # one for each run
    assert killed_runs.written(repo) == [f"POST /repos/{ORG}/{repo}/issues"]
    assert person.stream.last.state == "completed"
    assert person.stream.answer.startswith("Begin a repo stopped: the step “Issue” failed: ")
    assert (
        "The outcome of create_issue is unknown:"
        " it was started before the server stopped and may have taken effect." in person.stream.answer
    )
    assert "by yourself" not in person.stream.answer
    assert person.stream.answer.endswith("Not done: Last.")
    [unsure] = [
        event
        for event in person.stream.events
        if isinstance(event, ToolFinished) and event.tool == "create_issue"
    ]
    assert unsure.outcome == "unknown"
    assert step_statuses(person.stream.events) == {
        "Begin a repo": "completed",
        "Create": "completed",
        "Look": "completed",
        "Issue": "failed",
        "Last": "skipped",
    }
