"""`caipe trust`: says that the `.env` of a folder may be read."""

from pathlib import Path

import click

from ai_platform_engineering.core.env_files import TrustedFiles, default_trust_target, printable
from ai_platform_engineering.core.environment import find_own_home


@click.command()
@click.argument("file", required=False, type=click.Path(path_type=Path))
@click.option("--forget", is_flag=True, help="Stop trusting the file.")
def trust(file: Path | None, forget: bool) -> None:
    """Trust the .env of this folder, or FILE.

    Files that it names in its folder are trusted with it. When one of them changes, it must be trusted
    again. Look at them first: they can name programs to run and servers that get your keys.
    """
    target = file or default_trust_target()
    trusted_files = TrustedFiles(find_own_home())
    if forget:
        if trusted_files.forget(target):
            click.echo(f"{printable(target)} is no longer read.")
        else:
            click.echo(f"{printable(target)} was not trusted.")
        return
    names = ", ".join(map(printable, trusted_files.trust(target)))
    click.echo(f"{printable(target)} is trusted until it changes. It sets: {names or 'nothing'}.")
