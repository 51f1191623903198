"""The composition root of the bot: settings -> clients -> bot -> Bolt app, and how it runs."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import uvicorn
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from ai_platform_engineering.a2a.client import A2AClient, create_http_client
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings, SlackSettings
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.channel_config import ReloadableConfig
from ai_platform_engineering.integrations.slack_bot.incoming_messages import MessageReader
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.listeners import Listeners
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from ai_platform_engineering.integrations.slack_bot.turns import TurnRunner
from ai_platform_engineering.integrations.slack_bot.users import UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import UNREACHABLE, SlackApi, SlackError

log = logging.getLogger(__name__)

EVENTS_PATH = "/slack/events"
STORE_FILE = "slack.db"


@dataclass(frozen=True, slots=True)
class RunningBot:
    """A bot that is connected to its supervisor; how Slack reaches it is the caller's business."""

    bot: Bot
    app: AsyncApp
    listeners: Listeners


@contextlib.asynccontextmanager
async def run_bot(
    settings: Settings, supervisor: str, token: str | None, rate_limiter: RateLimiter | None = None
) -> AsyncIterator[RunningBot]:
    """Builds the bot, goes on with what an earlier process has left, and lets go of it in the end. Raises ConfigurationError."""
    rate_limiter, wanted = rate_limiter or RateLimiter(), settings.slack
    config = ReloadableConfig(wanted.config)
    # Retries are ours: the client's own would send a piece of text twice.
    own = _needed(wanted.bot_token, "SLACK_INTEGRATION_BOT_TOKEN")
    client = AsyncWebClient(token=own, base_url=_base(wanted.api_url), retry_handlers=[], timeout=30)
    slack = SlackApi(client, rate_limiter)
    me = await _own_name(slack)
    store = BotStore(settings.agent.home / STORE_FILE, rate_limiter.clock.now)
    async with _http(supervisor) as http:
        upstream = A2AClient(supervisor, http, token=token)
        people = UserDirectory(slack)
        requests = SlackInputRequests(upstream, store, people)
        turns = TurnRunner(slack, upstream, store, requests, streaming=wanted.streaming)
        bot = Bot(slack, upstream, store, people, config, turns, requests, MessageReader(slack, people))
        bot.bot_user_id = me
        secret = wanted.signing_secret.get_secret_value() if wanted.signing_secret else None
        app = AsyncApp(client=client, signing_secret=secret, ignoring_self_events_enabled=True)
        listeners = Listeners(app, bot)
        try:
            await store.delete_expired()
            if left := await turns.resume():
                log.info("%s turns go on after a restart", left)
            await listeners.resume()
            yield RunningBot(bot, app, listeners)
        finally:
            await turns.close()
            await listeners.drain()
            await store.close()


def _http(supervisor: str) -> httpx.AsyncClient:
    """Every turn that waits for people holds a connection, so there is no limit to them."""
    return create_http_client(
        supervisor,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        timeout=httpx.Timeout(30.0),
    )


async def _own_name(slack: SlackApi) -> str:
    try:
        answer = await slack.call("auth.test", {}) or {}
    except SlackError as error:
        if error.reason == UNREACHABLE:
            raise ConfigurationError(
                "Slack cannot be reached. Check the network, and HTTPS_PROXY where there is a proxy."
            ) from None
        raise ConfigurationError(
            f"{error} Check SLACK_INTEGRATION_BOT_TOKEN: it begins with xoxb- and is the installed app's."
        ) from None
    return str(answer["user_id"])


def _needed(secret: object, name: str) -> str:
    value = getattr(secret, "get_secret_value", str)()
    if not value:
        raise ConfigurationError(f"{name} is not set. docs/slack.md says where to find it.")
    return str(value)


def _base(url: str) -> str:
    if url.endswith("/"):
        return url
    return f"{url}/"


# --- how Slack reaches it ---------------------------------------------------------------------------------------------


async def serve(settings: Settings, supervisor: str, token: str | None) -> None:
    """Runs until it is told to stop. SIGHUP reads the channels' configuration again. Raises ConfigurationError."""
    wanted = settings.slack
    if wanted.mode == "socket":
        _needed(wanted.app_token, "SLACK_INTEGRATION_APP_TOKEN")
    else:
        _needed(wanted.signing_secret, "SLACK_INTEGRATION_SIGNING_SECRET")
    async with run_bot(settings, supervisor, token) as running, connect_to_slack(running, wanted):
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, stop.set)
        loop.add_signal_handler(signal.SIGHUP, running.bot.config.reload)
        log.info("the bot is connected to Slack (%s) and asks %s", wanted.mode, supervisor)
        await stop.wait()


@contextlib.asynccontextmanager
async def connect_to_slack(running: RunningBot, wanted: SlackSettings) -> AsyncIterator[None]:
    if wanted.mode == "http":
        async with _listening(running, wanted):
            yield
        return
    handler = AsyncSocketModeHandler(
        running.app, _needed(wanted.app_token, "SLACK_INTEGRATION_APP_TOKEN"), web_client=running.app.client
    )
    try:
        await _connect(handler)
        yield
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


async def _connect(handler: AsyncSocketModeHandler) -> None:
    try:  # asked for first: the client itself would try a wrong token for ever
        handler.client.wss_uri = await handler.client.issue_new_wss_url()
    except SlackApiError as error:
        said, needs = error.response.get("error"), "it begins with xapp- and has the scope connections:write"
        raise ConfigurationError(
            f"Slack refused Socket Mode: {said}. Check SLACK_INTEGRATION_APP_TOKEN: {needs}."
        ) from None
    await handler.connect_async()  # type: ignore[no-untyped-call]


@contextlib.asynccontextmanager
async def _listening(running: RunningBot, wanted: SlackSettings) -> AsyncIterator[None]:
    """Slack signs what it sends, and what is not signed is refused."""
    listener = _bound(wanted.host, wanted.port)
    server = uvicorn.Server(uvicorn.Config(create_http_app(running), log_config=None, access_log=False))
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task


def _bound(host: str, port: int) -> socket.socket:
    try:
        return socket.create_server((host, port), family=socket.AF_INET6 if ":" in host else socket.AF_INET)
    except OSError as error:
        where = f"{host}, port {port}: {str(error.strerror).partition(' (while')[0]}"
        raise ConfigurationError(
            f"Cannot listen on {where}. Set SLACK_INTEGRATION_HOST and SLACK_INTEGRATION_PORT."
        ) from None


def create_http_app(running: RunningBot) -> Starlette:
    handler = AsyncSlackRequestHandler(running.app)

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def events(request: Request) -> Response:
        return await handler.handle(request)

    return Starlette(routes=[Route(EVENTS_PATH, events, methods=["POST"]), Route("/health", health)])
