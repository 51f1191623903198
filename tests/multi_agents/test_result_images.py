"""Images in tool results: in the bytes of the requests that the models' servers receive, and nowhere else."""

import base64
import signal
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from langchain.agents.middleware import ToolCallRequest
from langchain_core.messages import ToolMessage
from langchain_core.tools import StructuredTool

from ai_platform_engineering.core.events import Failed, RunStarted, TextPart, ToolFinished
from ai_platform_engineering.core.message_metadata import StoredImagesNote
from ai_platform_engineering.core.run_context import RunContext
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.middleware.composition import (
    compose_middlewares,
)
from ai_platform_engineering.multi_agents.platform_engineer.middleware.journal import JournalMiddleware
from ai_platform_engineering.multi_agents.platform_engineer.middleware.result_images import (
    ResultImagesMiddleware,
)
from ai_platform_engineering.runtime.log.log_rows import NewRun
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from tests.support.agent_services import Where, run_server_process
from tests.support.fakes.mcp_servers import until
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.request import Request
from tests.support.fakes.script import Attempts, Book, Call, Fail, Hang, Say, Script, Turn
from tests.support.fakes.serving import ModelServer
from tests.support.harness import FAST
from tests.support.picture_agent import (
    SEEING_MODELS,
    PictureAgent,
    SentImage,
    drawing,
    list_images,
    make_png,
)
from tests.support.providers import ANTHROPIC, OPENAI, RESPONSES, Provider

PLACES = {"openai": "user", "responses": "function_call_output", "anthropic": "tool_result"}


def agent_images(model: ModelServer) -> list[list[SentImage]]:
    """The images in each request of the agent."""
    return [list_images(request.raw) for request in model.requests if "task" not in request.tools]


def supervisor_images(model: ModelServer) -> list[SentImage]:
    return [
        image for request in model.requests if "task" in request.tools for image in list_images(request.raw)
    ]


@pytest.mark.sample(3)
@pytest.mark.parametrize("where", ["in-process", "remote"])
@pytest.mark.parametrize("provider", [OPENAI, RESPONSES, ANTHROPIC], ids=str)
async def test_the_agents_model_is_shown_images_where_its_interface_takes_them(
    tmp_path: Path, provider: Provider, where: Where
) -> None:
    agent = PictureAgent(tmp_path, drawing("a.png", "b.png"), provider, where)
    first = agent.write_image("a.png")
    second = agent.write_image("b.png")
    async with agent.run() as (model, client):
        stream = await client.ask("Draw.")
    place = PLACES[provider.name]
    expected = [SentImage(place, "image/png", first), SentImage(place, "image/png", second)]
    assert agent_images(model) == [[], expected]
    assert supervisor_images(model) == []
    sizes = [f"{len(base64.b64decode(data)):,}" for data in (first, second)]
    assert (
        stream.answer == f"Drawn:\n[image: image/png, {sizes[0]} bytes]\n[image: image/png, {sizes[1]} bytes]"
    )
    assert model.refusals == []
    [finished] = [
        event for event in stream.events if isinstance(event, ToolFinished) and event.tool == "draw"
    ]
    assert finished.result == stream.answer
    assert not any(first[:60].encode() in frame.raw for frame in stream.frames)


async def test_in_chat_completions_images_follow_all_results_between_markers(tmp_path: Path) -> None:
    both = Script(
        Turn(Call("draw", {"files": ["a.png"]}), Call("look", {}), Call("draw", {"files": ["b.png"]})),
        Turn(Say("Drawn.")),
    )
    agent = PictureAgent(tmp_path, both)
    first, second = agent.write_image("a.png"), agent.write_image("b.png")
    async with agent.run() as (model, client):
        await client.ask("Draw.")
    messages = [request for request in model.requests if "task" not in request.tools][-1].raw["messages"]
    assert [message["role"] for message in messages[-5:]] == ["assistant", "tool", "tool", "tool", "user"]
    assert all(isinstance(message["content"], str) for message in messages[-4:-1])
    result = messages[-4]["content"].splitlines()
    kinds = [part.get("text") or part["image_url"]["url"][22:] for part in messages[-1]["content"]]
    assert result[0].startswith("[[untrusted ")
    heading = f"{result[0]}\n[images in the result of draw]"
    assert [text.replace("\n", "\n") for text in kinds] == [
        result[0], "[images in the result of draw]", first, result[-1],
        result[0], "[images in the result of draw]", second, result[-1],
    ], heading  # fmt: skip


async def test_in_a_tools_message_images_stand_between_its_markers(tmp_path: Path) -> None:
    agent = PictureAgent(tmp_path, drawing("a.png"), ANTHROPIC)
    agent.write_image("a.png")
    async with agent.run() as (model, client):
        await client.ask("Draw.")
    *_, last = [request.raw["messages"][-1] for request in model.requests if "task" not in request.tools]
    [result] = last["content"]
    begin, image, end = result["content"]
    assert begin["text"].startswith("[[untrusted ")
    assert begin["text"].splitlines()[1:] == ["Drawn:", begin["text"].splitlines()[-1]]
    assert image["type"] == "image"
    nonce = begin["text"].removeprefix("[[untrusted ").partition(":")[0]
    assert end["text"] == f"[[end {nonce}]]"


