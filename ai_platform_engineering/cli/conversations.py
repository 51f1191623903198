"""`caipe chat` and `caipe show`: a server, a client and a terminal, put together."""

import asyncio
from pathlib import Path

from rich.console import Console

from ai_platform_engineering.a2a.client import A2AClient, ClientConversation, create_http_client
from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.cli.server_address import find_or_start_server
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, read_environment
from ai_platform_engineering.terminal.chat import ChatSession
from ai_platform_engineering.terminal.run_view import show_run


def run_chat(url: str | None, token: str | None, context_id: str | None) -> int:
    async def run() -> int:
        async with find_or_start_server(url) as address, create_http_client(address) as http:
            talk = ClientConversation(context_id) if context_id else ClientConversation()
            return await ChatSession(A2AClient(address, http, token=token), Console(), talk, _history()).run()

    return asyncio.run(run())


def show_task(task_id: str, url: str | None, token: str | None, *, results: bool) -> int:
    async def run() -> int:
        async with find_or_start_server(url) as address, create_http_client(address) as http:
            task = await A2AClient(address, http, token=token).call("GetTask", {"id": task_id})
            items = decode_snapshot(task)
            if not items:
                raise CaipeError(f"The task {task_id} is not one of ours: it carries no events.")
            show_run(Console(), items, results=results)
            return 0

    return asyncio.run(run())


def _history() -> Path:
    """The file of earlier questions, readable by its owner alone."""
    path = Settings.from_variables(read_environment()).agent.home / "history"
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    path.touch(mode=0o600)
    return path
