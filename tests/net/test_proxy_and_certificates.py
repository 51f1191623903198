"""Behind a company's proxy and with a company's CA: models and servers are reached, and without the CA the
reason is readable."""

import itertools
import os
import secrets
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.core.environment import export_variables
from tests.cli.test_serve import serving
from tests.support.fakes.anthropic_server import serve_anthropic
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Say, Script, Turn
from tests.support.fakes.tunnel import Tunnel, tunnel_to
from tests.support.harness import supervisor
from tests.support.processes import invoke_caipe, run_command

_COUNT = itertools.count()
ECHO = Script(Turn(Say("You said {{user}}.")))

providers = pytest.mark.parametrize("provider", ["openai", "anthropic"])


def a_host() -> str:
    return f"{secrets.token_hex(6)}.model.test"


def fake(provider: str) -> Any:
    return (serve_openai if provider == "openai" else serve_anthropic)(ECHO)


def model_of(provider: str, address: str) -> dict[str, str]:
    """The settings of the model; the timeout differs each time, since LangChain keeps a client per timeout
    for the whole process."""
    prefix, timeout = provider.upper(), f"70.{next(_COUNT):06}"
    variables = {f"{prefix}_BASE_URL": address, f"{prefix}_API_KEY": "test-key"}
    return {"LLM_MODEL": f"{provider}:scripted", "LLM_TIMEOUT_SECONDS": timeout, **variables}


def hidden(provider: str, tunnel: Tunnel) -> dict[str, str]:
    """The settings of the model behind the tunnel."""
    return model_of(provider, f"{tunnel.url}/v1" if provider == "openai" else tunnel.url)


@pytest.mark.sample(3)
@providers
@pytest.mark.parametrize(
    ("variable", "proxy"),
    [
        ("SSL_CERT_FILE", "HTTPS_PROXY"),
        ("REQUESTS_CA_BUNDLE", "https_proxy"),
        ("CURL_CA_BUNDLE", "HTTPS_PROXY"),
    ],
)
async def test_a_model_behind_a_proxy_and_a_private_ca_answers(
    provider: str, variable: str, proxy: str, tmp_path: Path
) -> None:
    text = secrets.token_hex(8)
    async with fake(provider) as model, tunnel_to(model.url, a_host(), tmp_path) as tunnel:
        settings = {**hidden(provider, tunnel), proxy: tunnel.proxy, variable: str(tunnel.bundle)}
        export_variables(settings)  # as the composition root does
        async with supervisor(None, env=settings) as client:
            stream = await client.ask(text)
    assert stream.answer == f"You said {text}."
    assert set(tunnel.asked) == {f"CONNECT {tunnel.host}:443"}


@providers
async def test_without_the_ca_a_question_fails_readably(provider: str, tmp_path: Path) -> None:
    async with fake(provider) as model, tunnel_to(model.url, a_host(), tmp_path) as tunnel:
        settings = {**hidden(provider, tunnel), "HTTPS_PROXY": tunnel.proxy, "LLM_ATTEMPTS": "1"}
        export_variables(settings)
        async with supervisor(None, env=settings) as client:
            stream = await client.ask("Well?")
        assert model.requests == []
    assert stream.last.state == "failed"
    assert "model" in stream.last.status_text
    assert "Traceback" not in stream.raw.decode()
    assert tunnel.asked == [f"CONNECT {tunnel.host}:443"]


@pytest.mark.full
async def test_a_server_process_takes_proxy_and_ca_from_its_file(tmp_path: Path) -> None:
    text = secrets.token_hex(8)
    async with serve_openai(ECHO) as model, tunnel_to(model.url, a_host(), tmp_path) as tunnel:
        lines = {
            **hidden("openai", tunnel),
            "HTTPS_PROXY": tunnel.proxy,
            "REQUESTS_CA_BUNDLE": str(tunnel.bundle),
            "A2A_PORT": "0",
        }
        settings = tmp_path / "settings.env"
        settings.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        async with serving("platform-engineer", CAIPE_ENV_FILE=str(settings)) as (program, client):
            stream = await client.ask(text)
    assert stream.answer == f"You said {text}."
    assert set(tunnel.asked) == {f"CONNECT {tunnel.host}:443"}
    assert "Traceback" not in program.err


async def test_a_model_that_needs_no_proxy_is_reached_directly(tmp_path: Path) -> None:
    text = secrets.token_hex(8)
    async with serve_openai(ECHO) as model, tunnel_to(model.url, a_host(), tmp_path) as tunnel:
        settings = model_of("openai", model.url)
        export_variables(
            {
                **settings,
                "HTTP_PROXY": tunnel.proxy,
                "HTTPS_PROXY": tunnel.proxy,
                "NO_PROXY": "127.0.0.1,localhost",
            }
        )
        async with supervisor(None, env=settings) as client:
            assert (await client.ask(text)).answer == f"You said {text}."
    assert tunnel.asked == []


@pytest.mark.parametrize("variable", ["SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"])
async def test_the_command_line_reaches_a_server_behind_a_proxy_and_a_private_ca(
    variable: str, tmp_path: Path
) -> None:
    text = secrets.token_hex(8)
    host = a_host()
    async with (
        supervisor(ECHO, env={"EXTERNAL_URL": f"https://{host}/"}) as client,
        tunnel_to(client.url, host, tmp_path) as tunnel,
    ):
        env = {"CAIPE_URL": f"{tunnel.url}/", "HTTPS_PROXY": tunnel.proxy}
        done = await invoke_caipe("ask", text, env={**env, variable: str(tunnel.bundle)})
        os.environ.pop(
            "SSL_CERT_FILE", None
        )  # the command sets it for its own process, which here is this one
        refused = await run_command("caipe", "ask", text, env=env)
    assert (done.code, done.out) == (0, f"You said {text}.\n"), done.err
    assert set(tunnel.asked) == {f"CONNECT {host}:443"}
    assert (refused.code, refused.out) == (3, "")
    assert f"https://{host}/" in refused.err
    assert "Traceback" not in refused.err


async def test_the_command_line_uses_no_proxy_for_this_machine(tmp_path: Path) -> None:
    text = secrets.token_hex(8)
    async with supervisor(ECHO) as client, tunnel_to(client.url, a_host(), tmp_path) as tunnel:
        done = await invoke_caipe(
            "ask", text, env={"CAIPE_URL": client.url, "HTTP_PROXY": tunnel.proxy, "ALL_PROXY": tunnel.proxy}
        )
    assert (done.code, done.out) == (0, f"You said {text}.\n"), done.err
    assert tunnel.asked == []