@pytest.mark.parametrize(
    "script",
    [
        drawing("a.png", embedded=True),
        Script(Turn(Call("read_resource", {"uri": "pictures://stored"})), Turn(Say("Read."))),
    ],
    ids=["embedded", "read"],
)
async def test_images_in_resources_are_shown_too(tmp_path: Path, script: Script) -> None:
    agent = PictureAgent(tmp_path, script)
    agent.write_image("a.png")
    (tmp_path / "stored.png").write_bytes((tmp_path / "a.png").read_bytes())
    data = base64.b64encode((tmp_path / "a.png").read_bytes()).decode()
    async with agent.run() as (model, client):
        await client.ask("Draw.")
    assert agent_images(model) == [[], [SentImage("user", "image/png", data)]]


@pytest.mark.sample(3)
@pytest.mark.parametrize(
    ("name", "mode", "is_shown"),
    [
        ("openai:scripted", "auto", False),
        ("openai:scripted", "on", True),
        ("openai:gpt-4.1", "auto", True),
        ("openai:gpt-4.1", "off", False),
        ("openai:gpt-4", "auto", False),  # its profile says that tool messages take images, and it reads none
    ],
)
async def test_the_profile_or_the_setting_says_whether_a_model_reads_images(
    tmp_path: Path, name: str, mode: str, is_shown: bool
) -> None:
    agent = PictureAgent(tmp_path, drawing("a.png"), model=name, variables={"LLM_TOOL_IMAGES": mode})
    agent.write_image("a.png")
    async with agent.run() as (model, client):
        stream = await client.ask("Draw.")
    assert bool(agent_images(model)[-1]) == is_shown
    assert stream.answer.startswith("Drawn:\n[image: image/png, ")


async def test_what_is_too_large_or_no_image_is_described_and_only_the_last_ones_are_shown(
    tmp_path: Path,
) -> None:
    script = Script(
        Turn(Call("draw", {"files": ["large.png", "fake.png", "drawing.svg", "a.png", "b.png"]})),
        Turn(Call("draw", {"files": ["c.png", "a.png"]})),
        Turn(Say("Drawn.")),
    )
    limits = {"TOOL_IMAGE_MAX_BYTES": "2000", "TOOL_IMAGES_MAX_SHOWN": "2"}
    agent = PictureAgent(tmp_path, script, variables=limits)
    images = {name: agent.write_image(f"{name}.png") for name in "abc"}
    agent.write_image("large.png", 3000)
    (tmp_path / "fake.png").write_bytes(b"<html>not found</html>")
    (tmp_path / "drawing.svg").write_bytes(b"<svg/>")
    async with agent.run() as (model, client):
        await client.ask("Draw.")
    shown = [[image.data for image in request] for request in agent_images(model)]
    assert shown == [[], [images["a"], images["b"]], [images["c"], images["a"]]]
    results = [message.text for message in model.requests[2].messages if message.role == "tool"]
    assert results[0].count("[image: image/") == 5


async def test_neither_checkpoints_nor_events_grow_with_an_image(tmp_path: Path) -> None:
    looking = [Turn(Call("look", {})) for _ in range(4)]
    agent = PictureAgent(
        tmp_path, Script(Turn(Call("draw", {"files": ["a.png"]})), *looking, Turn(Say("Drawn.")))
    )
    data = agent.write_image("a.png", 900_000)
    async with agent.run() as (model, client):
        stream = await client.ask("Draw.")
        assert [len(request) for request in agent_images(model)] == [0, 1, 1, 1, 1, 1]
    folder = tmp_path / "home" / "supervisor"
    stored = {file.name: file.read_bytes() for file in folder.glob("*.db*")}
    size = sum(map(len, stored.values()))
    # Once in the run log, which a write-ahead log may hold a second time.
    assert size < 2.5 * len(data), {name: len(content) for name, content in stored.items()}
    assert not any(data[1000:1100].encode() in content for content in stored.values())
    assert sum(len(frame.raw) for frame in stream.frames) < 100_000


async def test_a_later_question_still_has_the_image_and_another_conversation_has_not(tmp_path: Path) -> None:
    scripts = Book({"^draw": drawing("a.png"), "^more": Script(Turn(Say("Seen.")))})
    agent = PictureAgent(tmp_path, scripts)
    data = agent.write_image("a.png")
    async with agent.run() as (_, client):
        stream = await client.ask("draw")
    async with agent.run() as (model, client):  # another process, in effect
        await client.ask("more", contextId=stream.context_id)
        await client.ask("more")
    assert agent_images(model) == [[SentImage("user", "image/png", data)], []]


def refuse_images(message: str) -> Callable[[Request], Turn]:
    def answer(request: Request) -> Turn:
        if list_images(request.raw):
            return Turn(Fail(400, message=message))
        return Turn(Say("{{tool:draw}}") if request.tool_results else Say("No."))

    return answer


