"""The A2A methods of both protocol versions on one port: what a client that knows only the protocol may rely
on."""

import json
from collections.abc import Iterator
from typing import Any

import pytest
from a2a.utils.task import ListTasksCursor, encode_list_tasks_cursor

from ai_platform_engineering.a2a.codec import decode
from ai_platform_engineering.core.events import AnyEvent
from ai_platform_engineering.core.transcript import fold
from tests.support.dialects import V03, V10, Dialect, artifact, both_versions, text_of
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Fail, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, supervisor

LINE_BREAKERS = "naïve 🔧 \u2028\u2029\u0085 Привет"


async def finished(client: Client, dialect: Dialect, task_id: str) -> ReceivedStream:
    """Follows a task to its end."""
    return ReceivedStream([frame async for frame in client.open(dialect.subscribe, {"id": task_id})])


def events_of(result: dict[str, Any]) -> list[AnyEvent]:
    return [event for _, event in decode(result)]


# --- sending ------------------------------------------------------------------------------------------------


@both_versions
async def test_a_message_is_answered_with_the_finished_task(dialect: Dialect) -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        task = dialect.sent(
            await client.call(dialect.send, dialect.message("Which version?", messageId="q-1"))
        )
    assert dialect.state(task) == "completed"
    assert text_of(artifact(task, "final_result")) == version.answer
    (question,) = task["history"]
    assert (question["messageId"], question["role"], question["taskId"]) == ("q-1", dialect.user, task["id"])
    assert question["parts"] == [dialect.text("Which version?")]


@both_versions
async def test_a_message_that_does_not_wait_is_answered_with_the_working_task(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task = dialect.sent(await client.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
        assert dialect.state(task) == "working"
        assert [one["name"] for one in task.get("artifacts") or () if one["name"] == "final_result"] == []
        waiting.released.set()
        end = await finished(client, dialect, task["id"])
        now = (await client.call(dialect.get, {"id": task["id"]}))["result"]
    assert end.answer == waiting.answer
    assert dialect.state(now) == "completed"
    assert text_of(artifact(now, "final_result")) == waiting.answer


@both_versions
async def test_a_stream_and_the_stored_task_tell_the_same(dialect: Dialect) -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        stream = await client.ask("Which version?", version=dialect.version)
        stored = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
    assert fold(events_of(stored)) == fold(stream.events)
    assert fold(stream.events).answer == version.answer
    streamed = {frame.artifact["artifactId"]: frame for frame in stream.frames if frame.artifact}
    assert [one["artifactId"] for one in stored["artifacts"]] == list(streamed)
    # The answer's chunks and the final result are one artifact: the task holds the answer once.
    names = ("streaming_result", "final_result")
    held = [text_of(one) for one in stored["artifacts"] if one["name"] in names]
    assert held == stream.streamed_texts
    assert stored["status"] == stream.last.update["status"]


async def test_both_versions_read_the_same_task() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        stream = await client.ask("Which version?", version="1.0")
        old = (await client.call(V03.get, {"id": stream.task_id}))["result"]
        new = (await client.call(V10.get, {"id": stream.task_id}))["result"]
    assert old["kind"] == "task"
    assert "kind" not in new
    assert fold(events_of(old)) == fold(events_of(new))
    assert text_of(artifact(old, "final_result")) == text_of(artifact(new, "final_result")) == version.answer


@both_versions
async def test_a_follow_up_with_the_context_goes_on_with_the_conversation(dialect: Dialect) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("You said {{user}}."))))
    async with supervisor(model) as client:
        first = dialect.sent(await client.call(dialect.send, dialect.message("one")))
        second = dialect.sent(
            await client.call(dialect.send, dialect.message("two", contextId=first["contextId"]))
        )
    assert second["contextId"] == first["contextId"]
    assert second["id"] != first["id"]
    assert [message.text for message in model.requests[-1].messages] == ["one", "You said one.", "two"]


# --- reading ------------------------------------------------------------------------------------------------


