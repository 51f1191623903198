"""Push notifications on the wire of both protocol versions: the methods, what a receiver gets, and when."""

import hashlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import jwt
import pytest
from a2a.compat.v0_3 import types as types_v03
from a2a.types import StreamResponse
from google.protobuf.json_format import ParseDict

from tests.runtime.push.push_calls import (
    bearer,
    delete_config,
    get_config,
    inline,
    list_configs,
    read_config,
    set_config,
)
from tests.runtime.server.test_a2a_input_required import SCRIPT as FORM_SCRIPT
from tests.runtime.server.test_a2a_input_required import form_tool
from tests.support.dialects import Dialect, both_versions
from tests.support.echo_supervisor import VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.push_receiver import OPERATOR, PushReceiver, Received, push_receiver
from tests.support.fakes.script import Book
from tests.support.harness import Client, supervisor

VERSION = VersionScenario()
BOOK = {"^Create": FORM_SCRIPT, "": VERSION.script}


@asynccontextmanager
async def served(**env: str) -> AsyncIterator[tuple[Client, PushReceiver]]:
    """A supervisor that answers, or asks with a form, and a receiver that it may reach."""
    model = ScriptedChatModel(script=Book(BOOK))
    tools = [VERSION.tool, form_tool()]
    async with push_receiver() as receiver, supervisor(model, tools=tools, env={**OPERATOR, **env}) as client:
        yield client, receiver


async def send(client: Client, dialect: Dialect, text: str, **more: Any) -> str:
    """The id of the task of a message."""
    task_id: str = dialect.sent(await client.call(dialect.send, {**dialect.message(text), **more}))["id"]
    return task_id


def states(received: list[Received]) -> list[str]:
    return [item.state for item in received]


async def verify(client: Client, item: Received) -> dict[str, Any]:
    """The claims of the signature, checked as a receiver does: with the key set that the server publishes."""
    key_set = (await client.http.get(f"{client.url}.well-known/jwks.json")).json()
    token = item.headers["x-caipe-signature"]
    key = jwt.PyJWKSet.from_dict(key_set)[jwt.get_unverified_header(token)["kid"]]
    origin = f"http://{item.headers['host']}"
    required = {"require": ["iss", "aud", "iat", "exp", "jti"]}
    claims: dict[str, Any] = jwt.decode(token, key, algorithms=["ES256"], audience=origin, options=required)
    assert claims["request_body_sha256"] == hashlib.sha256(item.raw).hexdigest()
    return claims


@both_versions
async def test_a_config_is_set_found_listed_and_deleted(dialect: Dialect) -> None:
    async with served() as (client, receiver):
        task_id = await send(client, dialect, "Which version?")
        secret = {"token": "a-token", **bearer(dialect, "a-secret")}
        stored = read_config(
            dialect, (await set_config(client, dialect, task_id, url=f"{receiver.url}/a", **secret))["result"]
        )
        other = await set_config(client, dialect, task_id, url=f"{receiver.url}/b", id="other")
        listed = await list_configs(client, dialect, task_id)
        found = await get_config(client, dialect, task_id, task_id)
        deleted = await delete_config(client, dialect, task_id, task_id)
        left = await list_configs(client, dialect, task_id)
        missing = await get_config(client, dialect, task_id, task_id)
        again = await delete_config(client, dialect, task_id, task_id)
    # Without an id it has that of the task; what is secret is not sent back.
    assert stored == {
        "id": task_id,
        "taskId": task_id,
        "url": f"{receiver.url}/a",
        "authentication": {"scheme": "Bearer"},
    }
    other_config = read_config(dialect, other["result"])
    assert listed == [stored, other_config]
    assert read_config(dialect, found["result"]) == stored
    assert "result" in deleted
    assert deleted["result"] is again["result"] is None
    assert left == [other_config]
    assert missing["error"]["code"] == -32001


