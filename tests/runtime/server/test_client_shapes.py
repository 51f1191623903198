"""Who gets which shape, on the wire of both versions; what a text-only client can do; what a task holds."""

import asyncio
import json
from typing import Any

import pytest

from tests.support.asking_agent import DELEGATING, Repos, form_tool, github
from tests.support.dialects import V03, V10, Dialect, artifact, both_versions, text_of
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import Client, ReceivedStream, supervisor

EXTENSION = "urn:caipe:events:1"
NONE = {"A2A_Extensions": ""}  # what the harness activates for 1.0 is taken away
FIELDS = [{"field_name": "repo"}, {"field_name": "stars", "field_type": "integer", "default_value": 0}]
TWO_FORMS = Script(Turn(Call("ask_one"), Call("ask_two")), Turn(Say("Thanks.")))


async def ask(
    client: Client, dialect: Dialect, text: str, headers: dict[str, str], **more: Any
) -> ReceivedStream:
    message = dialect.message(text, **more)
    return ReceivedStream([frame async for frame in client.open(dialect.stream, message, **headers)])


async def raw_headers(client: Client, method: str, params: Any, **headers: str) -> dict[str, str]:
    body = {"jsonrpc": "2.0", "id": "1", "method": method, "params": params}
    response = await client.http.post(client.url, json=body, headers=headers)
    return dict(response.headers)


# --- which shape --------------------------------------------------------------------------------------------

SHAPES = [
    (V10, {}, "plain", {}),
    (V10, {"A2A-Extensions": EXTENSION}, "rich", {}),
    (V10, {"X-A2A-Extensions": f"urn:other, {EXTENSION}"}, "rich", {}),
    (V10, {"A2A-Extensions": "urn:other"}, "plain", {}),
    (V03, {}, "rich", {}),
    (V03, {}, "plain", {"A2A_V03_SHAPE": "plain"}),
    (V03, {"X-A2A-Extensions": EXTENSION}, "rich", {"A2A_V03_SHAPE": "plain"}),
    (V10, {}, "plain", {"A2A_V03_SHAPE": "rich"}),
]


@pytest.mark.parametrize(("dialect", "headers", "shape", "env"), SHAPES)
async def test_a_client_gets_its_shape_in_the_stream_and_in_the_task(
    dialect: Dialect, headers: dict[str, str], shape: str, env: dict[str, str]
) -> None:
    version = VersionScenario()
    named = {"A2A_Extensions": "", **{name.replace("-", "_"): value for name, value in headers.items()}}
    async with supervisor(version.script, tools=[version.tool], env=env) as client:
        stream = await ask(client, dialect, "Which version?", named)
        stored = (await client.call(dialect.get, {"id": stream.task_id}, **named))["result"]
        sent = dialect.sent(await client.call(dialect.send, dialect.message("Which version?"), **named))
    names = {frame.name for frame in stream.frames if frame.artifact}
    for task in (stored, sent):
        texts = [text_of(one) for one in task["artifacts"]]
        assert texts.count(version.answer) == 1
        assert ("caipe.events" in (task.get("metadata") or {})) is (shape == "rich")
    if shape == "rich":
        assert names == {
            "streaming_result",
            "tool_notification_start",
            "tool_notification_end",
            "final_result",
        }
        assert stream.events
        return
    assert names == {"answer"}
    assert not stream.events
    assert text_of(artifact(stored, "answer")) == version.answer
    assert len(stored["artifacts"]) == 1
    said = [frame.status_text for frame in stream.frames if frame.status_text]
    assert said == ["🔧 Supervisor: Calling tool: Version", "✅ Supervisor: Tool Version completed"]
    printed = "".join(frame.text for frame in stream.frames)
    assert printed == f"Let me look. {version.answer}"
    assert stream.last.metadata["trace_id"]