@pytest.mark.sample(4)
@pytest.mark.parametrize(
    ("dialect", "length", "messages"),
    # In 0.3 only a positive length limits.
    [(V03, None, 1), (V03, 0, 1), (V03, 1, 1), (V10, None, 1), (V10, 0, 0), (V10, 1, 1), (V10, 5, 1)],
    ids=str,
)
async def test_the_history_is_as_long_as_asked_for(
    dialect: Dialect, length: int | None, messages: int
) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        task = dialect.sent(await client.call(dialect.send, dialect.message("Well?")))
        history_length = {} if length is None else {"historyLength": length}
        got = (await client.call(dialect.get, {"id": task["id"], **history_length}))["result"]
    assert len(got.get("history") or ()) == messages
    assert text_of(artifact(got, "final_result")) == "Yes."


async def test_the_answer_to_a_message_has_the_history_that_was_asked_for() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        answer = await client.call(V10.send, {**V10.message("Well?"), "configuration": {"historyLength": 0}})
    assert "history" not in V10.sent(answer)
    assert text_of(artifact(V10.sent(answer), "final_result")) == "Yes."


async def asked(client: Client, *texts: str, **more: Any) -> list[str]:
    """Asks one after the other; the ids of the tasks."""
    return [V10.sent(await client.call(V10.send, V10.message(text, **more)))["id"] for text in texts]


async def test_tasks_are_listed_in_pages_from_the_newest_on() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        ids = await asked(client, "a", "b", "c", "d", "e")
        task_ids: list[str] = []
        token, sizes = "", []
        while True:
            page = (await client.call("ListTasks", {"pageSize": 2, "pageToken": token}))["result"]
            task_ids += [task["id"] for task in page["tasks"]]
            sizes.append(len(page["tasks"]))
            assert (page["totalSize"], page["pageSize"]) == (5, 2)
            token = page["nextPageToken"]
            if not token:
                break
    assert task_ids == ids[::-1]
    assert sizes == [2, 2, 1]


async def test_a_page_goes_on_where_the_last_one_ended_when_tasks_were_added_in_between() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        old = await asked(client, "a", "b", "c")
        first = (await client.call("ListTasks", {"pageSize": 2}))["result"]
        await asked(client, "d")
        second = (await client.call("ListTasks", {"pageSize": 2, "pageToken": first["nextPageToken"]}))[
            "result"
        ]
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == old[::-1]


async def test_tasks_are_listed_by_state_and_by_context() -> None:
    script = Script(lambda request: Turn(Fail(400)) if "fail" in request.last_user else Turn(Say("Yes.")))
    async with supervisor(script) as client:
        (good,) = await asked(client, "well", contextId="one")
        (bad,) = await asked(client, "fail", contextId="two")
        listed = {
            key: [task["id"] for task in (await client.call("ListTasks", params))["result"]["tasks"]]
            for key, params in {
                "all": {},
                "failed": {"status": "TASK_STATE_FAILED"},
                "completed": {"status": "TASK_STATE_COMPLETED"},
                "working": {"status": "TASK_STATE_WORKING"},
                "one": {"contextId": "one"},
                "neither": {"contextId": "one", "status": "TASK_STATE_FAILED"},
            }.items()
        }
    assert listed == {
        "all": [bad, good],
        "failed": [bad],
        "completed": [good],
        "working": [],
        "one": [good],
        "neither": [],
    }


async def test_a_list_has_artifacts_only_on_demand() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        await asked(client, "Which?")
        (bare,) = (await client.call("ListTasks", {}))["result"]["tasks"]
        (full_task,) = (await client.call("ListTasks", {"includeArtifacts": True}))["result"]["tasks"]
    assert "artifacts" not in bare
    assert version.value not in json.dumps(bare)
    assert text_of(artifact(full_task, "final_result")) == version.answer


async def test_no_task_is_listed_in_a_state_that_none_of_ours_has() -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        await asked(client, "a")
        page = (await client.call("ListTasks", {"status": "TASK_STATE_AUTH_REQUIRED"}))["result"]
    assert (page["tasks"], page["totalSize"], page["nextPageToken"]) == ([], 0, "")


FORGED_TOKENS = [
    encode_list_tasks_cursor(ListTasksCursor(timestamp_ns, "task"))
    for timestamp_ns in (None, 10**30, -(10**30))
]


