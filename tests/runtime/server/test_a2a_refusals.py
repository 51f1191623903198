"""What the server refuses and with which code: the corrections of the plain SDK, the versions, and tasks in
the wrong state."""

import json
from typing import Any

import pytest

from tests.support.dialects import V03, V10, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, Frame, supervisor

YES = Script(Turn(Say("Yes.")))


async def refused(client: Client, method: str, params: Any, **headers: str) -> int:
    """The code of the refusal, whether it comes as JSON or as the one event of a stream."""
    body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
    versioned = headers or ({} if "/" in method else {"A2A-Version": "1.0"})
    response = await client.http.post(
        client.url, json=body, headers={k.replace("_", "-"): v for k, v in versioned.items()}
    )
    answer = json.loads(response.text.removeprefix("data: "))
    assert (response.status_code, answer["id"], "result" in answer) == (200, 7, False)
    assert answer["error"]["message"]
    return int(answer["error"]["code"])


async def working(client: Client, dialect: Dialect, waiting: BlockingScenario) -> dict[str, Any]:
    """A task whose tool runs."""
    task = dialect.sent(await client.call(dialect.send, {**dialect.message("Wait."), **dialect.at_once}))
    await waiting.started.wait()
    return task


# --- what the plain SDK gets wrong --------------------------------------------------------------------------


@pytest.mark.sample(6)
@pytest.mark.parametrize("method", ["message/send", "message/stream"])
@pytest.mark.parametrize(
    "params",
    [
        {},
        {"message": {}},
        {"message": "hello"},
        {"message": {"role": "user", "messageId": "m"}},
        {"message": {"role": "boss", "messageId": "m", "parts": [{"kind": "text", "text": "x"}]}},
        {"message": {"role": "user", "parts": [{"kind": "text", "text": "x"}]}},
    ],
)
async def test_bad_parameters_of_an_old_message_are_invalid_params(method: str, params: Any) -> None:
    async with supervisor(YES) as client:
        assert await refused(client, method, params) == -32602


@pytest.mark.parametrize("method", ["tasks/get", "tasks/cancel", "tasks/resubscribe"])
async def test_an_old_call_without_the_task_is_invalid_params(method: str) -> None:
    async with supervisor(YES) as client:
        assert await refused(client, method, {}) == -32602


@pytest.mark.parametrize("method", ["message/send", "message/stream"])
@pytest.mark.parametrize("part", [{"text": "x"}, {"data": {"x": 1}}, {"kind": "image", "text": "x"}])
async def test_an_old_part_without_a_kind_is_invalid_params(method: str, part: dict[str, Any]) -> None:
    async with supervisor(YES) as client:
        assert (
            await refused(client, method, {"message": {"role": "user", "messageId": "m", "parts": [part]}})
            == -32602
        )


@pytest.mark.parametrize("method", ["agent/getAuthenticatedExtendedCard", "GetExtendedAgentCard"])
async def test_there_is_no_extended_card(method: str) -> None:
    async with supervisor(YES) as client:
        assert await refused(client, method, {}) == -32007


@pytest.mark.parametrize(
    "content_type", ["text/plain", "application/xml", "application/x-www-form-urlencoded", ""]
)
async def test_another_content_type_is_refused_by_http(content_type: str) -> None:
    async with supervisor(YES) as client:
        good = {"jsonrpc": "2.0", "id": 1, "method": V03.send, "params": V03.message("Well?")}
        response = await client.http.post(
            client.url, content=json.dumps(good), headers={"Content-Type": content_type}
        )
        listed = (await client.call("ListTasks", {}))["result"]["tasks"]
    assert response.status_code == 415
    assert "application/json" in response.text
    assert listed == []


@pytest.mark.parametrize(
    "content_type",
    ["application/json", "application/json; charset=utf-8", "Application/JSON", "application/a2a+json"],
)
async def test_json_is_taken_under_its_names(content_type: str) -> None:
    async with supervisor(YES) as client:
        good = {"jsonrpc": "2.0", "id": 1, "method": V03.send, "params": V03.message("Well?")}
        response = await client.http.post(
            client.url, content=json.dumps(good), headers={"Content-Type": content_type}
        )
    assert response.json()["result"]["status"]["state"] == "completed"


