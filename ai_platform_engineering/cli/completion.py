"""`caipe completion`: completion of commands and options with Tab, in bash, zsh and fish."""

import contextlib
from pathlib import Path

import click
from click.shell_completion import get_completion_class

from ai_platform_engineering.core.environment import read_environment
from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.private_files import create_private_folder

SHELLS = ("bash", "zsh", "fish")
_COMMAND = "caipe"
_VARIABLE = "_CAIPE_COMPLETE"
_START_FILES = {"bash": ".bashrc", "zsh": ".zshrc"}
_SHELL_OPTION = click.option("--shell", type=click.Choice(SHELLS), help="Default: the shell you use.")


@click.group()
def completion() -> None:
    """Shell completion with Tab: install, show."""


@completion.command()
@_SHELL_OPTION
def install(shell: str | None) -> None:
    """Set up completion for your shell."""
    name = shell or _find_shell()
    script = _make_script(name)
    path = _script_path(name)
    create_private_folder(path.parent)
    path.write_text(script, encoding="utf-8")
    click.echo(f"Wrote {path}.", err=True)
    if name in _START_FILES:
        _add_to_start_file(Path.home() / _START_FILES[name], path)
    click.echo("Open a new terminal to use it.", err=True)


@completion.command()
@_SHELL_OPTION
def show(shell: str | None) -> None:
    """Print the completion script."""
    click.echo(_make_script(shell or _find_shell()))


def _find_shell() -> str:
    name = Path(read_environment().get("SHELL", "")).name
    if name not in SHELLS:
        raise CaipeError(
            f"Your shell is not supported or not set in SHELL. Choose one: --shell {'|'.join(SHELLS)}"
        )
    return name


def _script_path(shell: str) -> Path:
    """Where the script is kept; fish reads its folder by itself."""
    if shell == "fish":
        return Path.home() / ".config" / "fish" / "completions" / f"{_COMMAND}.fish"
    return Path.home() / ".local" / "share" / _COMMAND / f"completion.{shell}"


def _make_script(shell: str) -> str:
    root = click.get_current_context().find_root().command
    completion_class = get_completion_class(shell)
    assert completion_class is not None
    return completion_class(root, {}, _COMMAND, _VARIABLE).source()


def _add_to_start_file(start_file: Path, script: Path) -> None:
    """Adds a line that reads the script, once."""
    line = f'[ -f "{script}" ] && . "{script}"  # completion of {_COMMAND}\n'
    content = ""
    with contextlib.suppress(FileNotFoundError):
        content = start_file.read_text(encoding="utf-8")
    if line in content:
        return
    if content and not content.endswith("\n"):
        line = f"\n{line}"
    with start_file.open("a", encoding="utf-8") as file:
        file.write(line)
    click.echo(f"Added a line to {start_file}.", err=True)
