"""US-2: what the supervisor says between tool calls is there while it works, and every text is delivered
once, also after a retry.
"""

import random

import pytest

from ai_platform_engineering.core.events import Notice, TextDiscarded
from ai_platform_engineering.core.transcript import fold
from tests.support.fakes.script import Attempts, Call, Die, Fail, Gate, Say, Script, Turn, unique_pieces
from tests.support.harness import Frame, ReceivedStream, joined
from tests.support.scenarios import (
    KINDS,
    PAIRS,
    VERSIONS,
    collect_frames,
    delegate,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
    version_team,
)

everywhere = pytest.mark.parametrize("kind", KINDS)


def positions(stream: ReceivedStream, *texts: str) -> list[int]:
    """The number of the first frame that holds each text in a text part."""
    return [next(at for at, frame in enumerate(stream.frames) if text in frame.text) for text in texts]


# --- narration ------------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_narration_comes_before_its_tools_and_before_the_answer(kind: str, version: str) -> None:
    value = token()
    first = token("first")
    second = token("second")
    argocd = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {})), Turn(Say("version={{tool:look.version}}"))),
        tool("look", f"version={value}"),
    )
    script = Script(
        Turn(Say(f"I ask Argo CD {first}"), delegate("argocd")),
        Turn(Say(f"Now I check {second}"), Call("check", {})),
        Turn(Say("It runs {{tool:argocd.version}}, checked {{tool:check.how}}")),
    )
    async with run_scripted_system(script, argocd, kind=kind, tools=[tool("check", "how=twice")]) as stage:
        stream = await stage.ask(version=version)
    assert stream.streamed_texts == [
        f"I ask Argo CD {first}",
        f"Now I check {second}",
        f"It runs {value}, checked twice",
    ]
    order = positions(
        stream,
        first,
        "🔧 Supervisor: Calling Agent Argocd...",
        "✅ Supervisor: Argocd completed",
        second,
        "🔧 Supervisor: Calling tool: Check",
        "✅ Supervisor: Tool Check completed",
        "checked twice",
    )
    assert order == sorted(order)
    assert stream.answer == f"It runs {value}, checked twice"


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_notification_words_are_exactly_those_of_the_contract(version: str) -> None:
    script, argocd = version_team(token(), "I look.")
    async with run_scripted_system(script, argocd) as stage:
        stream = await stage.ask(version=version)
    assert stream.notifications == [
        "🔧 Supervisor: Calling Agent Argocd...\n",
        "🔧 Argocd: Calling tool: Version_Service__Version\n",
        "✅ Argocd: Tool Version_Service__Version completed\n",
        "✅ Supervisor: Argocd completed\n",
    ]
    assert [frame.artifact["description"] for frame in stream.named("tool_notification_start")] == [
        "Tool call started: argocd",
        "Tool call started: version_service__version",
    ]


async def test_narration_is_one_artifact_per_message_whose_first_chunk_does_not_append() -> None:
    gate, pieces = Gate(), unique_pieces("narration", 3, random.Random())
    script = Script(Turn(Say(*pieces), Call("look", {}), gate=gate), Turn(Say("Done {{tool:look}}")))
    async with run_scripted_system(script, tools=[tool("look", token())]) as stage:
        stream = await collect_frames(stage.client.stream("Go"), gate, "streaming_result")
    narration = [frame for frame in stream.named("streaming_result") if "narration" in frame.text]
    assert [frame.text for frame in narration] == list(pieces)
    assert [bool(frame.update.get("append")) for frame in narration] == [False, True, True]
    assert len({frame.artifact["artifactId"] for frame in stream.named("streaming_result")}) == 2
    assert {frame.metadata["source_agent"] for frame in narration} == {"supervisor"}
    assert len({frame.metadata["message_id"] for frame in narration}) == 1


# --- each text once -------------------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize("version", VERSIONS)
@everywhere
async def test_each_text_is_in_the_bytes_once_and_the_answer_once_more_as_the_final_result(
    kind: str, version: str
) -> None:
    texts = {name: token(name) for name in ("narration", "thought", "result", "answer")}
    argocd = scripted_agent(
        "argocd",
        Script(Turn(Say(texts["thought"]), Call("look", {})), Turn(Say(texts["result"]))),
        tool("look", f"version={token()}"),
    )
    script = Script(Turn(Say(texts["narration"]), delegate("argocd")), Turn(Say(texts["answer"])))
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask(version=version)
    raw = stream.raw.decode()
    assert {name: raw.count(text) for name, text in texts.items()} == {
        "narration": 1,
        "thought": 1,
        "result": 1,
        "answer": 2,
    }
    assert stream.streamed_texts == [texts["narration"], texts["answer"]]
    assert joined(stream.named("subagent_result")) == [texts["thought"], texts["result"]]
    assert stream.answer == texts["answer"]


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_model_that_cannot_stream_is_delivered_once_too(version: str) -> None:
    texts = {name: token(name) for name in ("narration", "result", "answer")}
    argocd = scripted_agent("argocd", Script(Turn(Say(texts["result"]))))
    script = Script(Turn(Say(texts["narration"]), delegate("argocd")), Turn(Say(texts["answer"])))
    async with run_scripted_system(script, argocd, streaming=False) as stage:
        stream = await stage.ask(version=version)
    raw = stream.raw.decode()
    assert {name: raw.count(text) for name, text in texts.items()} == {
        "narration": 1,
        "result": 1,
        "answer": 2,
    }
    assert (stream.streamed_texts, stream.answer) == ([texts["narration"], texts["answer"]], texts["answer"])


