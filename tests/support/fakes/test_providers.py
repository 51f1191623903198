"""The fake providers behave like the real ones, as seen through the real clients; `fakes/test_model.py` has
the models in the process."""

import asyncio
import random
import threading
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx
import httpx2
import openai
import pytest
import urllib3
from botocore.exceptions import ClientError
from langchain_anthropic import ChatAnthropic
from langchain_aws import ChatBedrockConverse
from langchain_core import exceptions as errors
from langchain_core.language_models import BaseChatModel
from langchain_core.messages import (
    AIMessage,
    AIMessageChunk,
    BaseMessage,
    HumanMessage,
    SystemMessage,
    ToolMessage,
)
from langchain_openai import ChatOpenAI
from pydantic import SecretStr

from tests.support.fakes.anthropic_server import AnthropicServer, serve_anthropic
from tests.support.fakes.bedrock_server import MODEL_PREFIX, BedrockServer, serve_bedrock
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import (
    Attempts,
    Book,
    Call,
    Casting,
    Die,
    Fail,
    Gate,
    Hang,
    Say,
    Script,
    Think,
    Turn,
    unique_pieces,
)
from tests.support.fakes.serving import ModelServer

# The tests that use this fake notice what is wrong with it, as a rule.
pytestmark = pytest.mark.full


class Provider:
    """One of the two providers: its server and its client."""

    def __init__(self, kind: str) -> None:
        self.kind = kind

    def serve(self, casting: Casting, **options: Any) -> Any:
        return (
            serve_openai(casting, **options) if self.kind == "openai" else serve_anthropic(casting, **options)
        )

    def client(self, server: ModelServer, model: str = "scripted", key: str = "x") -> BaseChatModel:
        if isinstance(server, OpenAIServer):
            return ChatOpenAI(
                base_url=server.url,
                api_key=SecretStr(key),
                model=model,
                max_retries=0,
                use_responses_api=False,
                stream_usage=True,
            )
        assert isinstance(server, AnthropicServer)
        return ChatAnthropic(
            base_url=server.url,
            api_key=SecretStr(key),
            model_name=model,
            max_retries=0,
            timeout=None,
            stop=None,
        )


@pytest.fixture(params=["openai", "anthropic"])
def provider(request: pytest.FixtureRequest) -> Provider:
    return Provider(request.param)


def look(org: str, limit: int = 1) -> str:
    """List the repositories."""
    return f"found count={limit} in {org}"


async def collect(
    stream: AsyncIterator[Any], heard: Callable[[str], None] = lambda _: None
) -> AIMessageChunk:
    total: AIMessageChunk | None = None
    async for chunk in stream:
        heard(str(chunk.text))
        total = chunk if total is None else total + chunk
    assert total is not None
    return total


async def both_ways(client: BaseChatModel, messages: Any) -> list[AIMessage]:
    tooled = client.bind_tools([look])
    return [await collect(tooled.astream(messages)), await tooled.ainvoke(messages)]


async def test_text_thoughts_and_calls(provider: Provider) -> None:
    script = Script(
        Turn(
            Think("let me see"),
            Say("I look first."),
            Call("look", {"org": "é"}),
            Call("look", {"org": "b", "limit": 2}),
        )
    )
    async with provider.serve(script) as server:
        for message in await both_ways(provider.client(server), "Hello"):
            assert message.text == "I look first."
            assert [(c["name"], c["args"]) for c in message.tool_calls] == [
                ("look", {"org": "é"}),
                ("look", {"org": "b", "limit": 2}),
            ]
            assert len({c["id"] for c in message.tool_calls}) == 2
            assert message.usage_metadata is not None
            # langchain-openai drops `reasoning_content`.
            thoughts = "".join(
                str(b.get("reasoning")) for b in message.content_blocks if b["type"] == "reasoning"
            )
            assert thoughts == ("" if provider.kind == "openai" else "let me see")
        assert [r.stream for r in server.requests] == [True, False]
        assert server.requests[0].tools == ("look",)
        assert server.requests[0].last_user == "Hello"


async def test_an_empty_message(provider: Provider) -> None:
    async with provider.serve(Script(Turn())) as server:
        for message in await both_ways(provider.client(server), "Hello"):
            assert message.text == ""
            assert message.tool_calls == []


