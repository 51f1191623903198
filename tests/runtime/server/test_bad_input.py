"""Bad input gets the protocol's error, in words that say nothing of the inside, and leaves the server
healthy."""

import base64
import json
import secrets
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from tests.support.dialects import V03, V10, Dialect, both_versions
from tests.support.echo_supervisor import VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import Client, supervisor

MEGABYTE = 1024 * 1024

# What a Python program says of itself: none of it belongs into an answer.
INSIDE = (
    "Traceback", 'File "', ".py", "Error(", "Exception", "NoneType", "object is not", "<class",
    "google.protobuf", "pydantic",
    "parseError", "utf-8' codec", "expected string or bytes", "dict)", "set()", "recursion",
)  # fmt: skip


@asynccontextmanager
async def healthy(**options: Any) -> AsyncIterator[Client]:
    """A server that must still answer a good question after what was done to it."""
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool], **options) as client:
        yield client
        assert (await client.ask("Which version?")).answer == version.answer
        assert (await client.ask("Which version?", version="1.0")).answer == version.answer


async def post(
    client: Client, content: bytes | str, dialect: Dialect = V03, **headers: str
) -> httpx.Response:
    versioned = {} if dialect.old else {"A2A-Version": "1.0"}
    given = {
        "Content-Type": "application/json",
        **versioned,
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    response = await client.http.post(client.url, content=content, headers=given)
    assert [word for word in INSIDE if word in response.text] == [], response.text[:500]
    return response


def code_of(response: httpx.Response) -> int:
    answer = json.loads(response.text.removeprefix("data: "))
    assert "result" not in answer
    assert answer["error"]["message"]
    return int(answer["error"]["code"])


def request(method: Any, **fields: Any) -> str:
    return json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, **fields})


def nested(depth: int) -> Any:
    value: Any = "x"
    for _ in range(depth):
        value = [value]
    return value


# --- not a request ------------------------------------------------------------------------------------------

NOT_JSON = {
    "nothing": b"",
    "half": b'{"jsonrpc": "2.0", "id": 1, "method": "message/send"',
    "single quotes": b"{'jsonrpc': '2.0'}",
    "a word": b"hello",
    "bad utf-8": b'{"jsonrpc":"2.0","id":1,"method":"\xff\xfe"}',
    "utf-16": '{"jsonrpc":"2.0","id":1,"method":"tasks/get"}'.encode("utf-16"),
    "NaN": b'{"jsonrpc":"2.0","id":NaN,"method":"tasks/get"}',
    "Infinity": b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"id":-Infinity}}',
    "beyond floats": b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"historyLength":1e999}}',
    "endless digits": b'{"jsonrpc":"2.0","id":1,"method":"tasks/get","params":{"historyLength":'
    + b"9" * 5000
    + b"}}",
}


async def test_what_is_not_json_is_a_parse_error() -> None:
    async with healthy() as client:
        for name, content in NOT_JSON.items():
            response = await post(client, content)
            assert (name, response.status_code, code_of(response)) == (name, 200, -32700)
            assert response.json()["id"] is None


TOO_DEEP = {
    "deep lists": b"[" * 100_000 + b"]" * 100_000,
    "deep objects": b'{"a":' * 100_000 + b"1" + b"}" * 100_000,
    "just too deep": b"[" * 101 + b"]" * 101,
}


async def test_what_is_nested_too_deep_is_not_parsed() -> None:
    async with healthy() as client:
        for name, content in TOO_DEEP.items():
            response = await post(client, content)
            assert (name, response.status_code, code_of(response)) == (name, 413, -32600)
            assert response.json()["id"] is None