@pytest.mark.parametrize("method", ["stream", "send"])
async def test_an_activated_extension_is_named_in_the_response(method: str) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        new = {"A2A-Version": "1.0"}
        name = getattr(V10, method)
        activated = await raw_headers(
            client, name, V10.message("?"), **new, **{"A2A-Extensions": f"{EXTENSION},urn:other"}
        )
        silent = await raw_headers(client, name, V10.message("?"), **new)
        old = await raw_headers(
            client, getattr(V03, method), V03.message("?"), **{"X-A2A-Extensions": EXTENSION}
        )
    assert activated["a2a-extensions"] == EXTENSION
    assert "a2a-extensions" not in silent
    assert old["x-a2a-extensions"] == EXTENSION


async def test_a_plain_stream_is_followed_from_every_cursor() -> None:
    version = VersionScenario()
    async with supervisor(version.script, tools=[version.tool]) as client:
        stream = await ask(client, V10, "Which version?", NONE)
        for index, frame in enumerate(stream.frames[:-1]):
            cursor = {**NONE, "Last_Event_ID": str(frame.id)}
            rest = [one async for one in client.open(V10.subscribe, {"id": stream.task_id}, **cursor)]
            assert [one.raw for one in rest] == [one.raw for one in stream.frames[index + 1 :]]


# --- text-only clients --------------------------------------------------------------------------------------


def wordy(dialect: Dialect) -> dict[str, str]:
    return {} if dialect.old else NONE


@pytest.mark.sample(7)
@both_versions
@pytest.mark.parametrize(
    ("texts", "made"),
    [
        (["approve"], [{"name": "a", "private": False, "stars": 0}]),
        (["Approve."], [{"name": "a", "private": False, "stars": 0}]),
        (["approve 1"], [{"name": "a", "private": False, "stars": 0}]),
        (["name: b\nstars: 7"], [{"name": "b", "private": False, "stars": 7}]),
        (["edit private: true"], [{"name": "a", "private": True, "stars": 0}]),
        (["reject too risky"], []),
        (["approve it, but not now", "Yes, approve", "approve 2", "reject"], []),
    ],
    ids=lambda value: (
        " then ".join(value) if isinstance(value, list) and value and isinstance(value[0], str) else ""
    ),
)
async def test_a_text_decides_on_the_only_approval(
    dialect: Dialect, texts: list[str], made: list[dict[str, Any]]
) -> None:
    repos = Repos()
    async with supervisor(DELEGATING, agents=[github(repos, {"name": "a", "private": False})]) as client:
        stream = await ask(client, dialect, "Go.", wordy(dialect))
        assert "github wants to call create_repo." in stream.last.status_text
        for text in texts:
            assert stream.last.state == "input-required"
            assert repos.made == []
            stream = await ask(client, dialect, text, wordy(dialect), taskId=stream.task_id)
        assert stream.last.state == "completed"
    assert repos.made == made
    if texts == ["reject too risky"]:
        [resolved] = [part for frame in stream.frames for part in resolutions(frame.update)]
        assert resolved["resolution"] == "rejected"


def resolutions(update: dict[str, Any]) -> list[dict[str, Any]]:
    holder = update.get("artifact") or (update.get("status") or {}).get("message") or {}
    return [part["data"] for part in holder.get("parts", []) if "resolution" in (part.get("data") or {})]


@both_versions
async def test_with_several_requests_a_text_names_one_by_its_number(dialect: Dialect) -> None:
    repos = Repos()
    calls = [{"name": "a"}, {"name": "b"}, {"name": "c"}]
    async with supervisor(DELEGATING, agents=[github(repos, *calls)]) as client:
        stream = await ask(client, dialect, "Go.", wordy(dialect))
        assert '"approve 2"' in stream.last.status_text
        unclear = await ask(client, dialect, "approve", wordy(dialect), taskId=stream.task_id)
        assert unclear.last.state == "input-required"
        for text in ("approve 2", "reject 1 no", "edit 3\nname: d"):
            assert stream.last.state == "input-required"
            stream = await ask(client, dialect, text, wordy(dialect), taskId=stream.task_id)
        again = await client.call(dialect.send, dialect.message("approve 2", taskId=stream.task_id))
    assert stream.last.state == "completed"
    assert sorted(one["name"] for one in repos.made) == ["b", "d"]
    assert again["error"]["code"] == -32004


