"""The files of agent definitions: the shipped ones and those that `AGENTS_CONFIG` names, read and checked."""

import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path

from ai_platform_engineering.agents.definition_reader import ParsedDefinition, parse_definitions
from ai_platform_engineering.files.yaml_document import (
    FilePosition,
    FileProblem,
    MalformedFile,
    read_document,
)
from ai_platform_engineering.files.yaml_file import SUFFIXES, list_config_files

logger = logging.getLogger(__name__)

DefinitionFile = tuple[Path, str]  # and its name in messages


def list_shipped_files(folder: Path, names: Collection[str]) -> list[DefinitionFile]:
    """The files of these agents; each file is named after its agent."""
    paths = [path for path in sorted(folder.glob("*.yaml")) if path.stem in names]
    return [(path, f"{folder.name}/{path.name}") for path in paths]


def list_configured_files(config: str, problems: list[FileProblem]) -> list[DefinitionFile]:
    """The files that `AGENTS_CONFIG` names, by themselves or by their folder."""
    files: list[DefinitionFile] = []
    for part in config.split(os.pathsep):
        name = part.strip()
        if not name:
            continue
        path = Path(name).expanduser()
        if path.is_dir():
            folder_files = list_config_files(path)
            if not folder_files:
                logger.warning("AGENTS_CONFIG: %s holds no file that ends in %s", name, ", ".join(SUFFIXES))
            files += [(file, str(Path(name) / file.name)) for file in folder_files]
        elif path.exists():
            files.append((path, name))
        else:
            text = "AGENTS_CONFIG names it, and there is no such file or folder"
            problems.append(FileProblem(FilePosition(name, 1), text))
    return files


def read_definitions(
    files: Sequence[DefinitionFile], problems: list[FileProblem]
) -> dict[str, ParsedDefinition]:
    """The definitions of the files by the prefix of their variables."""
    definitions: list[ParsedDefinition] = []
    for path, file in files:
        try:
            document = read_document(path, file)
        except MalformedFile as error:
            problems += error.problems
            continue
        file_definitions, file_problems = parse_definitions(document)
        definitions += file_definitions
        problems += file_problems
    return _index_by_prefix(definitions, problems)


def _index_by_prefix(
    definitions: Sequence[ParsedDefinition], problems: list[FileProblem]
) -> dict[str, ParsedDefinition]:
    """By prefix, since `ENABLE_MY_AGENT` could not tell `my-agent` from `my_agent`."""
    by_prefix: dict[str, ParsedDefinition] = {}
    for parsed in definitions:
        first = by_prefix.setdefault(parsed.prefix, parsed)
        if first is parsed:
            continue
        if first.name == parsed.name:
            text = f"the name `{parsed.name}` is taken by the agent at {first.position}"
        else:
            text = f"the name `{parsed.name}` has the same variables as `{first.name}` at {first.position}"
        problems.append(FileProblem(parsed.position, text))
    return by_prefix
