"""The commands of the skills: `skills list`, `show`, `add`, `validate`, `remove`, `refresh`, `enable`, `disable`."""

import sys
from pathlib import Path

import click

from ai_platform_engineering.cli.options import readable_errors, server_options

_SOURCES = ["shipped", "folder", "stored", "hub"]
_SOURCE = click.option(
    "--source", type=click.Choice(_SOURCES), help="Where it comes from, when several have the name."
)


@click.group()
def skills() -> None:
    """Skills: procedures that the supervisor follows, by itself or when a question begins with /NAME."""


@skills.command("list")
@click.argument("words", nargs=-1)
@server_options
@click.option("--source", type=click.Choice(_SOURCES), help="Only those from there.")
@click.option("--json", "as_json", is_flag=True, help="As JSON on stdout.")
def list_(
    words: tuple[str, ...], url: str | None, token: str | None, source: str | None, as_json: bool
) -> None:
    """Which skills there are; with words only those that have them in name or description."""
    from ai_platform_engineering.cli.skill_commands import list_skills

    with readable_errors():
        sys.exit(list_skills(url, token, " ".join(words), source, as_json=as_json))


@skills.command()
@click.argument("name")
@server_options
@_SOURCE
@click.option("--file", "path", help="One of its files in place of SKILL.md.")
def show(name: str, url: str | None, token: str | None, source: str | None, path: str | None) -> None:
    """A skill: its SKILL.md on stdout, what is to be known about it on stderr."""
    from ai_platform_engineering.cli.skill_commands import show_skill

    with readable_errors():
        sys.exit(show_skill(url, token, name, source, path))


@skills.command()
@click.argument("location", metavar="PATH|GIT-REPO")
@server_options
@click.option("--replace", is_flag=True, help="Replace a skill of the same name that is stored already.")
@click.option("--ref", default="", help="Of a git repository: a branch, a tag or a commit.")
@click.option("--path", "below", default="", help="Of a git repository: the folder with the skills.")
def add(location: str, url: str | None, token: str | None, replace: bool, ref: str, below: str) -> None:
    """Store a skill, or every skill of a folder; or use those of a git repository."""
    from ai_platform_engineering.cli.skill_commands import add_skills

    with readable_errors():
        sys.exit(add_skills(url, token, location, replace=replace, ref=ref, below=below))


@skills.command()
@click.argument("path", type=click.Path(exists=True, path_type=Path))
def validate(path: Path) -> None:
    """Check a skill, or every skill of a folder, as the server would. Needs no server."""
    from ai_platform_engineering.cli.skill_commands import validate_skills

    with readable_errors():
        sys.exit(validate_skills(path))


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
    from ai_platform_engineering.cli.skill_commands import remove_skill

    with readable_errors():
        sys.exit(remove_skill(url, token, name, hub=hub))


@skills.command()
@server_options
@click.option("--hubs", is_flag=True, help="Fetch the newest commits of the git repositories, too.")
def refresh(url: str | None, token: str | None, hubs: bool) -> None:
    """Look at every source again."""
    from ai_platform_engineering.cli.skill_commands import refresh_skills

    with readable_errors():
        sys.exit(refresh_skills(url, token, hubs=hubs))


@skills.command()
@click.argument("name")
@server_options
@_SOURCE
def enable(name: str, url: str | None, token: str | None, source: str | None) -> None:
    """Switch a skill on."""
    from ai_platform_engineering.cli.skill_commands import switch_skill

    with readable_errors():
        sys.exit(switch_skill(url, token, name, source, on=True))


@skills.command()
@click.argument("name")
@server_options
@_SOURCE
def disable(name: str, url: str | None, token: str | None, source: str | None) -> None:
    """Switch a skill off; the next one of its name is used, if there is one."""
    from ai_platform_engineering.cli.skill_commands import switch_skill

    with readable_errors():
        sys.exit(switch_skill(url, token, name, source, on=False))
