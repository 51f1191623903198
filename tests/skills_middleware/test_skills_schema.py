"""The description of the skills API against the API itself: schemathesis makes requests from the one, and
all its checks hold."""

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from hypothesis import strategies as st
from schemathesis.config import ChecksConfig, PositiveDataAcceptanceConfig, ProjectConfig, ProjectsConfig

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from ai_platform_engineering.skills_middleware.api.skills_app import build_skills_app
from tests.support.examples import scale_examples
from tests.support.fakes.git_server import git_server, repository
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST, PLAIN, serve_app
from tests.support.skill_files import BLOCKED, build_catalog, skill_files, skill_md, write_skill

KEY = "a-key-of-the-tests"
NAMES = ("example", "other")
HUB = "http://127.0.0.1:1/team/skills"  # where the repository is, is known when it is served

# What a schema cannot say: a text in the form of SKILL.md, the address of a repository that is there.
FORMATS: dict[str, st.SearchStrategy[str]] = {
    "skill-md": st.builds(
        skill_md, st.just(NAMES[0]), st.sampled_from(["Look.", BLOCKED, "Straße \u2028 🔧"])
    ),
    "skill-name": st.just(NAMES[0]),
    "skill-path": st.sampled_from(["references/guide.md", "assets/x.png", "LICENSE"]),
    "git-url": st.just(HUB),
    "git-ref": st.sampled_from(["", "main"]),
    "git-path": st.just(""),
}
for name, strategy in FORMATS.items():
    schemathesis.openapi.format(name, strategy)


async def _serve(home: Path, began: threading.Event, ends: asyncio.Event, state: dict[str, Any]) -> None:
    origin = repository(home / "origin", {"hubbed/SKILL.md": skill_md("hubbed")})
    write_skill(home / "folder" / NAMES[1], skill_files(NAMES[1], references__guide="Guide."))
    settings = Settings.from_variables({**FAST, "A2A_AUTH_SHARED_KEY": KEY})
    app = create_app(
        settings, model=ScriptedChatModel(script=Script(Turn(Say("Here.")))), skills=build_catalog(home)
    )
    async with git_server(origin) as git, serve_app(app) as url:
        state |= {
            "url": url,
            "git": f"http://127.0.0.1:{git.port}/team/skills",
            "loop": asyncio.get_running_loop(),
            "ends": ends,
        }
        began.set()
        await ends.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """In a thread: schemathesis speaks HTTP without waiting for a loop."""
    began, state = threading.Event(), dict[str, Any]()

    def run() -> None:
        asyncio.run(_serve(tmp_path_factory.mktemp("skills"), began, asyncio.Event(), state))

    thread = threading.Thread(target=run)
    thread.start()
    assert began.wait(60)
    yield state
    state["loop"].call_soon_threadsafe(state["ends"].set)
    thread.join(60)


@pytest.fixture
def stocked(server: dict[str, Any]) -> dict[str, Any]:
    """With a stored skill, so that there is something to change and to remove."""
    sent = {"content": skill_md(NAMES[0]), "files": {"references/guide.md": "Guide."}}
    stored = httpx.post(
        f"{server['url']}skills", json=sent, headers={"Authorization": f"Bearer {KEY}"}, verify=PLAIN
    )
    assert stored.status_code in (201, 409)
    return server


# Which versions there are, no schema says: 412 is an answer to a right request.
accepted = PositiveDataAcceptanceConfig(expected_statuses=["2xx", "401", "403", "404", "409", "412"])
project = ProjectConfig(checks=ChecksConfig(positive_data_acceptance=accepted))
config = schemathesis.Config(seed=1, projects=ProjectsConfig(default=project))
DOCUMENT = build_skills_app(None, lambda: False, needs_key=True).openapi()
schema = schemathesis.openapi.from_dict(DOCUMENT, config=config)


@schema.parametrize()
@pytest.mark.parametrize("key", [KEY], ids=["with the key"])  # or all operations would have one test id
@hypothesis.settings(
    max_examples=scale_examples(10),
    derandomize=True,
    deadline=None,
    suppress_health_check=list(hypothesis.HealthCheck),
)
def test_the_api_does_what_its_description_says(
    case: schemathesis.Case, stocked: dict[str, Any], key: str
) -> None:
    if isinstance(case.body, dict) and case.body.get("url") == HUB:
        case.body["url"] = stocked["git"]
    case.call_and_validate(base_url=stocked["url"], headers={"Authorization": f"Bearer {key}"})


def test_the_description_is_the_one_that_is_served(server: dict[str, Any]) -> None:
    served_one = httpx.get(
        f"{server['url']}skills/openapi.json", headers={"Authorization": f"Bearer {KEY}"}, verify=PLAIN
    )
    assert served_one.json() == DOCUMENT
