"""A small reader of docker-compose.yaml and of the Dockerfile: there is no Docker engine where tests run."""

import json
import re
import shlex
from collections.abc import Mapping
from typing import Any

import yaml

from ai_platform_engineering.agents.agent_catalog import AgentEntry, load_catalog
from tests.conftest import ROOT

COMPOSE = ROOT / "docker-compose.yaml"
SUPERVISOR, BOT = "caipe-supervisor", "caipe-slack"
KEY = "a-long-random-text"
NOBODY = "http://127.0.0.1:9/"
SHIPPED: dict[str, AgentEntry] = {entry.name: entry for entry in load_catalog({}, agents_config=None)}


def prefix(name: str) -> str:
    return name.upper().replace("-", "_")


def own_variables(name: str) -> set[str]:
    return {f"ENABLE_{prefix(name)}", f"{prefix(name)}_LLM_MODEL", *SHIPPED[name].variables}


def interpolate(text: str, variables: Mapping[str, str]) -> str:
    """`${NAME}` with `:-`, `:+` and `:?`, also one within another, as Compose fills them in."""
    out, at = "", 0
    while at < len(text):
        if text.startswith("$$", at):
            out, at = out + "$", at + 2
        elif text.startswith("${", at):
            end = _find_closing_brace(text, at + 2)
            out, at = out + _evaluate(text[at + 2 : end], variables), end + 1
        else:
            out, at = out + text[at], at + 1
    return out


def _find_closing_brace(text: str, at: int) -> int:
    depth = 1
    while depth:
        depth += {"{": 1, "}": -1}.get(text[at], 0)
        at += 1
    return at - 1


def _evaluate(expression: str, variables: Mapping[str, str]) -> str:
    match = re.fullmatch(r"([A-Z][A-Z0-9_]*)(?::([-+?])(.*))?", expression)
    assert match, f"not understood: {expression}"
    name, kind, rest = match.groups()
    value = variables.get(name, "")
    if kind == "?" and not value:
        raise LookupError(rest)
    if kind == "+":
        return interpolate(rest, variables) if value else ""
    return value or (interpolate(rest, variables) if kind == "-" else "")


def interpolate_tree(tree: Any, variables: Mapping[str, str]) -> Any:
    match tree:
        case str():
            return interpolate(tree, variables)
        case list():
            return [interpolate_tree(item, variables) for item in tree]
        case dict():
            return {name: interpolate_tree(item, variables) for name, item in tree.items()}
        case _:
            return tree


def read_services(
    variables: Mapping[str, str], dotenv: Mapping[str, str] | None = None
) -> dict[str, dict[str, Any]]:
    """The services, filled in; a variable without a value is passed on, or left out.

    `dotenv` is the content of `.env`: the shell wins over it, and a service that names the file gets all of
    it, but for what its own environment says."""
    file_variables = dict(dotenv or {})
    variables = {**file_variables, **variables}
    compose_services: dict[str, dict[str, Any]] = interpolate_tree(
        yaml.safe_load(COMPOSE.read_text()), variables
    )["services"]
    for service in compose_services.values():
        environment: dict[str, str | None] = {}
        if service.get("env_file"):
            assert service["env_file"] == [{"path": ".env", "required": False}]
            environment = {**file_variables}
        for name, value in service["environment"].items():
            environment[name] = variables.get(name) if value is None else str(value)
        service["environment"] = {name: value for name, value in environment.items() if value is not None}
    return compose_services


def read_raw_services() -> dict[str, dict[str, Any]]:
    compose_services: dict[str, dict[str, Any]] = yaml.safe_load(COMPOSE.read_text())["services"]
    return compose_services


def read_dockerfile() -> list[tuple[str, str]]:
    """The Dockerfile as pairs of a word and the rest of its line."""
    lines = [
        line
        for line in (ROOT / "Dockerfile").read_text().splitlines()
        if line.strip() and not line.startswith("#")
    ]
    joined = re.sub(r"\\\n", " ", "\n".join(lines)).splitlines()
    return [(word, rest.strip()) for word, _, rest in (line.partition(" ") for line in joined)]


def dockerfile_lines(word: str) -> list[str]:
    return [rest for instruction, rest in read_dockerfile() if instruction == word]


def last_stage_lines(word: str) -> list[str]:
    lines = read_dockerfile()
    start = max(at for at, (instruction, _) in enumerate(lines) if instruction == "FROM")
    return [rest for instruction, rest in lines[start:] if instruction == word]


def image_environment() -> dict[str, str]:
    pairs = [pair.partition("=") for line in last_stage_lines("ENV") for pair in shlex.split(line)]
    return {name: value for name, _, value in pairs if name != "PATH"}


def entrypoint() -> list[str]:
    (line,) = last_stage_lines("ENTRYPOINT")
    return [str(word) for word in json.loads(line)]
