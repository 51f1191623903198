"""The skills API over HTTP: every route, every refusal, and that nothing of the server's own is swallowed
by it."""

import base64
import contextlib
import logging
import os
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.deep_agent import PlatformEngineerDeepAgent
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.agent import (
    AIPlatformEngineerA2ABinding,
)
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import (
    build_app,
    create_app,
)
from ai_platform_engineering.skills_middleware.api.skills_mount import MAX_BODY_BYTES
from ai_platform_engineering.skills_middleware.mas_registry import get_mas_instance, set_mas_instance
from ai_platform_engineering.skills_middleware.skill_catalog import SkillCatalog
from ai_platform_engineering.skills_middleware.skill_database import SqliteSkillDatabase
from ai_platform_engineering.skills_middleware.skill_store import SkillStore
from tests.support.fakes.git_server import commit, git_server, repository
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST, PLAIN, serve_app
from tests.support.processes import start_command
from tests.support.skill_files import BLOCKED, build_catalog, skill_files, skill_md, write_skill

KEY = "a-key-of-the-tests"
SHIPPED = ["argocd-sync-failure", "cost-check", "incident-triage", "on-call-handover", "post-incident-review"]


@dataclass(slots=True)
class Stage:
    """A server with a folder of skills, a database and a client."""

    home: Path
    http: httpx.AsyncClient
    catalog: SkillCatalog

    @property
    def folder(self) -> Path:
        return self.home / "folder"

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        return await self.http.request(
            method,
            path,
            json=body,
            headers={name.replace("_", "-"): value for name, value in headers.items()},
        )

    async def get(self, path: str, **params: Any) -> Any:
        response = await self.http.get(path, params=params)
        assert response.status_code == 200, response.text
        return response.json()

    async def names(self, **params: Any) -> list[str]:
        return [skill["name"] for skill in (await self.get("/skills", **params))["skills"]]


@contextlib.asynccontextmanager
async def serving(
    home: Path, *, env: Mapping[str, str] | None = None, **options: Any
) -> AsyncIterator[Stage]:
    catalog = build_catalog(home, **options)
    model = ScriptedChatModel(script=Script(Turn(Say("Here."))))
    app = create_app(Settings.from_variables({**FAST, **(env or {})}), model=model, skills=catalog)
    async with serve_app(app) as url, httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http:
        yield Stage(home, http, catalog)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    async with serving(tmp_path / "home") as stage:
        yield stage


def sent(skill: str, body: str = "Look.", **more: Any) -> dict[str, Any]:
    return {"content": skill_md(skill, body), **more}


def problem(response: httpx.Response, status: int) -> str:
    """The sentence of a problem; every one has the same form."""
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    body = response.json()
    assert (body["status"], body["type"], bool(body["title"])) == (status, "about:blank", True)
    return str(body["detail"])


# --- from creating to deleting --------------------------------------------------------------------------


async def test_a_skill_from_creating_to_deleting(stage: Stage) -> None:
    files = {
        "references/guide.md": "Guide.",
        "assets/x.png": {"base64": base64.b64encode(b"\x89PNG\xff").decode()},
    }
    created = await stage.ask("POST", "/skills", sent("triage", "First.", name="triage", files=files))
    assert created.status_code == 201
    assert created.headers["location"] == "/skills/triage"
    response = await stage.http.get("/skills/triage")
    skill = response.json()
    assert skill == created.json()
    assert skill == {
        "id": "stored/triage",
        "name": "triage",
        "description": "The skill triage.",
        "source": "agent_skills",
        "source_id": None,
        "origin": "stored",
        "content": skill_md("triage", "First."),
        "ancillary_files": {"references/guide.md": "Guide."},
        "metadata": {},
        "visibility": "global",
        "team_ids": [],
        "owner_user_id": None,
        "version": skill["version"],
        "license": None,
        "compatibility": None,
        "allowed_tools": [],
        "enabled": True,
        "used": True,
        "shadowed_by": None,
        "findings": [],
        "problems": [],
        "files": [{"path": "assets/x.png", "size": 5}, {"path": "references/guide.md", "size": 6}],
    }
    assert response.headers["etag"] == f'"{skill["version"]}"'
    picture = await stage.http.get("/skills/triage/files/assets/x.png")
    assert (picture.content, picture.headers["content-type"]) == (b"\x89PNG\xff", "application/octet-stream")

    updated = await stage.ask(
        "PUT", "/skills/triage", sent("triage", "Second."), If_Match=response.headers["etag"]
    )
    assert updated.status_code == 200
    assert updated.headers["etag"] != response.headers["etag"]
    assert (await stage.get("/skills/triage"))["content"] == skill_md("triage", "Second.")
    assert (await stage.ask("DELETE", "/skills/triage", If_Match=updated.headers["etag"])).status_code == 204
    assert problem(await stage.http.get("/skills/triage"), 404) == "There is no skill triage."
    assert await stage.names() == []


