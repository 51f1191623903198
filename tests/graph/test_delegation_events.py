"""A delegation in LangGraph's stream: what its agent left open is ended, and what it repeats is emitted
once."""

from collections.abc import AsyncIterator
from typing import Any

from langchain_core.messages import AIMessageChunk, ToolMessage

from ai_platform_engineering.core.events import AnyEvent, Notice, TextEnded, ToolFinished, ToolStarted
from ai_platform_engineering.core.signals import RemoteEventReceived
from ai_platform_engineering.core.transcript import Transcript, fold
from ai_platform_engineering.graph.translator import Translator

CALL = {"name": "task", "id": "d", "args": {"subagent_type": "keeper", "description": "Look."}}
INSIDE = ("tools:1",)
NOTICE = Notice(code="retry", text="The model is busy.", agent="keeper", parent_call="d")


def item(mode: str, data: Any, ns: tuple[str, ...] = ()) -> dict[str, Any]:
    return {"ns": ns, "type": mode, "data": data}


def delegation(*inside: dict[str, Any]) -> list[dict[str, Any]]:
    """The stream of one delegation around what happens inside of it."""
    result = ToolMessage("It took too long.", tool_call_id="d", name="task", status="error")
    return [
        item("tasks", {"id": "1", "name": "tools", "input": {"tool_call": CALL}}),
        item(
            "tools",
            {"event": "tool-started", "tool_name": "task", "tool_call_id": "d", "input": CALL["args"]},
        ),
        *inside,
        item("updates", {"tools": {"messages": [result]}}),
    ]


async def translate(items: list[dict[str, Any]], transcript: Transcript | None = None) -> list[AnyEvent]:
    async def stream() -> AsyncIterator[dict[str, Any]]:
        for each in items:
            yield each

    translator = Translator(run_id="run", trace_id="trace", transcript=transcript)
    return [event async for event in translator.events(stream())]


async def test_an_agent_that_is_cut_off_in_the_middle_of_its_text_ends_it() -> None:
    chunk = AIMessageChunk("I look at", id="k1")
    events = await translate(delegation(item("messages", (chunk, {"langgraph_node": "model"}), INSIDE)))
    ended = TextEnded(message_id="k1", role="delegated", agent="keeper", parent_call="d")
    assert ended in events
    finished = next(event for event in events if isinstance(event, ToolFinished))
    assert events.index(ended) < events.index(finished)


async def test_an_agent_that_is_cut_off_in_a_call_ends_it_with_an_unknown_outcome() -> None:
    started = {"event": "tool-started", "tool_name": "look", "tool_call_id": "c", "input": {}}
    events = await translate(delegation(item("tools", started, INSIDE)))
    [inner] = [event for event in events if isinstance(event, ToolFinished) and event.parent_call]
    assert (inner.call_id, inner.outcome) == ("d/c", "unknown")


async def test_a_notice_that_a_service_repeats_after_a_crash_is_emitted_once_and_the_next_one_again() -> None:
    started = ToolStarted(call_id="d", tool="keeper", delegates=True)
    remote = item("custom", RemoteEventReceived(NOTICE.model_copy(update={"parent_call": None})), INSIDE)
    repeated = await translate(delegation(remote), fold([started, NOTICE]))
    assert NOTICE not in repeated
    renewed = await translate(delegation(remote, remote), fold([started, NOTICE]))
    assert renewed.count(NOTICE) == 1
