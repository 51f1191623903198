"""The workflow catalogue: shipped workflows and those of the configured folders and files, checked."""

import functools
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import JsonValue

from ai_platform_engineering.core.templates import TemplateScope
from ai_platform_engineering.core.workflows import Workflow
from ai_platform_engineering.files.yaml_file import YamlFileError, list_config_files, load_yaml
from ai_platform_engineering.workflows.task_config import convert_task_config, is_task_config
from ai_platform_engineering.workflows.workflow_matching import match_exactly, match_words
from ai_platform_engineering.workflows.workflow_reader import check_workflow

logger = logging.getLogger(__name__)

SHIPPED_FOLDER = Path(__file__).parent


@dataclass(frozen=True, slots=True)
class WorkflowEntry:
    """A workflow, the agents it needs that do not exist, and the file it is from."""

    workflow: Workflow
    missing: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class WorkflowCatalog:
    """The workflows by title; `problems` are sentences about the files that were left out."""

    entries: tuple[WorkflowEntry, ...] = ()
    problems: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[WorkflowEntry]:
        return iter(self.entries)

    def get(self, name: str) -> WorkflowEntry | None:
        return next((entry for entry in self.entries if entry.workflow.name == name), None)

    def find_by_name(self, text: str) -> Workflow | None:
        """The workflow whose name, title or phrase the text is."""
        return match_exactly((entry.workflow for entry in self.entries), text)

    def find_mentioned(self, text: str) -> Workflow | None:
        """The workflow that the text mentions: a looser match, for where no language model reads the text."""
        return match_words((entry.workflow for entry in self.entries), text)


def load_workflows(paths: Sequence[Path], agents: Collection[str]) -> WorkflowCatalog:
    """Reads the shipped workflows, then those of the folders and files; a later one replaces one of the same
    name."""
    shipped, shipped_problems = _read_shipped()
    problems = list(shipped_problems)
    workflows = dict(shipped)
    for path, file in _list_configured_files(paths, problems):
        for name, workflow in _read_file(path, file, problems).items():
            if name in workflows:
                logger.info("Workflow %s from %s replaces the one from %s", name, file, workflows[name][1])
            workflows[name] = (workflow, file)
    for problem in problems:
        logger.warning("Workflow left out: %s", problem)
    entries: list[WorkflowEntry] = []
    for workflow, file in workflows.values():
        missing = tuple(name for name in workflow.agents if name not in agents)
        entries.append(WorkflowEntry(workflow, missing, file))
    entries.sort(key=_title_order)
    return WorkflowCatalog(tuple(entries), tuple(problems))


def render_workflows(workflows: WorkflowCatalog) -> dict[str, JsonValue]:
    """The workflows for a client that offers them to people."""
    return {"workflows": [_render_entry(entry) for entry in workflows], "problems": list(workflows.problems)}


def describe_entry(entry: WorkflowEntry) -> str:
    """The workflow in a list for people: its title, and what it lacks."""
    title = f"**{entry.workflow.title}**"
    return f"{title} (needs {', '.join(entry.missing)})" if entry.missing else title


def _title_order(entry: WorkflowEntry) -> tuple[str, str]:
    return entry.workflow.title.casefold(), entry.workflow.name


@functools.cache
def _read_shipped() -> tuple[dict[str, tuple[Workflow, str]], list[str]]:
    """The shipped workflows by name with their files, and problems; read once, since they never change."""
    problems: list[str] = []
    workflows: dict[str, tuple[Workflow, str]] = {}
    for path in sorted(SHIPPED_FOLDER.glob("*.yaml")):
        file = f"{SHIPPED_FOLDER.name}/{path.name}"
        for name, workflow in _read_file(path, file, problems).items():
            workflows[name] = (workflow, file)
    return workflows, problems


def _list_configured_files(paths: Sequence[Path], problems: list[str]) -> Iterator[tuple[Path, str]]:
    """The files of the paths, each with its name in messages."""
    for configured_path in paths:
        path = configured_path.expanduser()
        if path.is_dir():
            for file in list_config_files(path):
                yield file, str(configured_path / file.name)
        elif path.exists():
            yield path, str(configured_path)
        else:
            problems.append(f"{configured_path}: there is no such file or folder")


def _read_file(path: Path, file: str, problems: list[str]) -> dict[str, Workflow]:
    """The valid workflows of a file by name."""
    try:
        data = load_yaml(path)
    except YamlFileError as error:
        problems.append(f"{file}: {error}")
        return {}
    workflows: dict[str, Workflow] = {}
    for item, item_problems in _split_items(data):
        workflow: Workflow | None = None
        if not item_problems:
            workflow, item_problems = check_workflow(item)
        problems += [f"{file}: {problem}" for problem in item_problems]
        if workflow is None:
            continue
        if workflow.name in workflows:
            problems.append(f"{file}: two workflows have the name `{workflow.name}`; the second was left out")
        workflows.setdefault(workflow.name, workflow)
    return workflows


def _split_items(data: Any) -> Iterable[tuple[Any, list[str]]]:
    """The workflows of a file's data with their problems so far: one, a list of them, or several in the older
    format."""
    if data is None:  # nothing but comments
        return []
    if is_task_config(data):
        return convert_task_config(data)
    if isinstance(data, list):
        return [(item, []) for item in data]
    return [(data, [])]


def _render_entry(entry: WorkflowEntry) -> dict[str, JsonValue]:
    workflow = entry.workflow
    steps: list[JsonValue] = []
    for step in workflow.sequence:
        steps.append({"name": step.name, "title": step.display_title, "agent": step.agent})
    return {
        "name": workflow.name,
        "title": workflow.title,
        "description": " ".join(workflow.description.split()),
        "phrases": list(workflow.phrases),
        "available": not entry.missing,
        "missing": list(entry.missing),
        "input_fields": _render_input_fields(workflow),
        "steps": steps,
    }


def _render_input_fields(workflow: Workflow) -> list[JsonValue]:
    """The fields of the form that the workflow begins with."""
    form_step = next((step for step in workflow.sequence if step.form), None)
    if workflow.form is None or form_step is None:
        return []
    form = form_step.build_form(TemplateScope({}), {})
    return [field.model_dump(mode="json") for field in form.fields]