async def test_two_editors_do_not_overwrite_each_other(stage: Stage) -> None:
    first = (await stage.ask("POST", "/skills", sent("triage", "First."))).headers["etag"]
    second = (await stage.ask("PUT", "/skills/triage", sent("triage", "Second."), If_Match=first)).headers[
        "etag"
    ]
    late = await stage.ask("PUT", "/skills/triage", sent("triage", "Third."), If_Match=first)
    message = "The skill triage was changed meanwhile. Read it again, and repeat the change."
    assert problem(late, 412) == message
    assert problem(await stage.ask("DELETE", "/skills/triage", If_Match=first), 412) == message
    assert (await stage.get("/skills/triage"))["content"] == skill_md("triage", "Second.")
    for tag in (f"W/{second}", f"{first}, {second}", "*"):  # a proxy weakens a tag, a client names several
        assert (
            await stage.ask("PUT", "/skills/triage", sent("triage", "Second."), If_Match=tag)
        ).status_code == 200
    assert (await stage.ask("PUT", "/skills/triage", sent("triage", "Forced."))).status_code == 200
    # What another process has done since this server looked is found by the database itself.
    other = SkillStore(SqliteSkillDatabase(stage.home / "skills.db"))
    tag = (await stage.http.get("/skills/triage")).headers["etag"]
    for method, body in (("PUT", sent("triage", "Mine.")), ("DELETE", None)):
        assert other.fingerprints("stored", "")["triage"] == tag.strip('"')
        assert (await stage.ask(method, "/skills/triage", body, If_Match='"0123456789ab"')).status_code == 412
    other.close()


async def test_creating_what_is_there_and_changing_what_is_not_stored(stage: Stage) -> None:
    write_skill(stage.folder / "local", skill_files("local"))
    assert (await stage.ask("POST", "/skills", sent("triage"))).status_code == 201
    assert problem(await stage.ask("POST", "/skills", sent("triage", "Other.")), 409).startswith(
        "A skill triage is stored already."
    )
    for method in ("PUT", "DELETE"):
        body = sent("local") if method == "PUT" else None
        assert "is not stored here (folder)" in problem(await stage.ask(method, "/skills/local", body), 409)
        assert (
            problem(await stage.ask(method, "/skills/none", sent("none") if body else None), 404)
            == "There is no skill none."
        )
    # One of the same name may be stored, and is shadowed.
    shadowed = (await stage.ask("POST", "/skills", sent("local", "Mine."))).json()
    assert (shadowed["enabled"], shadowed["used"], shadowed["shadowed_by"]) == (True, False, "folder")
    assert (await stage.get("/skills/local"))["origin"] == "folder"
    assert (await stage.get("/skills/local", source="agent_skills"))["content"] == skill_md("local", "Mine.")
    assert "from there" in problem(await stage.http.get("/skills/local", params={"source": "hub"}), 404)


async def test_invalid_skills_are_told_by_file_and_field(stage: Stage) -> None:
    wrong = await stage.ask("POST", "/skills", {"content": "---\nname: Not OK\nallowed-tools: {}\n---\n"})
    assert "SKILL.md:2: name: A name has lower-case letters" in problem(wrong, 422)
    locations = [(item["file"], item["field"], item["line"]) for item in wrong.json()["problems"]]
    assert locations == [
        ("SKILL.md", "name", 2),
        ("SKILL.md", "description", None),
        ("SKILL.md", "allowed-tools", 3),
    ]
    elsewhere = await stage.ask("POST", "/skills", sent("triage", name="other"))
    assert elsewhere.json()["problems"][0]["field"] == "name"
    outside = await stage.ask("POST", "/skills", sent("triage", files={"../x.md": "x", "/etc/x": "x"}))
    assert [item["file"] for item in outside.json()["problems"]] == ["../x.md", "/etc/x"]
    encoded = await stage.ask(
        "POST", "/skills", sent("triage", files={"assets/x": {"base64": "not base64!"}})
    )
    assert [(item["file"], item["field"]) for item in encoded.json()["problems"]] == [("assets/x", "base64")]
    twice = await stage.ask("POST", "/skills", sent("triage", files={"SKILL.md": "x"}))
    assert "belongs into `content`" in problem(twice, 422)
    await stage.ask("POST", "/skills", sent("triage"))
    assert "is not valid" in problem(await stage.ask("PUT", "/skills/triage", {"content": "x"}), 422)
    assert "not the same" in problem(
        await stage.ask("PUT", "/skills/triage", sent("triage", name="other")), 422
    )
    assert "must be that of the skill's folder" in problem(
        await stage.ask("PUT", "/skills/triage", sent("other")), 422
    )
    assert await stage.names() == ["triage"]


