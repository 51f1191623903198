"""Nothing on the way holds text back: a model goes on only after the test has seen, in the SSE bytes, what
it sent before.

There is no clock in these tests. Buffering anywhere between the model and the client is a deadlock, which
the gate turns into a failure.
"""

import random
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.support.fakes.script import Call, Gate, Say, Script, Turn, unique_pieces
from tests.support.scenarios import (
    KINDS,
    NOTIFICATIONS,
    VERSIONS,
    collect_frames,
    delegate,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
)


def everywhere(test: Any) -> Any:
    """With the model in the process and over HTTP, and in both versions of the protocol."""
    return pytest.mark.parametrize("kind", KINDS)(pytest.mark.parametrize("version", VERSIONS)(test))


def some_pieces(prefix: str, count: int = 4) -> tuple[str, ...]:
    return unique_pieces(prefix, count, random.Random())


@pytest.mark.sample(3)
@everywhere
async def test_narration_arrives_piece_by_piece(kind: str, version: str) -> None:
    gate = Gate()
    pieces = some_pieces("narration")
    value = token()
    script = Script(
        Turn(Say(*pieces), Call("look", {}), gate=gate), Turn(Say("Found", " {{tool:look.value}}"))
    )
    async with run_scripted_system(script, kind=kind, tools=[tool("look", f"value={value}")]) as stage:
        stream = await collect_frames(stage.client.stream("Go", version=version), gate, "streaming_result")
    assert gate.failure is None
    assert gate.sent == pieces
    assert stream.streamed_texts == ["".join(pieces), f"Found {value}"]
    assert stream.answer == f"Found {value}"


@pytest.mark.sample(3)
@everywhere
async def test_the_answer_arrives_piece_by_piece(kind: str, version: str) -> None:
    gate = Gate()
    pieces = some_pieces("answer")
    value = token()
    script = Script(Turn(Call("look", {})), Turn(Say(*pieces, "{{tool:look.value}}"), gate=gate))
    async with run_scripted_system(script, kind=kind, tools=[tool("look", f"value={value}")]) as stage:
        stream = await collect_frames(stage.client.stream("Go", version=version), gate, "streaming_result")
    assert gate.failure is None
    assert gate.sent == (*pieces, value)
    assert stream.answer == "".join(pieces) + value


@pytest.mark.sample(3)
@everywhere
async def test_what_a_sub_agent_says_arrives_piece_by_piece(kind: str, version: str) -> None:
    gate = Gate()
    before = some_pieces("before")
    after = some_pieces("after")
    value = token()
    argocd = scripted_agent(
        "argocd",
        Script(
            Turn(Say(*before), Call("look", {})), Turn(Say(*after, " value={{tool:look.value}}")), gate=gate
        ),
        tool("look", f"value={value}"),
    )
    script = Script(Turn(delegate("argocd")), Turn(Say("Found {{tool:argocd.value}}")))
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await collect_frames(stage.client.stream("Go", version=version), gate, "subagent_result")
    assert gate.failure is None
    assert gate.sent[: len(before) + len(after)] == (*before, *after)
    assert stream.answer == f"Found {value}"


@pytest.mark.sample(3)
@everywhere
async def test_a_tool_is_announced_while_it_runs_and_its_end_before_anything_else_happens(
    kind: str, version: str
) -> None:
    gate, value = Gate(), token()

    async def search() -> str:
        await gate.wait_seen("🔧 Supervisor: Calling tool: Search\n")
        return f"value={value}"

    then = Call("search_again", arg_pieces=("{", "}"), gated=("✅ Supervisor: Tool Search completed\n",))
    script = Script(Turn(Call("search", {})), Turn(then, gate=gate), Turn(Say("Found {{tool:search.value}}")))
    async with run_scripted_system(
        script, kind=kind, tools=[tool("search", search), tool("search_again", "nothing")]
    ) as stage:
        stream = await collect_frames(stage.client.stream("Go", version=version), gate, *NOTIFICATIONS)
    assert gate.failure is None
    assert stream.answer == f"Found {value}"


