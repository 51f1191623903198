"""SC-012: the answer is never empty, is the same however it is asked for, and carries the trace; nothing
follows the end of a task.
"""

import re
from typing import Any

import pytest

from tests.support.fakes.script import Call, Request, Say, Script, Think, Turn
from tests.support.harness import Frame, ReceivedStream
from tests.support.scenarios import (
    KINDS,
    PAIRS,
    VERSIONS,
    data_of,
    delegate,
    run_scripted_system,
    scripted_agent,
    token,
    tool,
    version_team,
)

everywhere = pytest.mark.parametrize("kind", KINDS)
STRUCTURED = {"USE_STRUCTURED_RESPONSE": "true"}


def answer_call(content: str, **more: Any) -> Call:
    return Call("PlatformEngineerResponse", {"content": content, **more})


def has_tools(request: Request) -> bool:
    return bool(set(request.tools) - {"PlatformEngineerResponse"})


def once_more(*before: Turn, then: Call | Say | None = None) -> Script:
    """The turns, and another one for the request that offers no tools; `{result}` in it is the last tool
    result.
    """

    def last(request: Request) -> Turn:
        results = [message.text for message in request.messages if message.role == "tool"]
        match then:
            case Say():
                return Turn(Say(then.text.format(result=results[-1])))
            case Call():
                return Turn(answer_call((then.args or {})["content"].format(result=results[-1])))
            case None:
                return Turn()

    return Script(
        *(lambda request, turn=turn: turn if has_tools(request) else last(request) for turn in before)
    )


# --- where the answer comes from ------------------------------------------------------------------


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_the_last_message_is_the_answer(kind: str, version: str) -> None:
    value = token()
    script, argocd = version_team(value, "I ask Argo CD.")
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == f"It runs {value}"
    assert stream.last.state == "completed"


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_the_content_of_a_structured_response_is_the_answer(kind: str, version: str) -> None:
    value = token()
    cited = [{"title": "Release notes", "url": "https://docs.example/notes", "document_id": None}]
    script = Script(
        Turn(Say("I look."), Call("look", {})),
        Turn(answer_call("It is {{tool:look.version}}", citations=cited)),
    )
    look = tool("look", f"version={value} (https://docs.example/notes)")
    async with run_scripted_system(script, kind=kind, tools=[look], env=STRUCTURED) as stage:
        stream = await stage.ask(version=version)
    assert stream.answer == f"It is {value}"
    assert stream.streamed_texts == ["I look.", f"It is {value}"]
    (data,) = data_of(stream.named("final_result")[0])
    assert data["content"] == f"It is {value}"
    assert data["citations"] == [{"title": "Release notes", "url": "https://docs.example/notes", "number": 1}]
    assert stream.notifications == [
        "🔧 Supervisor: Calling tool: Look\n",
        "✅ Supervisor: Tool Look completed\n",
    ]


async def test_a_model_that_answers_in_plain_words_although_structure_was_asked_for_is_heard() -> None:
    words = token("plain")
    async with run_scripted_system(Script(Turn(Say(words))), env=STRUCTURED) as stage:
        stream = await stage.ask()
    assert (stream.answer, stream.last.state) == (words, "completed")


@everywhere
async def test_a_structured_answer_that_does_not_fit_is_asked_for_again_and_replaced(kind: str) -> None:
    lost, repaired = token("lost"), token("kept")
    script = Script(Turn(answer_call(lost, citations="none")), Turn(answer_call(repaired)))
    async with run_scripted_system(script, kind=kind, env=STRUCTURED) as stage:
        stream = await stage.ask()
    assert (stream.answer, stream.streamed_texts, stream.notifications) == (repaired, [repaired], [])


@everywhere
async def test_a_broken_structured_answer_beside_a_call_ends_nothing_and_shows_nothing_of_the_call(
    kind: str,
) -> None:
    private = token("private")
    repaired = token("kept")
    noted = list[str]()

    async def note(content: str) -> str:
        noted.append(content)
        return "noted"

    script = Script(
        Turn(Call("PlatformEngineerResponse", {"citations": []}), Call("note", {"content": private})),
        Turn(answer_call(repaired)),
    )
    async with run_scripted_system(script, kind=kind, tools=[tool("note", note)], env=STRUCTURED) as stage:
        stream = await stage.ask()
    assert (stream.answer, stream.streamed_texts, stream.last.state) == (repaired, [repaired], "completed")
    assert private not in "".join(stream.texts("streaming_result"))
    assert noted == []