@pytest.mark.parametrize("name", ["hubs", "refresh", "validate", "scan-content"])
async def test_names_of_routes_are_no_names_of_skills(stage: Stage, name: str) -> None:
    refused = await stage.ask("POST", "/skills", sent(name))
    assert f"The name {name} is one of the server's own" in problem(refused, 422)
    assert refused.json()["problems"][0]["field"] == "name"
    checked = (await stage.ask("POST", "/skills/validate", sent(name))).json()
    assert (checked["valid"], checked["problems"][0]["field"]) == (False, "name")
    not_allowed = await stage.ask("DELETE", f"/skills/{name}")
    assert (not_allowed.status_code, not_allowed.headers["allow"]) == (
        405,
        "GET, POST" if name == "hubs" else "POST",
    )
    # One in a folder is there, and can at least be switched off.
    write_skill(stage.folder / name, skill_files(name))
    assert (await stage.ask("POST", f"/skills/{name}/disable")).json()["enabled"] is False


# --- lists ----------------------------------------------------------------------------------------------


async def test_listing_in_pages_with_words_sources_and_tags(stage: Stage) -> None:
    for number in range(5):
        write_skill(
            stage.folder / f"skill-{number}",
            skill_files(f"skill-{number}", description=f"Looks at clusters, variant {number}."),
        )
    tags = {"content": skill_md("tagged", top="metadata:\n  tags: Costs, aws\n")}
    await stage.ask("POST", "/skills", tags)
    every = await stage.get("/skills")
    assert [skill["name"] for skill in every["skills"]] == [
        *(f"skill-{number}" for number in range(5)),
        "tagged",
    ]
    assert every["meta"] == {
        "total": 6,
        "page": 0,
        "page_size": 6,
        "has_more": False,
        "sources_loaded": ["folder", "stored"],
        "unavailable_sources": [],
        "source_problems": [],
    }
    assert {(skill["content"], str(skill["ancillary_files"])) for skill in every["skills"]} == {(None, "{}")}
    first, last = [await stage.get("/skills", page=page, page_size=4) for page in (1, 2)]
    assert [len(page["skills"]) for page in (first, last)] == [4, 2]
    assert [page["meta"]["has_more"] for page in (first, last)] == [True, False]
    assert await stage.names(page=9) == []
    assert await stage.names(q="VARIANT 3") == ["skill-3"]
    assert await stage.names(source="agent_skills") == await stage.names(source="stored") == ["tagged"]
    assert len(await stage.names(source="default")) == len(await stage.names(source="folder")) == 5
    assert await stage.names(source="hub") == []
    assert await stage.names(tags="aws,costs") == ["tagged"]
    assert await stage.names(tags="aws,other") == []
    assert await stage.names(visibility="team") == []
    assert len(await stage.names(visibility="global")) == 6
    (skill,) = (await stage.get("/skills", q="tagged", include_content="true"))["skills"]
    assert skill["content"] == tags["content"]


async def test_broken_skills_and_sources_are_listed_with_what_is_wrong(stage: Stage) -> None:
    write_skill(stage.folder / "broken", {"SKILL.md": b"no front matter", "references/x.md": b"x"})
    (skill,) = (await stage.get("/skills"))["skills"]
    assert (skill["name"], skill["enabled"], skill["version"], skill["problems"][0]["file"]) == (
        "broken",
        False,
        None,
        "SKILL.md",
    )
    single = await stage.http.get("/skills/broken")
    assert (single.json()["content"], "etag" in single.headers) == ("no front matter", False)
    assert "cannot be enabled" in problem(await stage.ask("POST", "/skills/broken/enable"), 409)
    (stage.folder / "broken").rename(stage.home / "elsewhere")
    stage.folder.rmdir()
    meta = (await stage.get("/skills"))["meta"]
    assert meta["unavailable_sources"] == ["folder"]
    assert "cannot be read" in meta["source_problems"][0]["reason"]
    refreshed = (await stage.ask("POST", "/skills/refresh")).json()
    assert (refreshed["status"], refreshed["message"]) == (
        "partial",
        "0 skills can be used. 1 sources could not be read.",
    )


