"""What a question may restrict and add: which agents its run may use, enforced and told, and instructions
for it alone.
"""

from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, OutgoingMessage
from ai_platform_engineering.core.events import Answered, FilePart, RunStarted, ToolFinished
from ai_platform_engineering.models.offline_model import OfflineModel
from ai_platform_engineering.runtime.storage import Storage
from tests.support.agent_services import Where, place_agent
from tests.support.asking_agent import Repos, ask_until_paused, form_tool, github, request_ids, send_answers
from tests.support.dialects import V10, Dialect, both_versions
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent, supervisor
from tests.support.offline_tools import Recorder
from tests.support.storages import in_folder, supervisor_on
from tests.support.workflow_processes import Person, step_statuses

ECHO = Script(Turn(Say("You said {{user}}.")))
ONLY = "Only these agents may be used: "
NONE = "No agent may be used here"
HEADING = "# Instructions for this question\n"


def scope(**fields: Any) -> dict[str, Any]:
    return {"caipe.scope": fields}


def to(*names: str, text: str = "Look.") -> Turn:
    return Turn(
        *(Call("task", {"description": text, "subagent_type": name}, id=f"to-{name}") for name in names)
    )


async def say(client: Client, *parts: Any, dialect: Dialect = V10, **more: Any) -> ReceivedStream:
    written = [dialect.data(part) if isinstance(part, dict) else part for part in parts]
    return ReceivedStream(
        [frame async for frame in client.open(dialect.stream, dialect.message(*written, **more))]
    )


def offered(request: Request) -> list[str]:
    """The agents in the description of `task`, as the model got it."""
    descriptions = [
        tool["function"]["description"] for tool in request.raw["tools"] if tool["function"]["name"] == "task"
    ]
    names: list[str] = []
    for about in descriptions:
        names += about.rpartition(": ")[2].rstrip(".").split(", ")
    return names


def results(stream: ReceivedStream) -> dict[str, str]:
    """What became of each delegation."""
    return {
        event.call_id: event.outcome
        for event in stream.events
        if isinstance(event, ToolFinished) and event.delegates
    }


class Desk:
    """Agents that say their name, and which of them were asked."""

    def __init__(self, *names: str) -> None:
        self.models = {name: ScriptedChatModel(script=Script(Turn(Say(f"I am {name}.")))) for name in names}

    @property
    def agents(self) -> list[Any]:
        return [agent(name, model) for name, model in self.models.items()]

    @property
    def asked(self) -> list[str]:
        return [name for name, model in self.models.items() if model.requests]


# --- what the model is told -----------------------------------------------------------------------


@both_versions
async def test_the_model_is_told_the_agents_and_the_instructions_and_nothing_in_the_question(
    dialect: Dialect,
) -> None:
    model, desk = ScriptedChatModel(script=ECHO), Desk("jira", "github", "argocd")
    async with supervisor(model, agents=desk.agents) as client:
        plain = await say(client, "Well?", dialect=dialect, contextId="talk")
        bounds = scope(agents=["github", "jira", "unknown"], instructions="  Answer in rhymes.\nBe kind. ")
        bound = await say(client, bounds, "Well?", dialect=dialect, contextId="talk")
        after = await say(client, "Well?", dialect=dialect, contextId="talk")
    assert plain.answer == bound.answer == after.answer == "You said Well?."
    first, second, third = model.requests
    assert [message.text for message in third.messages if message.role == "user"] == ["Well?"] * 3
    assert offered(first) == offered(third) == ["jira", "github", "argocd"]
    assert offered(second) == ["jira", "github"]
    assert third.system == first.system
    assert second.system.startswith(first.system)
    added = second.system.removeprefix(first.system)
    assert f"{ONLY}jira, github." in added
    assert added.endswith(f"{HEADING}Answer in rhymes.\nBe kind.")


async def test_one_without_the_other() -> None:
    model, desk = ScriptedChatModel(script=ECHO), Desk("jira", "github")
    async with supervisor(model, agents=desk.agents) as client:
        for bounds in (
            {"agents": ["jira"]},
            {"instructions": "Rhyme."},
            {"agents": None, "instructions": None},
            {},
            {"instructions": " "},
        ):
            await say(client, "Well?", scope(**bounds))
    requests = [
        (offered(request), ONLY in request.system, HEADING in request.system) for request in model.requests
    ]
    every = ["jira", "github"]
    assert requests == [(["jira"], True, False), (every, False, True), *[(every, False, False)] * 3]


@pytest.mark.parametrize("names", [[], ["unknown"], ["Jira", ""]], ids=str)
async def test_when_none_is_left_the_model_is_told_and_none_is_asked(names: list[str]) -> None:
    model, desk = ScriptedChatModel(script=Script(to("jira"), Turn(Say("{{tool:task}}")))), Desk("jira")
    async with supervisor(model, agents=desk.agents) as client:
        stream = await say(client, "Well?", scope(agents=names))
    assert NONE in model.requests[0].system
    assert "task" not in model.requests[0].tools
    assert stream.answer == "There is no agent jira. The agents are: none."
    assert desk.asked == []


