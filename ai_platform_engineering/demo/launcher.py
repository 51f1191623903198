"""Runs all stand-ins of the demo in one process, until the process that started it ends."""

import asyncio
import contextlib
import re
import shutil
import signal
import socket
import sys
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from pathlib import Path

import uvicorn
from pydantic import BaseModel
from starlette.types import ASGIApp, Receive, Scope, Send

from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.demo.confluence.runbooks import list_runbook_documents
from ai_platform_engineering.demo.estate.company import Company
from ai_platform_engineering.demo.estate.control_api import (
    ControlAddress,
    create_control_app,
    create_token,
)
from ai_platform_engineering.demo.estate.estate_apps import EstateApps
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn

_FILES_FOLDER = "stand-ins"  # in the demo's folder: what stand-ins write for their tool servers
_START_SECONDS = 0.005
_SHUTDOWN_SECONDS = 1


class PushedRunbook(BaseModel):
    """A document that the demo pushes into the knowledge base."""

    id: str
    title: str
    text: str


class LaunchedDemo(BaseModel):
    """What the launcher writes when all stand-ins listen: the line that `caipe demo` reads."""

    company: str
    variables: dict[str, dict[str, str]]  # by stand-in
    runbooks: list[PushedRunbook]


class _StandInServer(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield  # signals belong to the launcher


async def run_launcher(stand_ins: Sequence[StandIn], seed: int, folder: Path) -> None:
    """Serves until stdin is closed, which is when the parent ends, or until SIGINT or SIGTERM."""
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    await _stop_at_end_of_stdin(stop)
    async with serve_demo(stand_ins, seed, folder) as demo:
        sys.stdout.write(demo.model_dump_json() + "\n")
        sys.stdout.flush()
        await stop.wait()


@contextlib.asynccontextmanager
async def serve_demo(stand_ins: Sequence[StandIn], seed: int, folder: Path) -> AsyncIterator[LaunchedDemo]:
    """Serves the stand-ins and the control API on loopback. Raises OSError.

    The folder gets the control file and what tool servers read; both are removed at the end.
    """
    create_private_folder(folder)
    apps = EstateApps(stand_ins, seed)
    files_folder = folder / _FILES_FOLDER
    async with contextlib.AsyncExitStack() as stack:
        stack.callback(shutil.rmtree, files_folder, ignore_errors=True)
        listeners = {stand_in.name: stack.enter_context(_listen(stand_in.port)) for stand_in in stand_ins}
        control_listener = stack.enter_context(_listen(0))
        urls = {name: _url_of(listener) for name, listener in listeners.items()}
        address = ControlAddress(url=_url_of(control_listener), token=create_token())
        ports = {_port_of(listener): apps.get_app(name) for name, listener in listeners.items()}
        ports[_port_of(control_listener)] = create_control_app(apps, urls, address.token)
        await stack.enter_async_context(_serve(ports, [*listeners.values(), control_listener]))
        variables = {stand_in.name: _point_to(stand_in, urls, files_folder) for stand_in in stand_ins}
        address.save(folder)
        stack.callback(address.remove, folder)
        company = apps.estate.company
        yield LaunchedDemo(company=company.name, variables=variables, runbooks=_list_runbooks(company))


def _point_to(stand_in: StandIn, urls: Mapping[str, str], files_folder: Path) -> dict[str, str]:
    """The variables that point an agent's tool server to its stand-in."""
    folder = files_folder / stand_in.name
    create_private_folder(folder)
    return dict(stand_in.variables(RunningStandIn(urls[stand_in.name], folder)))


def _list_runbooks(company: Company) -> list[PushedRunbook]:
    runbooks: list[PushedRunbook] = []
    for document in list_runbook_documents(company):
        identifier = "-".join(re.findall(r"[a-z0-9]+", document.title.lower()))
        runbooks.append(PushedRunbook(id=identifier, title=document.title, text=document.text))
    return runbooks


def _listen(port: int) -> socket.socket:
    return socket.create_server(("127.0.0.1", port), backlog=128)


def _port_of(listener: socket.socket) -> int:
    return int(listener.getsockname()[1])


def _url_of(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{_port_of(listener)}"


@contextlib.asynccontextmanager
async def _serve(ports: Mapping[int, ASGIApp], listeners: Sequence[socket.socket]) -> AsyncIterator[None]:
    """One server for all applications, which are told apart by their ports."""

    async def call_app(scope: Scope, receive: Receive, send: Send) -> None:
        await ports[scope["server"][1]](scope, receive, send)

    config = uvicorn.Config(
        call_app,
        lifespan="off",
        log_config=None,
        access_log=False,
        timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
    )
    server = _StandInServer(config)
    task = asyncio.create_task(server.serve(sockets=list(listeners)), name="stand-ins")
    try:
        while not server.started:
            if task.done():
                task.result()
            await asyncio.sleep(_START_SECONDS)
        yield
    finally:
        server.should_exit = True
        await task


async def _stop_at_end_of_stdin(stop: asyncio.Event) -> None:
    """Sets the event when stdin is closed: a parent that was killed cannot say good-bye."""

    class _Watcher(asyncio.Protocol):
        def connection_lost(self, exc: Exception | None) -> None:
            stop.set()

    await asyncio.get_running_loop().connect_read_pipe(_Watcher, sys.stdin)