# --- switching and scanning -----------------------------------------------------------------------------


async def test_switching_off_lets_the_next_one_be_used(stage: Stage) -> None:
    write_skill(stage.folder / "triage", skill_files("triage", "Folder."))
    await stage.ask("POST", "/skills", sent("triage", "Stored."))
    off = (await stage.ask("POST", "/skills/triage/disable")).json()
    assert (off["origin"], off["enabled"], off["used"]) == ("folder", False, False)
    assert (await stage.get("/skills/triage"))["origin"] == "stored"
    assert (await stage.ask("POST", "/skills/triage/disable")).json()[
        "origin"
    ] == "stored"  # the one that is used
    assert (await stage.ask("POST", "/skills/triage/enable?source=stored")).json()["used"] is True
    assert (await stage.ask("POST", "/skills/triage/enable")).json()[
        "origin"
    ] == "folder"  # the one that is off
    assert (await stage.get("/skills/triage"))["origin"] == "folder"
    for way in ("enable", "disable"):
        assert problem(await stage.ask("POST", f"/skills/none/{way}"), 404) == "There is no skill none."


async def test_a_blocking_finding_is_told_everywhere_and_keeps_a_skill_off(stage: Stage) -> None:
    stored = await stage.ask("POST", "/skills", sent("bad", BLOCKED))
    assert (stored.status_code, stored.json()["enabled"]) == (201, False)
    (finding,) = stored.json()["findings"]
    assert (finding["code"], finding["severity"], finding["file"], finding["line"]) == (
        "instruction-override",
        "block",
        "SKILL.md",
        6,
    )
    assert (
        (await stage.get("/skills/bad"))["findings"]
        == (await stage.get("/skills"))["skills"][0]["findings"]
        == [finding]
    )
    assert "cannot be enabled before this is changed: SKILL.md:6" in problem(
        await stage.ask("POST", "/skills/bad/enable"), 409
    )
    assert (await stage.http.get("/skills/bad/files/SKILL.md")).text == skill_md(
        "bad", BLOCKED
    )  # people look at what was found
    checked = (await stage.ask("POST", "/skills/validate", sent("bad", BLOCKED))).json()
    assert (checked["valid"], checked["blocked"], checked["findings"]) == (True, True, [finding])
    assert (await stage.ask("PUT", "/skills/bad", sent("bad", "Harmless."))).json()["enabled"] is True


async def test_validating_and_scanning_store_nothing(stage: Stage) -> None:
    fine = (
        await stage.ask("POST", "/skills/validate", sent("triage", files={"references/x.md": "x"}))
    ).json()
    assert (fine["valid"], fine["blocked"], fine["name"], fine["problems"], fine["findings"]) == (
        True,
        False,
        "triage",
        [],
        [],
    )
    assert len(fine["version"]) == 12
    wrong = (await stage.ask("POST", "/skills/validate", {"content": "x"})).json()
    assert (wrong["valid"], wrong["name"], wrong["problems"][0]["file"]) == (False, None, "SKILL.md")
    clean = (
        await stage.ask("POST", "/skills/scan-content", {"name": "x", "content": "Rotate the token."})
    ).json()
    assert clean == {
        "passed": True,
        "blocked": False,
        "scan_status": "passed",
        "max_severity": None,
        "summary": "Nothing was found.",
        "findings": [],
    }
    warned = (
        await stage.ask("POST", "/skills/scan-content", {"content": "See http://wiki.corp.dev/x"})
    ).json()
    assert (warned["passed"], warned["scan_status"], warned["max_severity"]) == (True, "flagged", "warn")
    blocked = (
        await stage.ask("POST", "/skills/scan-content", {"content": f"See http://wiki.corp.dev/x\n{BLOCKED}"})
    ).json()
    assert (blocked["passed"], blocked["blocked"], blocked["max_severity"], len(blocked["findings"])) == (
        False,
        True,
        "block",
        2,
    )
    assert await stage.names() == []


async def test_files_come_as_they_are_and_inert(stage: Stage) -> None:
    page = "<script>alert(1)</script>"
    await stage.ask(
        "POST", "/skills", sent("triage", files={"assets/page.html": page, "notes/deep/x.md": "x"})
    )
    response = await stage.http.get("/skills/triage/files/assets/page.html")
    assert response.text == page
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    assert (response.headers["x-content-type-options"], response.headers["content-security-policy"]) == (
        "nosniff",
        "sandbox",
    )
    assert (await stage.http.get("/skills/triage/files/notes/deep/x.md")).text == "x"
    for path in ("none.md", "%2e%2e/skills.db", "/etc/passwd", "assets"):
        message = problem(await stage.http.get(f"/skills/triage/files/{path}"), 404)
        assert "has no file" in message
        assert "SKILL.md, assets/page.html, notes/deep/x.md" in message
    assert problem(await stage.http.get("/skills/none/files/x"), 404) == "There is no skill none."