@both_versions
async def test_forms_are_answered_and_declined_by_text(dialect: Dialect) -> None:
    tools = [form_tool("ask_one", FIELDS), form_tool("ask_two", [{"field_name": "why"}])]
    async with supervisor(TWO_FORMS, tools=tools) as client:
        stream = await ask(client, dialect, "Go.", wordy(dialect))
        text = stream.last.status_text
        assert "1. About ask_one" in text
        assert "- stars (integer, optional): Default: 0." in text
        assert '"answer 2" and your text' in text
        stream = await ask(
            client, dialect, "answer 1\nrepo: x\nstars: many", wordy(dialect), taskId=stream.task_id
        )
        assert stream.last.state == "input-required"
        assert "stars must be" in stream.last.status_text
        stream = await ask(client, dialect, "answer 1\nrepo: x", wordy(dialect), taskId=stream.task_id)
        stream = await ask(client, dialect, "answer 2 because", wordy(dialect), taskId=stream.task_id)
        assert (stream.last.state, stream.last.status_text) == ("completed", "")
        declined = await ask(client, dialect, "Go.", wordy(dialect))
        await ask(client, dialect, "reject 1 no need", wordy(dialect), taskId=declined.task_id)
        ended = await ask(client, dialect, "answer 2 so", wordy(dialect), taskId=declined.task_id)
    assert ended.last.state == "completed"


@pytest.mark.sample(3)
@both_versions
@pytest.mark.parametrize("reason", ["extension", "setting", "supervisor"])
async def test_a_text_that_no_person_may_have_written_decides_nothing(dialect: Dialect, reason: str) -> None:
    """A client with rules of its own about who decides, a server that takes no such texts, a model's text."""
    repos = Repos()
    headers = {"A2A_Extensions": EXTENSION} if reason == "extension" else wordy(dialect)
    env = {"A2A_TEXT_DECISIONS": "false"} if reason == "setting" else {}
    parts: list[Any] = ["approve"]
    if reason == "supervisor":
        parts.append(dialect.data({"caipe.named": {"run": "r", "hosts": [], "urls": []}}))
    async with supervisor(DELEGATING, agents=[github(repos, {"name": "a"})], env=env) as client:
        stream = await ask(client, dialect, "Go.", headers)
        message = dialect.message(*parts, taskId=stream.task_id)
        more = ReceivedStream([frame async for frame in client.open(dialect.stream, message, **headers)])
        assert more.last.state == "input-required"
    assert repos.made == []
    if reason != "supervisor":
        assert '"approve"' not in stream.last.status_text


# --- what a task remembers ----------------------------------------------------------------------------------


@both_versions
async def test_the_history_holds_both_sides_and_is_cut_to_its_length(dialect: Dialect) -> None:
    tool = form_tool("ask_one", FIELDS)
    script = Script(Turn(Call("ask_one")), Turn(Say("Done.")))
    async with supervisor(script, tools=[tool]) as client:
        stream = await ask(client, dialect, "Go.", wordy(dialect), messageId="first")
        wrong = dialect.message("repo: x\nstars: many", taskId=stream.task_id, messageId="second")
        await client.call(dialect.send, wrong, **wordy(dialect))
        right = dialect.message(dialect.data({"repo": "x"}), taskId=stream.task_id, messageId="third")
        done = dialect.sent(await client.call(dialect.send, right, **wordy(dialect)))

        async def history(length: int | None) -> list[dict[str, Any]]:
            params: dict[str, Any] = {"id": stream.task_id}
            if length is not None:
                params["historyLength"] = length
            task = (await client.call(dialect.get, params, **wordy(dialect)))["result"]
            messages: list[dict[str, Any]] = task.get("history", [])
            return messages

        full = await history(None)
        roles = [one["role"].lower().removeprefix("role_") for one in full]
        # In the plain shape the last one says what became of the form.
        assert roles == ["user", "agent", "user", "agent", "user", *([] if dialect.old else ["agent"])]
        assert [one["messageId"] for one in full[:5:2]] == ["first", "second", "third"]
        assert "About ask_one" in text_of(full[1])
        assert "stars must be" in text_of(full[3])
        assert full[4]["parts"][0]["data"] == {"repo": "x"}
        assert await history(2) == full[-2:]
        assert await history(0) == (full if dialect.old else [])  # in 0.3 only a positive length limits
    assert done["history"] == full


