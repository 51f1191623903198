"""`caipe tasks`: the recent runs of a server, with state and question."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import datetime
from typing import Any

from ai_platform_engineering.a2a.client import A2AClient
from ai_platform_engineering.terminal.screen import create_console, print_table, sanitize_line

_PAGE_SIZE = 50
_STATE_PREFIX = "TASK_STATE_"
_SHORT_ID = 8
_MAX_QUESTION_CHARS = 80


@dataclass(frozen=True, slots=True)
class RunSummary:
    """A run in the list."""

    task_id: str
    context_id: str
    state: str
    updated: str  # ISO 8601
    question: str


@dataclass(frozen=True, slots=True)
class RunListing:
    """The newest runs, and how many there are."""

    runs: tuple[RunSummary, ...]
    total: int


async def list_runs(
    client: A2AClient, *, context_id: str | None, state: str | None, limit: int
) -> RunListing:
    """The newest runs, at most as many as the limit; the server sends them page by page."""
    runs: list[RunSummary] = []
    total = 0
    page_token = ""
    while len(runs) < limit:
        parameters: dict[str, Any] = {"pageSize": min(_PAGE_SIZE, limit - len(runs))}
        if context_id:
            parameters["contextId"] = context_id
        if state:
            parameters["status"] = _STATE_PREFIX + state.upper().replace("-", "_")
        if page_token:
            parameters["pageToken"] = page_token
        response = await client.call("ListTasks", parameters)
        runs += [_summarize(task) for task in response.get("tasks") or ()]
        total = int(response.get("totalSize") or len(runs))
        page_token = str(response.get("nextPageToken") or "")
        if not page_token:
            break
    return RunListing(tuple(runs), total)


def print_runs(page: RunListing) -> None:
    """Prints the runs as a table on stdout; where a terminal reads it, ids are shortened."""
    if not page.runs:
        create_console(stderr=True).print("There are no runs yet.", highlight=False)
        return
    console = create_console()
    id_length = _SHORT_ID if console.is_terminal else None
    rows: list[Sequence[str]] = []
    for run in page.runs:
        question = run.question
        if console.is_terminal and len(question) > _MAX_QUESTION_CHARS:
            question = f"{question[: _MAX_QUESTION_CHARS - 1]}…"
        rows.append(
            (
                run.task_id[:id_length],
                _format_time(run.updated),
                run.state,
                run.context_id[:id_length],
                question,
            )
        )
    print_table(("task", "last change", "state", "context", "question"), rows, folded=("question",))
    if page.total > len(page.runs):
        note = f"{len(page.runs)} of {page.total} runs; --limit shows more."
        create_console(stderr=True).print(note, style="dim", highlight=False)


def runs_to_json(page: RunListing) -> str:
    return json.dumps([asdict(run) for run in page.runs], indent=2)


def _summarize(task: Mapping[str, Any]) -> RunSummary:
    status = task.get("status") or {}
    state = str(status.get("state") or "").removeprefix(_STATE_PREFIX).lower().replace("_", "-")
    return RunSummary(
        task_id=str(task.get("id") or ""),
        context_id=str(task.get("contextId") or ""),
        state=state,
        updated=str(status.get("timestamp") or ""),
        question=_read_question(task),
    )


def _read_question(task: Mapping[str, Any]) -> str:
    """The text of the message that began the run."""
    for message in task.get("history") or ():
        texts = [str(part["text"]) for part in message.get("parts") or () if part.get("text")]
        if texts:
            return sanitize_line(" ".join(texts))
    return ""


def _format_time(text: str) -> str:
    try:
        return datetime.fromisoformat(text).astimezone().strftime("%Y-%m-%d %H:%M")
    except ValueError:
        return ""