# --- refreshing, the supervisor, hubs -------------------------------------------------------------------


async def test_refreshing_and_what_the_supervisor_uses(stage: Stage) -> None:
    before = await stage.get("/internal/supervisor/skills-status")
    assert {**before, "skills_merged_at": None} == {
        "mas_registered": True,
        "sync_status": "synced",
        "graph_generation": before["graph_generation"],
        "skills_generation": 1,
        "skills_loaded_count": 0,
        "skills_merged_at": None,
    }
    write_skill(stage.folder / "triage", skill_files("triage"))
    refreshed = (await stage.ask("POST", "/skills/refresh")).json()
    after = await stage.get("/internal/supervisor/skills-status")
    assert refreshed == {
        "status": "ok",
        "message": "1 skills can be used.",
        "supervisor_rebuilt": True,
        "graph_generation": after["graph_generation"],
        "skills_loaded_count": 1,
        "source_problems": [],
    }
    assert (after["skills_loaded_count"], after["skills_generation"]) == (1, 2)
    assert after["skills_merged_at"] > before["skills_merged_at"]
    assert (await stage.get("/ready"))["components"]["model"]["status"] == "ok"  # which builds the graph
    assert (await stage.get("/internal/supervisor/skills-status"))["graph_generation"] == 1


async def test_the_binding_registers_the_running_system(stage: Stage) -> None:
    mas = PlatformEngineerDeepAgent(Settings.from_variables({}))
    AIPlatformEngineerA2ABinding(mas)
    assert get_mas_instance() is mas
    status = await stage.get("/internal/supervisor/skills-status")
    assert (status["mas_registered"], status["sync_status"]) == (
        True,
        "stale",
    )  # it uses another catalogue, or none
    assert (await stage.ask("POST", "/skills/refresh")).json()["supervisor_rebuilt"] is False
    set_mas_instance(None)
    status = await stage.get("/internal/supervisor/skills-status")
    assert (status["mas_registered"], status["sync_status"], status["graph_generation"]) == (
        False,
        "unknown",
        0,
    )


async def test_hubs_from_adding_to_removing(stage: Stage, tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"triage/SKILL.md": skill_md("triage", "First.")})
    async with git_server(origin) as git:
        url = f"http://127.0.0.1:{git.port}/team/skills"
        added = await stage.ask("POST", "/skills/hubs", {"url": f"{url}?token=hidden"})
        hub = added.json()
        assert (added.status_code, added.headers["location"]) == (201, f"/skills/hubs/{hub['id']}")
        first = hub.pop("commit")
        assert hub == {
            "id": "team-skills",
            "url": url,
            "ref": "",
            "path": "",
            "configured": False,
            "skills": 1,
            "problem": "",
        }
        assert (await stage.get("/skills/hubs"))["hubs"] == [{**hub, "commit": first}]
        skill = await stage.get("/skills/triage")
        assert (skill["source"], skill["source_id"], skill["id"]) == (
            "hub",
            "team-skills",
            "hub/team-skills/triage",
        )
        assert (await stage.get("/skills/triage", source_id="team-skills"))["id"] == skill["id"]
        assert problem(
            await stage.ask("POST", "/skills/hubs", {"url": f"{url}?token=hidden"}), 409
        ).startswith("This hub is known already.")

        second = commit(
            origin, {"triage/SKILL.md": skill_md("triage", "Second."), "more/SKILL.md": skill_md("more")}
        )
        await stage.ask("POST", "/skills/refresh")
        assert (await stage.get("/skills/triage"))["content"] == skill_md(
            "triage", "First."
        )  # only when somebody asks for it
        refreshed = (await stage.ask("POST", "/skills/hubs/team-skills/refresh")).json()
        assert (refreshed["commit"], refreshed["skills"]) == (second, 2)
        third = commit(origin, {"more/SKILL.md": None})
        assert (await stage.ask("POST", "/skills/refresh?include_hubs=true")).json()["status"] == "ok"
        assert [hub["commit"] for hub in (await stage.get("/skills/hubs"))["hubs"]] == [third]
        git.refuse = "500 Broken"
        failed = (await stage.ask("POST", "/skills/hubs/team-skills/refresh")).json()
        assert (failed["commit"], failed["skills"]) == (third, 1)
        assert f"The skills of commit {third[:12]} are used." in failed["problem"]
        assert (await stage.ask("DELETE", "/skills/hubs/team-skills")).status_code == 204
    assert (await stage.get("/skills/hubs"))["hubs"] == []
    assert await stage.names() == []
    for method, path in (("DELETE", "/skills/hubs/none"), ("POST", "/skills/hubs/none/refresh")):
        assert problem(await stage.ask(method, path), 404) == "There is no hub none."