HISTORY: list[BaseMessage] = [
    SystemMessage("Be brief."),
    HumanMessage("old question"),
    AIMessage("", tool_calls=[{"name": "look", "args": {"org": "x"}, "id": "c1"}]),
    ToolMessage("old", tool_call_id="c1"),
    AIMessage("old answer"),
    HumanMessage("Which?"),
    AIMessage(
        "", tool_calls=[{"name": "task", "args": {"subagent_type": "github", "description": "d"}, "id": "c2"}]
    ),
    ToolMessage('{"app": {"replicas": [3, "two"]}}', tool_call_id="c2"),
    AIMessage("", tool_calls=[{"name": "ask", "args": {}, "id": "c3"}]),
    ToolMessage("state: Synced, sync-state=x build=v1.2.", tool_call_id="c3"),
]


async def test_templates_take_what_the_request_really_holds(provider: Provider) -> None:
    said = Say(
        "{{user}} {{tool:github.app.replicas.0}}/{{tool:task.app.replicas.1}} {{tool:ask.state}} "
        "{{tool:ask.build}} {{ .Values.x }}"
    )
    called = Call("look", arg_pieces=('{"org": "', '{{tool:github}}"}'))
    script = Script(Turn(), Turn(), Turn(said, called))
    async with provider.serve(script) as server:
        for message in await both_ways(provider.client(server), HISTORY):
            assert message.text == "Which? 3/two Synced v1.2 {{ .Values.x }}"
            assert message.tool_calls[0]["args"] == {"org": '{"app": {"replicas": [3, "two"]}}'}
        assert server.requests[0].system == "Be brief."
        assert server.requests[0].position == 2


@pytest.mark.parametrize(
    ("template", "words_of_the_error"),
    [
        (
            "{{tool:look}}",
            "no result of 'look' after the last user message; results there: ['ask', 'github', 'task']",
        ),
        ("{{tool:github.app.name}}", "no 'name' on the way to 'app.name'"),
        ("{{tool:ask.version}}", "no 'version=' and no 'version: ' in the result 'state: Synced"),
    ],
)
async def test_a_template_that_does_not_resolve_is_refused(
    provider: Provider, template: str, words_of_the_error: str
) -> None:
    async with provider.serve(Script(Turn(Say(template)))) as server:
        with pytest.raises(errors.ModelInvalidRequestError) as error:
            await provider.client(server).bind_tools([look]).ainvoke(HISTORY)
        assert words_of_the_error in getattr(error.value, "response").json()["error"]["message"]  # noqa: B009 - only on the provider's class
        assert words_of_the_error in server.refusals[0]


async def test_a_gate_lets_the_next_piece_out_when_the_last_was_seen(provider: Provider) -> None:
    pieces, gate = unique_pieces("p", 6, random.Random(7)), Gate()
    order: list[int] = []

    def heard(text: str) -> None:
        if text:
            order.append(len(gate.sent))
            threading.Thread(target=gate.seen, args=(text,)).start()

    async with provider.serve(Script(Turn(Say(*pieces)), gate=gate)) as server:
        message = await collect(provider.client(server).astream("Hello"), heard)
    assert message.text == "".join(pieces)
    assert order == [1, 2, 3, 4, 5, 6]
    assert gate.unseen == ()


async def test_a_gate_that_is_not_told_fails_with_the_name_of_the_piece(provider: Provider) -> None:
    pieces, gate = unique_pieces("p", 3, random.Random(7)), Gate(timeout=0.1)
    async with provider.serve(Script(Turn(Say(*pieces)), gate=gate)) as server:
        with pytest.raises(Exception, match=pieces[0]):
            await collect(provider.client(server).astream("Hello"))
    assert gate.sent == (pieces[0],)


async def test_statuses_become_model_errors(provider: Provider) -> None:
    for status, expected in {
        401: errors.ModelAuthenticationError,
        429: errors.ModelRateLimitError,
        500: errors.ModelAPIError,
        529: errors.ModelAPIError,
    }.items():
        async with provider.serve(Script(Turn(Fail(status, message="no luck", retry_after=2)))) as server:
            for ask in (
                provider.client(server).ainvoke("Hello"),
                collect(provider.client(server).astream("Hello")),
            ):
                with pytest.raises(expected, match="no luck") as error:
                    await ask
                assert getattr(error.value, "response").headers["retry-after"] == "2"  # noqa: B009 - only on the provider's class


