"""Failures as a user meets them: the command as a process, its exit code, and a sentence that helps."""

import json
import os
import re
from collections.abc import Sequence
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse
from starlette.routing import Route

from ai_platform_engineering.demo.github.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.github.sample_data import build_sample_state
from tests.support.agent_services import model_of
from tests.support.fakes.openai_server import serve_openai
from tests.support.fakes.script import Book, Call, Fail, Say, Script, Turn
from tests.support.harness import serve_app
from tests.support.ports import closed_port
from tests.support.processes import BIN, CommandResult, run_command, start_command

OK, FAILED, USAGE = 0, 1, 2
ECHO = Script(Turn(Say("You said {{user}}.")))
# What shows that nobody thought of the reader.
INTERNALS = ("Traceback", "ERROR", "WARNING", "INFO ", "ai_platform_engineering.", "trace ", '.py"')


def assert_told(done: CommandResult, *words: str, lines: int = 2) -> None:
    """In a sentence or two, and nothing of the program's inside."""
    for word in words:
        assert word in done.err + done.out
    for word in INTERNALS:
        assert word not in done.err + done.out
    assert len(done.err.splitlines()) <= lines, done.err


# --- this machine -------------------------------------------------------------------------------------------


@pytest.fixture
def unwritable_home(tmp_path: Path) -> dict[str, str]:
    """Also for root, who may write everywhere else."""
    (tmp_path / "file").write_text("no folder")
    return {"CAIPE_HOME": str(tmp_path / "file" / "home")}


@pytest.mark.parametrize(
    "command",
    [
        ["chat"],
        ["trust", "mine.env"],
        ["skills", "add", "skill"],
        ["completion", "install", "--shell", "bash"],
    ],
    ids=lambda command: command[0],
)
async def test_a_home_that_cannot_be_written_is_named(
    command: Sequence[str], unwritable_home: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "mine.env").write_text("LOG_LEVEL=INFO\n")
    (tmp_path / "skill").mkdir()
    text = "---\nname: skill\ndescription: Says hello when asked to.\n---\nSay hello.\n"
    (tmp_path / "skill" / "SKILL.md").write_text(text)
    env = {**unwritable_home, "HOME": unwritable_home["CAIPE_HOME"]}
    done = await run_command("caipe", *command, env=env)
    assert done.code == FAILED
    assert_told(done, "not a directory", lines=4)
    assert str(tmp_path / "file") in done.err or "CAIPE_HOME" in done.err


async def test_a_question_is_answered_without_a_home_and_the_doctor_says_what_is_wrong(
    unwritable_home: dict[str, str],
) -> None:
    async with serve_openai(ECHO) as model:
        answered = await run_command("caipe", "ask", "hi", env={**unwritable_home, **model_of(model)})
    assert (answered.code, answered.out) == (OK, "You said hi.\n")
    assert "Runs are kept in memory and are lost" in answered.err
    examined = await run_command("caipe", "doctor", env=unwritable_home)
    assert examined.code == FAILED
    first, second, *_ = examined.out.splitlines()
    assert first == "Problems"
    assert second.startswith(f"❌ CAIPE_HOME={unwritable_home['CAIPE_HOME']} cannot be written")


async def test_stdin_that_is_no_text_is_a_usage_error() -> None:
    done = await run_command("caipe", "ask", "hi", stdin=b"log: \xff\xfe\x80")
    assert (done.code, done.out) == (USAGE, "")
    assert_told(done, "not text in UTF-8 (byte 5)", "iconv", lines=4)


async def test_an_argument_that_is_no_text_is_told() -> None:
    done = await run_command("caipe", "ask", b"\xff".decode("utf-8", "surrogateescape"))
    assert (done.code, done.out) == (FAILED, "")
    assert_told(done, "not valid UTF-8")


# --- the model ----------------------------------------------------------------------------------------------


async def test_a_model_server_that_is_down_is_named_with_the_cause() -> None:
    address = f"http://127.0.0.1:{closed_port()}"
    env = {"LLM_MODEL": "openai:x", "OPENAI_API_KEY": "k", "OPENAI_BASE_URL": f"{address}/v1"}
    done = await run_command("caipe", "ask", "hi", env={**env, "LLM_RETRY_SECONDS": "0"})
    assert (done.code, done.out) == (FAILED, "")
    assert_told(done, f"The model's server at {address} could not be reached: nothing listens", lines=8)


