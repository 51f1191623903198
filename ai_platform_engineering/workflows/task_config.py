"""The older file format `task_config.yaml`: a mapping of names to tasks, each a prompt for a sub-agent."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.templates import escape_template
from ai_platform_engineering.core.workflows import RESULTS

_SUPERVISOR_NAMES = ("", "caipe", SUPERVISOR, "user_input")
_PLACEHOLDER = "{{ " + RESULTS + " }}"
_PLACEHOLDER_PATTERN = re.compile(r"\{\{\s*" + RESULTS + r"\s*\}\}")
_WORKFLOW_KEYS = {"name", "title", "steps", "form", "answer"}
_TEXT_KEYS = ("display_text", "llm_prompt", "subagent")


def is_task_config(data: Any) -> bool:
    """Whether the data of a file are in the older format."""
    if not isinstance(data, dict) or _WORKFLOW_KEYS & data.keys():
        return False
    return any(isinstance(item, dict) and "tasks" in item for item in data.values())


def convert_task_config(data: Mapping[Any, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Each workflow in the current format, with its problems."""
    for number, (title, item) in enumerate(data.items(), 1):
        problems: list[str] = []
        steps = _convert_tasks(str(title), item, problems)
        summary = "; ".join(step["title"] for step in steps)
        workflow = {
            "name": slugify(str(title)) or f"workflow-{number}",
            "title": str(title),
            "description": f"{title}: {summary}.",
            "steps": steps,
        }
        yield workflow, problems


def slugify(title: str) -> str:
    """A title as a name: `Create GitHub Repo` gives `create-github-repo`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")


def _convert_tasks(title: str, item: Any, problems: list[str]) -> list[dict[str, Any]]:
    tasks = item.get("tasks") if isinstance(item, dict) else None
    if not isinstance(tasks, list) or not tasks:
        problems.append(f"`{title}`: `tasks` must be a list with at least one task")
        return []
    steps: list[dict[str, Any]] = []
    for number, task in enumerate(tasks, 1):
        steps.append(_convert_task(task, number, f"`{title}`, task {number}", problems))
    return steps


def _convert_task(task: Any, number: int, location: str, problems: list[str]) -> dict[str, Any]:
    values: Mapping[str, Any] = {}
    if isinstance(task, dict):
        values = task
    for key in _TEXT_KEYS:
        if values.get(key) is not None and not isinstance(values[key], str):
            problems.append(f"{location}: `{key}` must be text")
    prompt = _read_text(values, "llm_prompt")
    if not prompt:
        problems.append(f"{location}: `llm_prompt` is missing")
    agent = _read_text(values, "subagent").lower()
    return {
        "name": f"step-{number}",
        "title": _read_text(values, "display_text") or f"Step {number}",
        "agent": SUPERVISOR if agent in _SUPERVISOR_NAMES else agent,
        "prompt": _convert_prompt(prompt, is_first=number == 1),
    }


def _read_text(values: Mapping[str, Any], key: str) -> str:
    return str(values.get(key) or "").strip()


def _convert_prompt(prompt: str, *, is_first: bool) -> str:
    """The prompt with the results of earlier steps; of all braces only the placeholder of the results has a
    meaning in the older format."""
    pieces = _PLACEHOLDER_PATTERN.split(prompt)
    converted = _PLACEHOLDER.join(map(escape_template, pieces))
    has_placeholder = len(pieces) > 1
    if is_first or has_placeholder:
        return converted
    return f"{converted}\n\nWhat earlier steps gave:\n\n{_PLACEHOLDER}"