async def test_structured_answers_of_one_conversation_do_not_mix() -> None:
    values = [token(), token()]
    remaining = iter(values)

    async def look() -> str:
        return f"version={next(remaining)}"

    script = Script(Turn(Call("look", {})), Turn(answer_call("It is {{tool:look.version}}")))
    async with run_scripted_system(script, tools=[tool("look", look)], env=STRUCTURED) as stage:
        first = await stage.ask()
        second = await stage.ask("Again?", contextId=first.context_id)
    assert [first.answer, second.answer] == [f"It is {value}" for value in values]


@everywhere
async def test_an_empty_last_message_leaves_what_was_streamed_as_the_answer(kind: str) -> None:
    first, second = token("first"), token("second")
    script = Script(Turn(Say(first), Call("look", {})), Turn(Say(second), Call("look", {})), Turn())
    async with run_scripted_system(script, kind=kind, tools=[tool("look", token())]) as stage:
        stream = await stage.ask()
    assert stream.answer == f"{first}\n\n{second}"
    assert stream.streamed_texts == [first, second]
    assert stream.last.state == "completed"


@everywhere
async def test_when_everything_is_empty_the_model_is_asked_once_more_without_tools(kind: str) -> None:
    value = token()
    script = once_more(Turn(Call("look", {})), Turn(), then=Say("At last {result}"))
    async with run_scripted_system(script, kind=kind, tools=[tool("look", value)]) as stage:
        stream = await stage.ask()
        requests = stage.requests()
    assert stream.answer == f"At last {value}"
    assert stream.streamed_texts == [f"At last {value}"]
    assert [bool(request.tools) for request in requests] == [True, True, False]
    assert stream.last.state == "completed"


@everywhere
async def test_an_empty_structured_response_is_asked_for_again(kind: str) -> None:
    value = token()
    script = once_more(Turn(Call("look", {})), Turn(answer_call("")), then=answer_call("At last {result}"))
    async with run_scripted_system(script, kind=kind, tools=[tool("look", value)], env=STRUCTURED) as stage:
        stream = await stage.ask()
        requests = stage.requests()
    assert stream.answer == f"At last {value}"
    assert requests[-1].tools == ("PlatformEngineerResponse",)
    assert len(requests) == 3


async def test_an_empty_structured_response_after_narration_leaves_the_narration() -> None:
    narration = token("narration")
    script = Script(Turn(Say(narration), Call("look", {})), Turn(answer_call("")))
    async with run_scripted_system(script, tools=[tool("look", token())], env=STRUCTURED) as stage:
        stream = await stage.ask()
    assert (stream.answer, stream.last.state) == (narration, "completed")


@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_a_model_that_stays_silent_fails_the_task_with_a_message(kind: str, version: str) -> None:
    async with run_scripted_system(
        once_more(Turn(Call("look", {})), Turn()), kind=kind, tools=[tool("look", token())]
    ) as stage:
        stream = await stage.ask(version=version)
        request_count = len(stage.requests())
    assert request_count == 3
    assert stream.last.state == "failed"
    assert "no answer" in stream.last.status_text
    assert "again" in stream.last.status_text
    assert not stream.named("final_result", "partial_result", "streaming_result")


async def test_an_empty_structured_response_given_twice_fails_the_task() -> None:
    async with run_scripted_system(Script(Turn(answer_call(""))), env=STRUCTURED) as stage:
        stream = await stage.ask()
        request_count = len(stage.requests())
    assert request_count == 2
    assert stream.last.state == "failed"
    assert not stream.named("final_result")


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    "blank",
    [Say("  \n "), Say("<think>hm</think>"), Think("I only think.")],
    ids=["blank", "inline", "reasoning"],
)
@pytest.mark.parametrize("kind", ["in-process", "anthropic"])  # the OpenAI client drops reasoning by itself
async def test_blanks_and_reasoning_count_as_empty_and_never_reach_the_wire(
    kind: str, blank: Say | Think
) -> None:
    words = token("words")

    def only(request: Request) -> Turn:
        return Turn(blank) if request.tools else Turn(Say(words))

    async with run_scripted_system(Script(only), kind=kind, tools=[tool("look", token())]) as stage:
        stream = await stage.ask()
    assert (stream.answer, stream.streamed_texts, stream.last.state) == (words, [words], "completed")
    assert b"think" not in stream.raw
    assert b"hm" not in [frame.text.encode() for frame in stream.frames]


# --- sub-agents -----------------------------------------------------------------------------------


@everywhere
async def test_a_sub_agent_that_ends_empty_is_asked_once_more_without_tools(kind: str) -> None:
    value = token()
    script = Script(Turn(delegate("argocd")), Turn(Say("It is {{tool:argocd.version}}")))
    inner = once_more(Turn(Call("look", {})), Turn(), then=Say("version={result}"))
    async with run_scripted_system(
        script, scripted_agent("argocd", inner, tool("look", value)), kind=kind
    ) as stage:
        stream = await stage.ask()
        requests = stage.requests("argocd")
    assert [bool(request.tools) for request in requests] == [True, True, False]
    assert stream.answer == f"It is {value}"
    assert stream.notifications[-1] == "✅ Supervisor: Argocd completed\n"


