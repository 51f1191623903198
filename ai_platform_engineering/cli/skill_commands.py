"""What the commands of the skills do: over REST, to a server or to the catalogue of this machine."""

import asyncio
import base64
import contextlib
import json
import logging
import re
import sys
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode

import click
import httpx
from rich.console import Console
from rich.table import Table

from ai_platform_engineering.a2a.client import bearer_headers, create_http_client
from ai_platform_engineering.cli.rest_requests import RestApi, rest_api_at
from ai_platform_engineering.cli.server_address import DEFAULT_URL, is_serving
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.settings import Settings, read_environment
from ai_platform_engineering.skills_middleware.api.skills_mount import LazySkillsApp
from ai_platform_engineering.skills_middleware.catalog_factory import build_skill_catalog
from ai_platform_engineering.skills_middleware.file_rules import SKILL_MD
from ai_platform_engineering.skills_middleware.skill_resolution import SkillCheck, check_new_skill
from ai_platform_engineering.skills_middleware.sources.folder_source import read_skill_folder
from ai_platform_engineering.skills_middleware.sources.skill_source import RawSkill
from ai_platform_engineering.terminal.screen import sanitize_line, sanitize_text

INTERRUPTED = 130
_HERE = "http://here"
_FLAT = f"--{SKILL_MD}"
_REMOTE = re.compile(r"[\w+]+://|[\w.-]+@[\w.-]+:")

Shown = Mapping[str, Any]


@contextlib.asynccontextmanager
async def open_skills_api(url: str | None, token: str | None) -> AsyncIterator[RestApi]:
    """The named server, the one on this machine, or the catalogue itself: a server that is started later finds what was changed."""
    address = url or (DEFAULT_URL if await is_serving(DEFAULT_URL) else None)
    if address is not None:
        async with create_http_client(address) as http:
            http.headers.update(bearer_headers(token))
            http.timeout = httpx.Timeout(300.0, connect=10.0)  # a repository takes a while to fetch
            yield rest_api_at(http, address)
        return
    logging.basicConfig(level=logging.ERROR)
    variables = read_environment()
    settings = Settings.from_variables(variables)
    catalog = build_skill_catalog(settings, variables)
    await catalog.open()
    try:
        served = LazySkillsApp(catalog, lambda: settings.people.read_only)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(served), timeout=None) as http:
            yield rest_api_at(http, _HERE)
    finally:
        await catalog.close()


def _run(work: Callable[[], Coroutine[Any, Any, int]]) -> int:
    try:
        return asyncio.run(work())
    except KeyboardInterrupt:
        return INTERRUPTED


def list_skills(url: str | None, token: str | None, words: str, source: str | None, *, as_json: bool) -> int:
    async def run() -> int:
        async with open_skills_api(url, token) as api:
            found = await api("GET", _address("/skills", q=words, source=source))
        if as_json:
            click.echo(json.dumps(found["skills"], indent=2, ensure_ascii=False))
        elif found["skills"]:
            _show_table(found["skills"])
        else:
            click.echo("There is no such skill." if words or source else "There are no skills.", err=True)
        _show_sources(found["meta"]["source_problems"])
        return 0

    return _run(run)


def show_skill(url: str | None, token: str | None, name: str, source: str | None, path: str | None) -> int:
    async def run() -> int:
        async with open_skills_api(url, token) as api:
            skill = await api(
                "GET", _address(f"/skills/{quote(name, safe='')}", source=source, include_content="true")
            )
        if path is not None and path != SKILL_MD and path not in skill["ancillary_files"]:
            there = ", ".join([SKILL_MD, *skill["ancillary_files"]])
            raise CaipeError(
                f"The skill {sanitize_line(name)} has no file {sanitize_line(path)} with text. It has: {sanitize_line(there)}."
            )
        click.echo(
            f"{sanitize_line(skill['name'])}  {skill['version'] or ''}  {_origin(skill)}, {_state(skill)}",
            err=True,
        )
        for file in skill["files"]:
            click.echo(f"  {sanitize_line(file['path'])}  {file['size']} bytes", err=True)
        _show_wrong(skill)
        click.echo(
            sanitize_text(
                skill["content"] if path in (None, SKILL_MD) else skill["ancillary_files"][path]
            ).rstrip("\n")
        )
        return 0

    return _run(run)


