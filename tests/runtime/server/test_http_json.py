"""The HTTP+JSON binding of protocol 1.0: the tasks, rules and shapes of JSON-RPC, on the same port."""

import json
import re
import secrets
from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.runtime.server.http_json import METHOD_ROUTES
from tests.support.dialects import V03, V10, artifact, text_of
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.script import Fail, Say, Script, Turn
from tests.support.fuzzing import json_values, nothing_breaks, server_examples
from tests.support.harness import Client, Frame, ReceivedStream, joined, read_frames, supervisor

YES = Script(Turn(Say("Yes.")))
RICH = {"A2A-Extensions": "urn:caipe:events:1"}


async def request(client: Client, verb: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
    """A request as a client of 1.0 sends it; names of headers have underscores."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return await client.http.request(
        verb, client.url + path, json=body, headers={"A2A-Version": "1.0", **client.headers, **named}
    )


async def send(client: Client, text: str, *, at_once: bool = False, **more: Any) -> dict[str, Any]:
    """Sends a question; the task in the answer."""
    body = V10.message(text, **more)
    if at_once:
        body |= V10.at_once
    response = await request(client, "POST", "message:send", body)
    assert response.status_code == 200, response.text
    task: dict[str, Any] = response.json()["task"]
    return task


async def stream(
    client: Client, path: str, body: Any = None, *, verb: str = "POST", **headers: str
) -> AsyncIterator[Frame]:
    """Frames as those of JSON-RPC, in which the whole body of the event is the result."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    async with client.http.stream(
        verb, client.url + path, json=body, headers={"A2A-Version": "1.0", **named}
    ) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), await response.aread()
        async for frame in read_frames(response):
            yield Frame(frame.id, frame.raw, {"result": frame.body})


async def collect(frames: AsyncIterator[Frame]) -> ReceivedStream:
    return ReceivedStream([frame async for frame in frames])


def error_of(response: httpx.Response) -> tuple[int, str, str]:
    """The status of HTTP, the status of the body, and the reason; checks the form of the error."""
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert error["code"] == response.status_code
    [info] = [one for one in error["details"] if one["@type"].endswith("google.rpc.ErrorInfo")]
    assert info["domain"] == "a2a-protocol.org"
    return response.status_code, error["status"], info["reason"]


# --- methods ------------------------------------------------------------------------------------------------


async def test_a_message_is_answered_with_the_task_that_json_rpc_reads() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        response = await request(client, "POST", "message:send", V10.message("Which version?"))
        task = response.json()["task"]
        read = (await request(client, "GET", f"tasks/{task['id']}")).json()
        over_rpc = (await client.call(V10.get, {"id": task["id"]}, A2A_Extensions=""))["result"]
    assert response.headers["content-type"] == "application/a2a+json"
    assert V10.state(task) == "completed"
    assert [text_of(one) for one in task["artifacts"]] == [version.answer]
    assert task == read == over_rpc


async def test_a_stream_has_ids_and_bare_results_in_the_plain_shape() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        received = await collect(stream(client, "message:stream", V10.message("Which version?")))
    assert {key for frame in received.frames for key in frame.result} == {
        "task",
        "statusUpdate",
        "artifactUpdate",
    }
    assert all(frame.id for frame in received.frames)
    assert received.states[0] == "submitted"
    assert received.states[-1] == "completed"
    assert joined(received.named("answer")) == [version.answer]
    assert received.events == []


async def test_a_client_with_our_extension_gets_the_rich_shape() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        received = await collect(stream(client, "message:stream", V10.message("Which?"), **RICH))
        response = await request(client, "GET", f"tasks/{received.task_id}", **RICH)
        bare = await request(client, "GET", f"tasks/{received.task_id}")
        over_rpc = (await client.call(V10.get, {"id": received.task_id}))["result"]
    assert received.answer == fold(received.events).answer == version.answer
    assert response.json() == over_rpc
    assert response.headers["A2A-Extensions"] == "urn:caipe:events:1"
    assert "A2A-Extensions" not in bare.headers


