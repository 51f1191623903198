"""A run that asks a person: the form, the pause, and every way to answer it, on the wire of both versions."""

import json
import secrets
from typing import Any

import pytest
from langchain_core.tools import BaseTool, StructuredTool
from langgraph.types import interrupt

from tests.support.dialects import Dialect, artifact, both_versions, text_of
from tests.support.echo_supervisor import FORM
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, agent, supervisor

SCRIPT = Script(Turn(Say("One moment. "), Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}.")))


def form_tool(fields: list[dict[str, Any]] | None = None, name: str = "ask_form") -> BaseTool:
    """A tool that asks with a form and returns what it was given."""

    async def ask_form() -> str:
        """Asks."""
        return json.dumps(interrupt({**FORM, **({} if fields is None else {"fields": fields})}))

    return StructuredTool.from_function(coroutine=ask_form, name=name)


async def paused(client: Client, dialect: Dialect, **more: Any) -> ReceivedStream:
    stream = ReceivedStream(
        [frame async for frame in client.open(dialect.stream, dialect.message("Create a repo.", **more))]
    )
    assert stream.last.state == "input-required"
    return stream


async def answered(
    client: Client, dialect: Dialect, *parts: dict[str, Any] | str, **named: Any
) -> ReceivedStream:
    return ReceivedStream(
        [frame async for frame in client.open(dialect.stream, dialect.message(*parts, **named))]
    )


def a_name() -> str:
    return f"repo-{secrets.token_hex(4)}"


def request_id(seen: ReceivedStream) -> str:
    (request,) = seen.named("UserInputMetaData")
    return str(request.artifact["parts"][0]["data"]["request_id"])


@both_versions
async def test_an_interrupt_becomes_a_form_and_a_pause(dialect: Dialect) -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, dialect)
    (request,) = stream.named("UserInputMetaData")
    (part,) = request.artifact["parts"]
    form = part["data"]
    assert {key: form[key] for key in ("user_input", "input_title", "input_description", "response")} == {
        "user_input": True,
        "input_title": "Create GitHub Repo",
        "input_description": "A new repository.",
        "response": "I need a few details.",
    }
    assert form["request_id"]
    assert [field["field_name"] for field in form["input_fields"]] == ["repo", "stars"]
    repo, stars = form["input_fields"]
    assert repo == {  # what is empty is left out
        "field_name": "repo",
        "field_label": "Repository",
        "field_type": "text",
        "required": True,
        "pattern": "[a-z0-9-]+",
        "min_length": 1,
        "max_length": 80,
    }
    assert (stars["field_type"], stars["required"], stars["minimum"]) == ("integer", False, 0)
    assert (bool(request.update.get("append")), bool(request.update.get("lastChunk"))) == (False, False)
    assert stream.last.status_text
    assert stream.frames[-2] is request
    assert stream.last.update.get("final") is (True if dialect.old else None)
    assert stream.notifications == ["🔧 Supervisor: Calling tool: Ask_Form\n"]  # it still runs


@both_versions
async def test_a_paused_task_can_be_read(dialect: Dialect) -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, dialect)
        stored = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
    assert stored["status"] == stream.last.update["status"]
    assert dialect.state(stored) == "input-required"
    assert (
        artifact(stored, "UserInputMetaData")["parts"]
        == stream.named("UserInputMetaData")[0].artifact["parts"]
    )


@both_versions
async def test_a_blocking_message_returns_when_the_run_pauses(dialect: Dialect) -> None:
    repo = a_name()
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        task = dialect.sent(await client.call(dialect.send, dialect.message("Create a repo.")))
        assert dialect.state(task) == "input-required"
        done = dialect.sent(
            await client.call(dialect.send, dialect.message(dialect.data({"repo": repo}), taskId=task["id"]))
        )
    assert (done["id"], dialect.state(done)) == (task["id"], "completed")
    assert text_of(artifact(done, "final_result")) == f"Made {repo}."


@pytest.mark.pairwise
@both_versions
@pytest.mark.parametrize("by", ["task", "context", "both"])
@pytest.mark.parametrize("named", [True, False], ids=["by request id", "bare values"])
async def test_an_answer_continues_the_run(dialect: Dialect, by: str, named: bool) -> None:
    repo = a_name()
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, dialect)
        ids = {"task": {"taskId": stream.task_id}, "context": {"contextId": stream.context_id}}
        values = {"repo": repo, "stars": 3}
        data = {"resume": {request_id(stream): values}} if named else values
        more = await answered(
            client, dialect, dialect.data(data), **(ids["task"] | ids["context"] if by == "both" else ids[by])
        )
        stored = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
    assert (more.task_id, more.context_id) == (stream.task_id, stream.context_id)
    assert more.frames[0].state == "working"  # the task with the answer, then what follows
    assert int(more.frames[0].id or "") == int(stream.last.id or "") + 1
    assert int((more.frames[1].id or "").partition(".")[0]) == int(stream.last.id or "") + 2
    assert more.notifications == ["✅ Supervisor: Tool Ask_Form completed\n"]
    assert (more.last.state, more.answer) == ("completed", f"Made {repo}.")
    assert text_of(artifact(stored, "final_result")) == f"Made {repo}."