async def test_the_connection_dies(provider: Provider) -> None:
    heard: list[str] = []
    async with provider.serve(
        Book({"now": Script(Turn(Die())), "later": Script(Turn(Say("one two"), Die()))})
    ) as server:
        client = provider.client(server)
        with pytest.raises(errors.ModelConnectionError):
            await client.ainvoke("now")
        # The anthropic SDK hands on what its transport raises in mid-stream, unwrapped.
        with pytest.raises(
            errors.ModelConnectionError if provider.kind == "openai" else httpx2.RemoteProtocolError
        ):
            await collect(client.astream("later"), heard.append)
        assert "".join(heard) == "one two"
        assert server.abandoned == []


async def test_an_error_in_a_begun_stream_is_no_model_error(provider: Provider) -> None:
    async with provider.serve(Script(Turn(Say("one"), Fail(529, message="Overloaded")))) as server:
        with pytest.raises(Exception, match="Overloaded") as error:
            await collect(provider.client(server).astream("Hello"))
        assert not isinstance(error.value, errors.ModelError)


async def test_a_client_that_leaves_is_noticed(provider: Provider) -> None:
    async with provider.serve(Script(Turn(Say("one"), Hang()))) as server:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await collect(provider.client(server).astream("Hello"))
        async with asyncio.timeout(60):
            while server.abandoned != server.requests:  # noqa: ASYNC110 - the server has no event for it
                await asyncio.sleep(0.01)


async def test_attempts_go_by_conversation(provider: Provider) -> None:
    script = Script(Attempts(Turn(Fail(500)), Turn(Say("one"), Die()), Turn(Say("at last"))))
    async with provider.serve(script) as server:
        client = provider.client(server)
        for question in ("first", "second"):
            for _ in range(2):
                with pytest.raises((errors.ModelError, httpx2.RemoteProtocolError)):
                    await collect(client.astream(question))
            for _ in range(2):
                assert (await collect(client.astream(question))).text == "at last"


async def test_broken_histories_are_refused(provider: Provider) -> None:
    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": i} for i in ("c1", "c2")])
    first, second = ToolMessage("1", tool_call_id="c1"), ToolMessage("2", tool_call_id="c2")
    user = HumanMessage("Hello")
    async with provider.serve(Script(Turn(Say("fine")))) as server:
        client = provider.client(server).bind_tools([look])
        assert (await client.ainvoke([user, call, second, first, user])).text == "fine"
        for broken in (
            [user, call],
            [user, call, first],
            [user, call, first, user, second],
            [user, first],
            [user, call, first, second, second],
        ):
            with pytest.raises(errors.ModelInvalidRequestError):
                await client.ainvoke(broken)
        assert len(server.refusals) == 5
        assert "c2" in server.refusals[1]
        assert len(server.requests) == 1


async def test_too_long_a_prompt(provider: Provider) -> None:
    async with provider.serve(Script(Turn(Say("fine"))), max_context_tokens=50) as server:
        client = provider.client(server)
        assert (await client.ainvoke("x" * 200)).text == "fine"
        with pytest.raises(errors.ModelError, match="tokens") as error:
            await client.ainvoke("x" * 204)
    if provider.kind == "anthropic":
        assert isinstance(error.value, errors.ContextOverflowError)
    else:  # langchain-openai looks for the code in the error text, where this SDK no longer puts it
        assert not isinstance(error.value, errors.ContextOverflowError)
        assert isinstance(error.value, openai.BadRequestError)
        assert error.value.code == "context_length_exceeded"


async def test_forms_that_a_strict_provider_refuses(provider: Provider) -> None:
    async with (
        provider.serve(Script(Turn(Say("fine"))), api_key="right") as server,
        httpx.AsyncClient() as http,
    ):
        address = f"{server.url.removesuffix('/v1')}{server.path}"
        headers = {"authorization": "Bearer right", "x-api-key": "right"}
        body = {"model": "m", "max_tokens": 9, "messages": [{"role": "robot", "content": "Hello"}]}
        assert (await http.post(address, json=body, headers=headers)).status_code == 400
        assert (await http.post(address, json={**body, "messages": []}, headers=headers)).status_code == 400
        assert (await http.get(address.replace(server.path, "/v1/models"))).json()["data"][0][
            "id"
        ] == "scripted"
        with pytest.raises(errors.ModelAuthenticationError):
            await provider.client(server, key="wrong").ainvoke("Hello")


