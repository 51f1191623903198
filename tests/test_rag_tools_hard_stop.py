"""The knowledge base never runs away: how often and how much of it a question may use, whatever its model
does.
"""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import ToolMessage
from langchain_core.runnables import RunnableConfig
from langchain_core.tools import BaseTool, StructuredTool, tool

from ai_platform_engineering.core.events import ToolFinished, ToolStarted
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.knowledge_tools import in_process_tools
from ai_platform_engineering.multi_agents.platform_engineer.rag_tools import (
    FetchDocumentCapWrapper,
    SearchCapWrapper,
    _CapCounterMixin,
    wrap_knowledge_tools,
)
from tests.support.approving_agent import Person, events_of_kind, only_request_id
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request, without_markers
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import ReceivedStream, agent, supervisor
from tests.support.knowing_supervisor import KnowledgeFolder
from tests.support.knowledge import wait_until
from tests.support.providers import OPENAI, run_behind_provider
from tests.support.storages import in_folder

KNOWLEDGE_TOOLS = ["search", "fetch_document", "list_datasources", "fetch_url"]
ASKING = "CAIPEAgentResponse"


def cap(name: str, most: int) -> str:
    return (
        f"[Document already retrieved] You have reached the maximum allowed number of {name} calls ({most}). "
        f"Please synthesize your answer from the documents already retrieved. Do NOT call {name} again."
    )


SEARCH_CAP, FETCH_CAP = cap("search", 5), cap("fetch_document", 10)


# --- the wrappers alone ---------------------------------------------------------------------------


class Shelf:
    """The tools under the wrappers: what they were given, and what they return."""

    def __init__(self, output: Any = "a passage") -> None:
        self.given: list[dict[str, Any]] = []

        async def search(query: str, limit: int | None = None) -> Any:
            """Search."""
            self.given.append({"query": query, "limit": limit})
            return output

        async def fetch_document(document_id: str) -> Any:
            """Fetch."""
            self.given.append({"document_id": document_id})
            return output

        self.tools: list[BaseTool] = [
            StructuredTool.from_function(coroutine=function) for function in (search, fetch_document)
        ]

    def wrapped(self, **env: str) -> tuple[SearchCapWrapper, FetchDocumentCapWrapper]:
        search, fetch = wrap_knowledge_tools(self.tools, Settings.from_variables(env).knowledge)
        assert isinstance(search, SearchCapWrapper)
        assert isinstance(fetch, FetchDocumentCapWrapper)
        return search, fetch


def on(thread: str, run: str | None = None) -> RunnableConfig:
    context = RunContext(thread_id=thread, run_id=run or "")
    return {"configurable": context.to_configurable(), "metadata": context.to_metadata()}


async def searched(search: BaseTool, times: int, config: RunnableConfig) -> list[Any]:
    return [await search.ainvoke({"query": f"number {number}"}, config) for number in range(times)]


def test_the_wrappers_are_tools_that_look_like_what_they_wrap() -> None:
    shelf = Shelf()
    for wrapper, wrapped, most in zip(shelf.wrapped(), shelf.tools, (5, 10), strict=True):
        assert isinstance(wrapper, BaseTool)
        assert isinstance(wrapper, _CapCounterMixin)
        assert (wrapper.name, wrapper.description, wrapper.args_schema) == (
            wrapped.name,
            wrapped.description,
            wrapped.args_schema,
        )
        assert wrapper._wrapped_tool is wrapped
        assert (wrapper._max_calls, wrapper._call_counts) == (most, {})
        assert (wrapper.metadata or {})["knowledge"] is True


async def test_a_thread_alone_is_counted_and_the_next_thread_begins_at_zero() -> None:
    shelf = Shelf()
    search, fetch = shelf.wrapped()
    assert await searched(search, 7, on("t")) == ["a passage"] * 5 + [SEARCH_CAP] * 2
    assert await searched(search, 1, on("u")) == ["a passage"]
    assert [await fetch.ainvoke({"document_id": "d"}, on("t")) for _ in range(12)] == ["a passage"] * 10 + [
        FETCH_CAP
    ] * 2
    assert len(shelf.given) == 5 + 1 + 10
    assert search._call_counts == {("t", None): 7, ("u", None): 1}


async def test_the_numbers_are_settings() -> None:
    search, fetch = Shelf().wrapped(SEARCH_MAX_CALLS="1", FETCH_DOCUMENT_MAX_CALLS="2")
    assert await searched(search, 2, on("t")) == ["a passage", cap("search", 1)]
    assert [await fetch.ainvoke({"document_id": "d"}, on("t")) for _ in range(3)][1:] == [
        "a passage",
        cap("fetch_document", 2),
    ]