@pytest.mark.sample(3)
@everywhere
async def test_a_delegation_and_its_inner_tool_are_announced_while_they_run(kind: str, version: str) -> None:
    gate, value = Gate(), token()

    async def look() -> str:
        await gate.wait_seen("🔧 Supervisor: Calling Agent Argocd...\n")
        await gate.wait_seen("🔧 Argocd: Calling tool: Look\n")
        return f"value={value}"

    inner_end = Call("again", arg_pieces=("{", "}"), gated=("✅ Argocd: Tool Look completed\n",))
    argocd = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {})), Turn(inner_end, gate=gate), Turn(Say("value={{tool:look.value}}"))),
        tool("look", look),
        tool("again", "nothing"),
    )
    outer_end = Call("own", arg_pieces=("{", "}"), gated=("✅ Supervisor: Argocd completed\n",))
    script = Script(
        Turn(delegate("argocd")), Turn(outer_end, gate=gate), Turn(Say("Found {{tool:argocd.value}}"))
    )
    async with run_scripted_system(script, argocd, kind=kind, tools=[tool("own", "nothing")]) as stage:
        stream = await collect_frames(stage.client.stream("Go", version=version), gate, *NOTIFICATIONS)
    assert gate.failure is None
    assert stream.answer == f"Found {value}"


@pytest.mark.sample(3)
@everywhere
async def test_a_structured_answer_streams_while_its_call_is_incomplete(kind: str, version: str) -> None:
    gate, value = Gate(), token()
    first, two, three, four, five = some_pieces("answer", 5)
    # A field before it, and escapes cut in the middle: a newline, one \u escape, a pair of them, a
    # quotation mark.
    pieces = (
        '{"citations": [], "con',
        f'tent": "{first}',
        f"{two}\\",
        f"n{three}\\u00",
        f"e9{four}\\ud83d\\u",
        f'de00{five}\\"',
        ' {{tool:look.value}}"}',
    )
    answer = Call("PlatformEngineerResponse", arg_pieces=pieces, gated=(None, first, two, three, four, five))
    script = Script(Turn(Call("look", {})), Turn(answer, gate=gate))
    env = {"USE_STRUCTURED_RESPONSE": "true"}
    async with run_scripted_system(
        script, kind=kind, tools=[tool("look", f"value={value}")], env=env
    ) as stage:
        stream = await collect_frames(stage.client.stream("Go", version=version), gate, "streaming_result")
    assert gate.failure is None
    assert stream.answer == f'{first}{two}\n{three}é{four}😀{five}" {value}'
    assert stream.streamed_texts == [stream.answer]
    assert "".join(stream.texts("streaming_result")) == stream.answer  # nothing was taken back on the way


def buffering(app: Callable[..., Awaitable[None]]) -> Callable[..., Awaitable[None]]:
    """The application behind something that hands on a response only when it is complete."""

    async def wrapped(scope: Any, receive: Any, send: Any) -> None:
        buffer: list[Any] = []

        async def hold(message: Any) -> None:
            buffer.append(message)
            if message["type"] == "http.response.body" and not message.get("more_body"):
                for buffered in buffer:
                    await send(buffered)

        await app(scope, receive, hold if scope["type"] == "http" else send)

    return wrapped


async def test_the_gate_notices_a_server_that_holds_text_back() -> None:
    gate, pieces = Gate(timeout=0.2), some_pieces("answer")
    async with run_scripted_system(Script(Turn(Say(*pieces)), gate=gate), wrap=buffering) as stage:
        stream = await collect_frames(stage.client.stream("Go"), gate, "streaming_result")
    assert gate.failure is not None
    assert pieces[0] in gate.failure
    assert gate.sent == pieces[:1]
    assert stream.states[-1] == "failed"