async def test_books_choose_by_text_and_by_model(provider: Provider) -> None:
    github = Book({"(?i)list": Script(Turn(Say("the list"))), "count": Script(Turn(Say("three")))})
    async with provider.serve(
        Book.for_model({"github": github, "top": Script(Turn(Say("I am top")))})
    ) as server:
        client = provider.client(server, "github")
        assert (await client.ainvoke("List them")).text == "the list"
        assert (await client.ainvoke("count them")).text == "three"
        assert (await provider.client(server, "top").ainvoke("count them")).text == "I am top"
        with pytest.raises(errors.ModelInvalidRequestError, match="no script for the user text"):
            await client.ainvoke("else")
        with pytest.raises(errors.ModelNotFoundError):
            await provider.client(server, "unknown").ainvoke("else")


# --- Bedrock: another client, other errors ------------------------------------------------------------------


def bedrock_client(server: BedrockServer, model: str = "scripted", key: str = "x") -> BaseChatModel:
    return ChatBedrockConverse(
        model=f"{MODEL_PREFIX}{model}",
        base_url=server.url,
        region_name="eu-west-3",
        aws_access_key_id=SecretStr(key),
        aws_secret_access_key=SecretStr("y"),
        timeout=60,
        max_retries=0,
    )


async def test_bedrock_text_thoughts_and_calls() -> None:
    calls = [Call("look", {"org": "é"}), Call("look", {"org": "b", "limit": 2})]
    script = Script(Turn(Think("let me see"), Say("I look first."), *calls))
    async with serve_bedrock(script) as server:
        for message in await both_ways(bedrock_client(server), "Hello"):
            assert message.text == "I look first."
            assert [call["args"] for call in message.tool_calls] == [{"org": "é"}, {"org": "b", "limit": 2}]
            assert message.usage_metadata is not None
            assert message.usage_metadata["input_tokens"] == server.requests[0].approximate_tokens
            blocks = message.content_blocks
            assert (
                "".join(str(b.get("reasoning")) for b in blocks if b["type"] == "reasoning") == "let me see"
            )
        assert [request.stream for request in server.requests] == [True, False]
        assert server.requests[0].tools == ("look",)
        assert server.requests[0].model == "scripted"


async def test_bedrock_demands_tools_for_a_history_with_calls_and_refuses_broken_ones() -> None:
    call = AIMessage("", tool_calls=[{"name": "look", "args": {}, "id": i} for i in ("c1", "c2")])
    first, second = ToolMessage("1", tool_call_id="c1"), ToolMessage("2", tool_call_id="c2")
    user = HumanMessage("Hello")
    async with serve_bedrock(Script(Turn(Say("fine")))) as server:
        client = bedrock_client(server)
        assert (await client.bind_tools([look]).ainvoke([user, call, second, first])).text == "fine"
        with pytest.raises(ClientError, match="Expected toolResult blocks"):
            await client.bind_tools([look]).ainvoke([user, call, first])
        # The client writes calls as text when there are no tools: the server is asked directly.
        async with httpx.AsyncClient() as http:
            body = {**server.requests[0].raw}
            del body["toolConfig"]
            address = f"{server.url}/model/{MODEL_PREFIX}scripted/converse"
            refusal = await http.post(address, json=body)
    assert refusal.status_code == 400
    assert refusal.headers["x-amzn-errortype"] == "ValidationException"
    assert "toolConfig field must be defined" in refusal.json()["message"]
    assert len(server.refusals) == 2


async def test_bedrock_errors_before_and_in_a_stream() -> None:
    for status, name in {403: "AccessDenied", 429: "Throttling", 500: "InternalServer"}.items():
        async with serve_bedrock(Script(Turn(Fail(status, message="no luck")))) as server:
            with pytest.raises(ClientError, match=f"{name}Exception.*no luck"):
                await collect(bedrock_client(server).astream("Hello"))
    async with serve_bedrock(Script(Turn(Say("one"), Fail(429, message="Slow down.")))) as server:
        with pytest.raises(ClientError, match=r"throttlingException.*Slow down"):
            await collect(bedrock_client(server).astream("Hello"))
    async with serve_bedrock(Script(Turn(Say("one"), Die()))) as server:
        with pytest.raises(urllib3.exceptions.ProtocolError):
            await collect(bedrock_client(server).astream("Hello"))