async def test_an_answer_that_repeats_a_sub_agent_word_for_word_is_still_delivered() -> None:
    value = token()
    script, argocd = version_team(value)
    script = Script(script.steps[0], Turn(Say("{{tool:argocd}}")))
    async with run_scripted_system(script, argocd) as stage:
        stream = await stage.ask()
    assert stream.streamed_texts == [f"Argo CD has version={value}"]
    assert stream.answer == f"Argo CD has version={value}"


# --- retries --------------------------------------------------------------------------------------


def broken_then(good: Turn, gate: Gate, *lost: str, tail: tuple[Call, ...] = ()) -> Attempts:
    """A first attempt that breaks off after its texts were seen, then a good one."""
    return Attempts(Turn(Say(*lost, "."), *tail, Die(), gate=gate), good)


def replaced(stream: ReceivedStream, name: str, lost: str) -> list[Frame]:
    """The frames of the artifact in which the lost text stood."""
    artifact = next(frame.artifact["artifactId"] for frame in stream.named(name) if lost in frame.text)
    return [frame for frame in stream.frames if frame.artifact.get("artifactId") == artifact]


@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_what_a_dying_model_had_said_is_replaced_by_the_next_attempt(kind: str, version: str) -> None:
    gate = Gate()
    lost = unique_pieces("lost", 2, random.Random())
    value = token()
    script = Script(
        Turn(Call("look", {})), broken_then(Turn(Say("It is ", "{{tool:look.version}}")), gate, *lost)
    )
    async with run_scripted_system(script, kind=kind, tools=[tool("look", f"version={value}")]) as stage:
        stream = await collect_frames(
            stage.client.stream("Which?", version=version), gate, "streaming_result"
        )
    assert gate.failure is None
    assert stream.answer == f"It is {value}"
    assert stream.streamed_texts == [f"It is {value}"]
    frames = replaced(stream, "streaming_result", lost[0])
    first_of_the_good = next(frame for frame in frames if frame.text.startswith("It is"))
    assert not first_of_the_good.update.get("append")
    assert lost[0] not in repr(fold(stream.events))


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_lost_attempt_leaves_no_trace_in_the_stored_task(version: str) -> None:
    gate = Gate()
    lost = unique_pieces("lost", 2, random.Random())
    repeated = token("kept")
    async with run_scripted_system(Script(broken_then(Turn(Say(repeated)), gate, *lost))) as stage:
        stream = await collect_frames(
            stage.client.stream("Which?", version=version), gate, "streaming_result"
        )
        task = await stage.client.call("tasks/get" if version == "0.3" else "GetTask", {"id": stream.task_id})
    assert lost[0].encode() in stream.raw
    assert repeated in str(task)
    assert lost[0] not in str(task)


@everywhere
async def test_a_sub_agent_whose_model_dies_is_retried_without_a_trace_in_its_text(kind: str) -> None:
    gate = Gate()
    lost = unique_pieces("lost", 2, random.Random())
    value = token()
    argocd = scripted_agent(
        "argocd",
        Script(Turn(Call("look", {})), broken_then(Turn(Say("version={{tool:look.version}}")), gate, *lost)),
        tool("look", f"version={value}"),
    )
    script = Script(Turn(delegate("argocd")), Turn(Say("It is {{tool:argocd.version}}")))
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await collect_frames(stage.client.stream("Which?"), gate, "subagent_result")
    assert joined(stream.named("subagent_result")) == [f"version={value}"]
    assert len({frame.artifact["artifactId"] for frame in stream.named("subagent_result")}) == 1
    assert lost[0] not in repr(fold(stream.events))
    assert stream.answer == f"It is {value}"
    assert stream.notifications[-1] == "✅ Supervisor: Argocd completed\n"


