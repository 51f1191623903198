"""Prints skills in a terminal: the list, one skill, git repositories, problems and findings."""

from collections.abc import Mapping, Sequence
from typing import Any

import click

from ai_platform_engineering.core.display_text import reveal_json
from ai_platform_engineering.terminal.screen import print_table, sanitize_line, sanitize_text

_COLUMNS = ("name", "version", "source", "state", "description")
_FOLDED_COLUMNS = ("description",)
_MAX_DESCRIPTION_CHARS = 100

JsonObject = Mapping[str, Any]


def print_skills(skills: Sequence[JsonObject], *, as_json: bool, filtered: bool) -> None:
    if as_json:
        click.echo(reveal_json(skills, indent=2))
    elif skills:
        print_table(_COLUMNS, [_skill_row(skill) for skill in skills], folded=_FOLDED_COLUMNS)
    elif filtered:
        click.echo("There is no such skill.", err=True)
    else:
        click.echo("There are no skills.", err=True)


def _skill_row(skill: JsonObject) -> Sequence[str]:
    description = skill["description"]
    if not description and skill["problems"]:
        description = skill["problems"][0]["message"]
    return (
        skill["name"],
        skill["version"] or "",
        skill_origin(skill),
        skill_state(skill),
        _shorten(description or ""),
    )


def print_skill(skill: JsonObject, text: str) -> None:
    """Prints a file's text on stdout; version, origin, state, files and problems of the skill on stderr."""
    state = f"{skill_origin(skill)}, {skill_state(skill)}"
    click.echo(f"{sanitize_line(skill['name'])}  {skill['version'] or ''}  {state}", err=True)
    for file in skill["files"]:
        click.echo(f"  {sanitize_line(file['path'])}  {file['size']} bytes", err=True)
    _print_problems(skill)
    click.echo(sanitize_text(text).rstrip("\n"))


def print_hub(hub: JsonObject, hub_skills: Sequence[JsonObject]) -> None:
    """Prints a git repository and its skills, which are among those of all repositories."""
    click.echo(
        f"{sanitize_line(hub['id'])}: {hub['skills']} skills of commit {hub['commit'][:12]}.", err=True
    )
    for skill in hub_skills:
        if skill["source_id"] == hub["id"]:
            click.echo(f"  {sanitize_line(skill['name'])}: {skill_state(skill)}", err=True)
            _print_problems(skill)


def print_switched_skill(skill: JsonObject) -> None:
    click.echo(f"{sanitize_line(skill['name'])} ({skill_origin(skill)}): {skill_state(skill)}.", err=True)


def print_validity(name: str, version: str, *, blocked: bool) -> None:
    click.echo(f"{name} {version}: {'blocked' if blocked else 'valid'}", err=True)


def print_problem(problem: str) -> None:
    click.echo(f"  {sanitize_line(problem)}", err=True)


def print_findings(findings: Sequence[JsonObject]) -> None:
    for finding in findings:
        location = finding["file"]
        if finding["line"] is not None:
            location = f"{location}:{finding['line']}"
        message = sanitize_line(finding["message"])
        click.echo(f"  {finding['severity']}: {sanitize_line(location)}: {message}", err=True)


def print_source_problems(problems: Sequence[JsonObject]) -> None:
    for problem in problems:
        click.echo(f"{sanitize_line(problem['source'])}: {sanitize_line(problem['reason'])}", err=True)


def skill_origin(skill: JsonObject) -> str:
    """Where a skill comes from: the kind of its source, and which one."""
    return sanitize_line(" ".join(filter(None, (skill["origin"], skill["source_id"]))))


def skill_state(skill: JsonObject) -> str:
    """Whether a skill is used, in a word."""
    if skill["problems"]:
        return "invalid"
    if any(finding["severity"] == "block" for finding in skill["findings"]):
        return "blocked"
    if not skill["enabled"]:
        return "disabled"
    if skill["shadowed_by"]:
        return f"shadowed by {skill['shadowed_by']}"
    return "enabled"


def _print_problems(skill: JsonObject) -> None:
    for problem in skill["problems"]:
        location_parts = filter(None, (problem["file"], problem["line"], problem["field"]))
        location = sanitize_line(":".join(map(str, location_parts)))
        print_problem(f"{location}: {problem['message']}")
    print_findings(skill["findings"])


def _shorten(text: str) -> str:
    line = " ".join(text.split())
    if len(line) <= _MAX_DESCRIPTION_CHARS:
        return line
    return f"{line[: _MAX_DESCRIPTION_CHARS - 3]}..."
