"""A model's calls inside a graph: handlers that run inline are called directly, with what LangChain tells."""

from typing import Any

import pytest
from langchain_core.callbacks import AsyncCallbackHandler, BaseCallbackHandler
from langchain_core.messages import AIMessage, AIMessageChunk
from langgraph.graph import END, START, MessagesState, StateGraph

from tests.support.anthropic_streams import ANTHROPIC_STREAMS
from tests.support.fakes.raw_http import chunked
from tests.support.model_pairs import describe, look, serve_pair
from tests.support.openai_streams import OPENAI_STREAMS

STREAMS = {"openai": OPENAI_STREAMS, "anthropic": ANTHROPIC_STREAMS}

providers = pytest.mark.parametrize("provider", STREAMS)


async def stream_graph(model: Any) -> dict[str, Any]:
    """What a graph whose only node asks the model streams and returns, without the random ids."""

    async def ask(state: MessagesState) -> dict[str, Any]:
        return {"messages": [await model.bind_tools([look]).ainvoke(state["messages"])]}

    graph = StateGraph(MessagesState).add_node("model", ask).add_edge(START, "model").add_edge("model", END)
    joined: AIMessageChunk | None = None
    nodes: set[str] = set()
    returned: Any = None
    error: Exception | None = None
    try:
        async for mode, data in graph.compile().astream(
            {"messages": ["Well?"]}, stream_mode=["messages", "updates"]
        ):
            if mode == "updates":
                returned = data["model"]["messages"][0]
                continue
            chunk, metadata = data
            nodes.add(metadata["langgraph_node"])
            joined = chunk if joined is None else joined + chunk
    except Exception as raised:  # noqa: BLE001 - compared with that of the other client
        error = raised
    return {
        "streamed": strip_id(joined),
        "returned": strip_id(returned),
        "same id": joined is not None and returned is not None and joined.id == returned.id,
        "nodes": nodes,
        "error": describe(error) if error else None,
    }


def strip_id(message: AIMessage | None) -> dict[str, Any] | None:
    if message is None:
        return None
    return {name: value for name, value in message.model_dump().items() if name != "id"}


@providers
async def test_a_graph_streams_and_returns_the_same_with_both_clients(provider: str) -> None:
    async with serve_pair(provider) as pair:
        for name, events in STREAMS[provider].items():
            pair.answer = chunked(events)
            fast = await stream_graph(pair.fast)
            assert fast == await stream_graph(pair.stock), name
            if fast["error"] is None:
                assert fast["same id"], name


class Recorder(AsyncCallbackHandler):
    """Records the events of a model call; a tracer does not run inline either."""

    def __init__(self, *, inline: bool) -> None:
        self.run_inline = inline
        self.events: list[str] = []
        self.text = ""

    async def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        self.events.append("start")

    async def on_llm_new_token(self, token: Any, *, chunk: Any = None, **kwargs: Any) -> None:
        self.text += chunk.message.text

    async def on_llm_end(self, response: Any, **kwargs: Any) -> None:
        self.events.append(f"end {response.generations[0][0].message.text}")

    async def on_llm_error(self, error: BaseException, **kwargs: Any) -> None:
        self.events.append(f"error {type(error).__name__}")


@pytest.mark.sample(2)
@providers
@pytest.mark.parametrize("inline", [True, False], ids=["inline", "concurrent"])
@pytest.mark.parametrize("stream", ["text", "an error after text"])
async def test_a_handler_gets_the_events_of_a_call(provider: str, inline: bool, stream: str) -> None:
    """A handler that does not run inline is called by LangChain itself."""
    async with serve_pair(provider) as pair:
        pair.answer = chunked(STREAMS[provider][stream])
        recorders: list[Recorder] = []
        for model in (pair.fast, pair.stock):
            recorder = Recorder(inline=inline)
            recorders.append(recorder)
            try:
                await model.ainvoke("Well?", {"callbacks": [recorder]}, stream=True)
            except Exception:  # noqa: BLE001 - the events tell
                assert stream != "text"
    fast, stock = recorders
    assert fast.events == stock.events
    assert fast.events[0] == "start"
    assert fast.events[1].startswith("end " if stream == "text" else "error ")
    assert fast.text == stock.text
    assert "Welt 🚀 你好" in fast.text


class Failing(BaseCallbackHandler):
    """Fails at every token."""

    run_inline = True

    def __init__(self, *, raise_error: bool) -> None:
        self.raise_error = raise_error

    def on_chat_model_start(self, *args: Any, **kwargs: Any) -> None:
        pass

    def on_llm_new_token(self, *args: Any, **kwargs: Any) -> None:
        raise ValueError("no token")


async def test_a_handler_that_fails_ends_the_call_only_if_it_says_so() -> None:
    async with serve_pair("openai") as pair:
        pair.answer = chunked(OPENAI_STREAMS["text"])
        tolerated = {"callbacks": [Failing(raise_error=False)]}
        answer = await pair.fast.ainvoke("Well?", tolerated, stream=True)  # type: ignore[arg-type]
        assert "Welt 🚀 你好" in answer.text
        fatal = {"callbacks": [Failing(raise_error=True)]}
        with pytest.raises(ValueError, match="no token"):
            await pair.fast.ainvoke("Well?", fatal, stream=True)  # type: ignore[arg-type]