@pytest.mark.parametrize("verb", ["GET", "POST"])
async def test_a_subscription_goes_on_behind_the_last_event_id(verb: str) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        frames: list[Frame] = []
        opened = stream(client, "message:stream", V10.message("Wait."), **RICH)
        async for frame in opened:
            frames.append(frame)
            if frame.name == "tool_notification_start":
                break
        await opened.aclose()  # type: ignore[attr-defined]
        path = f"tasks/{frames[0].update['id']}:subscribe"
        waiting.released.set()
        cursor = frames[-1].id or ""
        rest = await collect(stream(client, path, verb=verb, Last_Event_ID=cursor, **RICH))
        ended = await request(client, verb, path)
        replayed = await collect(stream(client, path, verb=verb, Last_Event_ID=cursor, **RICH))
    whole = ReceivedStream([*frames, *rest.frames])
    assert whole.answer == fold(whole.events).answer == waiting.answer
    ids = [float(frame.id or "") for frame in whole.frames if "." not in (frame.id or "")]
    assert ids == list(range(1, len(ids) + 1))
    assert error_of(ended) == (400, "FAILED_PRECONDITION", "UNSUPPORTED_OPERATION")
    assert replayed.raw == rest.raw


async def test_a_subscription_without_a_cursor_begins_with_the_task() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task = await send(client, "Wait.", at_once=True)
        await waiting.started.wait()
        subscribed = stream(client, f"tasks/{task['id']}:subscribe", verb="GET")
        first = await anext(subscribed)
        waiting.released.set()
        rest = await collect(subscribed)
    assert V10.state(first.result["task"]) == "working"
    assert joined(rest.named("answer")) == [waiting.answer]
    assert rest.states[-1] == "completed"


async def test_a_silent_stream_is_kept_alive() -> None:
    waiting = BlockingScenario()
    env = {"A2A_KEEP_ALIVE_SECONDS": "0.05"}
    async with supervisor(waiting.script, tools=[waiting.tool], env=env) as client:
        task = await send(client, "Wait.", at_once=True)
        url = f"{client.url}tasks/{task['id']}:subscribe"
        async with client.http.stream("GET", url, headers={"A2A-Version": "1.0"}) as response:
            received = b""
            async for piece in response.aiter_bytes():
                received += piece
                if b": keep-alive\n\n" in received:
                    break
    assert received.startswith(b"id: ")


async def test_a_task_is_cancelled_without_a_body() -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        task = await send(client, "Wait.", at_once=True)
        await waiting.started.wait()
        cancelled = await request(client, "POST", f"tasks/{task['id']}:cancel")
        again = await request(client, "POST", f"tasks/{task['id']}:cancel", {})
    assert waiting.cancelled.is_set()
    assert V10.state(cancelled.json()) == "canceled"
    assert error_of(again) == (400, "FAILED_PRECONDITION", "TASK_NOT_CANCELABLE")


async def test_the_history_is_as_long_as_asked_for() -> None:
    async with supervisor(YES) as client:
        task = await send(client, "Well?")
        none = (await request(client, "GET", f"tasks/{task['id']}?historyLength=0")).json()
        one = (await request(client, "GET", f"tasks/{task['id']}?historyLength=1")).json()
    assert "history" not in none
    assert [text_of(message) for message in one["history"]] == ["Well?"]


async def test_tasks_are_listed_in_pages_and_by_filters() -> None:
    script = Script(lambda asked: Turn(Fail(400)) if "fail" in asked.last_user else Turn(Say("Yes.")))
    async with supervisor(script) as client:
        ids = [(await send(client, text, contextId=text))["id"] for text in ("a", "b", "fail")]

        async def page(query: str) -> dict[str, Any]:
            response = await request(client, "GET", f"tasks?{query}")
            assert response.status_code == 200, response.text
            content: dict[str, Any] = response.json()
            return content

        first = await page("pageSize=2")
        second = await page(f"pageSize=2&pageToken={first['nextPageToken']}")
        failed = await page("status=TASK_STATE_FAILED")
        of_context = await page("contextId=a&includeArtifacts=true")
        since = await page(f"statusTimestampAfter={second['tasks'][0]['status']['timestamp']}&pageSize=1")
    assert [task["id"] for task in first["tasks"] + second["tasks"]] == ids[::-1]
    assert (first["totalSize"], first["pageSize"], second["nextPageToken"]) == (3, 2, "")
    assert [task["id"] for task in failed["tasks"]] == [ids[2]]
    assert [text_of(one) for one in of_context["tasks"][0]["artifacts"]] == ["Yes."]
    assert "artifacts" not in first["tasks"][0]
    assert since["totalSize"] == 3


@pytest.mark.parametrize(
    "query", ["pageSize=0", "pageSize=many", "pageToken=x", "status=LOST", "includeArtifacts=perhaps"]
)
async def test_a_list_that_cannot_be_made_is_refused(query: str) -> None:
    async with supervisor(YES) as client:
        response = await request(client, "GET", f"tasks?{query}")
    assert error_of(response) == (400, "INVALID_ARGUMENT", "INVALID_PARAMS")
    assert "perhaps" not in response.text