async def test_without_any_agent_there_are_still_instructions() -> None:
    model = ScriptedChatModel(script=ECHO)
    async with supervisor(model) as client:
        await say(client, "Well?", scope(agents=["jira"], instructions="Rhyme."))
    assert model.requests[0].system.endswith(f"{HEADING}Rhyme.")
    assert ONLY not in model.requests[0].system
    assert NONE not in model.requests[0].system


# --- what is enforced -----------------------------------------------------------------------------


async def test_an_agent_out_of_scope_is_not_asked_whatever_the_model_does() -> None:
    script = Script(to("jira", "github", "argocd"), Turn(Say("{{tool:jira}}")))
    model, desk = ScriptedChatModel(script=script), Desk("jira", "github", "argocd")
    async with supervisor(model, agents=desk.agents) as client:
        stream = await say(client, "Well?", scope(agents=["argocd", "github"]), contextId="talk")
        assert desk.asked == ["github", "argocd"]
        free = await say(client, "Well?", contextId="talk")
    assert results(stream) == {"to-jira": "error", "to-github": "ok", "to-argocd": "ok"}
    assert stream.answer == "There is no agent jira. The agents are: github, argocd."
    assert (free.answer, desk.asked) == ("I am jira.", ["jira", "github", "argocd"])


async def test_the_agents_of_an_agent_are_its_own() -> None:
    inner = ScriptedChatModel(script=Script(Turn(Say("I am deep."))))
    outer = agent("team", Script(to("deep"), Turn(Say("{{tool:deep}}"))), agents=[agent("deep", inner)])
    async with supervisor(Script(to("team"), Turn(Say("{{tool:team}}"))), agents=[outer]) as client:
        stream = await say(client, "Well?", scope(agents=["team"]))
    assert stream.answer == "I am deep."


@pytest.mark.sample(1)
@pytest.mark.parametrize("where", ["in-process", "remote"])
async def test_the_scope_holds_over_a_pause_and_a_restart(where: Where, tmp_path: Path) -> None:
    repos, desk = Repos(), Desk("jira")
    script = Script(to("github", "jira"), to("jira"), Turn(Say("{{tool:github}} {{tool:jira}}")))
    model = ScriptedChatModel(script=script)
    async with place_agent(github(repos, {"name": "cai"}), where) as far:
        agents = [far, *desk.agents]
        async with supervisor_on(in_folder(tmp_path), model, agents=agents) as client:
            stream = ReceivedStream(
                [
                    frame
                    async for frame in client.open(
                        V10.stream, V10.message("Go.", V10.data(scope(agents=["github"])))
                    )
                ]
            )
            assert stream.last.state == "input-required"
        async with supervisor_on(in_folder(tmp_path), model, agents=agents) as client:
            done = await send_answers(client, stream, {request_ids(stream)[0]: {"type": "approve"}})
    assert done.answer == "cai is there. There is no agent jira. The agents are: github."
    assert desk.asked == []
    assert all(f"{ONLY}github." in request.system for request in model.requests)
    assert [offered(request) for request in model.requests] == [["github"]] * 3


async def test_a_workflow_keeps_within_the_scope() -> None:
    recorder = Recorder()
    async with supervisor_on(
        Storage.in_memory(), None, router=OfflineModel(), agents=recorder.agents("netutils", "jira")
    ) as client:
        person = Person(client)
        await person.say({"workflow": "check-a-service", "values": {}}, scope(agents=["jira"]))
        await person.fill(host="localhost", port=80)
        assert person.stream.last.state == "completed"
        assert "There is no agent netutils. The agents are: jira." in person.stream.answer
        assert step_statuses(person.stream.events)["Look up the name"] == "failed"
        assert recorder.calls == []
        await person.say({"workflow": "check-a-service", "values": {}}, scope(agents=["netutils"]))
        await person.fill(host="localhost", port=80)
    assert {name for name, _, _ in recorder.calls} == {"netutils"}


# --- the embedded router --------------------------------------------------------------------------


async def test_the_router_chooses_within_the_scope() -> None:
    recorder = Recorder()
    async with supervisor(OfflineModel(), agents=recorder.agents("netutils", "jira")) as client:
        question = "show ticket OPS-7 and resolve example.com"
        stream = await say(client, question, scope(agents=["jira"]))
        assert [name for name, _, _ in recorder.calls] == ["jira"]
        assert recorder.tokens[0] in stream.answer
        assert "netutils" not in stream.answer
        none = await say(client, question, scope(agents=[]))
        assert (none.last.state, len(recorder.calls)) == ("completed", 1)
        await say(client, question)
    assert {name for name, _, _ in recorder.calls} == {"jira", "netutils"}