NOT_A_REQUEST = {
    "a number": "3", "a string": '"x"', "null": "null", "true": "true", "an empty list": "[]",
    "an empty object": "{}",
    "a batch": f"[{request('tasks/get', params={'id': 'x'})},{request('tasks/get', params={'id': 'x'})}]",
    "no method": '{"jsonrpc":"2.0","id":1}',
    "an empty method": request(""), "a number as method": request(3),
    "a list as method": request(["message/send"]),
    "params are text": request("message/send", params="x"),
    "params are a number": request("SendMessage", params=3),
    "a fraction as id": '{"jsonrpc":"2.0","id":1.5,"method":"tasks/get","params":{"id":"x"}}',
    "an object as id": '{"jsonrpc":"2.0","id":{},"method":"tasks/get","params":{"id":"x"}}',
    "true as id": '{"jsonrpc":"2.0","id":true,"method":"tasks/get","params":{"id":"x"}}',
    "another field": request("tasks/get", params={"id": "x"}, extra=1),
}  # fmt: skip


async def test_what_is_not_one_request_is_an_invalid_request() -> None:
    async with healthy() as client:
        for name, content in NOT_A_REQUEST.items():
            response = await post(client, content)
            assert (name, response.status_code, code_of(response)) == (name, 200, -32600)


async def test_an_unknown_method_is_not_found() -> None:
    async with healthy() as client:
        for method in (
            "nope",
            "message",
            "Message/Send",
            "tasks/get ",
            "sendMessage",
            "__init__",
            "message/sendx",
            "x" * 100_000,
        ):
            assert code_of(await post(client, request(method, params={}))) == -32601


@both_versions
async def test_missing_and_wrong_parameters_are_invalid_params(dialect: Dialect) -> None:
    message = dialect.message("x")["message"]
    wrong: list[Any] = [
        ..., None, [], [1], {}, {"message": None}, {"message": []}, {"message": 3}, {"message": {}},
        {"message": {**message, "parts": "x"}}, {"message": {**message, "parts": {}}},
        {"message": {**message, "parts": [3]}},
        {"message": {**message, "messageId": {"a": 1}}}, {"message": {**message, "messageId": None}},
        {"message": {**message, "role": "boss"}}, {"message": {**message, "contextId": ["c"]}},
        {"message": {**message, "taskId": 3}},
        {"message": message, "configuration": 3},
        {"message": message, "configuration": {"historyLength": "many"}},
        {"message": message, "configuration": {"historyLength": -1}},
    ]  # fmt: skip
    async with healthy() as client:
        for params in wrong:
            for method in (dialect.send, dialect.stream):
                params_field = {} if params is ... else {"params": params}
                assert (params, code_of(await post(client, request(method, **params_field), dialect))) == (
                    params,
                    -32602,
                )
        for method in (dialect.get, dialect.cancel, dialect.subscribe):
            for params in (None, {}, [], {"id": None}, {"id": 3}, {"id": ["x"]}, {"id": ""}):
                code = code_of(await post(client, request(method, params=params), dialect))
                assert code == -32602 or (code == -32001 and params == {"id": ""}), (method, params, code)
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []


@both_versions
async def test_what_a_refused_request_says_is_not_logged(
    dialect: Dialect, caplog: pytest.LogCaptureFixture
) -> None:
    secret = secrets.token_hex(8)
    message = dialect.message("x")["message"]
    async with healthy() as client:
        for wrong in (
            {**message, "role": secret},
            {**message, "parts": secret},
            {**message, "parts": [{secret: 1, "kind": secret}]},
        ):
            assert (
                code_of(await post(client, request(dialect.send, params={"message": wrong}), dialect))
                == -32602
            )
    assert secret not in caplog.text
    assert "Traceback" not in caplog.text


# --- messages that say nothing or too much ------------------------------------------------------------------


@both_versions
async def test_an_empty_message_is_refused(dialect: Dialect) -> None:
    async with healthy() as client:
        for parts in (
            [],
            [dialect.text("")],
            [dialect.text(" \n\t")],
            [dialect.text(""), dialect.text("  ")],
        ):
            for method in (dialect.send, dialect.stream):
                params = {"message": {**dialect.message()["message"], "parts": parts}}
                assert code_of(await post(client, request(method, params=params), dialect)) == -32602
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []


@both_versions
async def test_a_message_of_five_megabytes_is_too_large(dialect: Dialect) -> None:
    async with healthy() as client:
        for method in (dialect.send, dialect.stream):
            response = await post(
                client, request(method, params=dialect.message("x" * 5 * MEGABYTE)), dialect
            )
            assert (response.status_code, code_of(response), response.json()["jsonrpc"]) == (
                413,
                -32600,
                "2.0",
            )
            assert "A2A_MAX_REQUEST_BYTES" in response.json()["error"]["message"]


async def test_the_size_of_a_request_is_a_setting() -> None:
    async with healthy(env={"A2A_MAX_REQUEST_BYTES": "2000"}) as client:
        assert (await post(client, request("tasks/get", params={"id": "x" * 1800}))).status_code == 200
        assert (await post(client, request("tasks/get", params={"id": "x" * 2000}))).status_code == 413


async def test_a_body_without_an_announced_length_is_limited_too() -> None:
    async def endless() -> AsyncIterator[bytes]:
        for _ in range(1000):
            yield b" " * 10_000

    async with healthy(env={"A2A_MAX_REQUEST_BYTES": "20000"}) as client:
        response = await client.http.post(
            client.url, content=endless(), headers={"Content-Type": "application/json"}
        )
        assert response.status_code == 413


async def test_a_large_message_within_the_limit_is_answered() -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("Read."))))
    text = "y" * MEGABYTE
    async with supervisor(model, env={"LLM_CONTEXT_TOKENS": "10000000"}) as client:
        assert (await client.ask(text)).answer == "Read."
    assert model.requests[0].last_user == text


@both_versions
async def test_data_that_cannot_be_kept_is_invalid_params(dialect: Dialect) -> None:
    huge = f'"data": {{"x": 1{"0" * 400}}}'
    async with healthy() as client:
        for depth, code in ((60, -32602), (300, -32600), (900, -32600)):
            content = request(dialect.send, params=dialect.message(dialect.data({"x": nested(depth)})))
            assert code_of(await post(client, content, dialect)) == code
        content = request(dialect.send, params=dialect.message(dialect.data({"x": "HERE"}))).replace(
            '"data": {"x": "HERE"}', huge
        )
        assert "000000" in content
        assert code_of(await post(client, content, dialect)) == -32602


@both_versions
async def test_half_an_emoji_and_nul_are_replaced_wherever_they_stand(dialect: Dialect) -> None:
    model = ScriptedChatModel(script=Script(Turn(Say("You said {{user}}"))))
    odd = "a\ud83db\x00c"
    async with supervisor(model) as client:
        params = dialect.message(odd, messageId=odd, contextId=odd)
        body = json.dumps({"jsonrpc": "2.0", "id": odd, "method": dialect.send, "params": params})
        sent = await post(client, body, dialect)
        task = dialect.sent(sent.json())
        streamed = await post(client, request(dialect.stream, params=dialect.message(odd)), dialect)
        missing = await post(client, request(dialect.get, params={"id": odd}), dialect)
        assert (await client.ask("fine")).answer == "You said fine"
    assert dialect.state(task) == "completed"
    assert [one.last_user for one in model.requests[:2]] == ["a\ufffdb\ufffdc"] * 2
    assert streamed.status_code == 200
    assert code_of(missing) == -32001


@both_versions
async def test_ids_are_only_ids(dialect: Dialect) -> None:
    long = "/'%\\" * 64
    async with healthy() as client:
        params = dialect.message("Which version?", messageId=long, contextId=long)
        body = json.dumps({"jsonrpc": "2.0", "id": long, "method": dialect.send, "params": params})
        answer = (await post(client, body, dialect)).json()
        assert (answer["id"], dialect.sent(answer)["contextId"]) == (long, long)
        assert code_of(await post(client, request(dialect.get, params={"id": long}), dialect)) == -32001
        assert (
            code_of(
                await post(client, request(dialect.send, params=dialect.message("x", taskId=long)), dialect)
            )
            == -32001
        )
        number = 10**100
        answer = (
            await post(
                client,
                json.dumps({"jsonrpc": "2.0", "id": number, "method": dialect.get, "params": {"id": "x"}}),
                dialect,
            )
        ).json()
        assert answer["id"] == number