PUSH_CALLS = (
    ("POST", "", "CreateTaskPushNotificationConfig", {"id": "c", "url": "http://127.0.0.1:9/hook"}),
    ("POST", "", "CreateTaskPushNotificationConfig", {"id": "c", "url": "ftp://127.0.0.1/"}),
    ("GET", "", "ListTaskPushNotificationConfigs", {}),
    ("GET", "/c", "GetTaskPushNotificationConfig", {"id": "c"}),
    ("GET", "/other", "GetTaskPushNotificationConfig", {"id": "other"}),
    ("DELETE", "/c", "DeleteTaskPushNotificationConfig", {"id": "c"}),
    ("GET", "/c", "GetTaskPushNotificationConfig", {"id": "c"}),
)


@pytest.mark.parametrize("enabled", ["true", "false"])
async def test_push_notifications_answer_as_over_json_rpc(enabled: str) -> None:
    env = {"A2A_PUSH_NOTIFICATIONS": enabled, "A2A_PUSH_PRIVATE_HOSTS": "127.0.0.1"}
    outcomes: list[bool] = []
    async with supervisor(YES, env=env) as client:
        task = await send(client, "Well?")
        for verb, path, method, params in PUSH_CALLS:
            over_http = await request(
                client,
                verb,
                f"tasks/{task['id']}/pushNotificationConfigs{path}",
                params if verb == "POST" else None,
            )
            over_rpc = await client.call(method, {"taskId": task["id"], **params})
            outcomes.append(over_http.is_success)
            assert over_http.is_success == ("result" in over_rpc), method
            if "error" in over_rpc:
                error = over_http.json()["error"]
                assert error["details"] == over_rpc["error"]["data"], method
                assert error["message"] == over_rpc["error"]["message"]
            elif verb != "DELETE":
                assert over_http.json() == over_rpc["result"], method
    assert outcomes == [enabled == "true" and good for good in (True, False, True, True, False, True, False)]


async def test_the_extended_card_is_for_callers_with_a_key() -> None:
    key = secrets.token_urlsafe()
    async with supervisor(YES, env={"A2A_AUTH_SHARED_KEY": key}) as client:
        without = await request(client, "GET", "extendedAgentCard")
        with_key = await request(client, "GET", "extendedAgentCard", Authorization=f"Bearer {key}")
        full = await client.http.get(
            f"{client.url}v1/.well-known/agent-card.json", headers={"Authorization": f"Bearer {key}"}
        )
    assert without.status_code == 401
    assert with_key.json() == full.json()
    async with supervisor(YES) as client:
        response = await request(client, "GET", "extendedAgentCard")
    assert error_of(response) == (400, "FAILED_PRECONDITION", "EXTENDED_AGENT_CARD_NOT_CONFIGURED")


async def test_the_card_declares_the_binding_for_version_1_alone() -> None:
    async with supervisor(YES) as client:
        card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
    interfaces = [(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]]
    assert interfaces == [("JSONRPC", "1.0"), ("JSONRPC", "0.3.0"), ("HTTP+JSON", "1.0")]
    assert card["preferredTransport"] == "JSONRPC"
    assert "additionalInterfaces" not in card  # of 0.3, whose REST has other paths and words


async def test_a_large_task_is_the_same_in_every_answer() -> None:
    answer = "é" * 60_000  # converted in a thread
    async with supervisor(Script(Turn(Say(answer)))) as client:
        task = await send(client, "Well?")
        path = f"tasks/{task['id']}"
        read = await request(client, "GET", path)
        listed = await request(client, "GET", "tasks?includeArtifacts=true")
        over_rpc = await client.call(V10.get, {"id": task["id"]}, A2A_Extensions="")
        old = await client.call(V03.get, {"id": task["id"]})
    assert [text_of(one) for one in task["artifacts"]] == [answer]
    assert task == read.json() == over_rpc["result"] == listed.json()["tasks"][0]
    assert text_of(artifact(old["result"], "final_result")) == answer
    for response in (read, listed):
        assert response.content.isascii()
        assert response.headers["content-length"] == str(len(response.content))
        assert response.headers["content-type"] == "application/a2a+json"


# --- rules --------------------------------------------------------------------------------------------------