# --- what cannot be understood --------------------------------------------------------------------

BAD: list[list[Any]] = [
    [{"caipe.scope": None}],
    [{"caipe.scope": "jira"}],
    [{"caipe.scope": ["jira"]}],
    [{"caipe.scope": {"agents": "jira"}}],
    [{"caipe.scope": {"agents": [1]}}],
    [{"caipe.scope": {"agents": {"jira": True}}}],
    [{"caipe.scope": {"agents": [None]}}],
    [{"caipe.scope": {"instructions": 7}}],
    [{"caipe.scope": {"instructions": "x" * 4001}}],
    [{"caipe.scope": {"agent": ["jira"]}}],
    [{"caipe.scope": {"agents": ["jira"]}, "more": 1}],
    [scope(agents=["jira"]), scope(agents=["github"])],
]


@both_versions
@pytest.mark.parametrize("parts", BAD, ids=lambda parts: str(parts)[:50])
async def test_a_scope_that_is_not_understood_is_refused_and_never_dropped(
    parts: list[Any], dialect: Dialect
) -> None:
    model = ScriptedChatModel(script=ECHO)
    async with supervisor(model, agents=Desk("jira").agents) as client:
        refused = await client.call(dialect.send, dialect.message("Well?", *map(dialect.data, parts)))
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []
    assert refused["error"]["code"] == -32602
    assert "caipe.scope is an object in a data part of its own, once" in refused["error"]["message"]
    assert model.requests == []


async def test_a_scope_asks_nothing_by_itself() -> None:
    async with supervisor(ECHO) as client:
        for parts in ([], ["  "]):
            refused = await client.call(V10.send, V10.message(*parts, V10.data(scope(instructions="Rhyme."))))
            assert (refused["error"]["code"], "The message is empty" in refused["error"]["message"]) == (
                -32602,
                True,
            )
        longest = await say(client, "Well?", scope(instructions="x" * 4000))
    assert longest.last.state == "completed"


async def test_a_scope_answers_nothing_and_stays_with_what_was_held() -> None:
    form = form_tool(
        "form", [{"field_name": "agents", "required": False}, {"field_name": "name", "required": False}]
    )
    book = Book({"^Go": Script(Turn(Call("form"))), "": Script(to("jira"), Turn(Say("{{tool:jira}}")))})
    model, desk = ScriptedChatModel(script=book), Desk("jira")
    bounds = scope(agents=[], instructions="Rhyme.")
    async with supervisor(model, tools=[form], agents=desk.agents) as client:
        paused = await ask_until_paused(client, "Go.")
        waiting = await say(client, "Something else.", bounds, contextId=paused.context_id)
        assert (waiting.task_id, waiting.last.state) == (paused.task_id, "input-required")
        new = await say(client, "drop", bounds, contextId=paused.context_id)
    started = next(event for event in new.events if isinstance(event, RunStarted))
    assert started.parts[0].model_dump()["text"] == "Something else."
    assert new.task_id != paused.task_id
    assert (new.answer, desk.asked) == ("There is no agent jira. The agents are: none.", [])
    assert HEADING in model.requests[-1].system


async def test_text_with_a_scope_still_answers_what_takes_text() -> None:
    form = form_tool("form", [{"field_name": "name"}])
    async with supervisor(
        Script(Turn(Call("form")), Turn(Say("Got {{tool:form.name}}."))), tools=[form]
    ) as client:
        paused = await ask_until_paused(client)
        done = await say(client, "cai", scope(agents=[]), contextId=paused.context_id)
    assert done.answer == "Got cai."


# --- the client -----------------------------------------------------------------------------------


async def test_the_client_sends_files_data_and_a_scope() -> None:
    model, desk = ScriptedChatModel(script=ECHO), Desk("jira", "github")
    yaml = FilePart(name="größe.yaml", media_type="application/yaml", text="a: ü\n")
    text = FilePart(name="b.txt", media_type="text/plain", text="b")
    order = OutgoingMessage(
        "m",
        "Look at these.",
        data={"x": 1},
        files=(yaml, text),
        scope={"agents": ["jira"], "instructions": None},
    )
    async with supervisor(model, agents=desk.agents) as client:
        events = [
            event async for event in A2AClient(client.url, client.http).send(order, ClientConversation())
        ]
    assert isinstance(events[-1], Answered)
    (request,) = model.requests
    assert (
        request.last_user
        == 'Look at these.\n\nFile größe.yaml:\n```\na: ü\n\n```\n\nFile b.txt:\n```\nb\n```\n\n{"x": 1}'
    )
    assert offered(request) == ["jira"]