@pytest.mark.parametrize(
    ("model", "variable"), [("openai:x", "OPENAI_API_KEY"), ("anthropic:x", "ANTHROPIC_API_KEY")]
)
async def test_a_missing_key_is_named(model: str, variable: str) -> None:
    done = await run_command("caipe", "ask", "hi", env={"LLM_MODEL": model})
    assert (done.code, done.out) == (FAILED, "")
    assert_told(done, f"LLM_MODEL={model} needs {variable}, which is not set", lines=8)
    assert "reached" not in done.err


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("opanai:gpt", 'there is no provider "opanai"; did you mean "openai:gpt"?'),
        ("nobody:x", 'there is no provider "nobody"; there are openai, anthropic'),
        ("gpt-5", 'the form is "provider:model"'),
    ],
)
async def test_an_unknown_provider_stops_the_start(model: str, words: str) -> None:
    done = await run_command("caipe", "serve", env={"LLM_MODEL": model, "A2A_PORT": "0"})
    assert (done.code, done.out) == (FAILED, "")
    assert_told(done, f"LLM_MODEL: {words}", lines=1)
    fallback = await run_command(
        "caipe", "ask", "hi", env={"LLM_MODEL": "openai:x", "LLM_FALLBACK_MODELS": f"openai:y, {model}"}
    )
    assert fallback.code == FAILED
    assert_told(fallback, f"LLM_FALLBACK_MODELS: {words}", lines=1)


async def test_names_are_drawn_as_they_are() -> None:
    done = await run_command("caipe", "doctor", "--all", env={"LLM_MODEL": "ollama:x"})
    assert "LLM_MODEL=ollama:x: its package is not installed. Run: caipe extras install ollama" in done.out
    assert re.search(r"LLM_MODEL +ollama:x +environment", done.out)


# --- tools and agents ---------------------------------------------------------------------------------------


async def test_a_missing_program_is_not_ready(tmp_path: Path) -> None:
    config = tmp_path / "mcp.json"
    config.write_text(json.dumps({"mcpServers": {"nope": {"command": "/no/such/program"}}}))
    env = {"AGENTS_CONFIG": str(config)}
    listed = await run_command("caipe", "agents", env={**env, "COLUMNS": "200"})
    line = next(line for line in listed.out.splitlines() if line.startswith("nope"))
    assert re.match(r"nope +not installed +/no/such/program is not installed; install it, or", line)
    tried = await run_command("caipe", "agents", "test", "nope", env=env)
    assert tried.code == FAILED
    assert_told(tried, "nope lists no tools: the program /no/such/program is not installed")
    examined = await run_command("caipe", "doctor", env=env)
    assert examined.code == FAILED
    assert "❌ nope: /no/such/program is not installed" in examined.out


async def test_a_wrong_token_fails_the_test_of_an_agent() -> None:
    async with serve_app(create_app(build_sample_state())) as url:
        env = {"GITHUB_API_URL": url.rstrip("/"), "MCP_SANDBOX": "off"}
        right = await run_command(
            "caipe", "agents", "test", "github", env={**env, "GITHUB_TOKEN": DEMO_TOKEN}
        )
        wrong = await run_command("caipe", "agents", "test", "github", env={**env, "GITHUB_TOKEN": "wrong"})
        live = await run_command("caipe", "doctor", "--live", env={**env, "GITHUB_TOKEN": "wrong"})
        listed = await run_command("caipe", "agents", env={**env, "GITHUB_TOKEN": "wrong", "COLUMNS": "300"})
    assert right.code == OK, right.out + right.err
    assert "github works: get_me was called." in right.out
    assert "create_issue (needs approval)" in right.out
    assert wrong.code == FAILED
    assert "github does not work: get_me fails: " in wrong.out
    assert live.code == FAILED
    assert "❌ github does not work: github: get_me fails: " in live.out
    assert re.search(r"^github +failing +github: get_me fails: ", listed.out, re.MULTILINE)