async def test_a_version_other_than_1_is_refused_and_a_query_may_name_it() -> None:
    async with supervisor(YES) as client:
        task = await send(client, "Well?")
        url = f"{client.url}tasks/{task['id']}"
        unnamed = await client.http.get(url)
        old = await client.http.get(url, headers={"A2A-Version": "0.3"})
        in_query = await client.http.get(f"{url}?A2A-Version=1.0")
        body = {"jsonrpc": "2.0", "id": 1, "method": V10.get, "params": {"id": task["id"]}}
        over_rpc = await client.http.post(f"{client.url}?A2A-Version=1.0", json=body)
    for refused in (unnamed, old):
        assert error_of(refused) == (400, "FAILED_PRECONDITION", "VERSION_NOT_SUPPORTED")
    assert in_query.json() == over_rpc.json()["result"] == task


async def test_a_missing_task_is_not_found_in_words_that_clients_match() -> None:
    async with supervisor(YES) as client:
        responses = [
            await request(client, "GET", "tasks/none"),
            await request(client, "POST", "tasks/none:cancel"),
            await request(client, "GET", "tasks/none:subscribe"),
            await request(client, "POST", "message:stream", V10.message("More.", taskId="none")),
        ]
    for response in responses:
        assert error_of(response) == (404, "NOT_FOUND", "TASK_NOT_FOUND")
        assert response.json()["error"]["message"].startswith("Task not found.")


async def test_a_task_belongs_to_its_owner() -> None:
    key = secrets.token_urlsafe()
    async with supervisor(YES, env={"A2A_AUTH_DELEGATE_KEY": key}) as client:
        ann, bob = (
            {"Authorization": f"Bearer {key}", **on_behalf_of_headers(name, name)} for name in ("ann", "bob")
        )
        sent = await request(client, "POST", "message:send", V10.message("Well?"), **ann)
        path = f"tasks/{sent.json()['task']['id']}"
        seen_by_ann = await request(client, "GET", "tasks", **ann)
        seen_by_bob = await request(client, "GET", "tasks", **bob)
        read_by_bob = await request(client, "GET", path, **bob)
        cancelled_by_bob = await request(client, "POST", f"{path}:cancel", **bob)
        without_key = await request(client, "GET", path)
    assert seen_by_ann.json()["totalSize"] == 1
    assert seen_by_bob.json()["totalSize"] == 0
    assert error_of(read_by_bob)[2] == error_of(cancelled_by_bob)[2] == "TASK_NOT_FOUND"
    assert without_key.status_code == 401


@pytest.mark.parametrize(
    ("content", "media_type", "status", "reason"),
    [
        (b"{", "application/json", 400, "INVALID_REQUEST"),
        (b"[]", "application/json", 400, "INVALID_REQUEST"),
        (b'{"message": NaN}', "application/json", 400, "INVALID_REQUEST"),
        (b"{}", "application/json", 400, "INVALID_PARAMS"),
        (b"", "application/json", 400, "INVALID_PARAMS"),
        (b'{"message": {"role": 1e99}}', "application/a2a+json", 400, "INVALID_PARAMS"),
        (b"{}", "text/plain", 415, "CONTENT_TYPE_NOT_SUPPORTED"),
        (b'{"message": {"messageId": "' + b"x" * 3000 + b'"}}', "application/json", 400, "INVALID_PARAMS"),
        (b" " * 5000 + b"{}", "application/json", 413, "INVALID_REQUEST"),
        (b'{"a": ' + b"[" * 200 + b"]" * 200 + b"}", "application/json", 413, "INVALID_REQUEST"),
    ],
)
async def test_a_body_that_cannot_be_used_is_refused(
    content: bytes, media_type: str, status: int, reason: str
) -> None:
    async with supervisor(YES, env={"A2A_MAX_REQUEST_BYTES": "4096"}) as client:
        for path in ("message:send", "message:stream"):
            response = await client.http.post(
                client.url + path,
                content=content,
                headers={"A2A-Version": "1.0", "Content-Type": media_type},
            )
            code, _, given_reason = error_of(response)
            assert (code, given_reason) == (status, reason)


async def test_open_streams_are_limited_together_with_those_of_json_rpc() -> None:
    waiting = BlockingScenario()
    env = {"A2A_MAX_STREAMS_PER_USER": "1"}
    async with supervisor(waiting.script, tools=[waiting.tool], env=env) as client:
        over_rpc = client.stream("Wait.", version="1.0")
        task = (await anext(over_rpc)).update
        path = f"tasks/{task['id']}:subscribe"
        refused = await request(client, "GET", path)
        other = await request(client, "GET", f"tasks/{task['id']}")
        waiting.released.set()
        async for _ in over_rpc:
            pass
    assert refused.status_code == 429
    assert refused.headers["Retry-After"] == "10"
    assert refused.json()["error"]["status"] == "RESOURCE_EXHAUSTED"
    assert other.status_code == 200