def add_skills(
    url: str | None, token: str | None, location: str, *, replace: bool, ref: str, below: str
) -> int:
    there = Path(location).expanduser()
    if _REMOTE.match(location) and not there.exists():
        return _run(lambda: _add_hub(url, token, {"url": location, "ref": ref, "path": below}))
    if ref or below:
        raise click.UsageError("--ref and --path are for git repositories.")
    if not there.exists():
        raise CaipeError(
            f"{sanitize_line(location)} is neither a file or folder here nor the address of a git repository."
        )
    checked = [(held, _checked(held)) for held in read_skills_at(there)]
    if not _told([found for _, found in checked]):
        return 1
    return _run(lambda: _add(url, token, checked, replace=replace))


async def _add(
    url: str | None, token: str | None, checked: Sequence[tuple[RawSkill, SkillCheck]], *, replace: bool
) -> int:
    blocked = False
    async with open_skills_api(url, token) as api:
        stored = (
            {one["name"] for one in (await api("GET", "/skills?source=stored"))["skills"]}
            if replace
            else set()
        )
        for held, found in checked:
            assert found.skill is not None
            name = found.skill.name
            known = name in stored
            skill = await api(
                "PUT" if known else "POST", f"/skills/{name}" if known else "/skills", _sent(held)
            )
            click.echo(
                f"{name} {skill['version']} is {'replaced' if known else 'stored'}, {_state(skill)}.",
                err=True,
            )
            blocked = blocked or found.is_blocked
    if blocked:
        return 1
    return 0


async def _add_hub(url: str | None, token: str | None, asked: Shown) -> int:
    async with open_skills_api(url, token) as api:
        hub = await api("POST", "/skills/hubs", asked)
        skills = (await api("GET", "/skills?source=hub"))["skills"]
    click.echo(f"{hub['id']}: {hub['skills']} skills of commit {hub['commit'][:12]}.", err=True)
    for skill in skills:
        if skill["source_id"] == hub["id"]:
            click.echo(f"  {sanitize_line(skill['name'])}: {_state(skill)}", err=True)
            _show_wrong(skill)
    return 0


def validate_skills(path: Path) -> int:
    if _told([_checked(held) for held in read_skills_at(path)], say=True):
        return 0
    return 1


def remove_skill(url: str | None, token: str | None, name: str, *, hub: bool) -> int:
    async def run() -> int:
        async with open_skills_api(url, token) as api:
            await api("DELETE", f"/skills/{'hubs/' if hub else ''}{quote(name, safe='')}")
        click.echo(f"{sanitize_line(name)} is removed{', with its skills' if hub else ''}.", err=True)
        return 0

    return _run(run)


def refresh_skills(url: str | None, token: str | None, *, hubs: bool) -> int:
    async def run() -> int:
        async with open_skills_api(url, token) as api:
            done = await api("POST", _address("/skills/refresh", include_hubs="true" if hubs else None))
        click.echo(sanitize_line(done["message"]), err=True)
        _show_sources(done["source_problems"])
        if done["status"] == "ok":
            return 0
        return 1

    return _run(run)


def switch_skill(url: str | None, token: str | None, name: str, source: str | None, *, on: bool) -> int:
    async def run() -> int:
        async with open_skills_api(url, token) as api:
            way = "enable" if on else "disable"
            skill = await api("POST", _address(f"/skills/{quote(name, safe='')}/{way}", source=source))
        click.echo(f"{sanitize_line(skill['name'])} ({_origin(skill)}): {_state(skill)}.", err=True)
        return 0

    return _run(run)


# --- skills on this machine


