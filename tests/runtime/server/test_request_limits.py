"""Requests that would cost more than they weigh are refused before anything is converted."""

import json
from typing import Any

import pytest

from tests.support.dialects import Dialect, both_versions
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, supervisor
from tests.support.health_witness import health_witness

ANSWER = Script(Turn(Say("Read.")))


def count_of(client: Client, dialect: Dialect, count: int, what: str) -> dict[str, Any]:
    """A message with so many of something."""
    params = dialect.message(dialect.text("Hello?"))
    message = params["message"]
    match what:
        case "parts":
            message["parts"] = [dialect.text("a")] * count
        case "metadata":
            message["metadata"] = {f"key{number}": number for number in range(count)}
        case "data":
            message["parts"].append(dialect.data({"x": [[] for _ in range(count)]}))
        case _:
            message[what] = "x" * count
    return params


def encode(dialect: Dialect, params: Any, **more: Any) -> bytes:
    body = {"jsonrpc": "2.0", "id": "1", "method": dialect.send, "params": params, **more}
    return json.dumps(body).encode()


async def post_bytes(client: Client, dialect: Dialect, body: bytes) -> tuple[int, dict[str, Any]]:
    headers = {"Content-Type": "application/json"}
    if not dialect.old:
        headers["A2A-Version"] = "1.0"
    response = await client.http.post(client.url, content=body, headers=headers)
    return response.status_code, response.json()["error"]


async def post(client: Client, dialect: Dialect, params: Any, **more: Any) -> tuple[int, dict[str, Any]]:
    return await post_bytes(client, dialect, encode(dialect, params, **more))


@pytest.mark.sample(3)
@both_versions
@pytest.mark.parametrize(
    ("what", "count"),
    [("parts", 100_000), ("metadata", 150_000), ("data", 500_000)],
)
async def test_a_message_with_too_many_values_is_refused_unread(
    dialect: Dialect, what: str, count: int
) -> None:
    async with supervisor(ANSWER) as client:
        body = encode(dialect, count_of(client, dialect, count, what))
        async with health_witness(client.url):
            status, error = await post_bytes(client, dialect, body)
    assert (status, error["code"]) == (413, -32600)
    assert "A2A_MAX_JSON_VALUES" in error["message"]


@both_versions
@pytest.mark.parametrize("what", ["messageId", "contextId", "taskId", "message_id"])
async def test_a_long_id_is_refused(dialect: Dialect, what: str) -> None:
    async with supervisor(ANSWER) as client:
        body = encode(dialect, count_of(client, dialect, 2_000_000, what))
        async with health_witness(client.url):
            status, error = await post_bytes(client, dialect, body)
    assert (status, error["code"]) == (200, -32602)
    assert error["data"] == [f"params.message.{what}: an id has at most 256 characters (A2A_MAX_ID_CHARS)"]
    assert len(json.dumps(error)) < 500


@both_versions
async def test_a_long_id_of_a_request_is_not_repeated(dialect: Dialect) -> None:
    async with supervisor(ANSWER) as client:
        _, error = await post(client, dialect, count_of(client, dialect, 1, "parts"), id="x" * 1_000_000)
        assert error["data"][0].startswith("id: an id has at most")
        _, error = await post(client, dialect, {"id": "x" * 257})
        assert error["data"][0].startswith("params.id: an id has at most")


@both_versions
async def test_a_message_with_many_parts_is_refused(dialect: Dialect) -> None:
    async with supervisor(ANSWER) as client:
        status, error = await post(client, dialect, count_of(client, dialect, 101, "parts"))
        assert (status, error["code"]) == (200, -32602)
        assert error["data"] == ["params.message.parts: a message has at most 100 parts (A2A_MAX_PARTS)"]
        answer = await client.call(dialect.send, count_of(client, dialect, 100, "parts"))
        assert "result" in answer


@both_versions
async def test_the_most_that_is_accepted_stalls_nobody(dialect: Dialect) -> None:
    async with supervisor(ANSWER) as client:
        params = count_of(client, dialect, 1_450, "metadata")
        async with health_witness(client.url):
            assert "result" in await client.call(dialect.send, params)


@both_versions
async def test_limits_are_settings(dialect: Dialect) -> None:
    env = {
        "A2A_MAX_JSON_VALUES": "100",
        "A2A_MAX_JSON_DEPTH": "8",
        "A2A_MAX_PARTS": "2",
        "A2A_MAX_ID_CHARS": "40",
    }
    async with supervisor(ANSWER, env=env) as client:
        status, _ = await post(client, dialect, count_of(client, dialect, 60, "metadata"))
        assert status == 413
        deep = count_of(client, dialect, 1, "parts")
        deep["message"]["metadata"] = {"x": [[[[[[[1]]]]]]]}
        status, error = await post(client, dialect, deep)
        assert (status, "nested too deep" in error["message"]) == (413, True)
        _, error = await post(client, dialect, count_of(client, dialect, 3, "parts"))
        assert "at most 2 parts" in error["data"][0]
        _, error = await post(client, dialect, count_of(client, dialect, 41, "contextId"))
        assert "at most 40 characters" in error["data"][0]


async def test_values_in_texts_are_not_counted() -> None:
    text = '{"a": [1, 2, 3]}, "\\' * 50_000
    async with supervisor(ANSWER, env={"LLM_CONTEXT_TOKENS": "10000000"}) as client:
        assert (await client.ask(text)).answer == "Read."
