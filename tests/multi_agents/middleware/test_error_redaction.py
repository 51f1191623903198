"""An error that repeats a key: neither the stream nor anything that is stored has it."""

import secrets
from pathlib import Path

import pytest
from langchain_core.tools import BaseTool, tool

from ai_platform_engineering.core.errors import AgentUnavailable, CaipeError
from ai_platform_engineering.graph.failures import describe_error
from tests.support.agent_services import model_of
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Call, Fail, Say, Script, Turn
from tests.support.storages import in_folder, supervisor_on


def read_everything(folder: Path) -> bytes:
    """All that is stored, as bytes."""
    return b"".join(path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file())


async def test_a_providers_error_is_stored_without_the_key_that_it_repeats(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = f"corporate-{secrets.token_hex(12)}"
    known_format = f"sk-{secrets.token_hex(24)}"
    echo = Fail(401, message=f"Incorrect API key provided: {key} or {known_format}.")
    async with serve_openai(Script(Turn(echo))) as provider:
        env = {**model_of(provider), "OPENAI_API_KEY": key, "LLM_ATTEMPTS": "1"}
        for name in ("OPENAI_API_KEY", "OPENAI_BASE_URL"):
            monkeypatch.setenv(name, env[name])
        async with supervisor_on(in_folder(tmp_path), None, env=env) as client:
            stream = await client.ask("Well?")
            stored = read_everything(tmp_path)
    assert stream.last.state == "failed"
    assert provider.requests
    assert b"Incorrect API key provided" in stored, "LangGraph stores the error"
    for secret in (key, known_format):
        assert secret.encode() not in stored
        assert secret.encode() not in stream.raw


def failing_tool(error: Exception) -> BaseTool:
    @tool
    async def version() -> str:
        """The version."""
        raise error

    return version


@pytest.mark.parametrize("effect", ["read", "write"])
async def test_a_tools_error_is_stored_without_the_secrets_of_the_environment(
    effect: str, tmp_path: Path
) -> None:
    """The call of a tool that writes is in the journal, too."""
    token = secrets.token_hex(12)
    text = f"The server said: {token} is wrong, see https://me:{token[:8]}x@host/?api_key={token[::-1]}"
    model = ScriptedChatModel(script=Script(Turn(Call("version")), Turn(Say("It failed."))))
    env = {"ARGOCD_TOKEN": token}
    tools = [failing_tool(CaipeError(text))]
    tools[0].metadata = {"effect": effect}
    async with supervisor_on(in_folder(tmp_path), model, tools=tools, env=env) as client:
        stream = await client.ask("Well?")
        stored = read_everything(tmp_path)
    assert b"The server said: *** is wrong" in stored
    for secret in (token, token[::-1], f"{token[:8]}x"):
        assert secret.encode() not in stored + stream.raw
    assert not any(secret in str(model.requests) for secret in (token, token[::-1]))


def test_what_a_remote_agent_said_is_told_without_keys() -> None:
    text, code, _ = describe_error(AgentUnavailable(f"https://me:secret@host/ said ghp_{'a1B2' * 9}."))
    assert (text, code) == ("https://***@host/ said ***.", "agent_unavailable")