@pytest.mark.parametrize(
    "wrong",
    [
        *({"pageToken": token} for token in FORGED_TOKENS),
        {"pageToken": "nonsense"},
        {"pageSize": 0},
        {"pageSize": 1000},
        {"status": "LOST"},
        {"historyLength": -1},
    ],
)
async def test_a_list_that_cannot_be_made_is_refused(wrong: dict[str, Any]) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        assert (await client.call("ListTasks", wrong))["error"]["code"] == -32602


# --- cancelling ---------------------------------------------------------------------------------------------


@both_versions
async def test_a_cancelled_task_is_canceled_in_the_answer_and_afterwards(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task = dialect.sent(await client.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
        await waiting.started.wait()
        cancelled = (await client.call(dialect.cancel, {"id": task["id"]}))["result"]
        stored = (await client.call(dialect.get, {"id": task["id"]}))["result"]
    assert waiting.cancelled.is_set()
    assert dialect.state(cancelled) == dialect.state(stored) == "canceled"
    assert cancelled["status"] == stored["status"]


# --- the wire -----------------------------------------------------------------------------------------------


async def test_the_curl_line_of_the_documents_gives_events_in_their_shapes() -> None:
    version = VersionScenario()
    body = {
        "id": "test",
        "method": "message/stream",
        "params": {
            "message": {
                "role": "user",
                "parts": [{"kind": "text", "text": "show argocd version"}],
                "messageId": "msg-test",
            }
        },
    }
    headers = {"Content-Type": "application/json", "Accept": "text/event-stream"}
    async with supervisor(version.script, tools=[version.tool]) as client:
        response = await client.http.post(client.url, content=json.dumps(body), headers=headers)
    assert response.headers["content-type"].startswith("text/event-stream")
    frames = [
        json.loads(line.removeprefix("data: "))
        for line in response.text.split("\n")
        if line.startswith("data: ")
    ]
    assert {(frame["jsonrpc"], frame["id"]) for frame in frames} == {("2.0", "test")}
    task, *rest = [frame["result"] for frame in frames]
    ids = {"contextId": task["contextId"], "taskId": task["id"]}
    (question,) = task["history"]
    assert (task["kind"], task["status"]["state"]) == ("task", "submitted")
    assert question == {
        **ids,
        "kind": "message",
        "messageId": "msg-test",
        "parts": [{"kind": "text", "text": "show argocd version"}],
        "role": "user",
    }
    assert all({key: update[key] for key in ids} == ids for update in rest)
    assert {update["kind"] for update in rest} == {"status-update", "artifact-update"}
    statuses = [update for update in rest if update["kind"] == "status-update"]
    artifacts = [update for update in rest if update["kind"] == "artifact-update"]
    assert [update["final"] for update in statuses] == [False] * (len(statuses) - 1) + [True]
    assert (statuses[0]["status"]["state"], statuses[-1]["status"]["state"]) == ("working", "completed")
    assert all({"append", "lastChunk", "artifact"} <= update.keys() for update in artifacts)
    assert all({"artifactId", "name", "parts"} <= update["artifact"].keys() for update in artifacts)
    started = next(update for update in artifacts if update["artifact"]["name"] == "tool_notification_start")
    assert (started["append"], started["lastChunk"]) == (False, False)
    assert started["artifact"]["description"] == "Tool call started: version"
    assert started["artifact"]["parts"] == [
        {"kind": "text", "text": "🔧 Supervisor: Calling tool: Version\n"}
    ]
    assert (artifacts[-1]["artifact"]["name"], artifacts[-1]["lastChunk"]) == ("final_result", True)
    assert text_of(artifacts[-1]["artifact"]) == version.answer


@both_versions
async def test_everything_on_the_wire_is_ascii(dialect: Dialect) -> None:
    script = Script(Turn(Say("You said {{user}}")))
    async with supervisor(
        script, env={"A2A_AGENT_NAME": LINE_BREAKERS, "LLM_MODEL": f"openai:{LINE_BREAKERS}"}
    ) as client:

        async def call(method: str, params: Any) -> bytes:
            body = {"jsonrpc": "2.0", "id": LINE_BREAKERS, "method": method, "params": params}
            headers = {} if "/" in method else {"A2A-Version": "1.0"}
            return (await client.http.post(client.url, json=body, headers=headers)).content

        sent = await call(dialect.send, dialect.message(LINE_BREAKERS, contextId=LINE_BREAKERS))
        task_id = dialect.sent(json.loads(sent))["id"]
        answers = {
            "send": sent,
            "stream": await call(dialect.stream, dialect.message(LINE_BREAKERS)),
            "get": await call(dialect.get, {"id": task_id}),
            "list": await call("ListTasks", {"includeArtifacts": True}),
            "no task": await call(dialect.get, {"id": LINE_BREAKERS}),
            "ended": await call(dialect.stream, dialect.message("more", taskId=task_id)),
            "bad": await call(dialect.send, {LINE_BREAKERS: LINE_BREAKERS}),
            "unknown": await call(LINE_BREAKERS, {}),
        }
        for path in (
            "health",
            "ready",
            "tools",
            ".well-known/agent-card.json",
            "v1/.well-known/agent-card.json",
        ):
            answers[path] = (await client.http.get(client.url + path)).content
    assert [name for name, content in answers.items() if not content.isascii()] == []
    assert json.loads(answers[".well-known/agent-card.json"])["name"] == LINE_BREAKERS
    name = "final_result" if dialect.old else "answer"
    assert text_of(artifact(json.loads(answers["get"])["result"], name)) == f"You said {LINE_BREAKERS}"


@pytest.mark.sample(2)
@both_versions
@pytest.mark.parametrize("extensions", ["urn:caipe:events:1", ""], ids=["extension", "no extension"])
async def test_fields_without_a_value_are_left_out(dialect: Dialect, extensions: str) -> None:
    version = VersionScenario()
    headers = {"A2A_Extensions": extensions}
    async with supervisor(version.script, tools=[version.tool]) as client:
        asked = dialect.message("Which version?")
        frames = [frame.body async for frame in client.open(dialect.stream, asked, **headers)]
        task = dialect.sent(await client.call(dialect.send, dialect.message("Which version?"), **headers))
        answers = [
            *frames,
            task,
            await client.call(dialect.get, {"id": task["id"]}, **headers),
            (await client.call("ListTasks", {}, **headers))["result"]["tasks"],
            (await client.http.get(f"{client.url}.well-known/agent-card.json")).json(),
        ]
    assert list(find_empty(answers, "")) == []


def find_empty(value: Any, path: str) -> Iterator[str]:
    """The fields without a value; an empty text says that nothing is left of an artifact."""
    if value in (None, "", [], {}) and not isinstance(value, bool) and not path.endswith("/text"):
        yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    if isinstance(value, dict):
        for name, child in value.items():
            yield from find_empty(child, f"{path}/{name}")


@both_versions
async def test_integers_in_data_parts_stay_integers(dialect: Dialect) -> None:
    data = {
        "count": 3,
        "most": 2**53 - 1,
        "least": -(2**53) + 1,
        "half": 0.5,
        "nested": [{"zero": 0}, [1, 2]],
        "yes": True,
        "none": None,
    }
    model = ScriptedChatModel(script=Script(Turn(Say("Thanks."))))
    async with supervisor(model) as client:
        streamed = [frame async for frame in client.open(dialect.stream, dialect.message(dialect.data(data)))]
        sent = dialect.sent(await client.call(dialect.send, dialect.message(dialect.data(data))))
        got = (await client.call(dialect.get, {"id": sent["id"]}))["result"]
    for task in (streamed[0].update, sent, got):
        returned = task["history"][0]["parts"][0]["data"]
        assert json.dumps(returned, sort_keys=True) == json.dumps(data, sort_keys=True)
    assert json.loads(model.requests[0].last_user) == data
    assert "3.0" not in model.requests[0].last_user


async def test_events_are_numbered_from_one_without_a_gap() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        stream = await client.ask("Which version?")
    event_ids = [int(frame.id or "") for frame in stream.frames if "." not in (frame.id or "")]
    assert event_ids == list(range(1, len(event_ids) + 1))
    parts = [frame.id for frame in stream.frames if "." in (frame.id or "")]
    assert parts == ["1.1", f"{event_ids[-1]}.1"]
