"""A stock MCP server of each generation with OAuth: authorise, refresh, wrong audience, revoke."""

import asyncio
import contextlib
import os
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_platform_engineering.core.agent_definition import McpServer, OAuthConfig
from ai_platform_engineering.core.oauth_settings import OAuthSettings
from ai_platform_engineering.mcp_client.mcp_errors import McpLoginRequired
from ai_platform_engineering.mcp_client.oauth.oauth_access import OAuthAccess
from tests.conftest import need
from tests.support.fakes.mcp_servers import FAKES, by_name, network_guard_environment, open_sessions, until
from tests.support.fakes.oauth_server import serve_oauth
from tests.support.oauth_stage import OAuthStage
from tests.support.real_servers import SERVERS_HOME

# An environment with the first generation of the library, as a tool server needs it.
_OLD_PYTHON = SERVERS_HOME / "agents" / "weather" / "venv" / "bin" / "python"

pytestmark = pytest.mark.full


@contextlib.asynccontextmanager
async def _serve(python: Path, issuer: str, folder: Path) -> AsyncIterator[str]:
    port_file = folder / "port"
    process = await asyncio.create_subprocess_exec(
        str(python),
        str(FAKES / "mcp_protected.py"),
        "--issuer",
        issuer,
        "--port-file",
        str(port_file),
        env={"PATH": os.environ["PATH"], **network_guard_environment()},
    )
    try:
        port = await until(lambda: port_file.exists() and port_file.read_text(), "the start")
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        await process.wait()


@pytest.mark.parametrize("generation", ["1", "2"])
async def test_a_stock_server_of_each_generation(generation: str, tmp_path: Path) -> None:
    python = Path(sys.executable)
    if generation == "1":
        need("mcp below 2", _OLD_PYTHON.exists(), "`make servers` installs it for the weather agent")
        python = _OLD_PYTHON
    async with serve_oauth() as authorization, _serve(python, authorization.url, tmp_path) as url:
        oauth = OAuthAccess(tmp_path / "home", OAuthSettings())
        stage = OAuthStage(authorization, url, tmp_path / "home", oauth)
        server = McpServer(url=url, auth=OAuthConfig())
        async with open_sessions(tmp_path, oauth=oauth) as sessions:
            await stage.sign_in("ada")
            whoami = by_name(await sessions.tools("desk", server))["whoami"]
            assert await whoami.ainvoke({}) == "signed in as ada"
            protocol = sessions.state("desk", server)
            assert protocol.tools == 2

            authorization.expire_access_tokens()
            assert await whoami.ainvoke({}) == "signed in as ada"
            assert authorization.refreshes == 1

            authorization.audience = "http://127.0.0.1:1/other"
            with pytest.raises(McpLoginRequired, match="another audience"):
                await whoami.ainvoke({})
            authorization.audience = None

            authorization.revoke_all()
            with pytest.raises(McpLoginRequired, match="has to sign in"):
                await whoami.ainvoke({})
            await stage.sign_in("ada")
            assert await whoami.ainvoke({}) == "signed in as ada"
        await oauth.aclose()
