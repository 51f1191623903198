"""`caipe eval` as a process: estates and supervisors of its own, a scripted model, and what is reported."""

import asyncio
import json
import os
import re
import signal
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.cli.demo_environment import build_environment
from ai_platform_engineering.demo.launcher import serve_demo
from ai_platform_engineering.demo.stand_ins import STAND_INS
from tests.support.agent_services import eventually, model_of, run_server_process
from tests.support.fakes.openai_server import OpenAIServer, serve_openai
from tests.support.fakes.script import Call, Casting, Hang, Request, Say, Script, Turn
from tests.support.processes import CommandResult, run_command, start_command

_REPOSITORY = re.compile(r"([\w-]+)/(checkout)")

CASES = {
    "pull-title": """
title: The pull request
question: Which pull request was merged last in {checkout.repository}?
agents: [github]
checks:
  - contains: "{failing.pull_title}"
  - calls_agents: github
  - calls_tools: list_pull_*
  - unchanged: true
examples:
  right: '"{failing.pull_title}" was merged last.'
  wrong: None was merged.
""",
    "pull-author": """
title: The author
question: Who wrote the last pull request in {checkout.repository}?
checks:
  - contains: "{failing.author.login}"
""",
    "issue-rejected": """
title: A change that is rejected
question: Open an issue in {checkout.repository}.
agents: [github]
checks:
  - contains: rejected
  - unchanged: true
""",
    "issue-approved": """
title: A change that is approved
question: Open an issue in {checkout.repository}.
agents: [github]
approvals: {create_*: approve}
checks:
  - unchanged: true
""",
}
PRICES = "currency: EUR\nmodels:\n  openai:scripted: {input: 1000, output: 1000}\n"


class Investigator(Casting):
    """A model that reads pull requests well, never names an author, and opens issues when it is told to."""

    def choose(self, request: Request) -> Script:
        if "task" in request.tools:
            return Script(self._delegate, Turn(Say("The GitHub agent says: {{tool:github}}")))
        owner, repo = self._repository(request)
        if "issue" in request.last_user:
            call = Call("create_issue", {"owner": owner, "repo": repo, "title": "checkout fails"})
            return Script(Turn(call), self._tell_result)
        pulls = Call("list_pull_requests", {"owner": owner, "repo": repo, "state": "all"})
        return Script(Turn(pulls), Turn(Say("{{tool:list_pull_requests.pull_requests.0.title}}")))

    def _delegate(self, request: Request) -> Turn:
        if "hang" in request.last_user:
            return Turn(Hang())
        arguments = {"subagent_type": "github", "description": request.last_user}
        return Turn(Call("task", arguments))

    def _tell_result(self, request: Request) -> Turn:
        return Turn(Say("It was rejected." if "reject" in str(request.tool_results).lower() else "Opened."))

    def _repository(self, request: Request) -> tuple[str, str]:
        match = _REPOSITORY.search(request.last_user)
        assert match, request.last_user
        return match[1], match[2]


def write_cases(folder: Path, **cases: str) -> None:
    folder.mkdir()
    for name, text in cases.items():
        (folder / f"{name}.yaml").write_text(text, encoding="utf-8")


def model_variables(server: OpenAIServer) -> dict[str, str]:
    return {
        "LLM_MODEL": "openai:scripted",
        "OPENAI_API_KEY": "scripted-key",
        "OPENAI_BASE_URL": server.url,
        "LLM_RETRY_SECONDS": "0",
        # Systems of the user's, which no attempt may reach.
        "GITHUB_TOKEN": "a-real-token",
        "GITHUB_API_URL": "http://127.0.0.1:9",
        "READ_ONLY": "true",
    }


async def run_eval(server: OpenAIServer, *arguments: str) -> CommandResult:
    done = await run_command("caipe", "eval", *arguments, env=model_variables(server))
    assert "Traceback" not in done.err
    return done


def read_case(result: dict[str, Any], name: str) -> dict[str, Any]:
    return next(case for case in result["cases"] if case["name"] == name)


