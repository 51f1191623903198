"""A2ARemoteAgentConnectTool: a remote agent, ours or third-party, as a stream of our events."""

import asyncio
import contextlib
import uuid
from collections.abc import AsyncGenerator
from typing import Any

import httpx
from a2a.types import AgentCard
from langchain_core.tools import BaseTool
from pydantic import BaseModel, ConfigDict, Field, PrivateAttr, SecretStr

from ai_platform_engineering.a2a.cards import (
    TOKEN_HINT,
    fetch_card,
    has_events_extension,
    read_skill_names,
    read_tool_names,
)
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
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.json_limits import JsonLimits
from ai_platform_engineering.core.placement_settings import PlacementSettings
from ai_platform_engineering.net.bounded_responses import IDENTITY_ENCODING, ResponseLimits, response_hook

_CANCEL_SECONDS = 5.0


class HttpClients:
    """HTTP clients for agents, created when first used: for loopback addresses and for all others, each with
    the limits for agents of ours and for third parties."""

    def __init__(self, limits: PlacementSettings | None = None) -> None:
        """`limits` bounds the messages of the agents."""
        self._settings = limits or PlacementSettings()
        self._clients: dict[tuple[bool, bool], httpx.AsyncClient] = {}

    def for_url(self, url: str, *, third_party: bool = True) -> httpx.AsyncClient:
        key = is_loopback(httpx.URL(url).host), third_party
        if key not in self._clients:
            hooks = {"response": [response_hook(self._limits(third_party))]}
            self._clients[key] = create_http_client(url, headers=IDENTITY_ENCODING, event_hooks=hooks)
        return self._clients[key]

    def _limits(self, third_party: bool) -> ResponseLimits:
        values = self._settings.max_message_values
        if third_party:  # its messages become protobuf, which costs a hundred times as much
            values = min(values, self._settings.max_third_party_values)
        return ResponseLimits(self._settings.max_message_bytes, JsonLimits(values))

    async def aclose(self) -> None:
        for client in self._clients.values():
            await client.aclose()
        self._clients.clear()


class Prompt(BaseModel):
    prompt: str = Field(description="The whole assignment: the agent sees nothing else of the conversation.")