def read_skills_at(path: Path) -> list[RawSkill]:
    """The skill at a path, or those in a folder of skills. Raises CaipeError."""
    path = path.expanduser().absolute()
    if path.name == SKILL_MD:
        path = path.parent
    if path.is_file():
        folder = path.name.removesuffix(_FLAT) if path.name.endswith(_FLAT) else ""
        return [RawSkill(path.name, folder, "", {SKILL_MD: path.read_bytes()})]
    if (path / SKILL_MD).exists():
        return [read_skill_folder(path)]
    found = sorted(one.parent for one in path.glob(f"*/{SKILL_MD}"))
    if not found:
        raise CaipeError(
            f"There is no {SKILL_MD} in {sanitize_line(str(path))}, and none in the folders in it."
        )
    return [read_skill_folder(one) for one in found]


def _checked(held: RawSkill) -> SkillCheck:
    if held.problems:
        return SkillCheck(None, held.problems)
    return check_new_skill(held.files, held.folder or None)


def _told(checked: Sequence[SkillCheck], *, say: bool = False) -> bool:
    """Says what is wrong; whether all could be stored, or with `say` also be used."""
    for found in checked:
        if found.skill is not None and say:
            click.echo(
                f"{found.skill.name} {found.skill.version}: {'blocked' if found.is_blocked else 'valid'}",
                err=True,
            )
        for problem in found.problems:
            click.echo(f"  {sanitize_line(str(problem))}", err=True)
        _show_findings([finding.model_dump() for finding in found.findings])
    return all(found.skill is not None and not (say and found.is_blocked) for found in checked)


def _sent(held: RawSkill) -> dict[str, Any]:
    files: dict[str, Any] = {}
    for path, content in held.files.items():
        try:
            files[path] = content.decode()
        except UnicodeDecodeError:
            files[path] = {"base64": base64.b64encode(content).decode()}
    return {"content": files.pop(SKILL_MD), "files": files}


# --- what is shown


def _show_table(found: Sequence[Shown]) -> None:
    table = Table(box=None, pad_edge=False)
    for column in ("name", "version", "source", "state", "description"):
        table.add_column(column, no_wrap=column != "description", overflow="fold")
    for skill in found:
        about = skill["description"] or (skill["problems"][0]["message"] if skill["problems"] else "")
        table.add_row(
            *map(
                sanitize_line,
                (skill["name"], skill["version"] or "", _origin(skill), _state(skill), _short(about)),
            )
        )
    # A line is a line where no person reads it.
    Console(width=None if sys.stdout.isatty() else 1000, markup=False, highlight=False).print(table)


def _short(text: str) -> str:
    first = " ".join(text.split())
    if len(first) <= 100:
        return first
    return f"{first[:97]}..."


def _origin(skill: Shown) -> str:
    return sanitize_line(" ".join(filter(None, (skill["origin"], skill["source_id"]))))


def _state(skill: Shown) -> str:
    if skill["problems"]:
        return "invalid"
    if any(finding["severity"] == "block" for finding in skill["findings"]):
        return "blocked"
    if not skill["enabled"]:
        return "disabled"
    if skill["shadowed_by"]:
        return f"shadowed by {skill['shadowed_by']}"
    return "enabled"


def _show_wrong(skill: Shown) -> None:
    for problem in skill["problems"]:
        where = ":".join(str(part) for part in (problem["file"], problem["line"], problem["field"]) if part)
        click.echo(f"  {sanitize_line(where)}: {sanitize_line(problem['message'])}", err=True)
    _show_findings(skill["findings"])


def _show_findings(findings: Sequence[Shown]) -> None:
    for one in findings:
        where = one["file"] if one["line"] is None else f"{one['file']}:{one['line']}"
        click.echo(f"  {one['severity']}: {sanitize_line(where)}: {sanitize_line(one['message'])}", err=True)


def _show_sources(problems: Sequence[Shown]) -> None:
    for one in problems:
        click.echo(f"{sanitize_line(one['source'])}: {sanitize_line(one['reason'])}", err=True)


def _address(path: str, **given: str | None) -> str:
    asked = urlencode({name: value for name, value in given.items() if value})
    if asked:
        return f"{path}?{asked}"
    return path