@pytest.mark.parametrize("message", ["Invalid image data", "prompt is too long"])
async def test_a_request_that_is_refused_is_made_again_without_images_and_they_are_not_sent_again(
    tmp_path: Path, message: str
) -> None:
    refuse = refuse_images(message)
    drawing_first = Script(Turn(Call("draw", {"files": ["a.png"]})), refuse)
    scripts = Book({"^draw": drawing_first, "^more": Script(refuse)})
    agent = PictureAgent(tmp_path, scripts)
    agent.write_image("a.png")
    async with agent.run() as (model, client):
        stream = await client.ask("draw")
        await client.ask("more", contextId=stream.context_id)
    assert stream.answer.startswith("Drawn:\n[image: image/png, ")
    assert [len(images) for images in agent_images(model)] == [0, 1, 0, 0]
    assert not [event for event in stream.events if isinstance(event, Failed)]


async def test_a_fallback_model_that_reads_no_images_gets_none(tmp_path: Path) -> None:
    failing = Script(
        Turn(Call("draw", {"files": ["a.png"]})),
        lambda request: Turn(Fail(500)) if request.model == "gpt-4.1" else Turn(Say("{{tool:draw}}")),
    )
    agent = PictureAgent(
        tmp_path, failing, variables={"LLM_FALLBACK_MODELS": "openai:scripted", "LLM_ATTEMPTS": "1"}
    )
    agent.write_image("a.png")
    async with agent.run() as (model, client):
        stream = await client.ask("Draw.")
    assert stream.answer.startswith("Drawn:\n[image: image/png, ")
    assert [len(images) for images in agent_images(model)] == [0, 1, 0]


@pytest.mark.full
async def test_a_run_that_is_taken_over_shows_the_same_image_and_draws_it_once(tmp_path: Path) -> None:
    script = Script(
        Turn(Call("draw", {"files": ["a.png"]})), Attempts(Turn(Hang()), Turn(Say("{{tool:draw}}")))
    )
    agent = PictureAgent(tmp_path, script)
    data = agent.write_image("a.png")
    agent.write_definition()
    async with serve_openai(agent.casting) as model:
        env = {
            **FAST,
            "LLM_MODEL": SEEING_MODELS["openai"],
            "OPENAI_BASE_URL": model.url,
            "OPENAI_API_KEY": "scripted",
            "AGENTS_CONFIG": str(tmp_path / "agents"),
            "CAIPE_HOME": str(tmp_path / "home"),
        }
        async with run_server_process("caipe", "serve", "--port", "0", **env) as (process, client):
            frames = client.stream("Draw.")
            first = await anext(frames)
            await until(lambda: len(model.requests) == 3, "the model's third request")
            process.send_signal(signal.SIGKILL)
            await process.wait_for_exit()
        async with run_server_process("caipe", "serve", "--port", "0", **env) as (_, client):
            task = client.open("tasks/resubscribe", {"id": first.update["id"]}, last_event_id="0")
            answer = [frame async for frame in task]
    assert agent_images(model) == [[], *[[SentImage("user", "image/png", data)]] * 2]
    assert answer[-1].state == "completed"
    assert agent.calls == ["a.png"]


async def test_the_journal_gives_the_same_result_again_without_the_image_itself() -> None:
    data = base64.b64encode(make_png(900_000)).decode()
    log = MemoryLog()
    started = RunStarted(message_id="m", parts=(TextPart(text="Draw."),))
    run, _ = await log.create(NewRun("run", "context", "me", "m", "", started, lasting_id=True))
    context = RunContext(run_id="run", epoch=run.epoch)
    runtime: Any = SimpleNamespace(config={"metadata": context.to_metadata()})
    tool = StructuredTool.from_function(lambda: None, name="draw", description="Draws.")
    request = ToolCallRequest(
        {"name": "draw", "args": {}, "id": "c1", "type": "tool_call"}, tool, {}, runtime
    )
    made: list[str] = []

    async def draw(request: ToolCallRequest) -> ToolMessage:
        made.append("draw")
        image = {"type": "image", "base64": data, "mime_type": "image/png"}
        return ToolMessage([{"type": "text", "text": "Drawn:"}, image], tool_call_id="c1", name="draw")

    async def attempt() -> ToolMessage:
        """As a process does it that knows the journal alone."""
        settings = Settings.from_variables({})
        stack = [JournalMiddleware(log, settings.redactor), ResultImagesMiddleware(log.results, settings)]
        [composed] = compose_middlewares(stack)
        result = await composed.awrap_tool_call(request, draw)
        assert isinstance(result, ToolMessage)
        return result

    first = await attempt()
    assert first.content == "Drawn:\n[image: image/png]"
    assert len(str(first.additional_kwargs)) < 200
    assert await attempt() == first
    assert made == ["draw"]
    note = StoredImagesNote.of(first)
    assert note is not None
    stored = await log.results.read_all("run", note.images[0].result_id)
    assert stored == data.encode()
    assert len(str(await log.journal("run"))) < 1000
