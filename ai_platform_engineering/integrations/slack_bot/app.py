"""The composition root of the bot: settings -> clients -> bot -> Bolt app, and how it runs."""

import asyncio
import contextlib
import logging
import signal
import socket
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp
import httpx
import uvicorn
from pydantic import SecretStr
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.adapter.starlette.async_handler import AsyncSlackRequestHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.signature import SignatureVerifier
from slack_sdk.web.async_client import AsyncWebClient
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ai_platform_engineering.a2a.client import A2AClient, create_http_client
from ai_platform_engineering.core.connection_failures import why_unreachable
from ai_platform_engineering.core.errors import ConfigurationError, DatabaseUnavailable
from ai_platform_engineering.core.settings import Settings, SlackSettings
from ai_platform_engineering.core.terminals import is_in_terminal
from ai_platform_engineering.core.tracebacks import format_traceback
from ai_platform_engineering.databases.database_choice import choose_by_url
from ai_platform_engineering.databases.database_clients import import_optional
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.bot_database import BotDatabase, SqliteBotDatabase
from ai_platform_engineering.integrations.slack_bot.bot_store import BotStore
from ai_platform_engineering.integrations.slack_bot.channel_config import ReloadableConfig
from ai_platform_engineering.integrations.slack_bot.event_tasks import EventTasks
from ai_platform_engineering.integrations.slack_bot.input_requests import SlackInputRequests
from ai_platform_engineering.integrations.slack_bot.listeners import Listeners
from ai_platform_engineering.integrations.slack_bot.message_reader import MessageReader
from ai_platform_engineering.integrations.slack_bot.payload_shape import has_expected_shape
from ai_platform_engineering.integrations.slack_bot.process_keeper import ProcessKeeper
from ai_platform_engineering.integrations.slack_bot.rate_limits import RateLimiter
from ai_platform_engineering.integrations.slack_bot.sign_ins import SlackSignIns
from ai_platform_engineering.integrations.slack_bot.thread_holders import ThreadHolders
from ai_platform_engineering.integrations.slack_bot.thread_leases import ThreadLeases
from ai_platform_engineering.integrations.slack_bot.thread_worker import ThreadWorker
from ai_platform_engineering.integrations.slack_bot.turn_runner import TurnRunner
from ai_platform_engineering.integrations.slack_bot.users import UserDirectory
from ai_platform_engineering.integrations.slack_bot.web_api import UNREACHABLE, SlackApi, SlackError
from ai_platform_engineering.net.http_connections import ConnectionLimits, server_options

log = logging.getLogger(__name__)

EVENTS_PATH = "/slack/events"
STORE_FILE = "slack.db"
_UNREACHABLE = "Slack cannot be reached. Check the network, and HTTPS_PROXY where there is a proxy."
_MAX_BODY_BYTES = 4 * 1024 * 1024


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
    """Builds the bot, goes on with the turns of an earlier process, and closes everything in the end.

    Raises ConfigurationError.
    """
    rate_limiter = rate_limiter or RateLimiter()
    config = ReloadableConfig(settings.slack.config)
    client = _create_web_client(settings.slack)
    slack = SlackApi(client, rate_limiter)
    identity = await _identify_bot(slack)
    async with contextlib.AsyncExitStack() as stack:
        database = await _open_database(settings, identity)
        stack.push_async_callback(database.close)
        http = await stack.enter_async_context(_create_http_client(supervisor))
        store = BotStore(database, rate_limiter.clock.now)
        holders = ThreadHolders(database)
        leases = ThreadLeases()
        tasks = EventTasks()
        a2a_client = A2AClient(supervisor, http, token=token)
        users = UserDirectory(slack)
        requests = SlackInputRequests(a2a_client, store, users, settings.slack.approval_file_bytes)
        turns = TurnRunner(slack, a2a_client, store, requests, leases, streaming=settings.slack.streaming)
        reader = MessageReader(slack, users)
        sign_ins = SlackSignIns(a2a_client, store)
        bot_user_id = str(identity["user_id"])
        bot = Bot(slack, a2a_client, store, users, config, turns, requests, reader, sign_ins, bot_user_id)
        worker = ThreadWorker(store, holders, leases, turns, tasks, bot.handle)
        turns.on_idle = worker.release_when_idle
        turns.on_notice = lambda row, agents: tasks.spawn(bot.offer_sign_ins(row, agents))
        bot.begin_thread = worker.begin
        keeper = ProcessKeeper(holders, store, worker, rate_limiter)
        app = _create_bolt_app(client, settings.slack)
        listeners = Listeners(app, bot, tasks)
        try:
            resumed_threads = await keeper.start()
            if resumed_threads:
                log.info("work resumes in %s threads", resumed_threads)
            yield RunningBot(bot, app, listeners)
        finally:
            await turns.close()
            await listeners.drain()
            await keeper.close()


