"""The official clients of both generations as programs: Python and JavaScript, in both bindings of 1.0."""

import shutil
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT, need
from tests.support.client_stage import NARRATION, PROGRAMS, run_program, serve_stage
from tests.support.fakes.push_receiver import OPERATOR, push_receiver

JS_FOLDER = Path(sys.prefix) / "js-clients"
JS_LOCK = ROOT / "tests" / "fixtures" / "js_clients" / "package-lock.json"
OLD_SDK = Path(sys.prefix) / "third-party-a2a" / "bin" / "python"
OLD_SDK_LOCK = ROOT / "tests" / "fixtures" / "a2a_03_requirements.txt"


def python_command(url: str) -> list[str]:
    installed = [mark.read_bytes() for mark in OLD_SDK.parent.parent.glob(".installed-*")]
    need("the older A2A SDK", OLD_SDK_LOCK.read_bytes() in installed, "`make backends` installs it")
    return [str(OLD_SDK), str(PROGRAMS / "client_sdk_03.py"), url]


def new_python_command(binding: str, url: str) -> list[str]:
    return [sys.executable, str(PROGRAMS / "client_sdk_10.py"), binding, url]


def javascript_command(generation: str, url: str, binding: str = "JSONRPC") -> list[str]:
    node = shutil.which("node")
    need("node", node is not None, "install Node.js")
    installed = [mark.read_bytes() for mark in JS_FOLDER.glob(".installed-*")]
    need("the JavaScript A2A SDK", JS_LOCK.read_bytes() in installed, "`make backends` installs it with npm")
    return [str(node), str(PROGRAMS / "client_js.mjs"), str(JS_FOLDER), generation, binding, url]


CLIENTS = {
    "python-0.3": python_command,
    "javascript-0.3": lambda url: javascript_command("03", url),
    "javascript-1.0": lambda url: javascript_command("10", url),
    "javascript-1.0 HTTP+JSON": lambda url: javascript_command("10", url, "HTTP+JSON"),
    "python-1.0": lambda url: new_python_command("JSONRPC", url),
    "python-1.0 HTTP+JSON": lambda url: new_python_command("HTTP+JSON", url),
}


@pytest.mark.parametrize("name", CLIENTS)
async def test_an_official_client_does_everything(name: str) -> None:
    async with serve_stage() as stage:
        lines = await run_program(CLIENTS[name](stage.url), stage)
    is_rich = name.endswith("0.3")
    is_http_json = name.endswith("HTTP+JSON")
    assert ("/" in stage.paths, "/message:stream" in stage.paths) == (not is_http_json, is_http_json)
    by_scenario: dict[str, list[dict[str, Any]]] = {}
    for line in lines:
        by_scenario.setdefault(line["scenario"], []).append(line)

    for scenario in ("ask", "stream"):
        [line] = by_scenario[scenario]
        check_answer(line, stage.version.answer, is_rich=is_rich)
    assert by_scenario["stream"][0]["states"][0] == "submitted"

    for scenario in ("form by text", "form by data"):
        asked, answered = by_scenario[scenario]
        assert asked["states"][-1] == "input-required"
        assert "Create GitHub Repo" in asked["said"]
        assert "- repo (required)" in asked["said"]
        check_answer(answered, "Made blog.", is_rich=is_rich)

    asked, answered = by_scenario["approval by text"]
    assert "github wants to call create_repo." in asked["said"]
    assert '"approve"' in asked["said"]
    check_answer(answered, "So: blog is there.", is_rich=is_rich)
    assert stage.repos.made == [{"name": "blog", "private": False, "stars": 1}]

    [resumed] = by_scenario["resubscribe"]
    check_answer(resumed, stage.waiting.answer, is_rich=is_rich)
    [cancelled] = by_scenario["cancel"]
    assert cancelled["states"] == ["canceled"]
    if not is_rich:
        [listed] = by_scenario["list"]
        check_pages(listed)


def check_pages(line: dict[str, Any]) -> None:
    """Seven questions in pages of three, the one that changed last first."""
    tasks = [task for page in line["pages"] for task in page]
    assert [len(page) for page in line["pages"]] == [3, 3, 1], line
    assert line["total"] == len({task_id for task_id, _ in tasks}) == 7
    assert [state for _, state in tasks] == ["canceled", *["completed"] * 6]


def check_answer(line: dict[str, Any], answer: str, *, is_rich: bool) -> None:
    """The task is completed and holds the answer once; progress is an artifact in the rich shape alone."""
    assert line["states"][-1] == "completed", line
    texts = [artifact["text"] for artifact in line["artifacts"]]
    assert texts.count(answer) == 1, line
    assert "".join(texts).count(answer) == 1
    if not is_rich:
        assert texts == [answer]
        assert NARRATION not in "".join(texts)


@pytest.mark.sample(3)
@pytest.mark.parametrize("name", CLIENTS)
async def test_an_official_client_is_notified(name: str) -> None:
    async with push_receiver() as receiver, serve_stage(OPERATOR) as stage:
        command = [*CLIENTS[name](stage.url), "--push", receiver.url]
        [line] = await run_program(command, stage)
        asked_with = await receiver.wait_for("/inline", "completed")
        set_later = await receiver.wait_for("/set", "completed")
    assert line["found"] == f"{receiver.url}/set"
    if "urls" in line:  # the Python client of 0.3 has no list
        assert line["urls"] == [f"{receiver.url}/inline", f"{receiver.url}/set"]
    assert [item.state for item in asked_with] == ["working", "completed"]
    assert [item.state for item in set_later] == ["completed"]
    for item in (*asked_with, *set_later):
        assert item.headers["x-a2a-notification-token"] == "a-token"
        assert item.update.get("id", item.update.get("taskId")) == line["task"]
    assert stage.version.answer in set_later[0].raw.decode()