@pytest.mark.parametrize(
    ("method", "params"),
    [
        (
            "tasks/pushNotificationConfig/set",
            {"taskId": "t", "pushNotificationConfig": {"url": "http://127.0.0.1/"}},
        ),
        ("tasks/pushNotificationConfig/get", {"id": "t"}),
        ("tasks/pushNotificationConfig/list", {"id": "t"}),
        ("tasks/pushNotificationConfig/delete", {"id": "t", "pushNotificationConfigId": "c"}),
        ("CreateTaskPushNotificationConfig", {"taskId": "t", "url": "http://127.0.0.1/"}),
        ("GetTaskPushNotificationConfig", {"taskId": "t", "id": "c"}),
        ("ListTaskPushNotificationConfigs", {"taskId": "t"}),
        ("DeleteTaskPushNotificationConfig", {"taskId": "t", "id": "c"}),
    ],
)
async def test_push_that_is_switched_off_is_refused_and_not_offered(method: str, params: Any) -> None:
    async with supervisor(YES, env={"A2A_PUSH_NOTIFICATIONS": "false"}) as client:
        card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
        assert card["capabilities"]["pushNotifications"] is False
        assert await refused(client, method, params) == -32003


@pytest.mark.parametrize(
    ("dialect", "wanted"),
    [
        (V03, {"pushNotificationConfig": {"url": "http://127.0.0.1/"}}),
        (V10, {"taskPushNotificationConfig": {"url": "http://127.0.0.1/"}}),
    ],
    ids=str,
)
async def test_a_message_that_wants_push_is_refused_and_starts_nothing(dialect: Dialect, wanted: Any) -> None:
    async with supervisor(YES, env={"A2A_PUSH_NOTIFICATIONS": "false"}) as client:
        for method in (dialect.send, dialect.stream):
            assert (
                await refused(client, method, {**dialect.message("Well?"), "configuration": wanted}) == -32003
            )
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []


# --- versions -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [V10.send, V10.stream, V10.get, V10.cancel, V10.subscribe, "ListTasks"])
async def test_a_new_method_without_the_version_header_is_refused(method: str) -> None:
    async with supervisor(YES) as client:
        params = V10.message("Well?") if "Send" in method else {"id": "t"}
        assert await refused(client, method, params, Accept="application/json") == -32009
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []


@pytest.mark.parametrize("method", [V03.send, V03.stream, V03.get, V03.cancel, V03.subscribe])
async def test_an_old_method_with_the_new_version_is_refused(method: str) -> None:
    async with supervisor(YES) as client:
        params = V03.message("Well?") if "message" in method else {"id": "t"}
        assert await refused(client, method, params, A2A_Version="1.0") == -32009
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []


async def test_an_old_method_may_name_its_version() -> None:
    async with supervisor(YES) as client:
        answer = await client.call(V03.send, V03.message("Well?"), A2A_Version="0.3")
    assert V03.state(V03.sent(answer)) == "completed"


@both_versions
async def test_a_request_without_the_field_jsonrpc_is_taken(dialect: Dialect) -> None:
    async with supervisor(YES) as client:
        headers = {} if dialect.old else {"A2A-Version": "1.0"}
        response = await client.http.post(
            client.url,
            json={"id": 1, "method": dialect.send, "params": dialect.message("Well?")},
            headers=headers,
        )
    assert response.json()["jsonrpc"] == "2.0"
    assert dialect.state(dialect.sent(response.json())) == "completed"


@pytest.mark.sample(6)
@both_versions
@pytest.mark.parametrize("number", ["1.0", "2", "", 2.0, None, ["2.0"]])
async def test_another_version_of_jsonrpc_is_refused(dialect: Dialect, number: Any) -> None:
    async with supervisor(YES) as client:
        body = {"jsonrpc": number, "id": 1, "method": dialect.send, "params": dialect.message("Well?")}
        response = await client.http.post(
            client.url, json=body, headers={} if dialect.old else {"A2A-Version": "1.0"}
        )
    assert response.json()["error"]["code"] == -32600


