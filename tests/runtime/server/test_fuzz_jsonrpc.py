"""Arbitrary bodies at the JSON-RPC entry: each is answered, nothing breaks inside, /health never waits."""

import json
from typing import Any

import httpx
from hypothesis import given
from hypothesis import strategies as st

from tests.support.fakes.script import Say, Script, Turn
from tests.support.fuzzing import json_values, nothing_breaks, server_examples
from tests.support.harness import supervisor
from tests.support.health_witness import health_witness

ANSWER = Script(Turn(Say("Hello.")))
# What the library logs of a request that it refuses.
REFUSALS = ("Failed to validate base JSON-RPC request", "Failed to parse request params")
METHODS = (
    *("message/send", "message/stream", "tasks/get", "tasks/cancel", "tasks/resubscribe"),
    *("agent/getAuthenticatedExtendedCard", "tasks/pushNotificationConfig/set"),
    *("SendMessage", "SendStreamingMessage", "GetTask", "CancelTask", "SubscribeToTask", "ListTasks"),
    *("GetExtendedAgentCard", "CreateTaskPushNotificationConfig", "Nothing"),
)
KEYS = (
    *("message", "parts", "role", "messageId", "contextId", "taskId", "id", "metadata", "configuration"),
    *(
        "kind",
        "text",
        "data",
        "file",
        "raw",
        "url",
        "bytes",
        "historyLength",
        "pageSize",
        "pageToken",
        "resume",
    ),
    *("caipe.scope", "caipe.call", "workflow", "caipe.when_busy", "caipe.timeout_seconds", "decisions"),
)
VALUES = json_values(*KEYS)
PART = (
    st.builds(lambda text: {"kind": "text", "text": text}, st.text(max_size=20) | VALUES)
    | st.builds(lambda text: {"text": text}, st.text(max_size=20) | VALUES)
    | st.builds(lambda data: {"kind": "data", "data": data}, VALUES)
    | st.builds(lambda data: {"data": data}, VALUES)
    | VALUES
)
MESSAGE = st.fixed_dictionaries(
    {
        "role": st.sampled_from(["user", "ROLE_USER", "agent"]) | VALUES,
        "parts": st.lists(PART, max_size=4) | VALUES,
        "messageId": st.text(min_size=1, max_size=20) | VALUES,
    },
    optional={"contextId": VALUES, "taskId": VALUES, "metadata": VALUES, "kind": VALUES},
)
PARAMS = (
    st.fixed_dictionaries({"message": MESSAGE}, optional={"configuration": VALUES, "metadata": VALUES})
    | VALUES
)
REQUEST = st.fixed_dictionaries(
    {"method": st.sampled_from(METHODS) | VALUES, "params": PARAMS},
    optional={"jsonrpc": st.just("2.0") | VALUES, "id": st.integers() | st.text(max_size=8) | VALUES},
)


def to_bytes(value: Any) -> bytes:
    return json.dumps(value).encode()


BODY = st.binary(max_size=200) | st.builds(to_bytes, VALUES) | st.builds(to_bytes, REQUEST)
HEADERS = st.fixed_dictionaries(
    {},
    optional={
        "A2A-Version": st.sampled_from(["1.0", "0.3", "9", ""]),
        "Last-Event-ID": st.sampled_from(["0", "1.1", "99", "-1", "x", "9" * 30]),
        "X-CAIPE-User": st.sampled_from(["ann", "%00", "%F0%9F", "a" * 400]),
        "A2A-Extensions": st.sampled_from(["urn:caipe:events:1", ",", "x"]),
    },
)


# One example is one server and many requests: a server takes longer to start than to answer.
@given(st.lists(st.tuples(BODY, HEADERS), min_size=15, max_size=30))
@server_examples(6)
async def test_any_body_gets_an_answer_of_the_protocol(requests: list[tuple[bytes, dict[str, str]]]) -> None:
    async with supervisor(ANSWER) as client:
        with nothing_breaks(allowed=REFUSALS):
            async with health_witness(client.url):
                for body, headers in requests:
                    response = await client.http.post(
                        client.url, content=body, headers={"Content-Type": "application/json", **headers}
                    )
                    check_answer(response)
        assert (await client.ask("Hello?")).answer == "Hello."


def check_answer(response: httpx.Response) -> None:
    assert response.status_code in (200, 400, 413), response.text[:300]
    if response.status_code == 400 or response.headers["content-type"].startswith("text/event-stream"):
        return
    answer = response.json()
    assert ("result" in answer) != ("error" in answer)
    assert answer.get("error", {}).get("code") != -32603, response.text[:500]
