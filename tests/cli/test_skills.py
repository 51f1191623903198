"""`caipe skills`: on the catalogue of this machine, and through a server; and `/name` in the chat."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.multi_agents.platform_engineer.protocol_bindings.a2a.main import create_app
from tests.support.fakes.git_server import commit, git_server, repository
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import FAST, serve_app, supervisor
from tests.support.processes import CommandResult, invoke_caipe, run_command
from tests.support.skill_files import BLOCKED, build_catalog, skill_files, skill_md, write_skill

OK, FAILED, USAGE, UNREACHABLE = 0, 1, 2, 3
KEY = "a-key-of-the-tests"
SHIPPED = ["argocd-sync-failure", "cost-check", "incident-triage", "on-call-handover", "post-incident-review"]


@pytest.fixture
def triage(tmp_path: Path) -> Path:
    return write_skill(
        tmp_path / "triage",
        {**skill_files("triage", references__guide="Guide."), "assets/x.png": b"\x89PNG\xff"},
    )


async def caipe(*arguments: str, **env: str) -> CommandResult:
    return await invoke_caipe("skills", *arguments, env=env)


async def names(*arguments: str, **env: str) -> list[str]:
    return [skill["name"] for skill in json.loads((await caipe("list", "--json", *arguments, **env)).out)]


@contextlib.asynccontextmanager
async def server(home: Path, **env: str) -> AsyncIterator[str]:
    app = create_app(
        Settings.from_variables({**FAST, **env}),
        model=ScriptedChatModel(script=Script(Turn(Say("Here.")))),
        skills=build_catalog(home),
    )
    async with serve_app(app) as url:
        yield url


# --- without a server -----------------------------------------------------------------------------


async def test_from_adding_to_removing(triage: Path) -> None:
    assert await names() == SHIPPED
    added = await caipe("add", str(triage))
    assert (added.code, added.out) == (OK, "")
    version = added.err.split()[1]
    assert added.err == f"triage {version} is stored, enabled.\n"
    listed = await caipe("list", "triage", "--source", "stored")
    assert [line.split() for line in listed.out.splitlines()] == [
        ["name", "version", "source", "state", "description"],
        ["triage", version, "stored", "enabled", "The", "skill", "triage."],
    ]
    result = await caipe("show", "triage")
    assert result == CommandResult(
        OK,
        skill_md("triage"),
        f"triage  {version}  stored, enabled\n  assets/x.png  5 bytes\n  references/guide.md  6 bytes\n",
    )
    assert (await caipe("show", "triage", "--file", "references/guide.md")).out == "Guide.\n"
    missing = await caipe("show", "triage", "--file", "none.md")
    assert (missing.code, missing.err) == (
        FAILED,
        "The skill triage has no file none.md with text. It has: SKILL.md, references/guide.md.\n",
    )

    assert (await caipe("disable", "triage")).err == "triage (stored): disabled.\n"
    assert (await caipe("list", "--source", "stored")).out.splitlines()[1].split()[3] == "disabled"
    assert (await caipe("enable", "triage")).err == "triage (stored): enabled.\n"
    again = await caipe("add", str(triage))
    assert (again.code, again.err.startswith("A skill triage is stored already.")) == (FAILED, True)
    write_skill(triage, skill_files("triage", "Second."))
    replaced = await caipe(
        "add", "--replace", str(triage / "SKILL.md")
    )  # the file means its skill, with all its files
    assert (replaced.code, replaced.err.split()[2:]) == (OK, ["is", "replaced,", "enabled."])
    assert (await caipe("show", "triage", "--file", "references/guide.md")).out == "Guide.\n"
    assert (await caipe("show", "triage")).out == skill_md("triage", "Second.")
    assert await caipe("remove", "triage") == CommandResult(OK, "", "triage is removed.\n")
    assert await caipe("remove", "triage") == CommandResult(FAILED, "", "There is no skill triage.\n")
    assert await caipe("list", "triage", "--source", "stored") == CommandResult(
        OK, "", "There is no such skill.\n"
    )


async def test_a_folder_of_skills_is_added_as_a_whole(tmp_path: Path) -> None:
    for name in ("one", "two"):
        write_skill(tmp_path / "many" / name, skill_files(name))
    added = await caipe("add", str(tmp_path / "many"))
    assert (added.code, [line.split()[0] for line in added.err.splitlines()]) == (OK, ["one", "two"])
    write_skill(tmp_path / "many" / "broken", {"SKILL.md": b"x"})
    write_skill(tmp_path / "many" / "three", skill_files("three"))
    broken = await caipe("add", str(tmp_path / "many"))
    assert (broken.code, broken.err.startswith("  SKILL.md:1: The file must begin with front matter")) == (
        FAILED,
        True,
    )
    assert await names("--source", "stored") == ["one", "two"]  # all, or none
    (tmp_path / "flat--SKILL.md").write_text(skill_md("flat"))
    assert (await caipe("add", str(tmp_path / "flat--SKILL.md"))).code == OK
    (tmp_path / "empty").mkdir()
    assert "There is no SKILL.md in" in (await caipe("add", str(tmp_path / "empty"))).err
    nowhere = await caipe("add", "nowhere")
    assert nowhere == CommandResult(
        FAILED, "", "nowhere is neither a file, a folder, nor the URL of a git repository.\n"
    )
    assert (await caipe("add", str(tmp_path / "many"), "--ref", "main")).code == USAGE


async def test_what_is_blocked_is_stored_and_said(tmp_path: Path) -> None:
    bad = write_skill(tmp_path / "bad", skill_files("bad", BLOCKED))
    added = await caipe("add", str(bad))
    assert added.code == FAILED
    finding, stored = added.err.splitlines()
    assert finding.startswith("  block: SKILL.md:6: It tells to turn from the instructions")
    assert stored.endswith("is stored, blocked.")
    refused = await caipe("enable", "bad")
    assert (refused.code, "cannot be enabled before this is changed" in refused.err) == (FAILED, True)
    assert "block: SKILL.md:6" in (await caipe("show", "bad")).err


async def test_validating_needs_nothing(tmp_path: Path, triage: Path) -> None:
    fine = await caipe("validate", str(triage), CAIPE_URL="http://127.0.0.1:1/")
    assert (fine.code, fine.err.split()[0], fine.err.split()[-1]) == (OK, "triage", "valid")
    write_skill(tmp_path / "wrong", {"SKILL.md": skill_md("other").encode()})
    wrong = await caipe("validate", str(tmp_path / "wrong"))
    assert wrong == CommandResult(
        FAILED,
        "",
        "  SKILL.md:2: name: The name must be that of the skill's folder, wrong. Rename one of them.\n",
    )
    blocked = await caipe("validate", str(write_skill(tmp_path / "bad", skill_files("bad", BLOCKED))))
    assert (blocked.code, blocked.err.splitlines()[0].split()[-1]) == (FAILED, "blocked")
    route = await caipe("validate", str(write_skill(tmp_path / "hubs", skill_files("hubs"))))
    assert (route.code, "one of the server's own" in route.err) == (FAILED, True)
    link = write_skill(tmp_path / "link", skill_files("link"))
    (link / "references").mkdir()
    (link / "references" / "out.md").symlink_to(triage / "SKILL.md")
    assert "a link to a place outside" in (await caipe("validate", str(link))).err
    assert (await caipe("validate", str(tmp_path / "nowhere"))).code == USAGE
    assert not (tmp_path / "caipe-home" / "skills.db").exists()


async def test_sources_that_cannot_be_read_are_said(tmp_path: Path) -> None:
    env = {"SKILLS_DIR": str(tmp_path / "none")}
    listed = await caipe("list", **env)
    assert (listed.code, listed.err.startswith("folder: The folder")) == (OK, True)
    refreshed = await caipe("refresh", **env)
    assert refreshed.code == FAILED
    assert refreshed.err.splitlines()[0] == "5 skills can be used. 1 sources could not be read."
    assert (await caipe("refresh")).err == "5 skills can be used.\n"
    assert (
        await caipe("disable", "cost-check", READ_ONLY="true")
    ).err == "Nothing may be changed here: READ_ONLY is set.\n"


async def test_a_git_repository_from_adding_to_removing(tmp_path: Path) -> None:
    files = {
        "skills/hubbed/SKILL.md": skill_md("hubbed"),
        "skills/bad/SKILL.md": skill_md("bad", BLOCKED),
        "other/SKILL.md": skill_md("x"),
    }
    origin = repository(tmp_path / "origin", files)
    env = {"SKILL_HUBS_ALLOW_PRIVATE_ADDRESSES": "true"}
    async with git_server(origin) as git:
        url = f"http://127.0.0.1:{git.port}/team/skills"
        refused = await caipe("add", url)
        assert (refused.code, "private, local or reserved" in refused.err) == (FAILED, True)
        added = await caipe("add", url, "--path", "skills", "--ref", "main", **env)
        assert added.code == OK
        lines = added.err.splitlines()
        assert lines[0].startswith("team-skills: 2 skills of commit ")
        assert [lines[1], lines[3]] == ["  bad: blocked", "  hubbed: enabled"]
        commit(origin, {"skills/new/SKILL.md": skill_md("new")})
        assert (await caipe("refresh", "--hubs", **env)).err == "7 skills can be used.\n"
    assert await names("--source", "hub") == ["bad", "hubbed", "new"]
    assert (await caipe("list", "hubbed")).out.splitlines()[1].split()[2:4] == ["hub", "team-skills"]
    assert await caipe("remove", "--hub", "team-skills") == CommandResult(
        OK, "", "team-skills is removed, with its skills.\n"
    )
    assert await names("--source", "hub") == []


# --- with a server --------------------------------------------------------------------------------


async def test_commands_go_to_the_named_server_with_its_key(tmp_path: Path, triage: Path) -> None:
    async with server(tmp_path / "elsewhere", A2A_AUTH_SHARED_KEY=KEY) as url:
        env = {"CAIPE_URL": url, "A2A_AUTH_SHARED_KEY": KEY}
        assert (await caipe("add", str(triage), **env)).code == OK
        assert await names(**env) == ["triage"]
        assert (await caipe("show", "triage", "--url", url, "--token", KEY)).out == skill_md("triage")
        assert (await caipe("disable", "triage", **env)).code == OK
        stranger = await caipe("list", "--url", url, "--token", "wrong")
        assert (stranger.code, "bearer token" in stranger.err, KEY in stranger.err) == (FAILED, True, False)
        assert (await caipe("refresh", **env)).err == "0 skills can be used.\n"
    unreachable = await caipe("list", **env)
    assert (unreachable.code, "cannot be reached" in unreachable.err) == (UNREACHABLE, True)
    assert await names() == SHIPPED  # nothing was done here


async def test_a_skill_of_a_stranger_does_not_steer_the_terminal(tmp_path: Path) -> None:
    evil = skill_md("evil", description='"Looks.\\e]0;owned\\a\\e[2J\\u202e"', body="\x1b]0;owned\x07 Text.")
    write_skill(tmp_path / "evil", {"SKILL.md": evil.encode()})
    done = [await caipe("validate", str(tmp_path / "evil")), await caipe("add", str(tmp_path / "evil"))]
    done += [await caipe("list"), await caipe("show", "evil")]
    assert not any(sign in result.out + result.err for result in done for sign in ("\x1b", "\x07", "\u202e"))


# --- /name in the chat ----------------------------------------------------------------------------


async def test_a_name_with_a_slash_reaches_the_server_and_commands_of_the_chat_do_not(tmp_path: Path) -> None:
    script = Script(Turn(Say("Followed.")))
    catalog = build_catalog(tmp_path / "home")
    write_skill(tmp_path / "home" / "folder" / "triage", skill_files("triage"))
    typed = (
        "/help\n/context\n/triage payments are slow\n/unknown thing\n/etc/hosts is odd\n/exit\nnever sent\n"
    )
    async with supervisor(script, skills=catalog) as client:
        done = await run_command("caipe", "chat", "--url", client.url, stdin=typed)
        tasks = (await client.call("ListTasks", {"historyLength": 5}))["result"]["tasks"]
    assert done.code == OK
    assert "/quit leaves" in done.out
    assert "Skill triage" in done.out
    questions = sorted(
        "".join(part.get("text", "") for part in task["history"][0]["parts"]) for task in tasks
    )
    assert questions == ["/etc/hosts is odd", "/triage payments are slow", "/unknown thing"]