async def test_a_call_over_the_cap_is_a_success() -> None:
    search, _ = Shelf().wrapped(SEARCH_MAX_CALLS="1")
    call = {"name": "search", "args": {"query": "x"}, "id": "c", "type": "tool_call"}
    results = [await search.ainvoke(call, on("t")) for _ in range(2)]
    assert [(type(result), result.status, result.text) for result in results] == [
        (ToolMessage, "success", "a passage"),
        (ToolMessage, "success", cap("search", 1)),
    ]


async def test_two_queries_on_a_thread_do_not_share_a_count_even_at_once() -> None:
    shelf = Shelf()
    search, _ = shelf.wrapped()
    first, other = await asyncio.gather(
        searched(search, 7, on("t", "run-1")), searched(search, 6, on("t", "run-2"))
    )
    assert first == ["a passage"] * 5 + [SEARCH_CAP] * 2
    assert other == ["a passage"] * 5 + [SEARCH_CAP]
    assert len(shelf.given) == 10


async def test_what_was_counted_for_a_run_is_forgotten_when_it_ends() -> None:
    search, _ = Shelf().wrapped()
    for run in ("run-1", "run-2"):
        await searched(search, 6, on("t", run))
    search.forget_run("run-1")
    assert search._call_counts == {("t", "run-2"): 6}
    assert await searched(search, 1, on("t", "run-1")) == ["a passage"]
    assert await searched(search, 1, on("t", "run-2")) == [SEARCH_CAP]


@pytest.mark.parametrize(
    ("wanted", "limit"),
    [
        ({}, 3),
        ({"limit": None}, 3),
        ({"limit": 0}, 3),
        ({"limit": -5}, 3),
        ({"limit": 50}, 3),
        ({"limit": 3}, 3),
        ({"limit": 2}, 2),
    ],
    ids=str,
)
async def test_the_limit_of_a_search_is_clamped(tmp_path: Path, wanted: dict[str, Any], limit: int) -> None:
    library = KnowledgeFolder(tmp_path)
    async with library.open_knowledge_base() as kb:
        search = wrap_knowledge_tools(in_process_tools(kb), Settings.from_variables({}).knowledge)[0]
        assert '"results": []' in await search.ainvoke({"query": "x", **wanted}, on("t"))
    assert library.counts.searches == [("x", limit)]


async def test_the_clamp_is_a_setting() -> None:
    shelf = Shelf()
    search, _ = shelf.wrapped(RAG_MAX_SEARCH_RESULTS="7")
    for limit in (50, 7, 6):
        await search.ainvoke({"query": "x", "limit": limit}, on("t"))
    assert [arguments["limit"] for arguments in shelf.given] == [7, 7, 6]


async def test_a_long_output_is_cut_and_says_so() -> None:
    search, _ = Shelf("x" * 101).wrapped(RAG_MAX_OUTPUT_CHARS="100")
    assert await searched(search, 1, on("t")) == ["x" * 100 + "\n[Output truncated]"]
    exact, _ = Shelf("x" * 100).wrapped(RAG_MAX_OUTPUT_CHARS="100")
    assert await searched(exact, 1, on("t")) == ["x" * 100]


def text(content: str) -> dict[str, Any]:
    return {"type": "text", "text": content}


IMAGE = {"type": "image", "base64": "AAAA", "mime_type": "image/png"}


@pytest.mark.parametrize(
    ("blocks", "kept"),
    [
        ([text("x" * 60), text("y" * 40)], [text("x" * 60), text("y" * 40)]),
        (
            [text("x" * 60), text("y" * 60), text("z")],
            [text("x" * 60), text("y" * 40 + "\n[Output truncated]")],
        ),
        ([text("x" * 100), text("y")], [text("x" * 100), text("\n[Output truncated]")]),
        (["x" * 60, IMAGE, "y" * 60], [text("x" * 60), IMAGE, text("y" * 40 + "\n[Output truncated]")]),
        ([text("x"), IMAGE | {"base64": "A" * 99}], [text("x"), text("[Output truncated]")]),
        (["x" * 60, IMAGE, "y" * 40], ["x" * 60, IMAGE, "y" * 40]),
    ],
    ids=["within", "over", "at the edge", "mixed", "a large image", "mixed within"],
)
async def test_content_blocks_are_cut_together(blocks: list[Any], kept: list[Any]) -> None:
    search, _ = Shelf(blocks).wrapped(RAG_MAX_OUTPUT_CHARS="100")
    assert await searched(search, 1, on("t")) == [kept]


