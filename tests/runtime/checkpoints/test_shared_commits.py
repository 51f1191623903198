"""Checkpoints on SQLite: writes that nobody waits for share a commit, and every reader sees them."""

from pathlib import Path
from typing import Annotated, Any, TypedDict

from langchain_core.runnables import RunnableConfig
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.graph.state import CompiledStateGraph

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.runtime.checkpoints.checkpointer import Checkpoints, open_checkpoints
from ai_platform_engineering.runtime.checkpoints.sqlite_saver import SqliteCheckpointer

THREAD: RunnableConfig = {"configurable": {"thread_id": "t", "checkpoint_ns": ""}}


class State(TypedDict):
    messages: Annotated[list[Any], add_messages]


async def opened(folder: Path) -> tuple[Checkpoints, SqliteCheckpointer]:
    checkpoints = await open_checkpoints(Settings.from_variables({}).storage, folder)
    assert isinstance(checkpoints.saver, SqliteCheckpointer)
    return checkpoints, checkpoints.saver


def echo_graph(saver: SqliteCheckpointer, counts: list[int]) -> CompiledStateGraph[Any, Any, Any, Any]:
    """A graph of one node, which notes how often was committed when it runs."""

    def answer(state: State) -> dict[str, Any]:
        counts.append(saver.commits)
        return {"messages": [("ai", "Yes.")]}

    return StateGraph(State).add_node("answer", answer).add_edge(START, "answer").compile(checkpointer=saver)


async def test_a_turn_of_one_node_is_two_commits_with_what_came_before_each(tmp_path: Path) -> None:
    checkpoints, saver = await opened(tmp_path)
    before = saver.commits
    counts: list[int] = []
    graph = echo_graph(saver, counts)
    await graph.ainvoke({"messages": [("user", "Well?")]}, THREAD, durability="sync")
    assert counts == [before + 1], "the question is stored before the node runs"
    assert saver.commits == before + 2
    stored = [item.metadata["step"] async for item in saver.alist(THREAD)]
    assert stored == [1, 0, -1]
    await checkpoints.prune("t", idle=True)
    assert [item.metadata["step"] async for item in saver.alist(THREAD)] == [1]
    await checkpoints.aclose()


async def test_a_reader_sees_a_checkpoint_that_waits_for_its_commit(tmp_path: Path) -> None:
    checkpoints, saver = await opened(tmp_path)
    graph = echo_graph(saver, [])
    await graph.ainvoke({"messages": [("user", "Well?")]}, THREAD, durability="sync")
    latest = await saver.aget_tuple(THREAD)
    assert latest is not None
    checkpoint = {**latest.checkpoint, "id": f"{latest.checkpoint['id']}-next"}
    place = await saver.aput(latest.config, checkpoint, {"source": "input", "step": 2}, {})  # type: ignore[arg-type]
    stored = await saver.aget_tuple(THREAD)
    assert stored is not None
    assert stored.config == place
    await checkpoints.aclose()