# --- files --------------------------------------------------------------------------------------------------


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()


@both_versions
@pytest.mark.parametrize(
    "media_type", ["text/plain", "text/x-python; charset=utf-8", "application/json", "application/yaml", None]
)
async def test_a_text_file_reaches_the_model(dialect: Dialect, media_type: str | None) -> None:
    value = secrets.token_hex(8)
    model = ScriptedChatModel(script=Script(Turn(Say("Read."))))
    async with supervisor(model) as client:
        file = dialect.file(encoded(f"value: {value} ü\n".encode()), "notes.yaml", media_type)
        task = dialect.sent(await client.call(dialect.send, dialect.message("What is in it?", file)))
    assert dialect.state(task) == "completed"
    last_user_text = model.requests[0].last_user
    assert last_user_text.startswith("What is in it?")
    assert "notes.yaml" in last_user_text
    assert f"value: {value} ü" in last_user_text


REFUSED_FILES: dict[str, tuple[bytes, str | None, str]] = {
    "too large": (b"x" * (256 * 1024 + 1), "text/plain", "262145 bytes"),
    "an image": (b"\x89PNG\r\n\x1a\n", "image/png", "not a text file"),
    "binary that says text": (b"\xff\xfe\x00\x01", "text/plain", "not a text file"),
    "nul bytes": (b"text\x00text", None, "not a text file"),
    "text that says pdf": (b"%PDF-1.4", "application/pdf", "not a text file"),
}


@both_versions
async def test_other_files_are_refused_in_a_clear_sentence(dialect: Dialect) -> None:
    async with healthy() as client:
        for content, media_type, words in REFUSED_FILES.values():
            for method in (dialect.send, dialect.stream):
                params = dialect.message("Read it.", dialect.file(encoded(content), "it.bin", media_type))
                response = await post(client, request(method, params=params), dialect)
                assert code_of(response) == -32005
                assert words in response.text
                assert "it.bin" in response.text
        linked = await post(
            client,
            request(dialect.send, params=dialect.message("Read it.", dialect.linked("http://192.0.2.1/x"))),
            dialect,
        )
        assert code_of(linked) == -32005
        assert "not fetched" in linked.text
        assert (await client.call("ListTasks", {}))["result"]["tasks"] == []


async def test_the_size_of_a_file_is_a_setting() -> None:
    async with healthy(env={"A2A_MAX_FILE_BYTES": "10"}) as client:
        for content, good in ((b"x" * 10, True), (b"x" * 11, False)):
            answer = await client.call(
                V10.send, V10.message(V10.file(encoded(content), "x.txt", "text/plain"))
            )
            assert ("result" in answer) is good


@both_versions
async def test_a_file_whose_content_is_broken_is_refused(dialect: Dialect) -> None:
    async with healthy() as client:
        response = await post(
            client,
            request(dialect.send, params=dialect.message(dialect.file("abc", "x.txt", "text/plain"))),
            dialect,
        )
        assert code_of(response) in (-32602, -32005)


# --- what breaks inside -------------------------------------------------------------------------------------


@both_versions
async def test_an_unforeseen_error_stays_inside(dialect: Dialect, caplog: pytest.LogCaptureFixture) -> None:
    secret = f"sk-{secrets.token_hex(12)}"
    script = Script(
        lambda request: _explode(secret) if "explode" in request.last_user else Turn(Say("Fine."))
    )
    async with supervisor(script) as client:
        for method in (dialect.send, dialect.stream):
            response = await post(client, request(method, params=dialect.message("explode")), dialect)
            assert secret not in response.text
            assert "failed" in response.text.lower()
        assert (await client.ask("fine")).answer == "Fine."
    assert secret not in caplog.text


def _explode(secret: str) -> Turn:
    raise RuntimeError(f"could not log in with {secret}")
