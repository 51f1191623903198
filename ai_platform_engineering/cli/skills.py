"""`caipe skills`: `list`, `show`, `add`, `validate`, `remove`, `refresh`, `enable`, `disable`."""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn
from urllib.parse import quote

import click

from ai_platform_engineering.cli.options import (
    exit_code,
    run_interruptible,
    server_options,
)
from ai_platform_engineering.core.errors import CaipeError

if TYPE_CHECKING:
    from ai_platform_engineering.cli.skill_files import CheckedSkill

_GIT_URL = re.compile(r"[\w+]+://|[\w.-]+@[\w.-]+:")
_SOURCES = ["shipped", "folder", "stored", "hub"]
_SOURCE_OPTION = click.option(
    "--source", type=click.Choice(_SOURCES), help="Its source, if several have this name."
)


@click.group()
def skills() -> None:
    """Skills: procedures that the supervisor follows.

    It chooses one itself, or follows /NAME at the start of a question.
    """


@skills.command("list")
@click.argument("words", nargs=-1)
@server_options
@click.option("--source", type=click.Choice(_SOURCES), help="Only from this source.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def list_(
    words: tuple[str, ...], url: str | None, token: str | None, source: str | None, as_json: bool
) -> None:
    """List the skills; with WORDS only matching ones."""
    from ai_platform_engineering.cli.skills_connection import open_skills_api, skills_path
    from ai_platform_engineering.terminal.skill_view import print_skills, print_source_problems

    path = skills_path("/skills", q=" ".join(words), source=source)

    async def run() -> int:
        async with open_skills_api(url, token) as api:
            response = await api("GET", path)
        print_skills(response["skills"], as_json=as_json, filtered=bool(words or source))
        print_source_problems(response["meta"]["source_problems"])
        return exit_code(failed=False)

    run_interruptible(run)


@skills.command()
@click.argument("name")
@server_options
@_SOURCE_OPTION
@click.option("--file", "file", help="Another of its files, instead of SKILL.md.")
def show(name: str, url: str | None, token: str | None, source: str | None, file: str | None) -> None:
    """Print a skill: SKILL.md on stdout, its status on stderr."""
    from ai_platform_engineering.cli.skills_connection import open_skills_api, skills_path
    from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD
    from ai_platform_engineering.terminal.screen import sanitize_line
    from ai_platform_engineering.terminal.skill_view import print_skill

    path = skills_path(f"/skills/{quote(name, safe='')}", source=source, include_content="true")

    async def run() -> int:
        async with open_skills_api(url, token) as api:
            skill = await api("GET", path)
        texts = {SKILL_MD: skill["content"], **skill["ancillary_files"]}
        shown_file = SKILL_MD if file is None else file
        if shown_file not in texts:
            names = sanitize_line(", ".join(texts))
            raise CaipeError(
                f"The skill {sanitize_line(name)} has no file {sanitize_line(shown_file)} with text."
                f" It has: {names}."
            )
        print_skill(skill, texts[shown_file])
        return exit_code(failed=False)

    run_interruptible(run)


@skills.command()
@click.argument("location", metavar="PATH|GIT-REPO")
@server_options
@click.option("--replace", is_flag=True, help="Replace a stored skill of the same name.")
@click.option("--ref", default="", help="For a git repository: a branch, tag or commit.")
@click.option("--path", "subfolder", default="", help="For a git repository: the folder with the skills.")
def add(location: str, url: str | None, token: str | None, replace: bool, ref: str, subfolder: str) -> None:
    """Add a skill, a folder of skills, or a git repository."""
    from ai_platform_engineering.cli.skill_files import print_checks, read_skills_at
    from ai_platform_engineering.terminal.screen import sanitize_line

    local_path = Path(location).expanduser()
    if _GIT_URL.match(location) and not local_path.exists():
        _add_hub(url, token, {"url": location, "ref": ref, "path": subfolder})
    if ref or subfolder:
        raise click.UsageError("--ref and --path are for git repositories.")
    if not local_path.exists():
        raise CaipeError(
            f"{sanitize_line(location)} is neither a file, a folder, nor the URL of a git repository."
        )
    checked_skills = read_skills_at(local_path)
    print_checks(checked_skills, verdicts=False)
    if any(skill.check.skill is None for skill in checked_skills):
        sys.exit(exit_code(failed=True))
    _store_skills(url, token, checked_skills, replace=replace)