# --- the whole path -------------------------------------------------------------------------------

LONG_TEXT = "w" * 500


@pytest.mark.parametrize(
    "output",
    [
        [text("x" * 60), text(LONG_TEXT)],
        ["x" * 60, LONG_TEXT],
        [{"type": "search_result", "source": "s", "title": "t", "content": [text(LONG_TEXT)]}],
        [{"type": "json", "json": {"content": LONG_TEXT}}],
        [{"type": "resource", "resource": {"text": LONG_TEXT}}],
        [{"document_id": "d", "content": LONG_TEXT}],
        {"results": [{"content": LONG_TEXT}]},
    ],
    ids=["texts", "strings", "search result", "json", "unknown blocks", "list of data", "data"],
)
async def test_whatever_a_tool_returns_no_more_than_the_maximum_reaches_model_and_reader(output: Any) -> None:
    search, _ = Shelf(output).wrapped(RAG_MAX_OUTPUT_CHARS="100")
    script = Script(Turn(searching()), Turn(Say("Done.")))
    async with run_behind_provider(OPENAI, script, tools=[search]) as (server, client):
        stream = await client.ask("What is slim?")
        assert server.refusals == []
        [shown] = server.requests[-1].tool_results["search"]
    [finished] = events_of_kind(stream, ToolFinished)
    for result in (without_markers(shown), finished.result):
        assert result is not None
        cut, mark, rest = result.partition("\n[Output truncated]")
        assert (len(cut), mark, rest) == (100, "\n[Output truncated]", "")
        assert "www" in cut


def searching(number: int = 0, **more: Any) -> Call:
    return Call("search", {"query": f"slim {number}", **more})


def acting(*steps: Any) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*steps))


def obstinate(call: Any, last: str = "All I found.") -> ScriptedChatModel:
    """Makes this call as long as it is offered any tool at all, bound or not."""
    return acting(lambda request: Turn(call(request)) if request.tools else Turn(Say(last)))


def answering_when_unbound(call: Any, *names: str) -> ScriptedChatModel:
    """Makes this call while one of these tools is bound, then answers."""
    return acting(
        lambda request: Turn(call(request)) if {*names} & {*request.tools} else Turn(Say("All I found."))
    )


def search_on(request: Request) -> Call:
    return searching(request.position)


def results(request: Request, name: str) -> list[tuple[str, str]]:
    """The results that the model was shown of a tool, with their status."""
    messages = [
        message
        for message in request.raw["messages"]
        if isinstance(message, ToolMessage) and message.name == name
    ]
    return [(message.status, without_markers(message.text)) for message in messages]


def caps(request: Request, name: str) -> list[str]:
    """The status of the results that are the cap's exact words."""
    words = {"search": SEARCH_CAP, "fetch_document": FETCH_CAP}[name]
    return [status for status, result_text in results(request, name) if result_text == words]


def outcomes(stream: ReceivedStream) -> list[tuple[str, str]]:
    return [(event.tool, event.outcome) for event in events_of_kind(stream, ToolFinished)]


def bound(requests: Sequence[Request], name: str) -> list[bool]:
    return [name in request.tools for request in requests]


@pytest.fixture
async def library(tmp_path: Path) -> KnowledgeFolder:
    return await KnowledgeFolder.of(tmp_path / "library")


async def documents(library: KnowledgeFolder) -> list[str]:
    """The ids of what it holds."""
    async with library.open_knowledge_base() as kb:
        document_ids = [result.document_id for result in await kb.search("slim", limit=10)]
    library.counts.searches.clear()
    return document_ids


@pytest.mark.parametrize("elsewhere", [False, True], ids=["here", "elsewhere"])
async def test_a_model_that_never_stops_searching_searches_five_times_and_answers(
    library: KnowledgeFolder, elsewhere: bool
) -> None:
    model = obstinate(search_on)
    async with library.run_supervisor(model, env={"MODEL_CALL_LIMIT": "9"}, elsewhere=elsewhere) as client:
        search = await library.wrapper("search")
        stream = await client.ask("What is SLIM?")
        assert search is await library.wrapper("search"), "it knows what it has counted"
        await wait_until(lambda: not search._call_counts)  # freed when the run has ended
        assert library.counts.queries == [f"slim {number}" for number in range(5)]
        assert caps(model.requests[-1], "search") == ["success"] * 3
        assert [status for status, _ in results(model.requests[-1], "search")] == ["success"] * 8
        assert outcomes(stream) == [("search", "ok")] * 8
        assert (stream.last.state, stream.answer) == ("completed", "All I found.")
        assert bound(model.requests, "search") == [True] * 5 + [False] * 4
        assert bound(model.requests, "fetch_document") == [True] * 8 + [False]
        again = await client.ask("And then?", contextId=stream.context_id)
    assert (again.last.state, again.answer) == ("completed", "All I found.")
    assert library.counts.queries == [f"slim {number}" for number in range(5)] * 2
    assert bound(model.requests[9:], "search") == [True] * 5 + [False] * 4