class A2ARemoteAgentConnectTool(BaseTool):
    """A remote agent as a tool and as a stream of events.

    Fetches the agent's card on first use, and again after a failure; speaks 1.0 or 0.3 as the card says."""

    model_config = ConfigDict(arbitrary_types_allowed=True)

    url: str
    token: SecretStr | None = None
    connect_timeout: float = 5.0
    idle_timeout: float = 60.0
    lost_timeout: float = 12.0
    http: HttpClients = Field(default_factory=HttpClients, exclude=True)
    args_schema: Any = Prompt

    _client: "A2AClient | ThirdPartyClient | None" = PrivateAttr(None)
    _tools: tuple[str, ...] = PrivateAttr(())
    _skills: tuple[str, ...] = PrivateAttr(())
    _keeps_tasks_running: bool = PrivateAttr(False)
    _cancelling: set[asyncio.Task[None]] = PrivateAttr(default_factory=set)

    async def card(self, timeout: float | None = None) -> AgentCard:
        """Fetches the agent's card. Raises Unreachable and AgentUnavailable."""
        card = await fetch_card(
            self.url,
            self.http.for_url(self.url),
            token=self._read_token(),
            timeout=timeout or self.connect_timeout,
        )
        self._tools = read_tool_names(card)
        self._skills = read_skill_names(card)
        return card

    @property
    def tools(self) -> tuple[str, ...]:
        """The names of the agent's tools in the card that was fetched last."""
        return self._tools

    @property
    def skills(self) -> tuple[str, ...]:
        """The names of a third-party agent's skills in the card that was fetched last."""
        return self._skills

    @property
    def sends_numbered_events(self) -> bool:
        """Whether the agent is one of ours: it recognizes a repeated message, and its stream has cursors."""
        return isinstance(self._client, A2AClient)

    async def connect(self) -> None:
        if self._client is None:
            self._client = self._create_client(await self.card())

    async def send(
        self, message: OutgoingMessage, conversation: ClientConversation
    ) -> AsyncGenerator[AnyEvent]:
        """Sends a message and yields events until the agent has answered, failed or asked for input.

        A reader that is cancelled or stops early cancels the remote task."""
        await self.connect()
        assert self._client is not None
        events = self._client.send(message, conversation)
        async with contextlib.aclosing(self._cancel_on_exit(events, conversation, message)) as guarded_events:
            async for event in guarded_events:
                yield event

    async def follow(self, task_id: str, conversation: ClientConversation) -> AsyncGenerator[AnyEvent]:
        """Yields the events of a remote task that was started before."""
        await self.connect()
        assert self._client is not None
        events = self._client.follow(task_id, conversation)
        async with contextlib.aclosing(self._cancel_on_exit(events, conversation)) as guarded_events:
            async for event in guarded_events:
                yield event

    async def cancel(self, task_id: str) -> None:
        """Cancels a remote task that was started before. Raises CaipeError."""
        await self.connect()
        assert self._client is not None
        await self._client.cancel(task_id)

    async def aclose(self) -> None:
        """Waits for the cancellations that are being sent."""
        await asyncio.gather(*self._cancelling, return_exceptions=True)

    async def _cancel_on_exit(
        self,
        events: AsyncGenerator[AnyEvent],
        conversation: ClientConversation,
        message: OutgoingMessage | None = None,
    ) -> AsyncGenerator[AnyEvent]:
        """Yields the events; cancels the remote task unless it ended; drops the client on errors."""
        try:
            async with contextlib.aclosing(events):
                async for event in events:
                    yield event
        except CredentialsRefused:
            self._client = None
            raise AgentUnavailable(f"{self.url} refused our credentials. {TOKEN_HINT}") from None
        except CaipeError:
            # Whatever still runs there has nobody left who waits for it.
            self._start_cancelling(conversation.task_id, message, gave_up=True)
            self._client = None
            raise
        except BaseException:
            # Cancelled, not read any further, or a failure of ours: a disconnect does not stop the agent.
            self._start_cancelling(conversation.task_id, message)
            raise

    def keep_tasks_running(self) -> None:
        """From now on a reader that stops does not cancel the remote task: another process will follow it."""
        self._keeps_tasks_running = True

    def _start_cancelling(
        self, task_id: str | None, message: OutgoingMessage | None, *, gave_up: bool = False
    ) -> None:
        if self._client is None or self._keeps_tasks_running:
            return
        if gave_up and isinstance(self._client, A2AClient):
            message = None  # its task is found by sending the message again, which might begin it only now
        task = asyncio.ensure_future(self._cancel_remote_task(self._client, task_id, message))
        self._cancelling.add(task)
        task.add_done_callback(self._cancelling.discard)

    async def _cancel_remote_task(
        self, client: "A2AClient | ThirdPartyClient", task_id: str | None, message: OutgoingMessage | None
    ) -> None:
        with contextlib.suppress(Exception):
            async with asyncio.timeout(_CANCEL_SECONDS):
                if task_id is None and message is not None:
                    # The agent may be working on the message although it has not answered yet.
                    task_id = await client.find_task_id(message)
                if task_id is not None:
                    await client.cancel(task_id)
        if isinstance(client, ThirdPartyClient):
            await client.close_abandoned()

    def _create_client(self, card: AgentCard) -> "A2AClient | ThirdPartyClient":
        http = self.http.for_url(self.url, third_party=not has_events_extension(card))
        token = self._read_token()
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
            lost_timeout=self.lost_timeout,
        )

    def _read_token(self) -> str | None:
        if self.token:
            return self.token.get_secret_value()
        return None

    async def _arun(self, prompt: str, **_: Any) -> str:
        message = OutgoingMessage(str(uuid.uuid4()), prompt)
        async for event in self.send(message, ClientConversation()):
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
