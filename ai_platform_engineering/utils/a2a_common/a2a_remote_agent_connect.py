"""A2ARemoteAgentConnectTool: an agent that runs somewhere else, ours or not, as a stream of our events."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncIterator
from typing import Any

import httpx
from a2a.types import AgentCard
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from ai_platform_engineering.a2a.cards import TOKEN_HINT, fetch_card, has_events_extension, read_tool_names
from ai_platform_engineering.a2a.client import (
    A2AClient,
    ClientConversation,
    CredentialsRefused,
    OutgoingMessage,
    create_http_client,
)
from ai_platform_engineering.a2a.third_party_client import ThirdPartyClient
from ai_platform_engineering.core.errors import AgentUnavailable, CaipeError
from ai_platform_engineering.core.events import Answered, AnyEvent, Failed, InputRequested
from ai_platform_engineering.core.settings import is_loopback

_CANCEL_SECONDS = 5.0


class HttpClients:
    """The HTTP clients for agents: one for this machine and one for the way out, made when first needed."""

    def __init__(self) -> None:
        self._clients: dict[bool, httpx.AsyncClient] = {}

    def for_url(self, url: str) -> httpx.AsyncClient:
        local = is_loopback(httpx.URL(url).host)
        if local not in self._clients:
            self._clients[local] = create_http_client(url)
        return self._clients[local]

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


class Prompt(BaseModel):
    prompt: str = Field(description="The whole assignment: the agent sees nothing else of the conversation.")


class A2ARemoteAgentConnectTool(BaseTool):
    """Fetches the agent's card on first use, and again after a failure; speaks 1.0 or 0.3 as the card says."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    url: str
    token: SecretStr | None = None
    connect_timeout: float = 5.0
    idle_timeout: float = 60.0
    http: HttpClients = Field(default_factory=HttpClients, exclude=True)
    args_schema: Any = Prompt

    _client: "A2AClient | ThirdPartyClient | None" = PrivateAttr(None)
    _tools: tuple[str, ...] = PrivateAttr(())
    _handing_over: bool = PrivateAttr(False)
    _cancelling: set[asyncio.Task[None]] = PrivateAttr(default_factory=set)

    async def card(self, timeout: float | None = None) -> AgentCard:
        """The agent's card as it is now. Raises Unreachable and AgentUnavailable."""
        patience = timeout or self.connect_timeout
        card = await fetch_card(self.url, self.http.for_url(self.url), token=self._secret(), timeout=patience)
        self._tools = read_tool_names(card)
        return card

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the agent's tools, as its card said last."""
        return self._tools

    @property
    def sends_numbered_events(self) -> bool:
        """The agent is one of ours: it knows a message that it has seen, and its stream goes on at a number."""
        return isinstance(self._client, A2AClient)

    async def connect(self) -> None:
        if self._client is None:
            self._client = self._client_for(await self.card())

    async def send(self, order: OutgoingMessage, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """Sends a message and yields what happens until the agent has answered, failed or asked. Whoever breaks off cancels the task."""
        await self.connect()
        assert self._client is not None
        async for event in self._guarded(self._client.send(order, talk), talk, order):
            yield event

    async def follow(self, task_id: str, talk: ClientConversation) -> AsyncIterator[AnyEvent]:
        """What happens in a task that was ordered before."""
        await self.connect()
        assert self._client is not None
        async for event in self._guarded(self._client.follow(task_id, talk), talk):
            yield event

    async def cancel(self, task_id: str) -> None:
        """Stops a task that was ordered before. Raises CaipeError."""
        await self.connect()
        assert self._client is not None
        await self._client.cancel(task_id)

    async def aclose(self) -> None:
        """Waits for the cancellations that are on their way."""
        await asyncio.gather(*self._cancelling, return_exceptions=True)

    async def _guarded(
        self, events: AsyncIterator[AnyEvent], talk: ClientConversation, order: OutgoingMessage | None = None
    ) -> AsyncIterator[AnyEvent]:
        try:
            async for event in events:
                yield event
        except CredentialsRefused:
            self._client = None
            raise AgentUnavailable(f"{self.url} refused our credentials. {TOKEN_HINT}") from None
        except CaipeError:
            self._client = None
            raise
        except (asyncio.CancelledError, GeneratorExit):
            self._cancel(talk.task_id, order)  # a disconnect alone does not stop the agent
            raise

    def keep_tasks_running(self) -> None:
        """Who breaks off from now on leaves the task alone: another process will follow it."""
        self._handing_over = True

    def _cancel(self, task_id: str | None, order: OutgoingMessage | None) -> None:
        if self._client is None or self._handing_over:
            return
        task = asyncio.ensure_future(self._cancelled(self._client, task_id, order))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _cancelled(
        self, client: "A2AClient | ThirdPartyClient", task_id: str | None, order: OutgoingMessage | None
    ) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CANCEL_SECONDS):
                if task_id is None and order is not None and isinstance(client, A2AClient):
                    task_id = await client.find_task_id(
                        order
                    )  # the agent may be at work although it has not said so yet
                if task_id is not None:
                    await client.cancel(task_id)

    def _client_for(self, card: AgentCard) -> "A2AClient | ThirdPartyClient":
        http, token = self.http.for_url(self.url), self._secret()
        if has_events_extension(card):
            return A2AClient(
                self.url,
                http,
                token=token,
                connect_timeout=self.connect_timeout,
                idle_timeout=self.idle_timeout,
            )
        return ThirdPartyClient(
            card,
            http,
            agent=self.name,
            token=token,
            connect_timeout=self.connect_timeout,
            idle_timeout=self.idle_timeout,
        )

    def _secret(self) -> str | None:
        if self.token:
            return self.token.get_secret_value()
        return None

    async def _arun(self, prompt: str, **_: Any) -> str:
        async for event in self.send(OutgoingMessage(str(uuid.uuid4()), prompt), ClientConversation()):
            match event:
                case Answered():
                    return event.text
                case Failed():
                    raise AgentUnavailable(event.message)
                case InputRequested():
                    raise AgentUnavailable("The agent asks for input, which a plain tool cannot give.")
                case _:
                    pass
        raise AgentUnavailable("The agent stopped without an answer.")

    def _run(self, *_: Any, **__: Any) -> str:
        raise NotImplementedError("a remote agent is asked asynchronously: use ainvoke")
