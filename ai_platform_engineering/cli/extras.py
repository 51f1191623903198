"""`caipe extras`: packages of model providers and databases that an installation may lack: list, install."""

import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import click

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.optional_packages import (
    explain_extra,
    find_installer,
    is_image,
    is_writable,
)

LOCKS_FOLDER = Path(__file__).parent / "extra_locks"
# No code of a package runs while it is installed, and nothing but what the lock names is.
_OPTIONS = ("--only-binary", ":all:", "--no-deps", "--require-hashes")


@dataclass(frozen=True, slots=True)
class Extra:
    """An extra of the package: what it is for, and a module that it brings."""

    purpose: str
    module: str


EXTRAS: Mapping[str, Extra] = {
    "bedrock": Extra("models: bedrock:", "langchain_aws"),
    "google": Extra("models: google:, vertexai:", "langchain_google_genai"),
    "azure": Extra("models: azure_ai:", "langchain_azure_ai"),
    "groq": Extra("models: groq:", "langchain_groq"),
    "ollama": Extra("models: ollama:", "langchain_ollama"),
    "litellm": Extra("models: litellm:", "langchain_litellm"),
    "postgres": Extra("database: PostgreSQL", "langgraph.checkpoint.postgres"),
    "redis": Extra("database: Redis", "langgraph.checkpoint.redis"),
    "valkey": Extra("database: Valkey, Redis without modules", "langgraph_checkpoint_aws"),
    "mongodb": Extra("database: MongoDB", "langgraph.checkpoint.mongodb"),
}


@click.group(invoke_without_command=True)
@click.pass_context
def extras(context: click.Context) -> None:
    """More model providers and databases: list, install NAME."""
    if context.invoked_subcommand is None:
        context.invoke(list_)


@extras.command("list")
def list_() -> None:
    """List the extras, and which are installed."""
    from ai_platform_engineering.terminal.screen import print_table

    rows: list[tuple[str, str, str]] = []
    for name, extra in EXTRAS.items():
        rows.append((name, "installed" if _is_installed(extra) else "", extra.purpose))
    print_table(("extra", "status", "for"), rows)


@extras.command()
@click.argument("names", nargs=-1, required=True, type=click.Choice(list(EXTRAS)), metavar="NAME...")
def install(names: tuple[str, ...]) -> None:
    """Install an extra into this environment, checked by hash."""
    for name in names:
        install_extra(name)


def install_extra(name: str) -> None:
    """Installs from the lock with pip or uv, and tries the import. Raises CaipeError."""
    if not is_writable():
        remedy = "Run this as who installed it, or install it again for yourself."
        if is_image():
            remedy = f"{explain_extra(name)}."
        raise CaipeError(f"Cannot install into {sys.prefix}: it is not writable. {remedy}")
    installer = find_installer()
    if installer is None:
        raise CaipeError(f"There is neither pip nor uv for {sys.executable}. Install one and try again.")
    command = [*installer, *_OPTIONS, "-r", str(LOCKS_FOLDER / f"{name}.txt")]
    click.echo(f"$ {' '.join(command)}", err=True)
    code = subprocess.run(command, check=False).returncode
    if code != 0:
        raise CaipeError(f"The command ended with code {code}; the extra {name} is not installed.")
    # In a process of its own: this one has looked for modules before they were there.
    check = [sys.executable, "-c", f"import {EXTRAS[name].module}"]
    if subprocess.run(check, check=False, capture_output=True).returncode != 0:
        raise CaipeError(f"The packages of {name} were installed, and cannot be imported here.")
    click.echo(f"{name} is installed. Restart a running server to use it.", err=True)


def _is_installed(extra: Extra) -> bool:
    try:
        return importlib.util.find_spec(extra.module) is not None
    except ModuleNotFoundError:
        return False