@everywhere
async def test_a_call_in_a_lost_attempt_is_neither_made_nor_announced(kind: str) -> None:
    gate = Gate()
    lost = unique_pieces("lost", 2, random.Random())
    value = token()
    calls = list[str]()

    async def order(what: str) -> str:
        calls.append(what)
        return f"number={value}"

    good = Turn(Say("I order."), Call("order", {"what": "right"}))
    script = Script(
        broken_then(good, gate, *lost, tail=(Call("order", {"what": "wrong"}),)),
        Turn(Say("Ordered {{tool:order.number}}")),
    )
    async with run_scripted_system(script, kind=kind, tools=[tool("order", order)]) as stage:
        stream = await collect_frames(stage.client.stream("Order it"), gate, "streaming_result")
    assert calls == ["right"]
    assert stream.notifications == [
        "🔧 Supervisor: Calling tool: Order\n",
        "✅ Supervisor: Tool Order completed\n",
    ]
    assert b"wrong" not in stream.raw
    assert stream.streamed_texts == ["I order.", f"Ordered {value}"]


@everywhere
async def test_a_structured_answer_that_breaks_off_is_replaced(kind: str) -> None:
    gate, value = Gate(), token()
    (lost,) = unique_pieces("lost", 1, random.Random())
    begun = Call("PlatformEngineerResponse", arg_pieces=(f'{{"content": "{lost}', " and"), gated=(lost,))
    good = Call("PlatformEngineerResponse", {"content": "It is {{tool:look.version}}"})
    script = Script(Turn(Call("look", {})), Attempts(Turn(begun, Die(), gate=gate), Turn(good)))
    env = {"USE_STRUCTURED_RESPONSE": "true"}
    async with run_scripted_system(
        script, kind=kind, tools=[tool("look", f"version={value}")], env=env
    ) as stage:
        stream = await collect_frames(stage.client.stream("Which?"), gate, "streaming_result")
    assert gate.failure is None
    assert stream.streamed_texts == [f"It is {value}"]
    assert stream.answer == f"It is {value}"
    assert lost not in repr(fold(stream.events))
    assert len(replaced(stream, "streaming_result", lost)) >= 2


@everywhere
async def test_a_retry_before_the_first_word_is_a_notice_and_changes_nothing_else(kind: str) -> None:
    good = Turn(Say("It is fine."))
    shapes = []
    for script in (Script(good), Script(Attempts(Turn(Fail(500)), Turn(Die()), good))):
        async with run_scripted_system(script, kind=kind) as stage:
            stream = await stage.ask()
            shapes.append(
                [
                    (frame.name, frame.state, frame.status_text, frame.text)
                    for frame in stream.frames
                    if frame.name != "streaming_result" and "Trying again" not in frame.status_text
                ]
            )
            retries = [event.text for event in stream.events if isinstance(event, Notice)]
        assert stream.streamed_texts == ["It is fine."]
        assert not [event for event in stream.events if isinstance(event, TextDiscarded)]
        assert not stream.named("streaming_result")[0].update.get("append")
    assert shapes[0] == shapes[1]
    assert len(stage.requests()) == 3
    assert ["attempt 2 of 3" in retries[0], "attempt 3 of 3" in retries[1]] == [True, True]


@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_when_all_attempts_break_off_the_task_fails_and_keeps_the_last_words_as_partial_result(
    kind: str, version: str
) -> None:
    gate = Gate()
    lost, last_pieces = unique_pieces("lost", 2, random.Random()), unique_pieces("kept", 2, random.Random())
    script = Script(Attempts(Turn(Say(*lost), Die(), gate=gate), Turn(Say(*last_pieces), Die(), gate=gate)))
    async with run_scripted_system(script, kind=kind, env={"LLM_ATTEMPTS": "2"}) as stage:
        stream = await collect_frames(
            stage.client.stream("Which?", version=version), gate, "streaming_result"
        )
    assert gate.failure is None
    assert len(stage.requests()) == 2
    assert stream.last.state == "failed"
    assert stream.last.status_text.startswith("The model's server ")
    assert stream.last.status_text.endswith(" Try again in a moment.")
    assert not stream.named("final_result")
    (partial,) = stream.named("partial_result")
    assert last_pieces[0] in partial.text
    assert "lost" not in partial.text
    assert not partial.update.get("append")
    assert partial.update["lastChunk"] is True
    assert partial.metadata["trace_id"] == stream.last.metadata["trace_id"]
    assert stream.streamed_texts == [partial.text]


@everywhere
async def test_a_model_that_never_says_a_word_fails_the_task_without_a_partial_result(kind: str) -> None:
    async with run_scripted_system(Script(Turn(Fail(503))), kind=kind) as stage:
        stream = await stage.ask()
    assert len(stage.requests()) == 3
    assert stream.states == ["submitted", "working", "working", "working", "failed"]  # two retries are told
    assert stream.last.status_text.startswith("The model's server ")
    assert stream.last.status_text.endswith(" Try again in a moment.")
    assert not [frame for frame in stream.frames if frame.name]
