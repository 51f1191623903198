"""Clients of other frameworks, each in an environment of its own: their user sees our answer exactly once."""

import os
from collections import defaultdict

import pytest

from tests.support.client_stage import DELEGATION, FORM_QUESTION, PROGRAMS, VERSION, run_program, serve_stage
from tests.support.peers import find_interpreter

pytestmark = pytest.mark.full

# Frameworks that speak 0.3 get the shape that their operator chose; one that adds up every update needs the
# plain one.
FRAMEWORKS = [
    ("adk", "rich"),
    ("agent-framework", "rich"),
    ("strands", "rich"),
    ("strands", "plain"),
    ("crewai", "plain"),
]
KEEPS_CONVERSATIONS = {"adk", "agent-framework", "crewai"}  # it can answer what it is asked


@pytest.mark.parametrize(("framework", "v03_shape"), FRAMEWORKS)
async def test_the_user_of_a_framework_sees_the_answer_once(framework: str, v03_shape: str) -> None:
    program = PROGRAMS / f"client_{framework.replace('-', '_')}.py"
    command = [str(find_interpreter(framework)), str(program)]
    quiet = {"CREWAI_DISABLE_TELEMETRY": "true", "OTEL_SDK_DISABLED": "true", "NO_PROXY": "127.0.0.1"}
    env = {**os.environ, **quiet}
    answers = ["repo: blog\nstars: 3"] if framework in KEEPS_CONVERSATIONS else []
    async with serve_stage({"A2A_V03_SHAPE": v03_shape}) as stage:
        plain = await run_program([*command, stage.url, VERSION], stage, env)
        delegated = await run_program([*command, stage.url, DELEGATION], stage, env)
        form = await run_program([*command, stage.url, FORM_QUESTION, *answers], stage, env)
    for line in plain:
        assert line["shown"].count(stage.version.value) == 1, line
    for line in delegated:
        assert joined(line["shown"]).count("Argo CD says:") == 1, line
    by_mode: dict[str, list[str]] = defaultdict(list)
    for line in form:
        by_mode[line["mode"]].append(joined(line["shown"]))
    for question, *answered in by_mode.values():
        assert question.count("- repo (required)") == 1, question
        assert question.count("Answer with a line for each field") == 1
        if answers:
            assert [text.count("Made blog.") for text in answered] == [1], answered


def joined(text: str) -> str:
    """The text with single spaces: some frameworks put one between the chunks."""
    return " ".join(text.split())
