"""A message that comes twice: a retry finds its task again, whatever else would be lost or done twice."""

import asyncio
import secrets
from typing import Any

import pytest

from tests.runtime.server.test_a2a_input_required import form_tool, paused
from tests.support.dialects import V03, V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, supervisor


async def streamed(client: Client, dialect: Dialect, params: Any) -> ReceivedStream:
    return ReceivedStream([frame async for frame in client.open(dialect.stream, params)])


async def tasks(client: Client) -> list[str]:
    return [task["id"] for task in (await client.call("ListTasks", {}))["result"]["tasks"]]


@both_versions
async def test_a_message_sent_twenty_times_at_once_is_one_task_and_twenty_equal_streams(
    dialect: Dialect,
) -> None:
    version = VersionScenario()
    model = ScriptedChatModel(script=version.script)
    async with supervisor(model, tools=[version.tool]) as client:
        params = dialect.message("Which?", messageId="once", contextId="talk")
        streams = await asyncio.gather(*(streamed(client, dialect, params) for _ in range(20)))
        assert len(await tasks(client)) == 1
    assert {one.raw for one in streams} == {streams[0].raw}
    assert streams[0].answer == version.answer
    assert len(model.requests) == 2


async def test_a_message_sent_at_once_in_both_versions_is_one_task() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        more = {"messageId": "once", "contextId": "talk"}
        old, new = await asyncio.gather(
            streamed(client, V03, V03.message("Which?", **more)),
            streamed(client, V10, V10.message("Which?", **more)),
        )
    assert (old.task_id, old.answer) == (new.task_id, new.answer)
    assert [frame.id for frame in old.frames] == [frame.id for frame in new.frames]


@both_versions
async def test_a_known_message_of_a_context_finds_its_finished_task(dialect: Dialect) -> None:
    version = VersionScenario()
    model = ScriptedChatModel(script=version.script)
    async with supervisor(model, tools=[version.tool]) as client:
        params = dialect.message("Which?", messageId="once", contextId="talk")
        first = await streamed(client, dialect, params)
        again = await streamed(client, dialect, params)
        task = dialect.sent(await client.call(dialect.send, params))
        last = first.frames[-2].id or ""
        rest = ReceivedStream(
            [frame async for frame in client.open(dialect.stream, params, Last_Event_ID=last)]
        )
    assert again.raw == first.raw
    assert task["id"] == first.task_id
    assert rest.raw == first.last.raw
    assert len(model.requests) == 2


@both_versions
async def test_a_known_message_with_other_content_is_refused(dialect: Dialect) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        await client.call(dialect.send, dialect.message("One?", messageId="once", contextId="talk"))
        answer = await client.call(
            dialect.send, dialect.message("Another?", messageId="once", contextId="talk")
        )
        assert len(await tasks(client)) == 1
    assert answer["error"]["code"] == -32602
    assert "message id" in answer["error"]["message"]


async def test_an_id_of_another_context_is_another_message() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        for context in ("one", "two"):
            await client.call(V10.send, V10.message("Well?", messageId="once", contextId=context))
        assert len(await tasks(client)) == 2


@both_versions
async def test_without_a_context_an_id_counts_only_while_its_run_works(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        params = dialect.message("Wait.", messageId="once")
        first = dialect.sent(await client.call(dialect.send, {**params, **dialect.at_once}))
        await waiting.started.wait()
        meanwhile = dialect.sent(await client.call(dialect.send, {**params, **dialect.at_once}))
        assert meanwhile["id"] == first["id"]
        waiting.released.set()
        assert dialect.sent(await client.call(dialect.send, params))["id"] == first["id"]  # waits for the end
        afterwards = dialect.sent(await client.call(dialect.send, params))
    assert afterwards["id"] != first["id"]
    assert afterwards["contextId"] != first["contextId"]


@both_versions
async def test_the_same_line_pasted_twice_asks_twice(dialect: Dialect) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        for _ in range(2):
            assert (
                await streamed(client, dialect, dialect.message("Well?", messageId="msg-test"))
            ).answer == "Yes."
        assert len(await tasks(client)) == 2


@both_versions
async def test_the_question_of_a_paused_task_sent_again_is_no_answer(dialect: Dialect) -> None:
    tool = form_tool([{"field_name": "repo"}])  # one text field: any text would do as an answer
    async with supervisor(
        Script(Turn(Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}."))), tools=[tool]
    ) as client:
        params = dialect.message("Create a repo.", messageId="once", contextId="talk")
        first = await streamed(client, dialect, params)
        again = await streamed(client, dialect, params)
        assert len(await tasks(client)) == 1
    assert first.last.state == "input-required"
    assert again.raw == first.raw


async def test_an_earlier_question_sent_again_is_no_answer_to_what_is_asked_now() -> None:
    script = Script(
        lambda request: (
            Turn(Call("ask_form")) if "Create" in request.last_user else Turn(Say("You said {{user}}."))
        )
    )
    async with supervisor(script, tools=[form_tool([{"field_name": "repo"}])]) as client:
        earlier = V10.message("Hello", messageId="first", contextId="talk")
        first = await streamed(client, V10, earlier)
        stream = await paused(client, V10, contextId="talk")
        again = await streamed(client, V10, earlier)
        still = (await client.call(V10.get, {"id": stream.task_id}))["result"]
    assert again.raw == first.raw
    assert V10.state(still) == "input-required"


@pytest.mark.parametrize("by", ["taskId", "contextId"])
async def test_an_answer_sent_again_finds_the_task_that_it_continued(by: str) -> None:
    repo = f"repo-{secrets.token_hex(4)}"
    async with supervisor(
        Script(Turn(Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}."))), tools=[form_tool()]
    ) as client:
        stream = await paused(client, V10)
        named = {by: stream.task_id if by == "taskId" else stream.context_id}
        params = V10.message(V10.data({"repo": repo}), messageId="answer", **named)
        first = await streamed(client, V10, params)
        again = await streamed(client, V10, params)
        assert first.answer == f"Made {repo}."
        assert await tasks(client) == [stream.task_id]
    assert again.raw == first.raw