@both_versions
async def test_a_form_is_never_listed_as_open_twice(dialect: Dialect) -> None:
    """An expired form is asked again under a new id: the old one is marked."""
    tool = form_tool("ask_one", FIELDS)
    script = Script(Turn(Call("ask_one")), Turn(Say("Done.")))
    env = {"REQUEST_TIMEOUT_SECONDS": "0.2"}
    async with supervisor(script, tools=[tool], env=env) as client:
        stream = await ask(client, dialect, "Go.", {})
        while True:
            task = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
            if "expired" in json.dumps([one["parts"] for one in task["artifacts"]]):
                break
            await asyncio.sleep(0.05)
        assert open_requests(task) == []
        again = await ask(client, dialect, "repo: x", {}, taskId=stream.task_id)
        task = (await client.call(dialect.get, {"id": stream.task_id}))["result"]
    assert again.last.state == "input-required"
    assert len(open_requests(task)) <= 1


def open_requests(task: dict[str, Any]) -> list[str]:
    data = [part["data"] for one in task["artifacts"] for part in one["parts"] if "data" in part]
    return [one["request_id"] for one in data if one.get("user_input")]


@both_versions
async def test_a_queued_task_is_submitted_with_its_position(dialect: Dialect) -> None:
    waiting = BlockingScenario()
    async with supervisor(waiting.script, tools=[waiting.tool]) as client:
        first = client.stream("Wait.", version=dialect.version, contextId="shared")
        opened = [await anext(first)]
        await waiting.started.wait()
        next_message = dialect.message("Next.", contextId="shared")
        stream = client.open(dialect.stream, next_message, **wordy(dialect))
        frames = [await anext(stream)]
        while "Queued" not in frames[-1].status_text:
            frames.append(await anext(stream))
        task_id = str(frames[0].update["id"])
        task = (await client.call(dialect.get, {"id": task_id}, **wordy(dialect)))["result"]
        assert dialect.state(task) == "submitted"
        assert (
            text_of(task["status"]["message"]) == "Queued: 1 question of this conversation before this one."
        )
        waiting.released.set()
        frames += [frame async for frame in stream]
        opened += [frame async for frame in first]
    states = [frame.state for frame in frames if frame.state]
    assert states[states.index("working") :].count("submitted") == 0
    assert states[-1] == opened[-1].state == "completed"


# --- errors -------------------------------------------------------------------------------------------------


@both_versions
async def test_a_missing_task_is_not_found_in_words_that_clients_match(dialect: Dialect) -> None:
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        for method in (dialect.get, dialect.cancel):
            error = (await client.call(method, {"id": "none"}))["error"]
            assert error["code"] == -32001
            assert error["message"] == "Task not found. There is no task none."
            assert None not in error.values()


@pytest.mark.parametrize(
    "params",
    [
        {"id": "none"},
        {},
        {"message": {"role": "user", "messageId": "m", "parts": [{"text": "no kind"}]}},
        {"message": {"role": "user", "messageId": "m", "parts": []}},
        {"message": {"role": "user", "messageId": "m" * 5000, "parts": [{"kind": "text", "text": "x"}]}},
    ],
    ids=["no task", "no params", "no kind", "no parts", "long id"],
)
async def test_an_error_of_a_0_3_stream_is_an_event_of_the_stream(params: dict[str, Any]) -> None:
    method = V03.subscribe if "id" in params else V03.stream
    async with supervisor(Script(Turn(Say("Yes.")))) as client:
        body = {"jsonrpc": "2.0", "id": 7, "method": method, "params": params}
        response = await client.http.post(client.url, json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.content.startswith(b"data: ")
    assert response.content.endswith(b"\n\n")
    answer = json.loads(response.content.removeprefix(b"data: "))
    assert answer["id"] == 7
    assert answer["error"]["code"] in (-32001, -32602, -32600)
