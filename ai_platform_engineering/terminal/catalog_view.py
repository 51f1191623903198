"""Prints what a server offers: its agents, workflows and skills."""

import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from ai_platform_engineering.terminal.live_region import hang_lines
from ai_platform_engineering.terminal.screen import print_plain, sanitize_line
from ai_platform_engineering.terminal.server_info import AgentInfo

JsonObject = Mapping[str, Any]

_INDENT = 2
_SENTENCE_END = re.compile(r"(?<=[.!?]) ")
_STATUS_STYLES = {"ready": "green", "degraded": "red", "not_configured": "yellow"}


def print_agent_list(console: Console, agents: Sequence[AgentInfo]) -> None:
    """The agents: first those that can be used, then what the others need."""
    if not agents:
        print_plain(console, "The server lists no agents.", "dim")
        return
    for agent in sorted(agents, key=lambda agent: (agent.status != "ready", agent.name)):
        line = Text(agent.name, style="bold")
        line.append(f"  {agent.status.replace('_', ' ')}", style=_STATUS_STYLES.get(agent.status, "dim"))
        if agent.note:
            line.append(f"  {agent.note}", style="dim")
        _print_item(console, line)


def print_workflow_list(console: Console, response: JsonObject) -> None:
    """The workflows: title, what it does, which agents are missing, and the problems of their files."""
    workflows = response.get("workflows") or ()
    if not workflows:
        print_plain(console, "There are no workflows.", "dim")
    for workflow in workflows:
        line = Text(sanitize_line(str(workflow["title"])), style="bold")
        missing = ", ".join(map(str, workflow.get("missing") or ()))
        if missing:
            line.append(f"  needs the agents: {sanitize_line(missing)}", style="yellow")
        _print_item(console, line)
        _print_item(console, Text(f"  {_first_sentence(workflow['description'])}", style="dim"))
    for problem in response.get("problems") or ():
        print_plain(console, sanitize_line(str(problem)), "red")


def print_skill_list(console: Console, response: JsonObject) -> None:
    """The skills that a question can begin with."""
    skills = [skill for skill in response.get("skills") or () if skill.get("enabled")]
    if not skills:
        print_plain(console, "There are no skills.", "dim")
    for skill in skills:
        line = Text(f"/{sanitize_line(str(skill['name']))}", style="bold")
        line.append(f"  {_first_sentence(skill.get('description') or '')}", style="dim")
        _print_item(console, line)


def name_skills(response: JsonObject) -> dict[str, str]:
    """The names of the skills that a question can begin with, and what each does in a sentence."""
    names: dict[str, str] = {}
    for skill in response.get("skills") or ():
        if skill.get("enabled"):
            names[sanitize_line(str(skill["name"]))] = _first_sentence(skill.get("description") or "")
    return names


def _first_sentence(text: object) -> str:
    """What a list has room for; the rest tells a model when to use it."""
    return _SENTENCE_END.split(sanitize_line(str(text)), maxsplit=1)[0]


def _print_item(console: Console, line: Text) -> None:
    if console.is_terminal:
        line = hang_lines(line, console, _INDENT)
    console.print(line, highlight=False, soft_wrap=True)