@both_versions
async def test_every_state_arrives_in_order_signed_and_with_the_token(dialect: Dialect) -> None:
    async with served() as (client, receiver):
        config = inline(dialect, f"{receiver.url}/hook", token="a-token")
        task_id = await send(client, dialect, "Create a repo.", **config)
        await receiver.wait_for("/hook", "input-required")
        await client.call(dialect.send, dialect.message(dialect.data({"repo": "blog"}), taskId=task_id))
        received = await receiver.wait_for("/hook", "completed")
        claims = [await verify(client, item) for item in received]
        task = (await client.call(dialect.get, {"id": task_id}))["result"]
    assert states(received) == ["working", "input-required", "working", "completed"]
    assert {item.headers["x-a2a-notification-token"] for item in received} == {"a-token"}
    # Nothing else was asked for: the signature is the authorization, too.
    for item in received:
        assert item.headers["authorization"] == f"Bearer {item.headers['x-caipe-signature']}"
        assert item.headers["content-type"] == "application/json"
    assert {claim["taskId"] for claim in claims} == {task_id}
    assert len({claim["jti"] for claim in claims}) == 4
    # The receiver has the question and the answer, as the client that registered would get the task.
    assert received[-1].update == task
    assert "Create GitHub Repo" in str(received[1].update["status"]["message"])
    if dialect.old:
        for item in received:
            types_v03.Task.model_validate(item.body)
    else:
        assert [item.kind for item in received] == ["statusUpdate", "task", "statusUpdate", "task"]
        for item in received:
            ParseDict(item.body, StreamResponse())


async def test_a_receiver_gets_the_shape_of_the_client_that_registered() -> None:
    """Of the client with our extension with its events, of a generic one without."""
    async with served() as (client, receiver):
        plain = {"A2A_Extensions": "urn:example:other"}
        message = {"message": client.message("Which version?", "1.0")}
        for path, headers in (("/rich", {}), ("/plain", plain)):
            config = {"taskPushNotificationConfig": {"url": receiver.url + path}}
            message["message"]["messageId"] = path
            await client.call("SendMessage", {**message, "configuration": config}, **headers)
        [_, rich] = await receiver.wait_for("/rich", "completed")
        [_, plain_task] = await receiver.wait_for("/plain", "completed")
    assert "caipe.events" in rich.update["metadata"]
    assert [item["name"] for item in plain_task.update["artifacts"]] == ["answer"]
    assert "caipe.events" not in plain_task.update.get("metadata", {})


@both_versions
async def test_credentials_that_the_client_gave_are_sent(dialect: Dialect) -> None:
    async with served() as (client, receiver):
        config = inline(dialect, f"{receiver.url}/hook", **bearer(dialect, "given"))
        await send(client, dialect, "Which version?", **config)
        received = await receiver.wait_for("/hook", "completed")
        await verify(client, received[0])
    assert {item.headers["authorization"] for item in received} == {"Bearer given"}
    assert "x-a2a-notification-token" not in received[0].headers


@both_versions
async def test_who_registers_late_learns_how_it_ended(dialect: Dialect) -> None:
    async with served() as (client, receiver):
        answer = await client.call(dialect.send, dialect.message("Which version?"))
        task_id = dialect.sent(answer)["id"]
        await set_config(client, dialect, task_id, url=f"{receiver.url}/late")
        received = await receiver.wait_for("/late", "completed")
        # The same config once more is no reason to tell it again: the next one comes first.
        await set_config(client, dialect, task_id, url=f"{receiver.url}/late")
        await set_config(client, dialect, task_id, url=f"{receiver.url}/next", id="next")
        await receiver.wait_for("/next", "completed")
    assert states(received) == ["completed"]
    assert states(receiver.taken("/late")) == ["completed"]


@both_versions
async def test_a_deleted_config_is_told_nothing_more(dialect: Dialect) -> None:
    async with served() as (client, receiver):
        config = inline(dialect, f"{receiver.url}/gone", id="g")
        task_id = await send(client, dialect, "Create a repo.", **config)
        await receiver.wait_for("/gone", "input-required")
        await set_config(client, dialect, task_id, url=f"{receiver.url}/stays", id="s")
        await delete_config(client, dialect, task_id, "g")
        await client.call(dialect.send, dialect.message(dialect.data({"repo": "blog"}), taskId=task_id))
        await receiver.wait_for("/stays", "completed")
    assert states(receiver.taken("/gone")) == ["working", "input-required"]


