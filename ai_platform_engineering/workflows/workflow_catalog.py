"""The workflows there are: shipped ones and those of the folders and files that are configured, checked."""

import logging
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from ai_platform_engineering.core.templates import TemplateScope
from ai_platform_engineering.core.workflows import Workflow
from ai_platform_engineering.workflows.task_config import is_older, translated
from ai_platform_engineering.workflows.workflow_matching import named, spoken_of
from ai_platform_engineering.workflows.workflow_reader import UnreadableFile, check_workflow, read

logger = logging.getLogger(__name__)

SHIPPED_FOLDER = Path(__file__).parent
ENDINGS = (".yaml", ".yml", ".json")


@dataclass(frozen=True, slots=True)
class WorkflowEntry:
    """A workflow, the agents it needs that are not there, and the file it is from."""

    workflow: Workflow
    missing: tuple[str, ...]
    source: str


@dataclass(frozen=True, slots=True)
class WorkflowCatalog:
    """By title; `problems` are sentences about the files that were left out."""

    entries: tuple[WorkflowEntry, ...] = ()
    problems: tuple[str, ...] = ()

    def __iter__(self) -> Iterator[WorkflowEntry]:
        return iter(self.entries)

    def get(self, name: str) -> WorkflowEntry | None:
        return next((entry for entry in self.entries if entry.workflow.name == name), None)

    def find_by_name(self, text: str) -> Workflow | None:
        """The workflow that the text names, and nothing else."""
        return named((entry.workflow for entry in self.entries), text)

    def find_mentioned(self, text: str) -> Workflow | None:
        """The workflow that the text speaks of: looser, for where no language model reads it."""
        return spoken_of((entry.workflow for entry in self.entries), text)


def load_workflows(paths: Sequence[Path], agents: Collection[str]) -> WorkflowCatalog:
    """Reads the shipped workflows, then those of the folders and files; a later one takes the place of one with its name."""
    problems: list[str] = []
    found: dict[str, tuple[Workflow, str]] = {}
    for path, file in (*_shipped(), *_configured(paths, problems)):
        of_file: dict[str, Workflow] = {}
        for workflow in _workflows(path, file, problems):
            if workflow.name in of_file:
                problems.append(
                    f"{file}: two workflows have the name `{workflow.name}`; the second was left out"
                )
            of_file.setdefault(workflow.name, workflow)
        for name, workflow in of_file.items():
            if name in found:
                logger.info("Workflow %s from %s replaces the one from %s", name, file, found[name][1])
            found[name] = (workflow, file)
    for problem in problems:
        logger.warning("Workflow left out: %s", problem)
    by_title = sorted(found.values(), key=lambda item: (item[0].title.casefold(), item[0].name))
    entries = (
        WorkflowEntry(workflow, tuple(name for name in workflow.agents if name not in agents), file)
        for workflow, file in by_title
    )
    return WorkflowCatalog(tuple(entries), tuple(problems))


def _shipped() -> Iterator[tuple[Path, str]]:
    return ((path, f"{SHIPPED_FOLDER.name}/{path.name}") for path in sorted(SHIPPED_FOLDER.glob("*.yaml")))


def _configured(paths: Sequence[Path], problems: list[str]) -> Iterator[tuple[Path, str]]:
    for path in paths:
        at = path.expanduser()
        if at.is_dir():
            inside = sorted(
                file
                for file in at.iterdir()
                if file.suffix in ENDINGS and file.name[0] != "." and file.is_file()
            )
            yield from ((file, str(path / file.name)) for file in inside)
        elif at.exists():
            yield at, str(path)
        else:
            problems.append(f"{path}: there is no such file or folder")


def _workflows(path: Path, file: str, problems: list[str]) -> Iterator[Workflow]:
    """The good workflows of a file: one, a list of them, or several in the older shape."""
    try:
        data = read(path)
    except UnreadableFile as error:
        problems.append(f"{file}: {error}")
        return
    if data is None:  # nothing but comments
        return
    for item, wrong in (
        translated(data)
        if is_older(data)
        else ((item, []) for item in (data if isinstance(data, list) else [data]))
    ):
        workflow, more = check_workflow(item) if not wrong else (None, [])
        problems += (f"{file}: {text}" for text in (*wrong, *more))
        if workflow:
            yield workflow


def render_workflows(workflows: WorkflowCatalog) -> dict[str, JsonValue]:
    """The workflows for a client that offers them to people."""
    return {"workflows": [_row(entry) for entry in workflows], "problems": list(workflows.problems)}


def _row(entry: WorkflowEntry) -> dict[str, JsonValue]:
    workflow, first = entry.workflow, next((step for step in entry.workflow.sequence if step.form), None)
    form = first.build_form(TemplateScope({}), {}) if workflow.form and first else None
    return {
        "name": workflow.name,
        "title": workflow.title,
        "description": " ".join(workflow.description.split()),
        "phrases": list(workflow.phrases),
        "available": not entry.missing,
        "missing": list(entry.missing),
        "input_fields": [field.model_dump(mode="json") for field in form.fields] if form else [],
        "steps": [
            {"name": step.name, "title": step.display_title, "agent": step.agent}
            for step in workflow.sequence
        ],
    }