async def test_hubs_that_cannot_be_used(tmp_path: Path) -> None:
    origin = repository(tmp_path / "origin", {"README.md": "Nothing here."})
    async with git_server(origin) as git, serving(tmp_path / "home") as stage:
        url = f"http://127.0.0.1:{git.port}/team/skills"
        assert "has no SKILL.md" in problem(await stage.ask("POST", "/skills/hubs", {"url": url}), 422)
        for wrong in (
            {"url": "nonsense"},
            {"url": "http://["},
            {"url": str(origin)},
            {"url": url, "ref": "-x"},
            {"url": url, "path": "../x"},
        ):
            problem(await stage.ask("POST", "/skills/hubs", wrong), 422)
        secret = await stage.ask("POST", "/skills/hubs", {"url": "https://me:hunter2@example.com/x"})
        assert "hunter2" not in problem(secret, 422)
    async with git_server(origin) as git, serving(tmp_path / "guarded", private=False) as stage:
        inside = await stage.ask("POST", "/skills/hubs", {"url": f"http://127.0.0.1:{git.port}/team/skills"})
        assert "private, local or reserved" in problem(inside, 422)
        assert git.requests == []
    configured = repository(tmp_path / "configured", {"triage/SKILL.md": skill_md("triage")})
    async with serving(tmp_path / "other", configured=(str(configured),)) as stage:
        await stage.catalog.wait_for_fetch()
        (hub,) = (await stage.get("/skills/hubs"))["hubs"]
        assert "stands in SKILL_HUBS" in problem(await stage.ask("DELETE", f"/skills/hubs/{hub['id']}"), 409)


# --- who may, and how much ------------------------------------------------------------------------------

WRITES = [
    ("POST", "/skills"),
    ("PUT", "/skills/triage"),
    ("DELETE", "/skills/triage"),
    ("POST", "/skills/triage/enable"),
    ("POST", "/skills/triage/disable"),
    ("POST", "/skills/hubs"),
    ("DELETE", "/skills/hubs/x"),
    ("POST", "/skills/hubs/x/refresh"),
    ("POST", "/skills/refresh?include_hubs=true"),
]
READS = [
    ("GET", "/skills"),
    ("GET", "/skills/triage"),
    ("GET", "/skills/triage/files/SKILL.md"),
    ("POST", "/skills/validate"),
    ("POST", "/skills/scan-content"),
    ("POST", "/skills/refresh"),
    ("GET", "/skills/hubs"),
    ("GET", "/internal/supervisor/skills-status"),
    ("GET", "/skills/openapi.json"),
]


async def test_nothing_is_changed_where_nothing_may_be(tmp_path: Path) -> None:
    async with serving(tmp_path / "home", env={"READ_ONLY": "true"}) as stage:
        write_skill(stage.folder / "triage", skill_files("triage"))
        for method, path in WRITES:
            body = (
                {"url": "https://example.com/x"}
                if path == "/skills/hubs"
                else sent("new" if path == "/skills" else "triage")
            )
            assert (
                problem(await stage.ask(method, path, body), 403)
                == "Nothing may be changed here: READ_ONLY is set."
            )
        for method, path in READS:
            body = sent("triage") if method == "POST" and path != "/skills/refresh" else None
            assert (await stage.ask(method, path, body)).status_code == 200
        assert await stage.names() == ["triage"]
        assert (await stage.get("/skills/triage"))["enabled"] is True


async def test_every_route_wants_the_key(tmp_path: Path) -> None:
    async with serving(tmp_path / "home", env={"A2A_AUTH_SHARED_KEY": KEY}) as stage:
        write_skill(stage.folder / "triage", {**skill_files("triage"), "references/.well-known/x": b"secret"})
        hidden = (
            "GET",
            "/skills/triage/files/references/.well-known/x",
        )  # such names open agent cards, and nothing else
        for method, path in [
            *READS,
            *WRITES,
            hidden,
            ("GET", "/nowhere"),
            ("GET", "/x/.well-known/agent-card.json"),
        ]:
            assert (await stage.ask(method, path)).status_code == 401, path
            assert (await stage.ask(method, path, Authorization="Bearer wrong")).status_code == 401, path
        for method, path in [*READS[:3], READS[-1]]:
            assert (await stage.ask(method, path, Authorization=f"Bearer {KEY}")).status_code == 200
        for path in (
            "/.well-known/agent-card.json",
            "/.well-known/agent.json",
            "/v1/.well-known/agent-card.json",
            "/health",
            "/ready",
        ):
            assert (await stage.http.get(path)).status_code == 200
        described = (await stage.ask("GET", "/skills/openapi.json", Authorization=f"Bearer {KEY}")).json()
    operations = [operation for path in described["paths"].values() for operation in path.values()]
    assert all(operation["security"] and "401" in operation["responses"] for operation in operations)