@both_versions
async def test_the_configs_of_others_are_not_found(dialect: Dialect) -> None:
    key = "a-delegate-key-0123456789abcdef"
    async with served(A2A_AUTH_DELEGATE_KEY=key) as (client, receiver):
        client.headers = {"Authorization": f"Bearer {key}", "X-CAIPE-User": "ann"}
        task_id = await send(client, dialect, "Which version?", **inline(dialect, f"{receiver.url}/hook"))
        client.headers["X-CAIPE-User"] = "bob"
        answers = [
            await set_config(client, dialect, task_id, url=f"{receiver.url}/bob"),
            await get_config(client, dialect, task_id, task_id),
            await delete_config(client, dialect, task_id, task_id),
        ]
        listing = "tasks/pushNotificationConfig/list" if dialect.old else "ListTaskPushNotificationConfigs"
        answers.append(await client.call(listing, {"id": task_id} if dialect.old else {"taskId": task_id}))
        client.headers["X-CAIPE-User"] = "ann"
        configs = await list_configs(client, dialect, task_id)
        await receiver.wait_for("/hook", "completed")
    assert [answer["error"]["code"] for answer in answers] == [-32001] * 4
    assert [config["url"] for config in configs] == [f"{receiver.url}/hook"]
    assert receiver.tried("/bob") == []


@both_versions
async def test_a_private_address_is_refused_with_a_sentence(dialect: Dialect) -> None:
    urls = {
        "http://127.0.0.1:9/hook": "A2A_PUSH_PRIVATE_HOSTS",
        "https://localhost/hook": "A2A_PUSH_PRIVATE_HOSTS",
        "https://10.1.2.3/hook": "A2A_PUSH_PRIVATE_HOSTS",
        "https://169.254.169.254/latest": "private, local or reserved",
        "http://93.184.216.34/hook": "https://",
        "ftp://example.com/hook": "http",
        "https://user:password@93.184.216.34/": "user name or password",
    }
    async with served(A2A_PUSH_PRIVATE_HOSTS="192.0.2.0/24") as (client, _):
        answer = await client.call(dialect.send, dialect.message("Which version?"))
        task_id = dialect.sent(answer)["id"]
        for url, words in urls.items():
            for error in (
                (await set_config(client, dialect, task_id, url=url))["error"],
                (await client.call(dialect.send, {**dialect.message("?"), **inline(dialect, url)}))["error"],
            ):
                assert error["code"] == -32602, url
                assert words in error["message"], url
                assert "password@" not in str(error)
        assert await list_configs(client, dialect, task_id) == []
        assert len((await client.call("ListTasks", {}))["result"]["tasks"]) == 1  # no message was taken


@both_versions
async def test_what_cannot_be_a_header_is_refused(dialect: Dialect) -> None:
    async with served() as (client, receiver):
        answer = await client.call(dialect.send, dialect.message("Which version?"))
        task_id = dialect.sent(answer)["id"]
        for config in (
            {"token": "a\r\nX: b"},
            {"token": "t" * 5000},
            {"id": "i" * 300},
            bearer(dialect, "a\nb"),
        ):
            refusal = await set_config(client, dialect, task_id, url=f"{receiver.url}/x", **config)
            assert refusal["error"]["code"] == -32602, config
        assert await list_configs(client, dialect, task_id) == []


@both_versions
async def test_a_task_has_so_many_configs(dialect: Dialect) -> None:
    async with served(A2A_PUSH_CONFIGS_PER_TASK="2") as (client, receiver):
        answer = await client.call(dialect.send, dialect.message("Which version?"))
        task_id = dialect.sent(answer)["id"]
        for config_id in ("a", "b", "a"):
            stored = await set_config(client, dialect, task_id, url=f"{receiver.url}/x", id=config_id)
            assert "result" in stored
        refusal = await set_config(client, dialect, task_id, url=f"{receiver.url}/x", id="c")
        assert "A2A_PUSH_CONFIGS_PER_TASK" in refusal["error"]["message"]
        assert [config["id"] for config in await list_configs(client, dialect, task_id)] == ["a", "b"]