# --- tasks --------------------------------------------------------------------------------------------------


@both_versions
async def test_a_task_that_does_not_exist_is_not_found(dialect: Dialect) -> None:
    async with supervisor(YES) as client:
        for method in (dialect.get, dialect.cancel, dialect.subscribe):
            assert await refused(client, method, {"id": "nothing"}) == -32001
        for method in (dialect.send, dialect.stream):
            assert await refused(client, method, dialect.message("Well?", taskId="nothing")) == -32001


@both_versions
async def test_an_ended_task_takes_no_message(dialect: Dialect) -> None:
    async with supervisor(YES) as client:
        task = dialect.sent(await client.call(dialect.send, dialect.message("Well?")))
        for method in (dialect.send, dialect.stream):
            assert await refused(client, method, dialect.message("More?", taskId=task["id"])) == -32004
            assert (
                await refused(
                    client, method, dialect.message("More?", taskId=task["id"], contextId=task["contextId"])
                )
                == -32004
            )


@both_versions
async def test_a_working_task_takes_no_message(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task = await working(client, dialect, waiting)
        for method in (dialect.send, dialect.stream):
            assert await refused(client, method, dialect.message("More?", taskId=task["id"])) == -32004


@both_versions
async def test_a_task_named_with_a_foreign_context_is_invalid_params(dialect: Dialect) -> None:
    async with supervisor(YES) as client:
        task = dialect.sent(await client.call(dialect.send, dialect.message("Well?")))
        for method in (dialect.send, dialect.stream):
            assert (
                await refused(
                    client, method, dialect.message("More?", taskId=task["id"], contextId="foreign")
                )
                == -32602
            )


@both_versions
async def test_an_ended_task_cannot_be_cancelled(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task = await working(client, dialect, waiting)
        assert dialect.state((await client.call(dialect.cancel, {"id": task["id"]}))["result"]) == "canceled"
        assert await refused(client, dialect.cancel, {"id": task["id"]}) == -32002
        stored = (await client.call(dialect.get, {"id": task["id"]}))["result"]
    assert dialect.state(stored) == "canceled"


async def test_an_old_stream_is_refused_by_its_one_event_and_a_new_one_by_json() -> None:
    async with supervisor(YES) as client:
        old = await client.http.post(
            client.url, json={"id": 1, "method": V03.subscribe, "params": {"id": "nothing"}}
        )
        new = await client.http.post(
            client.url,
            json={"id": 1, "method": V10.subscribe, "params": {"id": "nothing"}},
            headers={"A2A-Version": "1.0"},
        )
    assert old.headers["content-type"].startswith("text/event-stream")
    assert old.content.startswith(b"data: ")
    assert old.content.endswith(b"\n\n")
    assert new.headers["content-type"] == "application/json"


# --- what is accepted although it looks wrong ---------------------------------------------------------------


@both_versions
async def test_a_message_of_a_conversation_that_works_is_queued_and_answered_in_its_turn(
    dialect: Dialect,
) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        first = await working(client, dialect, waiting)
        frames: list[Frame] = []
        async for frame in client.open(
            dialect.stream, dialect.message("Next.", contextId=first["contextId"])
        ):
            frames.append(frame)
            if "Queued" in frame.status_text:
                assert frame.state == "submitted"
                waiting.released.set()
        stored = (await client.call(dialect.get, {"id": first["id"]}))["result"]
    assert [frame.status_text for frame in frames if "Queued" in frame.status_text] == [
        "Queued: 1 question of this conversation before this one."
    ]
    states = [frame.state for frame in frames if frame.state]
    assert states[: states.index("working")] == ["submitted"] * states.index("working")
    assert frames[-1].state == dialect.state(stored) == "completed"
    assert stored["status"]["timestamp"] < frames[-1].update["status"]["timestamp"]