@everywhere
async def test_a_sub_agent_that_ends_empty_after_it_spoke_has_answered_with_what_it_said(kind: str) -> None:
    first, second = token("first"), token("second")
    inner = Script(Turn(Say(first), Call("look", {})), Turn(Say(second), Call("look", {})), Turn())
    script = Script(Turn(delegate("argocd")), Turn(Say("Heard: {{tool:argocd}}")))
    async with run_scripted_system(
        script, scripted_agent("argocd", inner, tool("look", token())), kind=kind
    ) as stage:
        stream = await stage.ask()
    assert stream.answer == f"Heard: {first}\n\n{second}"
    assert stream.notifications[-1] == "✅ Supervisor: Argocd completed\n"


async def test_a_sub_agent_that_stays_silent_is_a_failed_delegation_and_the_run_goes_on() -> None:
    script = Script(Turn(delegate("argocd")), Turn(Say("Sorry: {{tool:argocd}}")))
    async with run_scripted_system(script, scripted_agent("argocd", Script(Turn()))) as stage:
        stream = await stage.ask()
    assert stream.notifications[-1] == "❌ Supervisor: Argocd failed\n"
    assert stream.named("tool_notification_end")[-1].metadata["status"] == "failed"
    assert stream.answer == (
        "Sorry: Agent argocd failed: The model gave no answer, even on a second attempt. "
        "Trying again may help."
    )
    assert stream.last.state == "completed"


# --- the trace and the end ------------------------------------------------------------------------


def finals(stream: ReceivedStream) -> list[Frame]:
    return [
        frame
        for frame in stream.frames
        if not frame.artifact and frame.state in ("completed", "failed", "canceled", "input-required")
    ]


@pytest.mark.parametrize("version", VERSIONS)
async def test_the_trace_is_in_the_answer_and_in_the_completed_status(version: str) -> None:
    async with run_scripted_system(Script(Turn(Say("Fine.")))) as stage:
        stream, other = await stage.ask(version=version), await stage.ask(version=version)
    trace = stream.named("final_result")[0].metadata["trace_id"]
    assert re.fullmatch(r"[0-9a-f]{32}", trace)
    assert stream.last.metadata["trace_id"] == trace
    assert other.last.metadata["trace_id"] != trace


@pytest.mark.sample(2)
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize(("turn", "ending"), [(Turn(Say("Fine.")), "completed"), (Turn(), "failed")])
async def test_nothing_follows_a_final_status(version: str, turn: Turn, ending: str) -> None:
    async with run_scripted_system(Script(turn)) as stage:
        stream = await stage.ask(version=version)
    assert [frame.state for frame in finals(stream)] == [ending]
    assert stream.last is finals(stream)[0]
    if version == "0.3":
        ends = [
            frame.result["final"] for frame in stream.frames if frame.result.get("kind") == "status-update"
        ]
        assert ends == [False] * (len(ends) - 1) + [True]


@pytest.mark.sample(3)
@pytest.mark.parametrize(("kind", "version"), PAIRS)
async def test_a_question_without_streaming_gets_the_same_text(kind: str, version: str) -> None:
    value = token()
    script, argocd = version_team(value, "I ask Argo CD.")
    method = "message/send" if version == "0.3" else "SendMessage"
    async with run_scripted_system(script, argocd, kind=kind) as stage:
        stream = await stage.ask(version=version)
        answer = await stage.client.call(method, {"message": stage.client.message("Which?", version)})
    task = answer["result"] if version == "0.3" else answer["result"]["task"]
    texts = {
        artifact["name"]: "".join(part.get("text", "") for part in artifact["parts"])
        for artifact in task["artifacts"]
    }
    assert texts["final_result"] == stream.answer == f"It runs {value}"
    assert [name for name in texts if name == "partial_result"] == []
    assert task["status"]["state"] in ("completed", "TASK_STATE_COMPLETED")


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_silent_model_fails_a_question_without_streaming_too(version: str) -> None:
    method = "message/send" if version == "0.3" else "SendMessage"
    async with run_scripted_system(Script(Turn())) as stage:
        answer = await stage.client.call(method, {"message": stage.client.message("Which?", version)})
    task = answer["result"] if version == "0.3" else answer["result"]["task"]
    assert task["status"]["state"] in ("failed", "TASK_STATE_FAILED")
    assert "no answer" in task["status"]["message"]["parts"][0]["text"]
    assert not task.get("artifacts")