async def _open_database(settings: Settings, identity: Mapping[str, Any]) -> BotDatabase:
    """PostgreSQL where DATABASE_URL names one, else a file of this process alone.

    Raises ConfigurationError.
    """
    url = settings.storage.database_url
    choice = choose_by_url(url) if url is not None else None
    if choice is None or choice.backend != "postgres":
        return await asyncio.to_thread(SqliteBotDatabase, settings.agent.home / STORE_FILE)
    try:
        import_optional("psycopg", "postgres", choice)
    except DatabaseUnavailable as error:
        raise ConfigurationError(f"The bot's tables cannot be opened. {error}") from None
    from ai_platform_engineering.integrations.slack_bot.bot_postgres import (
        PostgresBotDatabase,
        make_schema_name,
    )

    schema = make_schema_name(str(identity.get("team_id") or ""), str(identity["user_id"]))
    return await PostgresBotDatabase.open(choice, schema, settings.storage.timeout_seconds)


def _create_web_client(settings: SlackSettings) -> AsyncWebClient:
    """Slack's client without its own retries, which would send a text twice."""
    token = _require_secret(settings.bot_token, "SLACK_INTEGRATION_BOT_TOKEN")
    base_url = f"{settings.api_url.removesuffix('/')}/"
    return AsyncWebClient(token=token, base_url=base_url, retry_handlers=[], timeout=30)


def _create_bolt_app(client: AsyncWebClient, settings: SlackSettings) -> AsyncApp:
    signing_secret = None
    if settings.signing_secret:
        signing_secret = settings.signing_secret.get_secret_value()
    # Without a name, the library looks for the one of our file in the sources of the whole call stack.
    return AsyncApp(
        name="slack_bot", client=client, signing_secret=signing_secret, ignoring_self_events_enabled=True
    )


def _create_http_client(supervisor: str) -> httpx.AsyncClient:
    """Without a limit to connections: every turn that waits for people holds one."""
    return create_http_client(
        supervisor,
        limits=httpx.Limits(max_connections=None, max_keepalive_connections=20),
        timeout=httpx.Timeout(30.0),
    )


async def _identify_bot(slack: SlackApi) -> Mapping[str, Any]:
    """The bot's user and workspace, as Slack knows them. Raises ConfigurationError."""
    try:
        return await slack.call("auth.test", {}) or {}
    except SlackError as error:
        if error.reason == UNREACHABLE:
            raise ConfigurationError(_UNREACHABLE) from None
        raise ConfigurationError(
            f"{error} Check SLACK_INTEGRATION_BOT_TOKEN: it begins with xoxb- and is the installed app's."
        ) from None


def _require_secret(secret: SecretStr | None, name: str) -> str:
    value = ""
    if secret is not None:
        value = secret.get_secret_value()
    if not value:
        raise ConfigurationError(f"{name} is not set. docs/slack.md says where to find it.")
    return value


# --- connections to Slack -----------------------------------------------------------------------------------


async def serve(settings: Settings, supervisor: str, token: str | None) -> None:
    """Runs the bot until SIGINT or SIGTERM. SIGHUP reads the channels' configuration again, but in a terminal
    it ends the bot: the terminal was closed.

    Raises ConfigurationError.
    """
    slack_settings = settings.slack
    if slack_settings.rbac and slack_settings.config is None:
        raise ConfigurationError(
            "SLACK_RBAC_ENABLED is on, but roles are not checked here: the bot would answer everybody. "
            "State in SLACK_INTEGRATION_BOT_CONFIG what it may do in each channel, or set it to false."
        )
    if slack_settings.mode == "socket":
        _require_secret(slack_settings.app_token, "SLACK_INTEGRATION_APP_TOKEN")
    else:
        _require_secret(slack_settings.signing_secret, "SLACK_INTEGRATION_SIGNING_SECRET")
    async with run_bot(settings, supervisor, token) as running, connect_to_slack(running, settings):
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for signal_number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(signal_number, stop.set)
        on_hangup = stop.set if is_in_terminal() else running.bot.config.reload
        loop.add_signal_handler(signal.SIGHUP, on_hangup)
        log.info("connected to Slack (%s), supervisor at %s", slack_settings.mode, supervisor)
        await stop.wait()