async def test_mistakes_are_problems_with_a_sentence(stage: Stage) -> None:
    many = {"page": "-1", "page_size": "101", "source": "moon", "q": "x" * 201}
    wrong = await stage.http.get("/skills", params=many)
    assert problem(wrong, 422).startswith("The request is wrong. q: ")
    assert {item["field"] for item in wrong.json()["problems"]} == set(many)
    assert {item["file"] for item in wrong.json()["problems"]} == {""}
    for body in ({}, {"content": 1}, {"content": "x", "colour": "red"}, [], "x", None):
        problem(await stage.ask("POST", "/skills", body), 422)
    secret = await stage.ask("POST", "/skills", {"content": {"token": "hunter2"}})
    assert "hunter2" not in problem(secret, 422) + secret.text
    as_json = {"Content-Type": "application/json"}
    problem(await stage.http.post("/skills", content=b"{", headers=as_json), 422)
    problem(await stage.http.post("/skills", content=b'{"content": "\\ud800"}', headers=as_json), 422)
    problem(await stage.http.post("/skills", content=b"\xff\xfe{", headers=as_json), 400)
    problem(await stage.http.post("/skills", content=b"[" * 100_000, headers=as_json), 413)
    problem(
        await stage.http.post(
            "/skills", content=skill_md("x").encode(), headers={"Content-Type": "text/markdown"}
        ),
        422,
    )
    not_allowed = await stage.ask("PATCH", "/skills/triage")
    assert problem(not_allowed, 405).startswith("This address does not take the method PATCH.")
    assert not_allowed.headers["allow"] == "DELETE, GET, PUT"
    assert await stage.names() == []


