"""`caipe agents login` and `logout` with a running server: browser, device, pasted address, and the list."""

import asyncio
import contextlib
import json
import os
import re
import sys
from collections.abc import AsyncIterator
from dataclasses import dataclass
from pathlib import Path

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import build_app
from tests.support.command_process import CAIPE, fork_command
from tests.support.fakes.mcp_servers import FAKES, until
from tests.support.fakes.oauth_server import OAuthServer, allow, serve_oauth
from tests.support.harness import FAST, serve_app
from tests.support.oauth_stage import serve_protected
from tests.support.processes import BIN, CommandResult, process_environment, run_command, start_command


@dataclass
class _Server:
    url: str
    authorization: OAuthServer
    env: dict[str, str]

    async def run(self, *arguments: str, **env: str) -> CommandResult:
        return await run_command("caipe", "agents", *arguments, env={**self.env, **env})


@contextlib.asynccontextmanager
async def _serve(tmp_path: Path) -> AsyncIterator[_Server]:
    async with serve_oauth() as authorization, serve_protected(authorization.url) as url:
        definition = {
            "name": "desk",
            "description": "Knows the desk.",
            "mcpServers": {"desk": {"url": url, "auth": "oauth"}},
        }
        (tmp_path / "desk.json").write_text(json.dumps(definition))
        own = {"AGENTS_CONFIG": str(tmp_path / "desk.json"), "CAIPE_HOME": str(tmp_path / "home")}
        variables = {**FAST, **own}
        app = build_app(Settings.from_variables(variables), variables)
        async with serve_app(app) as own_url:
            yield _Server(own_url, authorization, {**own, "CAIPE_URL": own_url, "COLUMNS": "300"})


def _is_signed_in(server: _Server) -> bool:
    return bool(server.authorization.access_tokens)


async def test_login_with_a_browser_then_the_list_then_logout(tmp_path: Path) -> None:
    browser = f"{sys.executable} {FAKES / 'browser_that_allows.py'} %s"
    async with _serve(tmp_path) as server:
        listed = await server.run()
        assert re.search(r"desk +not signed in +a sign-in: \S+ agents login desk", listed.out)
        signed_in = await server.run("login", "desk", BROWSER=browser)
        assert (signed_in.code, "Signed in to desk." in signed_in.out) == (0, True), signed_in.err
        assert f"{server.authorization.url}/authorize?" in signed_in.out
        assert "not signed in" not in (await server.run()).out
        tried = await server.run("test", "desk")
        assert (tried.code, "desk works: whoami was called." in tried.out) == (0, True), tried.out
        for secret in server.authorization.secrets:
            assert secret not in signed_in.out + signed_in.err
        signed_out = await server.run("logout", "desk")
        assert (signed_out.code, signed_out.out) == (0, "Signed out of desk.\n")
        assert (await server.run("logout", "desk")).out == "Nobody was signed in.\n"
        untried = await server.run("test", "desk")
        assert (untried.code, "caipe agents login desk" in untried.out) == (1, True)
        unknown = await server.run("login", "nobody")
        assert (unknown.code, "desk" in unknown.err) == (1, True)


async def test_login_with_a_code_on_another_device(tmp_path: Path) -> None:
    async with _serve(tmp_path) as server:
        async with start_command("caipe", "agents", "login", "desk", "--device", env=server.env) as program:
            [user_code] = await until(lambda: list(server.authorization.user_codes), "the code")
            server.authorization.approve_device(user_code, "ada")
            done = await program.wait_for_exit()
        assert (done.code, f"enter the code {user_code}" in done.out) == (0, True), program.err
        assert "Signed in to desk." in done.out


async def test_login_with_a_pasted_address(tmp_path: Path) -> None:
    async with _serve(tmp_path) as server:
        reading, writing = os.pipe()
        arguments = [str(BIN / "caipe"), "agents", "login", "desk", "--paste"]
        process = await fork_command(CAIPE, arguments, env=process_environment(server.env), stdin=reading)
        os.close(reading)
        output = ""
        async with asyncio.timeout(120):
            while "Paste that address here" not in output:
                output += (await process.stdout.read(4096)).decode()
            url = re.search(r"\S+/authorize\?\S+", output)
            assert url is not None
            os.write(writing, (await allow(url[0], "ada")).encode() + b"\n")
            os.close(writing)
            output += (await process.stdout.read()).decode()
        assert "Signed in to desk." in output
        assert _is_signed_in(server)