@both_versions
async def test_an_answer_with_one_config_too_many_is_not_taken(dialect: Dialect) -> None:
    async with served(A2A_PUSH_CONFIGS_PER_TASK="1") as (client, receiver):
        asked = inline(dialect, f"{receiver.url}/hook", id="a")
        task_id = await send(client, dialect, "Create a repo.", **asked)
        await receiver.wait_for("/hook", "input-required")
        answer = dialect.message(dialect.data({"repo": "blog"}), taskId=task_id)
        refusal = await client.call(dialect.send, {**answer, **inline(dialect, f"{receiver.url}/b", id="b")})
        assert "A2A_PUSH_CONFIGS_PER_TASK" in refusal["error"]["message"]
        task = (await client.call(dialect.get, {"id": task_id}))["result"]
        assert dialect.state(task) == "input-required"
        await client.call(dialect.send, {**answer, **asked})
        received = await receiver.wait_for("/hook", "completed")
    assert states(received) == ["working", "input-required", "working", "completed"]


async def test_a_list_of_configs_has_pages() -> None:
    async with served() as (client, receiver):
        task_id = (await client.call("SendMessage", {"message": client.message("?", "1.0")}))["result"][
            "task"
        ]["id"]
        for number in range(3):
            params = {"taskId": task_id, "id": f"c{number}", "url": f"{receiver.url}/x"}
            await client.call("CreateTaskPushNotificationConfig", params)
        pages: list[list[str]] = []
        token = ""
        while len(pages) < 4:
            params = {"taskId": task_id, "pageSize": 2, "pageToken": token}
            page = (await client.call("ListTaskPushNotificationConfigs", params))["result"]
            pages.append([config["id"] for config in page["configs"]])
            token = page.get("nextPageToken", "")
            if not token:
                break
        wrong = await client.call("ListTaskPushNotificationConfigs", {"taskId": task_id, "pageToken": "x"})
    assert pages == [["c0", "c1"], ["c2"]]
    assert wrong["error"]["code"] == -32602


async def test_the_old_protocol_finds_the_one_config_without_an_id() -> None:
    async with served() as (client, receiver):
        task_id = (await client.call("message/send", {"message": client.message("?")}))["result"]["id"]
        config = {"url": f"{receiver.url}/x", "id": "mine"}
        params = {"taskId": task_id, "pushNotificationConfig": config}
        await client.call("tasks/pushNotificationConfig/set", params)
        for named in ({}, {"pushNotificationConfigId": "default"}):
            answer = await client.call("tasks/pushNotificationConfig/get", {"id": task_id, **named})
            assert answer["result"]["pushNotificationConfig"]["id"] == "mine"


async def test_a_large_task_is_told_without_what_can_be_fetched() -> None:
    long_question = "x" * 5000
    async with served(A2A_PUSH_MAX_BYTES="4096") as (client, receiver):
        for version, path in (("0.3", "/old"), ("1.0", "/new")):
            method, name = (
                ("message/send", "pushNotificationConfig")
                if version == "0.3"
                else ("SendMessage", "taskPushNotificationConfig")
            )
            params = {"message": client.message(long_question, version)}
            await client.call(method, {**params, "configuration": {name: {"url": receiver.url + path}}})
        [*_, old] = await receiver.wait_for("/old", "completed")
        [*_, new] = await receiver.wait_for("/new", "completed")
    assert (old.kind, new.kind) == ("v03", "statusUpdate")
    assert "history" not in old.update
    assert long_question not in new.raw.decode()


@pytest.mark.parametrize("with_stream", [False, True])
async def test_a_message_sent_again_sets_its_config_once(with_stream: bool) -> None:
    async with served() as (client, receiver):
        params = {
            "message": client.message("Which version?", "1.0", contextId="c"),
            "configuration": {"taskPushNotificationConfig": {"url": f"{receiver.url}/hook"}},
        }
        ids: set[str] = set()
        for _ in range(2):
            if with_stream:
                frames = [frame async for frame in client.open("SendStreamingMessage", params)]
                ids.add(frames[0].update["id"])
            else:
                ids.add((await client.call("SendMessage", params))["result"]["task"]["id"])
        [task_id] = ids
        answer = await client.call("ListTaskPushNotificationConfigs", {"taskId": task_id})
        received = await receiver.wait_for("/hook", "completed")
    assert len(answer["result"]["configs"]) == 1
    assert states(received) == ["working", "completed"]