async def test_a_used_up_tool_is_not_bound_and_the_others_are(library: KnowledgeFolder) -> None:
    model = answering_when_unbound(search_on, "search")
    async with library.run_supervisor(model) as client:
        stream = await client.ask("What is SLIM?")
    assert len(library.counts.searches) == 5
    assert stream.answer == "All I found."
    assert [[name for name in KNOWLEDGE_TOOLS if name in request.tools] for request in model.requests] == [
        *[KNOWLEDGE_TOOLS] * 5,
        KNOWLEDGE_TOOLS[1:],
    ]
    assert caps(model.requests[-1], "search") == []


async def test_a_model_that_always_fetches_reads_ten_times_and_answers(library: KnowledgeFolder) -> None:
    [first, *_] = await documents(library)
    model = obstinate(
        lambda request: Call("fetch_document", {"document_id": first, "offset": request.position})
    )
    async with library.run_supervisor(model, env={"MODEL_CALL_LIMIT": "13"}) as client:
        stream = await client.ask("Read it all.")
    assert library.counts.fetches == [first] * 10
    assert caps(model.requests[-1], "fetch_document") == ["success"] * 2
    assert outcomes(stream) == [("fetch_document", "ok")] * 12
    assert bound(model.requests, "fetch_document") == [True] * 10 + [False] * 3
    assert bound(model.requests, "search") == [True] * 12 + [False]
    assert (stream.last.state, stream.answer) == ("completed", "All I found.")


async def test_a_model_that_alternates_has_both_caps_apart(library: KnowledgeFolder) -> None:
    [first, *_] = await documents(library)

    def step(request: Request) -> Call:
        number = request.position // 2
        return (
            Call("fetch_document", {"document_id": first, "offset": number})
            if request.position % 2
            else searching(number)
        )

    model = obstinate(step)
    async with library.run_supervisor(model, env={"MODEL_CALL_LIMIT": "25"}) as client:
        stream = await client.ask("What is SLIM?")
    assert (len(library.counts.searches), len(library.counts.fetches)) == (5, 10)
    assert len(caps(model.requests[-1], "search")) == 7
    assert len(caps(model.requests[-1], "fetch_document")) == 2
    assert {outcome for _, outcome in outcomes(stream)} == {"ok"}
    assert bound(model.requests, "search") == [True] * 9 + [False] * 16
    assert bound(model.requests, "fetch_document") == [True] * 20 + [False] * 5
    assert (stream.last.state, stream.answer) == ("completed", "All I found.")


@pytest.mark.parametrize("wanted", [{"limit": 50}, {"limit": 0}, {"limit": -1}, {}], ids=str)
async def test_a_model_gets_three_results_however_many_it_asks_for(
    library: KnowledgeFolder, wanted: dict[str, int]
) -> None:
    model = acting(
        Turn(searching(**wanted)), Turn(Say("{{tool:search.results.2.title}}, not {{tool:search}}"))
    )
    async with library.run_supervisor(model) as client:
        stream = await client.ask("What is SLIM?")
    assert library.counts.searches == [("slim 0", 3)]
    assert stream.answer.count('"document_id"') == 3
    assert outcomes(stream) == [("search", "ok")]


@pytest.mark.parametrize("first", [0, 2])
async def test_calls_in_one_message_are_counted_one_by_one(library: KnowledgeFolder, first: int) -> None:
    steps = [Turn(searching(number)) for number in range(first)]
    model = acting(*steps, Turn(*(searching(number) for number in range(10, 18))), Turn(Say("All I found.")))
    async with library.run_supervisor(model) as client:
        stream = await client.ask("What is SLIM?")
    assert sorted(library.counts.queries) == sorted(
        [f"slim {number}" for number in (*range(first), *range(10, 15 - first))]
    )
    assert len(caps(model.requests[-1], "search")) == 3 + first
    assert [result_text for _, result_text in results(model.requests[-1], "search")][-3 - first :] == [
        SEARCH_CAP
    ] * (3 + first), "the first ones ran"
    assert outcomes(stream) == [("search", "ok")] * (8 + first)
    assert bound(model.requests, "search") == [True] * (first + 1) + [False]
    assert stream.answer == "All I found."


