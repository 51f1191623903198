"""The older shape, `task_config.yaml`: a mapping of names to tasks, each an order in words to a sub-agent."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from ai_platform_engineering.core.events import SUPERVISOR
from ai_platform_engineering.core.templates import escape_template
from ai_platform_engineering.core.workflows import RESULTS

_OURSELVES = ("", "caipe", SUPERVISOR, "user_input")
_PLACEHOLDER = "{{ " + RESULTS + " }}"
_HANDED_ON = re.compile(r"\{\{\s*" + RESULTS + r"\s*\}\}")
_NEWER = {"name", "title", "steps", "form", "answer"}


def is_older(data: Any) -> bool:
    return (
        isinstance(data, dict)
        and not _NEWER & data.keys()
        and any(isinstance(item, dict) and "tasks" in item for item in data.values())
    )


def translated(data: Mapping[Any, Any]) -> Iterator[tuple[dict[str, Any], list[str]]]:
    """Each workflow in the newer shape, with what is wrong with it."""
    for number, (title, item) in enumerate(data.items(), 1):
        problems: list[str] = []
        tasks = item.get("tasks") if isinstance(item, dict) else None
        if not isinstance(tasks, list) or not tasks:
            problems.append(f"`{title}`: `tasks` must be a list with at least one task")
            tasks = []
        steps = [_step(task, at, f"`{title}`, task {at}", problems) for at, task in enumerate(tasks, 1)]
        done = "; ".join(step["title"] for step in steps)
        name = slug(str(title)) or f"workflow-{number}"
        yield (
            {"name": name, "title": str(title), "description": f"{title}: {done}.", "steps": steps},
            problems,
        )


def _step(task: Any, at: int, place: str, problems: list[str]) -> dict[str, Any]:
    given = task if isinstance(task, dict) else {}
    for key in ("display_text", "llm_prompt", "subagent"):
        if given.get(key) is not None and not isinstance(given[key], str):
            problems.append(f"{place}: `{key}` must be text")
    prompt = str(given.get("llm_prompt") or "").strip()
    if not prompt:
        problems.append(f"{place}: `llm_prompt` is missing")
    agent = str(given.get("subagent") or "").strip().lower()
    return {
        "name": f"step-{at}",
        "title": str(given.get("display_text") or "").strip() or f"Step {at}",
        "agent": SUPERVISOR if agent in _OURSELVES else agent,
        "prompt": _order(prompt, first=at == 1),
    }


def _order(prompt: str, *, first: bool) -> str:
    """The prompt with what earlier steps gave; braces mean nothing in this shape, but for that one placeholder."""
    pieces = _HANDED_ON.split(prompt)
    order = _PLACEHOLDER.join(escape_template(piece) for piece in pieces)
    if first or len(pieces) > 1:
        return order
    return f"{order}\n\nWhat earlier steps gave:\n\n{_PLACEHOLDER}"


def slug(title: str) -> str:
    """A title as a name: `Create GitHub Repo` gives `create-github-repo`."""
    return re.sub(r"[^a-z0-9]+", "-", title.lower()).strip("-")
