"""The SDK's own halves against ours: its client on our server, and our executor under its stock handler and
routes."""

import asyncio
import contextlib
import socket
import uuid
from collections.abc import AsyncIterator, Iterable
from typing import Any, cast

import httpx
import pytest
from a2a.client import A2ACardResolver, Client, ClientCallContext, ClientConfig, ClientFactory
from a2a.client.errors import A2AClientError
from a2a.server.agent_execution import AgentExecutor
from a2a.server.request_handlers import DefaultRequestHandler
from a2a.server.routes import create_agent_card_routes, create_jsonrpc_routes
from a2a.server.tasks import InMemoryTaskStore
from a2a.types import (
    Artifact,
    CancelTaskRequest,
    GetTaskRequest,
    ListTasksRequest,
    Message,
    Part,
    Role,
    SendMessageRequest,
    StreamResponse,
    SubscribeToTaskRequest,
    Task,
    TaskState,
)
from a2a.utils.errors import A2AError, TaskNotFoundError
from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.struct_pb2 import Value
from langchain_core.tools import BaseTool
from langgraph.checkpoint.memory import InMemorySaver
from starlette.applications import Starlette
from starlette.middleware import Middleware

from ai_platform_engineering.a2a.codec import decode
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.events import Cancelled
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.transcript import fold
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.placement import PlacedAgents
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import (
    AIPlatformEngineerA2ABinding,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent_executor import (
    AIPlatformEngineerA2AExecutor,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.cards import supervisor_card
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.runtime.log.memory_log import MemoryLog
from ai_platform_engineering.runtime.log.run_log import RunLog
from ai_platform_engineering.runtime.server.authentication import BearerAuthMiddleware
from ai_platform_engineering.runtime.server.call_context import CallContextBuilder, owner_of_call
from tests.runtime.server.test_a2a_input_required import form_tool
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.harness import PLAIN, serve_app
from tests.support.run_lists import list_all_runs

COMPLETED, CANCELED, PAUSED = (
    TaskState.TASK_STATE_COMPLETED,
    TaskState.TASK_STATE_CANCELED,
    TaskState.TASK_STATE_INPUT_REQUIRED,
)

TITLE = "Create GitHub Repo"

# Protocol versions over JSON-RPC, and the other binding of 1.0.
HTTP_JSON = "HTTP+JSON"
versions = pytest.mark.parametrize("version", ["1.0", "0.3", HTTP_JSON])


def asking(*parts: str | Part, **ids: str) -> SendMessageRequest:
    written = [Part(text=part) if isinstance(part, str) else part for part in parts]
    return SendMessageRequest(
        message=Message(message_id=str(uuid.uuid4()), role=Role.ROLE_USER, parts=written, **ids)
    )


def data(values: dict[str, Any]) -> Part:
    return Part(data=ParseDict(values, Value()))


@contextlib.asynccontextmanager
async def connected(url: str, version: str, *, streaming: bool = True) -> AsyncIterator[Client]:
    """The SDK's client after it has read the card, with one of its interfaces."""
    async with httpx.AsyncClient(timeout=120, verify=PLAIN) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
        binding, number = (HTTP_JSON, "1.0") if version == HTTP_JSON else ("JSONRPC", version)
        interfaces = [
            one
            for one in card.supported_interfaces
            if one.protocol_version.startswith(number) and one.protocol_binding == binding
        ]
        assert len(interfaces) == 1
        del card.supported_interfaces[:]
        card.supported_interfaces.extend(interfaces)
        config = ClientConfig(
            httpx_client=http, streaming=streaming, supported_protocol_bindings=["JSONRPC", HTTP_JSON]
        )
        yield ClientFactory(config).create(card)


@contextlib.asynccontextmanager
async def ours(script: Script, *tools: BaseTool) -> AsyncIterator[str]:
    """Our server; its card names the port that it listens on."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = Settings.from_variables(
        {"A2A_PORT": str(listener.getsockname()[1]), "STREAM_COALESCE_SECONDS": "0"}
    )
    async with serve_app(
        create_app(settings, tools=tools, model=ScriptedChatModel(script=script)), listener
    ) as url:
        yield url


@contextlib.asynccontextmanager
async def stock(
    script: Script, *tools: BaseTool, run_log: RunLog | None = None, delegate_key: str = ""
) -> AsyncIterator[str]:
    """Our executor as people embed it: under the SDK's handler, store and routes."""
    listener = socket.create_server(("127.0.0.1", 0))
    settings = Settings.from_variables(
        {
            "A2A_PORT": str(listener.getsockname()[1]),
            "STREAM_COALESCE_SECONDS": "0",
            "A2A_AUTH_DELEGATE_KEY": delegate_key,
        }
    )
    mas = PlatformEngineerDeepAgent(
        settings, tools=tools, model=ScriptedChatModel(script=script), checkpointer=InMemorySaver()
    )
    run_log = run_log or MemoryLog()
    executor = AIPlatformEngineerA2AExecutor(AIPlatformEngineerA2ABinding(mas, run_log), run_log, settings)
    card = supervisor_card(settings.server, PlacedAgents())
    handler = DefaultRequestHandler(
        agent_executor=cast("AgentExecutor", executor),  # has its methods, not its base class
        task_store=InMemoryTaskStore(owner_of_call),
        agent_card=card,
    )

    @contextlib.asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        yield
        await handler.aclose()

    rpc_routes = create_jsonrpc_routes(
        handler, "/", context_builder=CallContextBuilder(), enable_v0_3_compat=True
    )
    app = Starlette(
        routes=[*create_agent_card_routes(card), *rpc_routes],
        middleware=[Middleware(BearerAuthMiddleware, settings=settings.server)],
        lifespan=lifespan,
    )
    async with serve_app(app, listener) as url:
        yield url


servers_and_versions = pytest.mark.parametrize(
    ("server", "version"),
    [
        pytest.param(ours, "1.0", id="our handler, 1.0"),
        pytest.param(ours, "0.3", id="our handler, 0.3"),
        pytest.param(ours, HTTP_JSON, id="our handler, HTTP+JSON"),
        pytest.param(stock, "1.0", id="stock handler, 1.0"),
        pytest.param(stock, "0.3", id="stock handler, 0.3"),
    ],
)


class Heard:
    """What the client heard, event by event."""

    def __init__(self) -> None:
        self.events: list[StreamResponse] = []
        self.begun = asyncio.Event()

    async def listen(self, stream: AsyncIterator[StreamResponse]) -> "Heard":
        async for event in stream:
            self.events.append(event)
            self.begun.set()
        return self

    @property
    def task_id(self) -> str:
        first = self.events[0]
        return first.task.id if first.HasField("task") else first.status_update.task_id

    @property
    def context_id(self) -> str:
        first = self.events[0]
        return first.task.context_id if first.HasField("task") else first.status_update.context_id

    @property
    def states(self) -> list[int]:
        return [event.status_update.status.state for event in self.events if event.HasField("status_update")]

    @property
    def answer(self) -> str:
        """The answer that a client which folds artifacts by id holds."""
        artifacts: dict[str, Artifact] = {}
        for event in self.events:
            if event.HasField("task"):
                artifacts |= {artifact.artifact_id: artifact for artifact in event.task.artifacts}
            if not event.HasField("artifact_update"):
                continue
            update = event.artifact_update
            if update.append:
                artifacts[update.artifact.artifact_id].parts.extend(update.artifact.parts)
            else:
                artifacts[update.artifact.artifact_id] = update.artifact
        return find_answer(artifacts.values())

    @property
    def decoded(self) -> str | None:
        """The answer that our own reader of the wire finds in the rich shape."""
        return fold(event for one in self.events for _, event in decode(MessageToDict(one))).answer


def text(artifact: Any) -> str:
    return "".join(part.text for part in artifact.parts)


def find_answer(artifacts: Iterable[Artifact]) -> str:
    """The text of the answer: `final_result` in the rich shape, the one artifact in the plain one."""
    (final,) = [artifact for artifact in artifacts if artifact.name in ("final_result", "answer")]
    return text(final)


def answer_of(task: Task) -> str:
    return find_answer(task.artifacts)


@pytest.mark.sample(3)
@servers_and_versions
async def test_a_streamed_question(server: Any, version: str) -> None:
    scenario = VersionScenario()
    async with server(scenario.script, scenario.tool) as url, connected(url, version) as client:
        received = await Heard().listen(client.send_message(asking("Which version?")))
        stored = await client.get_task(GetTaskRequest(id=received.task_id))
    assert received.events[0].task.status.state == TaskState.TASK_STATE_SUBMITTED
    assert received.answer == scenario.answer
    assert received.decoded == (scenario.answer if version == "0.3" else None)
    assert (received.states[0], received.states[-1]) == (TaskState.TASK_STATE_WORKING, COMPLETED)
    assert (stored.status.state, answer_of(stored)) == (COMPLETED, scenario.answer)
    narration = [text(artifact) for artifact in stored.artifacts if artifact.name == "streaming_result"]
    assert narration == (["Let me look. "] if version == "0.3" else [])
    assert [text(artifact) for artifact in stored.artifacts].count(scenario.answer) == 1


@servers_and_versions
async def test_a_question_that_waits_for_its_answer(server: Any, version: str) -> None:
    scenario = VersionScenario()
    async with (
        server(scenario.script, scenario.tool) as url,
        connected(url, version, streaming=False) as client,
    ):
        received = await Heard().listen(client.send_message(asking("Which version?")))
    (only,) = received.events
    assert (only.task.status.state, answer_of(only.task)) == (COMPLETED, scenario.answer)


@pytest.mark.sample(3)
@servers_and_versions
async def test_a_cancel_stops_the_work_and_ends_the_stream(server: Any, version: str) -> None:
    waiting = BlockingScenario()
    async with server(waiting.script, waiting.tool) as url, connected(url, version) as client:
        received = Heard()
        listening = asyncio.create_task(received.listen(client.send_message(asking("Wait."))))
        await asyncio.gather(waiting.started.wait(), received.begun.wait())
        cancelled = await client.cancel_task(CancelTaskRequest(id=received.task_id))
        await listening
        stored = await client.get_task(GetTaskRequest(id=received.task_id))
    assert waiting.cancelled.is_set()
    assert cancelled.status.state == stored.status.state == CANCELED
    assert received.states[-1] == CANCELED
    assert received.states.count(CANCELED) == 1


@pytest.mark.sample(3)
@servers_and_versions
async def test_a_pause_and_an_answer(server: Any, version: str) -> None:
    repo = f"repo-{uuid.uuid4().hex[:8]}"
    script = Script(Turn(Say("One moment. "), Call("ask_form")), Turn(Say("Made {{tool:ask_form.repo}}.")))
    async with server(script, form_tool()) as url, connected(url, version) as client:
        received = await Heard().listen(client.send_message(asking("Create a repo.")))
        assert received.states[-1] == PAUSED
        paused = await client.get_task(GetTaskRequest(id=received.task_id))
        more = await Heard().listen(
            client.send_message(
                asking(data({"repo": repo}), task_id=received.task_id, context_id=received.context_id)
            )
        )
        stored = await client.get_task(GetTaskRequest(id=received.task_id))
    asked = paused.status.message.parts
    if version == "0.3":
        (form,) = [artifact for artifact in paused.artifacts if artifact.name == "UserInputMetaData"]
        asked = form.parts
    assert MessageToDict(asked[0].data if version == "0.3" else asked[-1].data)["input_title"] == TITLE
    assert TITLE in paused.status.message.parts[0].text
    assert paused.status.state == PAUSED
    assert more.answer == f"Made {repo}."
    assert (stored.status.state, answer_of(stored)) == (COMPLETED, f"Made {repo}.")


@versions
async def test_a_stream_is_taken_up_again(version: str) -> None:
    waiting = BlockingScenario()
    async with ours(waiting.script, waiting.tool) as url, connected(url, version) as client:
        received = Heard()
        listening = asyncio.create_task(received.listen(client.send_message(asking("Wait."))))
        await asyncio.gather(waiting.started.wait(), received.begun.wait())
        task_id = received.task_id
        listening.cancel()
        more = Heard()
        following = asyncio.create_task(more.listen(client.subscribe(SubscribeToTaskRequest(id=task_id))))
        await more.begun.wait()
        waiting.released.set()
        await following
        cursor = ClientCallContext(service_parameters={"Last-Event-ID": "0"})
        full_stream = await Heard().listen(
            client.subscribe(SubscribeToTaskRequest(id=task_id), context=cursor)
        )
    assert more.events[0].task.status.state == TaskState.TASK_STATE_WORKING
    assert more.answer == full_stream.answer == waiting.answer
    assert full_stream.events[0].task.status.state == TaskState.TASK_STATE_SUBMITTED


@pytest.mark.parametrize("version", ["1.0", HTTP_JSON])
async def test_the_client_of_1_0_lists_tasks_page_by_page(version: str) -> None:
    scenario = VersionScenario()
    async with ours(scenario.script, scenario.tool) as url, connected(url, version) as client:
        ids: list[str] = []
        for _ in range(3):
            received = await Heard().listen(client.send_message(asking("Which version?")))
            ids.append(received.task_id)
        request = ListTasksRequest(include_artifacts=True, page_size=2)
        first = await client.list_tasks(request)
        request.page_token = first.next_page_token
        second = await client.list_tasks(request)
    listed = [*first.tasks, *second.tasks]
    assert [(len(page.tasks), page.total_size) for page in (first, second)] == [(2, 3), (1, 3)]
    assert [(task.id, answer_of(task)) for task in listed] == [(i, scenario.answer) for i in ids[::-1]]
    assert second.next_page_token == ""


@versions
async def test_refusals_are_errors_that_the_client_knows(version: str) -> None:
    async with ours(Script(Turn(Say("Yes.")))) as url, connected(url, version) as client:
        with pytest.raises(TaskNotFoundError):
            await client.get_task(GetTaskRequest(id="nothing"))
        with pytest.raises((A2AError, A2AClientError)):
            await Heard().listen(client.subscribe(SubscribeToTaskRequest(id="nothing")))
        with pytest.raises((A2AError, A2AClientError)):
            await Heard().listen(client.send_message(asking(" ")))


async def test_the_client_prefers_1_0() -> None:
    async with ours(Script(Turn(Say("Yes.")))) as url, httpx.AsyncClient(verify=PLAIN) as http:
        card = await A2ACardResolver(http, url).get_agent_card()
    interfaces = [(one.protocol_binding, one.protocol_version) for one in card.supported_interfaces]
    assert interfaces == [("JSONRPC", "1.0"), ("JSONRPC", "0.3.0"), (HTTP_JSON, "1.0")]
    assert {one.url for one in card.supported_interfaces} == {url}


async def test_an_executor_that_fails_says_so_in_words() -> None:
    """Under the stock handler too, no text of an exception leaves the process."""

    def explode(_: Any) -> Turn:
        raise RuntimeError("the password is hunter-two")

    async with stock(Script(explode)) as url, connected(url, "1.0") as client:
        received = await Heard().listen(client.send_message(asking("Well?")))
    assert received.states[-1] == TaskState.TASK_STATE_FAILED
    assert "hunter-two" not in str(received.events)
    assert text(received.events[-1].status_update.status.message)


def speaking_for(user: str, owner: str, key: str) -> ClientCallContext:
    """The headers of a client with the delegate key."""
    return ClientCallContext(
        service_parameters={"Authorization": f"Bearer {key}", **on_behalf_of_headers(user, owner)}
    )


async def test_an_embedded_executor_keeps_runs_under_the_owner_that_a_delegate_names() -> None:
    waiting, run_log, key = BlockingScenario(), MemoryLog(), uuid.uuid4().hex
    ann = speaking_for("ann", "the thread", key)
    bob = speaking_for("bob", "the thread", key)
    eve = speaking_for("eve", "another thread", key)
    async with (
        stock(waiting.script, waiting.tool, run_log=run_log, delegate_key=key) as url,
        connected(url, "1.0") as client,
    ):
        received = Heard()
        question = client.send_message(asking("Wait."), context=ann)
        listening = asyncio.create_task(received.listen(question))
        await asyncio.gather(waiting.started.wait(), received.begun.wait())
        with pytest.raises(TaskNotFoundError):
            await client.cancel_task(CancelTaskRequest(id=received.task_id), context=eve)
        cancelled = await client.cancel_task(CancelTaskRequest(id=received.task_id), context=bob)
        await listening
        (run,) = await list_all_runs(run_log, "the thread")
        last = (await run_log.read(run.run_id))[-1].event
    assert (run.run_id, run.principal) == (received.task_id, "ann")
    assert cancelled.status.state == CANCELED
    assert isinstance(last, Cancelled)
    assert last.by == "bob"