async def test_a_call_is_told_once(library: KnowledgeFolder) -> None:
    async with library.run_supervisor(acting(Turn(searching()), Turn(Say("So.")))) as client:
        stream = await client.ask("What is SLIM?")
    assert [event.tool for event in events_of_kind(stream, ToolStarted)] == ["search"]
    assert stream.notifications == [
        "🔧 Supervisor: Calling tool: Search\n",
        "✅ Supervisor: Tool Search completed\n",
    ]


async def test_two_tasks_of_a_conversation_have_counts_of_their_own(library: KnowledgeFolder) -> None:
    begun, go_on = asyncio.Event(), asyncio.Event()

    @tool
    async def hold() -> str:
        """Hold."""
        begun.set()
        await go_on.wait()
        return "held"

    def step(request: Request) -> Turn:
        if request.last_user == "First" and request.position == 4:
            return Turn(Call("hold"))
        name = request.last_user.lower()
        return (
            Turn(Call("search", {"query": f"{name} {request.position}"}))
            if "search" in request.tools
            else Turn(Say(f"{name} is done"))
        )

    async with library.run_supervisor(acting(step), tools=[hold]) as client:
        first = asyncio.create_task(client.ask("First", contextId="talk"))
        await begun.wait()
        second = asyncio.create_task(client.ask("Second", contextId="talk"))
        go_on.set()
        answers = [stream.answer for stream in await asyncio.gather(first, second)]
    assert answers == ["first is done", "second is done"]
    assert [
        sum(query.startswith(name) for query in library.counts.queries) for name in ("first", "second")
    ] == [5, 5]


async def test_the_count_goes_on_after_a_pause_and_a_restart(
    library: KnowledgeFolder, tmp_path: Path
) -> None:
    def step(request: Request) -> Turn:
        if request.position == 3:
            return Turn(Call(ASKING, {"response": "Which one?"}))
        return Turn(searching(request.position)) if request.tools else Turn(Say("All I found."))

    model = acting(step)
    env = {"MODEL_CALL_LIMIT": "9"}
    async with library.run_supervisor(model, storage=(storage := in_folder(tmp_path)), env=env) as client:
        paused = await Person(client, storage).ask("What is SLIM?")
        assert (paused.last.state, len(library.counts.searches)) == ("input-required", 3)
    async with library.run_supervisor(model, storage=(storage := in_folder(tmp_path)), env=env) as client:
        stream = await Person(client, storage).answer(paused, {only_request_id(paused): {"answer": "that"}})
    assert library.counts.queries == ["slim 0", "slim 1", "slim 2", "slim 4", "slim 5"]
    assert caps(model.requests[-1], "search") == ["success"] * 2
    assert bound(model.requests, "search") == [True] * 6 + [False] * 3
    assert (stream.last.state, stream.answer) == ("completed", "All I found.")


async def test_a_domain_agents_own_search_is_neither_capped_nor_clamped(library: KnowledgeFolder) -> None:
    search_calls: list[tuple[str, int]] = []

    @tool
    async def search(query: str, limit: int) -> str:
        """Search the wiki."""
        search_calls.append((query, limit))
        return f"{query}: " + "x" * 15_000

    calls = [Turn(Call("search", {"query": f"page {number}", "limit": 50})) for number in range(20)]
    inner = acting(*calls, Turn(Say("Twenty pages.")))
    outer = acting(
        Turn(searching(), Call("task", {"description": "Look", "subagent_type": "wiki"})),
        Turn(Say("It said: {{tool:wiki}}")),
    )
    async with library.run_supervisor(outer, agents=[agent("wiki", inner, search)]) as client:
        stream = await client.ask("Look it up.")
    assert search_calls == [(f"page {number}", 50) for number in range(20)]
    assert bound(inner.requests, "search") == [True] * 21
    assert [result_text for _, result_text in results(inner.requests[-1], "search")] == [
        f"page {number}: " + "x" * 15_000 for number in range(20)
    ]
    assert library.counts.searches == [("slim 0", 3)]
    assert stream.answer == "It said: Twenty pages."


async def test_a_tool_of_the_supervisor_that_is_not_the_knowledge_bases_is_not_capped() -> None:
    calls: list[int] = []

    @tool
    async def search(limit: int) -> str:
        """Search."""
        calls.append(limit)
        return "found"

    model = acting(*(Turn(Call("search", {"limit": 50 + number})) for number in range(8)), Turn(Say("So.")))
    async with supervisor(model, tools=[search]) as client:
        assert (await client.ask("Look it up.")).answer == "So."
    assert calls == [50 + number for number in range(8)]