def _store_skills(
    url: str | None, token: str | None, skills: "Sequence[CheckedSkill]", *, replace: bool
) -> NoReturn:
    from ai_platform_engineering.cli.skill_files import request_body
    from ai_platform_engineering.cli.skills_connection import open_skills_api
    from ai_platform_engineering.terminal.skill_view import skill_state

    async def run() -> int:
        stored_names = set[str]()
        blocked = False
        async with open_skills_api(url, token) as api:
            if replace:
                response = await api("GET", "/skills?source=stored")
                stored_names = {skill["name"] for skill in response["skills"]}
            for skill in skills:
                assert skill.check.skill is not None
                name = skill.check.skill.name
                if name in stored_names:
                    action = "replaced"
                    stored = await api("PUT", f"/skills/{name}", request_body(skill.raw))
                else:
                    action = "stored"
                    stored = await api("POST", "/skills", request_body(skill.raw))
                click.echo(f"{name} {stored['version']} is {action}, {skill_state(stored)}.", err=True)
                blocked = blocked or skill.check.is_blocked
        return exit_code(failed=blocked)

    run_interruptible(run)


def _add_hub(url: str | None, token: str | None, hub_definition: Mapping[str, Any]) -> NoReturn:
    from ai_platform_engineering.cli.skills_connection import open_skills_api
    from ai_platform_engineering.terminal.skill_view import print_hub

    async def run() -> int:
        async with open_skills_api(url, token) as api:
            hub = await api("POST", "/skills/hubs", hub_definition)
            response = await api("GET", "/skills?source=hub")
        print_hub(hub, response["skills"])
        return exit_code(failed=False)

    run_interruptible(run)


@skills.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def validate(path: Path) -> None:
    """Check a skill, or a folder of skills, without a server."""
    from ai_platform_engineering.cli.skill_files import print_checks, read_skills_at

    checked_skills = read_skills_at(path)
    print_checks(checked_skills, verdicts=True)
    failed = any(skill.check.skill is None or skill.check.is_blocked for skill in checked_skills)
    sys.exit(exit_code(failed=failed))


@skills.command()
@click.argument("name")
@server_options
@click.option(
    "--hub",
    is_flag=True,
    help="NAME is the id of a git repository, as `skills list` shows it; its skills go with it.",
)
def remove(name: str, url: str | None, token: str | None, hub: bool) -> None:
    """Remove a stored skill."""
    from ai_platform_engineering.cli.skills_connection import open_skills_api
    from ai_platform_engineering.terminal.screen import sanitize_line

    async def run() -> int:
        async with open_skills_api(url, token) as api:
            if hub:
                await api("DELETE", f"/skills/hubs/{quote(name, safe='')}")
                click.echo(f"{sanitize_line(name)} is removed, with its skills.", err=True)
            else:
                await api("DELETE", f"/skills/{quote(name, safe='')}")
                click.echo(f"{sanitize_line(name)} is removed.", err=True)
        return exit_code(failed=False)

    run_interruptible(run)


@skills.command()
@server_options
@click.option("--hubs", is_flag=True, help="Also fetch new commits of the git repositories.")
def refresh(url: str | None, token: str | None, hubs: bool) -> None:
    """Read all sources again."""
    from ai_platform_engineering.cli.skills_connection import open_skills_api, skills_path
    from ai_platform_engineering.terminal.screen import sanitize_line
    from ai_platform_engineering.terminal.skill_view import print_source_problems

    path = skills_path("/skills/refresh", include_hubs="true" if hubs else None)

    async def run() -> int:
        async with open_skills_api(url, token) as api:
            response = await api("POST", path)
        click.echo(sanitize_line(response["message"]), err=True)
        print_source_problems(response["source_problems"])
        return exit_code(failed=response["status"] != "ok")

    run_interruptible(run)


@skills.command()
@click.argument("name")
@server_options
@_SOURCE_OPTION
def enable(name: str, url: str | None, token: str | None, source: str | None) -> None:
    """Enable a skill."""
    _switch_skill(name, "enable", url, token, source)


@skills.command()
@click.argument("name")
@server_options
@_SOURCE_OPTION
def disable(name: str, url: str | None, token: str | None, source: str | None) -> None:
    """Disable a skill.

    Another one with its name, if there is one, takes its place.
    """
    _switch_skill(name, "disable", url, token, source)


def _switch_skill(name: str, action: str, url: str | None, token: str | None, source: str | None) -> NoReturn:
    from ai_platform_engineering.cli.skills_connection import open_skills_api, skills_path
    from ai_platform_engineering.terminal.skill_view import print_switched_skill

    path = skills_path(f"/skills/{quote(name, safe='')}/{action}", source=source)

    async def run() -> int:
        async with open_skills_api(url, token) as api:
            print_switched_skill(await api("POST", path))
        return exit_code(failed=False)

    run_interruptible(run)