async def test_what_passes_and_what_fails_is_reported_with_calls_tokens_and_cost(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases", title=CASES["pull-title"], author=CASES["pull-author"])
    (tmp_path / "prices.yaml").write_text(PRICES, encoding="utf-8")
    options = ("--repeat=1", "--concurrency=2", "--output=r.json", "--prices=prices.yaml", "--fail-under=60")
    async with serve_openai(Investigator()) as server:
        done = await run_eval(server, "cases", *options)

    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    result = json.loads(text)
    (title,) = read_case(result, "title")["attempts"]
    (author,) = read_case(result, "author")["attempts"]
    assert done.code == 1
    assert result["settings"]["model"] == "openai:scripted"
    assert "scripted-key" not in text
    assert "a-real-token" not in text
    assert (title["failures"], title["agents"], title["seed"]) == ([], ["github"], 1)
    assert (title["usage"]["model_calls"], title["usage"]["tool_calls"]) == (4, 2)
    assert title["cost"] > 0
    assert [failure["check"] for failure in author["failures"]] == [1]

    lines = done.out.splitlines()
    assert re.match(r"case +passed +95 % interval +model calls .* cost EUR +p50 +max$", lines[0])
    (row,) = [line for line in lines if line.startswith("title")]
    assert re.match(r"title +1/1 +21–100 % +4\.0 +2\.0 ", row)
    assert "  1 of 1: check 1: does not name" in done.out
    assert re.search(r"^openai:scripted: 1 of 2 attempts passed, 50 % .* EUR in all", lines[-1])
    assert "title 1/1: passed" in done.err


@pytest.mark.full
async def test_each_attempt_has_a_fresh_estate_and_two_results_are_compared(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases", **CASES)
    async with serve_openai(Investigator()) as server:
        first = await run_eval(server, "cases", "--repeat=2", "--concurrency=4", "--output=first.json")
        options = ("--case=pull-title", "--repeat=1", "--seed=9", "--fail-under=100")
        second = await run_eval(server, "cases", *options, "--compare=first.json")

    result = json.loads((tmp_path / "first.json").read_text(encoding="utf-8"))
    assert (first.code, second.code) == (0, 0)
    titles = read_case(result, "pull-title")["attempts"]
    assert [(attempt["seed"], attempt["failures"]) for attempt in titles] == [(1, []), (2, [])]
    assert [attempt["failures"] for attempt in read_case(result, "issue-rejected")["attempts"]] == [[], []]
    for attempt in read_case(result, "issue-approved")["attempts"]:
        (change,) = attempt["failures"]
        assert re.fullmatch(r"changed issues [a-z]+/checkout#2", change["text"])
    assert "  2 of 2: check 1: does not name" in first.out
    assert "4 of 8 attempts passed" in first.out
    assert "0 of 1 cases changed, 1 did not" in second.out
    assert "only before: issue-approved, issue-rejected, pull-author" in second.out
    assert "settings that differ: repeat 2 → 1; seed 1 → 9" in second.out
    assert "cost" not in second.out


@pytest.mark.full
async def test_an_attempt_that_takes_too_long_is_stopped_and_the_next_case_runs(tmp_path: Path) -> None:
    endless = "title: x\nquestion: hang\ntimeout: 2\nchecks: [{contains: x}]\n"
    write_cases(tmp_path / "cases", a_hang=endless, pull_title=CASES["pull-title"])
    async with serve_openai(Investigator()) as server:
        done = await run_eval(server, "cases", "--repeat", "1", "--concurrency", "2", "--output", "r.json")
    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    (attempt,) = read_case(result, "a_hang")["attempts"]
    assert done.code == 0
    assert (attempt["end"], attempt["failures"][0]["text"]) == ("timeout", "no answer within 2 s")
    assert read_case(result, "pull_title")["attempts"][0]["failures"] == []


async def test_a_case_whose_tool_server_is_missing_is_skipped_with_the_reason(tmp_path: Path) -> None:
    needs = "title: x\nquestion: y\nagents: [{}]\nchecks: [{{contains: x}}]\n"
    write_cases(tmp_path / "cases", installed=needs.format("jira"), unknown=needs.format("gitlab"))
    async with serve_openai(Investigator()) as server:
        done = await run_eval(server, "cases", "--repeat", "1")
    assert done.code == 1
    assert (
        "skipped installed: the tool server of jira is not installed (caipe agents install jira)" in done.out
    )
    assert "skipped unknown: the estate has no stand-in for gitlab" in done.out
    assert server.requests == []


@pytest.mark.full
async def test_what_was_answered_before_an_interruption_is_reported_and_stored(tmp_path: Path) -> None:
    endless = "title: x\nquestion: hang\nchecks: [{contains: x}]\n"
    write_cases(tmp_path / "cases", a_title=CASES["pull-title"], b_hang=endless)
    async with (
        serve_openai(Investigator()) as server,
        start_command(
            "caipe", "eval", "cases", "--repeat=1", "--output=r.json", env=model_variables(server)
        ) as program,
    ):
        await program.wait_for_stderr(r"a_title 1/1: passed")
        await eventually(
            lambda: asyncio.sleep(0, any(request.last_user == "hang" for request in server.requests)), bool
        )
        program.send_signal(signal.SIGINT)
        done = await program.wait_for_exit()

    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert done.code == 130
    assert "Traceback" not in program.err
    assert len(read_case(result, "a_title")["attempts"]) == 1
    assert read_case(result, "b_hang")["skipped"] == "interrupted"
    assert "1 of 1 attempts passed" in done.out


@pytest.mark.full
async def test_a_running_server_is_asked_and_its_estate_is_reset_before_each_attempt(tmp_path: Path) -> None:
    write_cases(tmp_path / "cases", **{name: CASES[name] for name in ("issue-approved", "pull-title")})
    home = Path(os.environ["CAIPE_HOME"])
    async with (
        serve_openai(Investigator()) as server,
        serve_demo(STAND_INS, 3, home / "demo") as demo,
    ):
        systems = {"github": demo.variables["github"]}
        variables = build_environment({}, tmp_path / "supervisor", systems, 0) | model_of(server)
        async with run_server_process("caipe", "serve", **variables) as (_, client):
            done = await run_command(
                "caipe", "eval", "cases", "--url", client.url, "--repeat=2", "--output=r.json"
            )

    result = json.loads((tmp_path / "r.json").read_text(encoding="utf-8"))
    assert done.code == 0, done.err
    assert (result["settings"]["model"], result["settings"]["seed"]) == ("openai:scripted", 3)
    assert [attempt["seed"] for attempt in read_case(result, "pull-title")["attempts"]] == [3, 3]
    assert [attempt["failures"] for attempt in read_case(result, "pull-title")["attempts"]] == [[], []]
    for attempt in read_case(result, "issue-approved")["attempts"]:
        (change,) = attempt["failures"]
        assert change["text"].endswith("checkout#2")  # the second attempt found no issue of the first


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["nothing"], "Directory 'nothing' does not exist"),
        (["empty"], "empty holds no case"),
        (["broken"], "broken/a.yaml:1: unknown key `titel`; did you mean `title`?"),
        (["--case", "checkout-caus"], "has no case checkout-caus. Did you mean checkout-cause?"),
        (["--compare", "broken/a.yaml"], "broken/a.yaml is no result of `caipe eval --output`"),
        (["--prices", "broken/a.yaml"], "a model has `input` and `output`"),
        (["--repeat", "0"], "0 is not in the range"),
        (["--case", "checkout-cause"], "An evaluation needs a language model. Set LLM_MODEL"),
        (["--url", "http://127.0.0.1:9"], "http://127.0.0.1:9"),
    ],
)
async def test_what_is_wrong_is_said_before_anything_is_asked(
    tmp_path: Path, arguments: list[str], problem: str
) -> None:
    write_cases(tmp_path / "empty")
    write_cases(tmp_path / "broken", a="titel: x\n")
    done = await run_command("caipe", "eval", *arguments)
    assert done.code != 0
    assert problem in " ".join(done.err.split())
    assert "Traceback" not in done.err
