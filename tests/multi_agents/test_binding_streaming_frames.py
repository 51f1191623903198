"""Streams beside each other and the frames themselves: conversations never mix, questions wait in line,
every frame has its number.
"""

import asyncio

import pytest

from tests.support.fakes.script import Call, Gate, Say, Script, Turn
from tests.support.harness import Frame, ReceivedStream
from tests.support.scenarios import (
    PAIRS,
    VERSIONS,
    delegate,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
    version_team,
)

NEW_HEADERS = {"A2A-Version": "1.0", "A2A-Extensions": "urn:caipe:events:1"}


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_two_conversations_at_once_never_mix(kind: str, version: str) -> None:
    meet, questions = asyncio.Barrier(2), [token("question"), token("question")]
    values = {question: token() for question in questions}

    async def look(what: str) -> str:
        await asyncio.wait_for(meet.wait(), 120)
        return f"value={values[what]}"

    argocd = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {"what": "{{user}}"})), Turn(Say("value={{tool:look.value}}"))),
        tool("look", look),
    )
    script = Script(
        Turn(Say("About {{user}}"), delegate("argocd", "{{user}}", id="same")),
        Turn(Say("{{user}}: {{tool:argocd.value}}")),
    )
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        first, two = await asyncio.gather(*(stage.ask(question, version=version) for question in questions))
    for stream, mine, other in ((first, *questions), (two, *reversed(questions))):
        assert stream.answer == f"{mine}: {values[mine]}"
        assert stream.streamed_texts == [f"About {mine}", f"{mine}: {values[mine]}"]
        assert other.encode() not in stream.raw
        assert values[other].encode() not in stream.raw
        assert {frame.update.get("contextId") for frame in stream.frames} == {stream.context_id}
        assert {frame.update.get("taskId") or frame.update.get("id") for frame in stream.frames} == {
            stream.task_id
        }
    assert first.context_id != two.context_id
    assert first.task_id != two.task_id


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_second_question_waits_in_line_is_told_so_and_both_are_answered(version: str) -> None:
    gate, value = Gate(), token()

    async def look() -> str:
        await gate.wait_seen("Queued: 1 question of this conversation before this one.")
        return f"value={value}"

    script = Script(
        lambda request: (
            Turn(Call("look", {}))
            if request.last_user == "First"
            else Turn(Say(f"{len(request.messages)} messages"))
        ),
        Turn(Say("It is {{tool:look.value}}")),
    )
    both: dict[str, list[Frame]] = {"First": [], "Second": []}

    async with run_scripted_system(script, tools=[tool("look", look)]) as stage:

        async def follow(question: str, **more: str) -> None:
            async for frame in stage.client.stream(question, version=version, **more):
                both[question].append(frame)
                if question == "First" and len(both["First"]) == 1:
                    later.append(asyncio.create_task(follow("Second", contextId=frame.update["contextId"])))
                gate.seen(frame.status_text)

        later: list[asyncio.Task[None]] = []
        await follow("First")
        await later[0]
    first, second = ReceivedStream(both["First"]), ReceivedStream(both["Second"])
    assert gate.failure is None
    assert first.answer == f"It is {value}"
    assert (
        second.answer == "5 messages"
    )  # the first question with its call, its result and its answer, then the second
    notices = [frame for frame in second.frames if frame.status_text.startswith("Queued")]
    assert [frame.state for frame in notices] == ["submitted"]
    assert not [frame for frame in first.frames if frame.status_text]
    assert first.task_id != second.task_id
    assert first.context_id == second.context_id
    assert [stream.last.state for stream in (first, second)] == ["completed", "completed"]


def number(frame: Frame) -> tuple[int, float]:
    """An id as something that can be compared: a bare number comes after its parts."""
    assert frame.id is not None
    seq, _, part = frame.id.partition(".")
    return int(seq), int(part) if part else float("inf")


@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_every_frame_has_an_id_and_only_the_last_of_an_event_has_the_bare_number(
    kind: str, version: str
) -> None:
    script, argocd = version_team(token(), "I look.")
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask(version=version)
    numbers = [number(frame) for frame in stream.frames]
    assert numbers == sorted(set(numbers))
    assert [frame.metadata["caipe.seq"] for frame in stream.frames] == [str(seq) for seq, _ in numbers]
    by_event: dict[int, list[str]] = {}
    for frame, (seq, _) in zip(stream.frames, numbers, strict=True):
        by_event.setdefault(seq, []).append(frame.id or "")
    assert list(by_event) == list(range(1, len(by_event) + 1))
    for seq, ids in by_event.items():
        assert ids == [*(f"{seq}.{part}" for part in range(1, len(ids))), str(seq)]
    assert by_event[1] == ["1.1", "1"]  # the task, then the status
    assert len(by_event[len(by_event)]) == 2  # the answer, then the status


async def test_bytes_on_the_wire_are_ascii_whatever_is_said() -> None:
    text = "Grüße 🎉\u2028and\u0085more"
    async with run_scripted_system(Script(Turn(Say(text, " {{user}}")))) as stage:
        stream = await stage.ask("日本語")
    assert stream.raw.isascii()
    assert stream.answer == f"{text} 日本語"


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_quiet_stream_is_kept_alive_by_comments(version: str) -> None:
    gate, value = Gate(), token()

    async def look() -> str:
        await gate.wait_seen(": keep-alive\n\n")
        return f"value={value}"

    method, headers = ("message/stream", {}) if version == "0.3" else ("SendStreamingMessage", NEW_HEADERS)
    script = Script(Turn(Call("look", {})), Turn(Say("It is {{tool:look.value}}")))
    raw = b""
    async with run_scripted_system(
        script, tools=[tool("look", look)], env={"A2A_KEEP_ALIVE_SECONDS": "0.02"}
    ) as stage:
        client = stage.client
        body = {
            "jsonrpc": "2.0",
            "id": "1",
            "method": method,
            "params": {"message": client.message("Go", version)},
        }
        async with client.http.stream("POST", client.url, json=body, headers=headers) as response:
            assert response.headers["content-type"].startswith("text/event-stream")
            async for piece in response.aiter_bytes():
                raw += piece
                gate.seen(piece)
    assert gate.failure is None
    assert value.encode() in raw
    blocks = raw.decode().removesuffix("\n\n").split("\n\n")
    assert all(block == ": keep-alive" or block.startswith("id: ") for block in blocks)