@both_versions
async def test_the_task_alone_keeps_its_context(dialect: Dialect) -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, dialect, contextId="mine")
        more = await answered(client, dialect, dialect.data({"repo": a_name()}), taskId=stream.task_id)
    assert {frame.update["contextId"] for frame in more.frames} == {"mine"}


@both_versions
async def test_text_answers_a_form_with_one_text_field(dialect: Dialect) -> None:
    repo = a_name()
    async with supervisor(SCRIPT, tools=[form_tool([{"field_name": "repo"}])]) as client:
        stream = await paused(client, dialect)
        more = await answered(client, dialect, repo, contextId=stream.context_id)
    assert (more.task_id, more.answer) == (stream.task_id, f"Made {repo}.")


@both_versions
async def test_an_unclear_text_leaves_the_request_pending(dialect: Dialect) -> None:
    repo = a_name()
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, dialect)
        unclear = await answered(client, dialect, "What do you mean?", taskId=stream.task_id)
        unknown = await client.call(
            dialect.send,
            dialect.message(dialect.data({"resume": {"nobody": {"repo": "x"}}}), taskId=stream.task_id),
        )
        stored = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
        more = await answered(
            client,
            dialect,
            dialect.data({"resume": {request_id(stream): {"repo": repo}}}),
            taskId=stream.task_id,
        )
    assert unclear.last.state == dialect.state(stored) == "input-required"
    assert "input" in unclear.last.status_text
    assert (unknown["error"]["code"], unknown["error"]["message"]) == (
        -32004,
        "There is no such request in this task.",
    )
    assert unclear.notifications == []
    assert len([one for one in stored["artifacts"] if one["name"] == "UserInputMetaData"]) == 1
    assert more.answer == f"Made {repo}."


@both_versions
async def test_a_paused_task_can_be_cancelled(dialect: Dialect) -> None:
    async with supervisor(SCRIPT, tools=[form_tool()]) as client:
        stream = await paused(client, dialect)
        window = [frame async for frame in _until_cancelled(client, dialect, stream.task_id)]
        cancelled = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
        late = await client.call(
            dialect.send, dialect.message(dialect.data({"repo": "x"}), taskId=stream.task_id)
        )
        fresh = await paused(client, dialect, contextId=stream.context_id)
    assert window[-1].state == dialect.state(cancelled) == "canceled"
    assert [frame.text for frame in window if frame.name == "tool_notification_end"] == [
        "❌ Supervisor: Tool Ask_Form failed\n"
    ]
    assert late["error"]["code"] == -32004
    assert fresh.task_id != stream.task_id  # the conversation goes on


async def _until_cancelled(client: Client, dialect: Dialect, task_id: str) -> Any:
    """A second window on a paused task: it stays open, and sees the cancel that comes after its first
    frame."""
    cancelled = False
    async for frame in client.open(dialect.subscribe, {"id": task_id}):
        if not cancelled:
            assert frame.state == "input-required"
            await client.call(dialect.cancel, {"id": task_id})
            cancelled = True
        yield frame


@both_versions
async def test_a_request_from_inside_a_delegated_agent_is_answered_the_same_way(dialect: Dialect) -> None:
    repo = a_name()
    inner = agent(
        "github", Script(Turn(Call("ask_form")), Turn(Say("Created {{tool:ask_form.repo}}."))), form_tool()
    )
    script = Script(
        Turn(Call("task", {"description": "create", "subagent_type": "github"})),
        Turn(Say("Result: {{tool:github}}")),
    )
    async with supervisor(script, agents=[inner]) as client:
        stream = await paused(client, dialect)
        more = await answered(client, dialect, dialect.data({"repo": repo}), contextId=stream.context_id)
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Github...\n",
        "🔧 Github: Calling tool: Ask_Form\n",
    ]
    assert more.notifications == ["✅ Github: Tool Ask_Form completed\n", "✅ Supervisor: Github completed\n"]
    assert more.answer == f"Result: Created {repo}."


@both_versions
async def test_two_requests_at_once_are_answered_one_by_one(dialect: Dialect) -> None:
    one, two = a_name(), a_name()
    script = Script(
        Turn(Call("first"), Call("second")), Turn(Say("Made {{tool:first.repo}} and {{tool:second.repo}}."))
    )
    async with supervisor(script, tools=[form_tool(name="first"), form_tool(name="second")]) as client:
        stream = await paused(client, dialect)
        first, second = (
            frame.artifact["parts"][0]["data"]["request_id"] for frame in stream.named("UserInputMetaData")
        )
        half = await answered(
            client, dialect, dialect.data({"resume": {first: {"repo": one}}}), taskId=stream.task_id
        )
        rest = await answered(
            client, dialect, dialect.data({"resume": {second: {"repo": two}}}), taskId=stream.task_id
        )
    assert half.last.state == "input-required"
    assert half.named("final_result") == []
    assert rest.answer in {f"Made {one} and {two}.", f"Made {two} and {one}."}