async def test_a_web_page_of_another_origin_is_refused() -> None:
    async with supervisor(YES) as client:
        response = await request(
            client, "POST", "message:send", V10.message("Hello."), Origin="https://other.example"
        )
        listed = await request(client, "GET", "tasks")
    assert response.status_code == 403
    assert listed.json()["totalSize"] == 0


async def test_everything_on_the_wire_is_ascii() -> None:
    text = "naïve \u2028\u2029\u0085 Привет"
    async with supervisor(Script(Turn(Say("You said {{user}}")))) as client:
        sent = await request(client, "POST", "message:send", V10.message(text, contextId=text))
        streamed = await request(client, "POST", "message:stream", V10.message(text))
        missing = await request(client, "GET", f"tasks/{text}")
    assert all(response.content.isascii() for response in (sent, streamed, missing))
    assert text_of(sent.json()["task"]["artifacts"][0]) == f"You said {text}"


async def test_wrong_verbs_are_refused_and_other_paths_are_not_ours() -> None:
    async with supervisor(YES) as client:
        statuses = {
            (verb, path): (await request(client, verb, path)).status_code
            for verb, path in (
                ("GET", "message:send"),
                ("DELETE", "tasks/x"),
                ("HEAD", "tasks/x:subscribe"),
                ("POST", "message:lose"),
                ("GET", "tenant/tasks"),
            )
        }
    assert statuses == {
        ("GET", "message:send"): 405,
        ("DELETE", "tasks/x"): 405,
        ("HEAD", "tasks/x:subscribe"): 404,
        ("POST", "message:lose"): 404,
        ("GET", "tenant/tasks"): 404,
    }


async def test_json_with_integers_stays_the_same() -> None:
    data = {"count": 3, "most": 2**53 - 1, "half": 0.5}
    async with supervisor(YES) as client:
        response = await request(client, "POST", "message:send", V10.message(V10.data(data)))
    returned = response.json()["task"]["history"][0]["parts"][0]["data"]
    assert json.dumps(returned, sort_keys=True) == json.dumps(data, sort_keys=True)


# --- arbitrary requests -------------------------------------------------------------------------------------

POSTED = st.sampled_from([row.path for row in METHOD_ROUTES if row.verb == "POST"])
READ = st.sampled_from([(row.verb, row.path) for row in METHOD_ROUTES if row.verb != "POST"])
TASK_ID = st.sampled_from(["none", "x:cancel", "%00", "..", "a" * 3_000, "%F0%9F"])
NAMES = st.sampled_from(
    ["pageSize", "pageToken", "status", "historyLength", "contextId", "includeArtifacts", "id"]
)
QUERY = st.dictionaries(NAMES, st.text(max_size=12) | st.sampled_from(["true", "-1", "9" * 40]), max_size=3)
VALUES = json_values("message", "parts", "messageId", "role")
BODY = st.binary(max_size=200) | st.builds(lambda value: json.dumps(value).encode(), VALUES)
VERSION = st.sampled_from(["1.0", "1.0", "1.0", "0.3", "x", ""])
# Verb, path, body and query.
REQUEST = st.one_of(
    st.tuples(st.just("POST"), POSTED, BODY, st.just({})),
    st.builds(lambda row, query: (*row, b"", query), READ, QUERY),
)


@given(st.lists(st.tuples(REQUEST, TASK_ID, VERSION), min_size=15, max_size=30))
@server_examples(5)
async def test_any_request_gets_an_answer_of_the_protocol(requests: list[Any]) -> None:
    async with supervisor(YES) as client:
        with nothing_breaks():
            for (verb, path, body, query), task_id, version in requests:
                url = client.url + re.sub(r"\{\w+\}", lambda _, name=task_id: name, path).removeprefix("/")
                headers = {"Content-Type": "application/json", "A2A-Version": version}
                response = await client.http.request(
                    verb, url, content=body, params=query or None, headers=headers
                )
                check_answer(response)
        assert (await send(client, "Well?"))["status"]["state"] == "TASK_STATE_COMPLETED"


def check_answer(response: httpx.Response) -> None:
    media_type = response.headers["content-type"]
    if response.status_code == 200:
        assert media_type.startswith(("application/a2a+json", "text/event-stream"))
    elif media_type == "application/json":
        error_of(response)
    else:  # the path is none of the binding's
        assert response.status_code in (404, 405), response.text[:300]
    assert response.status_code < 500, response.text[:300]