async def test_the_doctor_asks_the_model_a_question() -> None:
    async with serve_openai(ECHO) as model:
        env = model_of(model)
        live = await run_command("caipe", "doctor", "--live", "--all", env=env)
        asked = len(model.requests)
        still = await run_command("caipe", "doctor", env=env)
        assert len(model.requests) == asked == 1
    assert live.code == OK, live.out
    assert re.search(r"✅ The model openai:scripted answered in [\d.]+ s\.", live.out)
    assert "✅ netutils works: cidr_info was called." in live.out
    assert still.code == OK
    async with serve_openai(Script(Turn(Fail(401)))) as model:
        refused = await run_command("caipe", "doctor", "--live", env=model_of(model))
    assert refused.code == FAILED
    assert (
        "❌ The model openai:scripted does not answer. The model's server rejected the credentials."
        in refused.out
    )


async def test_the_doctor_shows_what_differs_and_the_rest_on_demand() -> None:
    env = {"WHEN_BUSY": "reject"}
    brief = await run_command("caipe", "doctor", env=env)
    assert brief.out.splitlines()[0] == "No problems found."
    assert re.search(r"^  WHEN_BUSY +reject +environment$", brief.out, re.MULTILINE)
    for word in ("RETENTION_DAYS", "argocd is not configured"):
        assert word not in brief.out
    assert re.search(r"\d+ other findings and \d+ settings at their default: caipe doctor --all", brief.out)
    # Not on the PATH: the hint is what one can type here.
    away = await run_command("caipe", "doctor", env={**env, "PATH": os.defpath})
    assert f" settings at their default: {BIN / 'caipe'} doctor --all" in away.out
    full = await run_command("caipe", "doctor", "--all", env=env)
    for word in ("RETENTION_DAYS", "argocd is not configured"):
        assert word in full.out


async def test_a_question_that_only_failed_tools_answered_is_code_one(tmp_path: Path) -> None:
    wrong = Turn(Call("cidr_info", {"cidr": "no network"}))
    right = Turn(Call("cidr_info", {"cidr": "10.0.0.0/8"}))
    delegate = Turn(Call("task", {"subagent_type": "netutils", "description": "Look it up."}))
    supervisor = Script(delegate, Turn(Say("That is all.")))
    for name, calls, code in (("failed", [wrong], FAILED), ("mended", [wrong, right], OK)):
        agent = Script(*calls, Turn(Say("I looked.")))
        async with serve_openai(Book({"Look it up": agent, "": supervisor})) as model:
            env = {**model_of(model), "MCP_SANDBOX": "off", "CAIPE_HOME": str(tmp_path / name)}
            done = await run_command("caipe", "ask", "What is it?", env=env)
        assert (done.code, done.out) == (code, "That is all.\n"), done.err


# --- documents and Slack ------------------------------------------------------------------------------------


async def test_a_site_that_cannot_be_reached_is_a_failure_now_and_at_a_refresh() -> None:
    env = {"ENABLE_RAG": "true", "RAG_ALLOW_PRIVATE_ADDRESSES": "true", "RAG_EMBEDDINGS": "off"}
    away = await run_command("caipe", "kb", "add", f"http://127.0.0.1:{closed_port()}/", env=env)
    assert (away.code, away.out) == (FAILED, "")
    assert_told(away, "failed", "Nothing at this location can be read.", lines=4)
    async with serve_app(_site()) as url:
        added = await run_command("caipe", "kb", "add", url, "--name", "site", env=env)
        assert added.code == OK, added.err
    gone = await run_command("caipe", "kb", "refresh", "site", env=env)
    assert gone.code == FAILED
    assert_told(gone, "site: failed", "Nothing at this location can be read.", lines=4)
    kept = await run_command("caipe", "kb", "search", "giraffes", env=env)
    assert "giraffes" in kept.out


def _site() -> Starlette:
    async def page(_: Request) -> HTMLResponse:
        return HTMLResponse("<html><body><h1>Zoo</h1><p>The giraffes are fed at noon.</p></body></html>")

    return Starlette(routes=[Route("/", page)])


async def test_an_unreachable_slack_is_told_at_once_with_what_is_tried_next() -> None:
    env = {
        "SLACK_INTEGRATION_API_URL": f"http://127.0.0.1:{closed_port()}/api/",
        "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-1",
        "SLACK_INTEGRATION_APP_TOKEN": "xapp-1",
    }
    async with start_command("caipe", "slack", env=env) as bot:
        told = await bot.wait_for_stderr(r"Slack cannot be reached: (.*)\n")
    assert told[1] == "nothing listens at its address. auth.test is tried again in 0.5 s (1 of 7)."
    assert "Traceback" not in bot.err