@contextlib.asynccontextmanager
async def connect_to_slack(running: RunningBot, settings: Settings) -> AsyncIterator[None]:
    """Receives Slack's events over Socket Mode or HTTP while the context is open.

    Raises ConfigurationError.
    """
    if settings.slack.mode == "http":
        async with _serve_http(running, settings):
            yield
        return
    app_token = _require_secret(settings.slack.app_token, "SLACK_INTEGRATION_APP_TOKEN")
    handler = AsyncSocketModeHandler(running.app, app_token, web_client=running.app.client)
    try:
        await _connect_socket(handler)
        yield
    finally:
        await handler.close_async()  # type: ignore[no-untyped-call]


async def _connect_socket(handler: AsyncSocketModeHandler) -> None:
    try:  # the URL is asked for first: the client itself would try a wrong token for ever
        handler.client.wss_uri = await handler.client.issue_new_wss_url()
    except SlackApiError as error:
        reason = error.response.get("error")
        raise ConfigurationError(
            f"Slack refused Socket Mode: {reason}. Check SLACK_INTEGRATION_APP_TOKEN: "
            "it begins with xapp- and has the scope connections:write."
        ) from None
    except (aiohttp.ClientError, TimeoutError) as error:
        log.warning("Slack cannot be reached%s", why_unreachable(error))
        raise ConfigurationError(_UNREACHABLE) from None
    await handler.connect_async()  # type: ignore[no-untyped-call]


@contextlib.asynccontextmanager
async def _serve_http(running: RunningBot, settings: Settings) -> AsyncIterator[None]:
    """Serves Slack's signed requests; a request without a signature is refused."""
    listener = _bind(settings.slack.host, settings.slack.port)
    limits = ConnectionLimits.from_settings(settings.server)
    config = uvicorn.Config(
        create_http_app(running, settings.slack.signing_secret),
        log_config=None,
        access_log=False,
        **server_options(limits),
    )
    server = uvicorn.Server(config)
    task = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started and not task.done():  # noqa: ASYNC110 - uvicorn has no event for it
            await asyncio.sleep(0.01)
        yield
    finally:
        server.should_exit = True
        await task


def _bind(host: str, port: int) -> socket.socket:
    family = socket.AF_INET
    if ":" in host:
        family = socket.AF_INET6
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        reason = str(error.strerror).partition(" (while")[0]
        raise ConfigurationError(
            f"Cannot listen on {host}, port {port}: {reason}. "
            "Set SLACK_INTEGRATION_HOST and SLACK_INTEGRATION_PORT."
        ) from None


def create_http_app(running: RunningBot, signing_secret: SecretStr | None) -> Starlette:
    """The application that Slack's events are sent to. Raises ConfigurationError."""
    handler = AsyncSlackRequestHandler(running.app)
    verifier = SignatureVerifier(_require_secret(signing_secret, "SLACK_INTEGRATION_SIGNING_SECRET"))

    async def health(_: Request) -> Response:
        return JSONResponse({"status": "ok"})

    async def events(request: Request) -> Response:
        if not await _read_body(request):
            return PlainTextResponse("The request is larger than anything that Slack sends.\n", 413)
        # Before Bolt reads the request, which it does before its own check.
        body = await request.body()
        if not verifier.is_valid_request(body, dict(request.headers)):
            return PlainTextResponse("The request has no valid signature.\n", 401)
        if not has_expected_shape(body):
            return PlainTextResponse("The request cannot be read.\n", 400)
        try:
            return await handler.handle(request)
        except (AttributeError, KeyError, TypeError, ValueError) as error:
            log.warning("a request of Slack cannot be read: %s", format_traceback(error))
            return PlainTextResponse("The request cannot be read.\n", 400)

    return Starlette(routes=[Route(EVENTS_PATH, events, methods=["POST"]), Route("/health", health)])


async def _read_body(request: Request) -> bool:
    """Reads the body into Starlette's cache; false if it is too large. The signature is checked later."""
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > _MAX_BODY_BYTES:
            return False
    request._body = bytes(body)
    return True