async def test_a_body_is_bounded(stage: Stage) -> None:
    large = sent("large", files={f"assets/{number}": "x" * 200_000 for number in range(8)})
    assert (await stage.ask("POST", "/skills", large)).status_code == 201
    as_json = {"Content-Type": "application/json"}
    too_large = await stage.http.post("/skills", content=b" " * (MAX_BODY_BYTES + 1), headers=as_json)
    assert problem(too_large, 413) == "The request is larger than 4 MB."

    async def endless() -> AsyncIterator[bytes]:
        for _ in range(MAX_BODY_BYTES // 65536 + 2):
            yield b" " * 65536

    problem(await stage.http.post("/skills", content=endless(), headers=as_json), 413)
    problem(
        await stage.http.post("/skills", content=b" " * MAX_BODY_BYTES, headers=as_json), 422
    )  # read, and empty


async def test_what_breaks_is_told_without_its_text(stage: Stage, caplog: pytest.LogCaptureFixture) -> None:
    class Broken:
        def __getattr__(self, _: str) -> Any:
            raise RuntimeError("hunter2")

    stage.catalog._store = Broken()  # type: ignore[assignment]
    with caplog.at_level(logging.DEBUG):
        answer = await stage.ask("POST", "/skills", sent("triage"))
    assert problem(answer, 500) == "Internal error. The server's log says more."
    assert "POST /skills failed: RuntimeError" in caplog.text
    assert "hunter2" not in caplog.text


async def test_a_database_that_cannot_be_used_is_a_problem_and_no_crash(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    (home / "skills.db").write_bytes(b"this is no database" * 100)
    async with serving(home) as stage:
        write_skill(stage.folder / "triage", skill_files("triage"))
        meta = (await stage.get("/skills"))["meta"]
        assert meta["unavailable_sources"] == ["stored"]
        assert "skills.db" in problem(await stage.ask("POST", "/skills", sent("new")), 503)


async def test_skills_can_be_switched_off(tmp_path: Path) -> None:
    env = {**FAST, "ENABLE_SKILLS": "false", "CAIPE_HOME": str(tmp_path)}
    async with (
        serve_app(build_app(Settings.from_variables(env), env)) as url,
        httpx.AsyncClient(base_url=url, verify=PLAIN) as http,
    ):
        off = await http.get("/skills")
        assert problem(off, 503) == "Skills are switched off here (ENABLE_SKILLS)."
        assert off.json()["error"] == "skills_unavailable"
        hub = await http.post("/skills/hubs", json={"url": "https://git.example/team/skills", "ref": "main"})
        assert problem(hub, 503) == "Skills are switched off here (ENABLE_SKILLS)."
        assert problem(await http.get("/nowhere"), 404).startswith("There is nothing at this address.")
        status = (await http.get("/internal/supervisor/skills-status")).json()
        assert (status["sync_status"], status["skills_loaded_count"]) == ("stale", 0)


# --- the last mount -------------------------------------------------------------------------------------

PLACEMENTS = {
    "all here": {},
    "one elsewhere": {"DISTRIBUTED_AGENTS": "netutils", "NETUTILS_AGENT_URL": "http://127.0.0.1:9/"},
}


@pytest.mark.sample(1)
@pytest.mark.parametrize("placement", PLACEMENTS)
async def test_what_matches_nothing_else_reaches_it_and_nothing_of_ours_does(
    tmp_path: Path, placement: str
) -> None:
    env = {
        **FAST,
        "CAIPE_HOME": str(tmp_path),
        "SKIP_AGENT_CONNECTIVITY_CHECK": "true",
        "ENABLE_RAG": "true",
        "RAG_EMBEDDINGS": "off",
    }
    env |= PLACEMENTS[placement]
    app = build_app(Settings.from_variables(env), {**env, "PATH": os.environ["PATH"]})
    assert app.routes[-1].name == "skills"  # type: ignore[attr-defined]
    async with serve_app(app) as url, httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http:
        assert [skill["name"] for skill in (await http.get("/skills")).json()["skills"]] == SHIPPED
        for path in (
            "/nowhere",
            "/skills/",
            "/skills/a/b/c/d",
            "/v2/facts",
            "/index.html",
            "/.well-known/other",
        ):
            assert "/skills/openapi.json" in problem(await http.get(path), 404)
        for path in ("/docs", "/redoc", "/openapi.json"):
            assert "<script" not in (await http.get(path)).text
        # Ours, each with what only it says.
        expected = {
            "/health": "ok",
            "/ready": "components",
            "/tools": "supervisor",
            "/workflows": "workflows",
            "/v1/facts": "facts",
            "/v1/requests": "requests",
            "/v1/datasources": "datasources",
            "/v1/jobs": "jobs",
            "/.well-known/agent-card.json": "capabilities",
            "/.well-known/agent.json": "capabilities",
            "/v1/.well-known/agent-card.json": "capabilities",
        }
        for path, word in expected.items():
            answer = await http.get(path)
            assert (answer.status_code, word in answer.text) == (200, True), path
            slash = await http.get(f"{path}/")
            assert (slash.status_code, slash.headers["location"]) == (307, f"{url.rstrip('/')}{path}")
            assert (await http.request("PATCH", path)).status_code == 405
        response = await http.post(
            "/", json={"jsonrpc": "2.0", "id": "1", "method": "tasks/get", "params": {"id": "none"}}
        )
        assert response.json()["error"]["code"] == -32001
        assert (await http.get("/")).status_code == 405
        assert (await http.get("/v1/tasks/none/calls")).json()["detail"] == "There is no task none."


async def test_every_route_of_the_description_is_of_skills() -> None:
    app = create_app(
        Settings.from_variables(FAST), model=ScriptedChatModel(script=Script(Turn(Say("Here."))))
    )
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://127.0.0.1") as http:
        paths = (await http.get("/skills/openapi.json")).json()["paths"]
    assert all(path.startswith(("/skills", "/internal/supervisor/")) for path in paths)


@pytest.mark.full
async def test_a_server_starts_without_the_library_of_this_api(tmp_path: Path) -> None:
    """A tenth of the time of a start."""
    async with start_command(
        "platform-engineer", env={"A2A_PORT": "0", "PYTHONPROFILEIMPORTTIME": "1"}
    ) as server:
        url = (await server.wait_for_stderr(r"serving on (http://\S+)"))[1]
        async with httpx.AsyncClient(base_url=url, verify=PLAIN, timeout=120) as http:
            assert (await http.get("/ready")).status_code == 200
            before = server.err
            assert (await http.get("/skills")).status_code == 200
            await server.wait_for_stderr(r"\| +fastapi\.applications\n")
    assert "ai_platform_engineering.skills_middleware.api.skills_mount" in before
    assert "fastapi.applications" not in before
