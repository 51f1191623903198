"""Start of the demo: tool servers, stand-ins, supervisor and runbooks; then it waits for Ctrl-C."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from ai_platform_engineering.cli.demo_control import DemoControl
from ai_platform_engineering.cli.demo_environment import (
    build_environment,
    find_demo_home,
    link_agents_folder,
    list_demo_entries,
)
from ai_platform_engineering.cli.demo_guide import describe_first_steps
from ai_platform_engineering.cli.demo_processes import (
    end_process,
    run_stand_ins,
    start_supervisor,
    wait_until_serving,
)
from ai_platform_engineering.cli.demo_runbooks import push_runbooks
from ai_platform_engineering.cli.demo_tool_servers import install_missing_servers
from ai_platform_engineering.cli.options import exit_code
from ai_platform_engineering.core.env_files import HOME_VARIABLE, find_home
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.private_files import create_private_folder
from ai_platform_engineering.core.server_address import ServerAddress
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.terminals import command_name
from ai_platform_engineering.demo.launcher import LaunchedDemo
from ai_platform_engineering.demo.stand_ins import STAND_INS
from ai_platform_engineering.terminal.screen import create_console

_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_MAX_RESTARTS = 3


@dataclass(frozen=True, slots=True)
class DemoOptions:
    port: int | None
    seed: int
    installs: bool


@dataclass(frozen=True, slots=True)
class DemoPlan:
    """What is to be started: everything was checked, and tool servers are installed."""

    home: Path
    port: int
    seed: int
    agents: tuple[str, ...]  # those whose tool servers are there
    variables: Mapping[str, str]


def prepare_demo(options: DemoOptions, variables: Mapping[str, str]) -> DemoPlan:
    """Checks what would stop the demo, and installs tool servers. Raises CaipeError."""
    home = find_demo_home(variables)
    user_home = find_home(variables).absolute()
    _create_home(user_home, home)
    if DemoControl(home).is_running():
        raise CaipeError(_describe_running_demo(home))
    port = Settings.from_variables(variables).server.port if options.port is None else options.port
    port = _reserve_port(port)
    console = create_console()
    demo_variables = {**variables, HOME_VARIABLE: str(home)}
    agents = install_missing_servers(
        console,
        # Not through the link in the demo's home: npm does not install through one.
        Settings.from_variables({HOME_VARIABLE: str(user_home)}),
        list_demo_entries(demo_variables, [stand_in.name for stand_in in STAND_INS]),
        variables,
        installs=options.installs,
    )
    return DemoPlan(home, port, options.seed, tuple(agents), variables)


def _create_home(user_home: Path, home: Path) -> None:
    try:
        create_private_folder(home)
        link_agents_folder(user_home, home)
    except OSError as error:
        raise CaipeError(
            f"The demo cannot write to {home} ({error.strerror}). Make it writable, or set {HOME_VARIABLE} to"
            " a folder of your own."
        ) from None


def _describe_running_demo(home: Path) -> str:
    server = ServerAddress.read(home)
    page = ""
    if server is not None and server.is_running:
        page = f" at {server.url} (process {server.pid})"
    return (
        f"The demo is running already{page}. Use that one, or stop it with Ctrl-C in its terminal."
        f" To look at it: {command_name()} demo status"
    )


def _reserve_port(port: int) -> int:
    """The port, or a free one for 0: a supervisor that is started again listens where it did before.

    It is tried before anything is installed.
    """
    try:
        with socket.create_server(("127.0.0.1", port)) as listener:
            number: int = listener.getsockname()[1]
            return number
    except OSError as error:
        raise CaipeError(
            f"The demo cannot listen on port {port}: {error.strerror or error}. Stop the program that uses"
            f" it, or choose another port: {command_name()} demo --port {port + 1 if port < 65535 else 0}"
        ) from None


async def run_demo(plan: DemoPlan) -> int:
    """Runs the demo until a signal; returns the exit code."""
    with _caught_signals() as stop:
        async with run_stand_ins(plan.seed, plan.home, plan.variables) as launched:
            return await _run_supervisor(plan, launched, stop)


async def _run_supervisor(plan: DemoPlan, launched: LaunchedDemo, stop: asyncio.Event) -> int:
    """Runs the supervisor, and starts it again when it was killed: its conversations go on."""
    for restart in range(_MAX_RESTARTS + 1):
        systems = {name: launched.variables[name] for name in plan.agents}
        environment = build_environment(plan.variables, plan.home, systems, plan.port)
        process = await start_supervisor(plan.home, environment)
        try:
            url = await _wait_until_serving(process, plan.home, stop)
            if url is not None:
                if not restart:
                    await _greet(plan, launched, url)
                await _wait_for_end(process, stop)
        finally:
            await end_process(process)
        if stop.is_set():
            return exit_code(failed=False)
        if not _was_killed(process):
            raise CaipeError("The supervisor has ended; the lines above say why. The demo ends with it.")
        click.echo("The supervisor was killed. It starts again, and its conversations go on.", err=True)
    raise CaipeError("The supervisor was killed again and again. The demo ends.")


async def _wait_until_serving(
    process: asyncio.subprocess.Process, home: Path, stop: asyncio.Event
) -> str | None:
    """The address of the supervisor; None when it has ended, or is to end."""
    serving = asyncio.create_task(wait_until_serving(process, home))
    stopping = asyncio.create_task(stop.wait())
    await asyncio.wait({serving, stopping}, return_when=asyncio.FIRST_COMPLETED)
    stopping.cancel()
    if serving.done():
        return serving.result()
    serving.cancel()
    return None


async def _wait_for_end(process: asyncio.subprocess.Process, stop: asyncio.Event) -> None:
    """Until the process has ended, or is to end."""
    tasks = {asyncio.create_task(process.wait()), asyncio.create_task(stop.wait())}
    await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    for task in tasks:
        task.cancel()


async def _greet(plan: DemoPlan, launched: LaunchedDemo, url: str) -> None:
    user_settings = Settings.from_variables(plan.variables)
    runbooks = 0
    if user_settings.knowledge.enabled is not False:
        runbooks = await push_runbooks(url, plan.home, launched.runbooks)
    lines = describe_first_steps(
        company=launched.company,
        url=url,
        agents=plan.agents,
        runbooks=runbooks,
        model=user_settings.model.name,
        is_found=_is_found_without_url(user_settings, url),
    )
    for line in lines:
        click.echo(line)


def _is_found_without_url(settings: Settings, url: str) -> bool:
    """Whether commands with the user's own CAIPE_HOME find the demo by its port."""
    own_server = ServerAddress.read(settings.agent.home)
    if own_server is not None and own_server.is_running:
        return False
    return settings.server.local_url == url


def _was_killed(process: asyncio.subprocess.Process) -> bool:
    return process.returncode is not None and process.returncode < 0


@contextlib.contextmanager
def _caught_signals() -> Iterator[asyncio.Event]:
    """An event that Ctrl-C, SIGTERM and the end of the terminal set."""
    loop = asyncio.get_running_loop()
    stop = asyncio.Event()
    for number in _SIGNALS:
        loop.add_signal_handler(number, stop.set)
    try:
        yield stop
    finally:
        for number in _SIGNALS:
            loop.remove_signal_handler(number)
