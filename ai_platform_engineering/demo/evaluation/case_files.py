"""Reads the cases of a folder; every mistake has a file and a line."""

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.demo.evaluation.case_checks import find_text_failures
from ai_platform_engineering.demo.evaluation.case_format import (
    CaseCheck,
    CaseExamples,
    EvaluationCase,
    ServiceCheck,
    TicketCheck,
)
from ai_platform_engineering.demo.evaluation.fact_templates import FactTable, UnknownFact, fill_data
from ai_platform_engineering.files.yaml_document import (
    FileProblem,
    KeyPath,
    MalformedFile,
    YamlDocument,
    read_document,
)
from ai_platform_engineering.files.yaml_file import SUFFIXES, list_config_files

SHIPPED_CASES = Path(__file__).parent / "cases"
MAX_CASES = 1000
_MAX_PROBLEMS_SHOWN = 20
_MODELS: dict[str, type[BaseModel]] = {
    "ticket": TicketCheck,
    "service": ServiceCheck,
    "examples": CaseExamples,
    "checks": CaseCheck,
}


class InvalidCases(ConfigurationError):
    """Cases that cannot be used; each problem names its file and line."""

    def __init__(self, problems: Sequence[FileProblem]) -> None:
        self.problems = tuple(sorted(problems))
        lines = [str(problem) for problem in self.problems[:_MAX_PROBLEMS_SHOWN]]
        hidden_count = len(self.problems) - len(lines)
        if hidden_count:
            lines.append(f"and {hidden_count} more")
        super().__init__("The evaluation cases cannot be used.\n" + "\n".join(lines))


@dataclass(frozen=True, slots=True)
class CaseFile:
    """A case as its file has it: facts are still names in it."""

    name: str
    document: YamlDocument

    def fill(self, facts: FactTable) -> EvaluationCase:
        """The case with the facts of an estate. Raises InvalidCases."""
        case, problems = _check_case(self.document, facts)
        if case is None or problems:
            raise InvalidCases(problems)
        return case


def fill_cases(files: Sequence[CaseFile], facts: FactTable) -> dict[str, EvaluationCase]:
    """The cases by name, with the facts of an estate. Raises InvalidCases with the problems of all files."""
    cases: dict[str, EvaluationCase] = {}
    problems: list[FileProblem] = []
    for file in files:
        try:
            cases[file.name] = file.fill(facts)
        except InvalidCases as error:
            problems += error.problems
    if problems:
        raise InvalidCases(problems)
    return cases


def read_case_files(folder: Path, names: Collection[str] = ()) -> list[CaseFile]:
    """The files of a folder, or only the named ones. Raises ConfigurationError."""
    paths = _list_paths(folder)
    unknown_names = sorted(set(names) - paths.keys())
    if unknown_names:
        similar = get_close_matches(unknown_names[0], paths, n=1)
        hint = f" Did you mean {similar[0]}?" if similar else ""
        raise ConfigurationError(f"{folder} has no case {', '.join(unknown_names)}.{hint}")
    files: list[CaseFile] = []
    problems: list[FileProblem] = []
    for name, path in paths.items():
        if names and name not in names:
            continue
        try:
            files.append(CaseFile(name, read_document(path, f"{folder.name}/{path.name}")))
        except MalformedFile as error:
            problems += error.problems
    if problems:
        raise InvalidCases(problems)
    return files


def _list_paths(folder: Path) -> dict[str, Path]:
    try:
        paths = list_config_files(folder)
    except OSError as error:
        raise ConfigurationError(f"{folder} cannot be read: {error.strerror}.") from None
    if not paths:
        raise ConfigurationError(f"{folder} holds no case: no file ends in {', '.join(SUFFIXES)}.")
    if len(paths) > MAX_CASES:
        raise ConfigurationError(f"{folder} holds more than {MAX_CASES} cases.")
    by_name: dict[str, Path] = {}
    for path in paths:
        first = by_name.setdefault(path.stem, path)
        if first is not path:
            raise ConfigurationError(f"{folder} has two cases {path.stem}: {first.name} and {path.name}.")
    return by_name


def _check_case(document: YamlDocument, facts: FactTable) -> tuple[EvaluationCase | None, list[FileProblem]]:
    if not isinstance(document.data, dict):
        text = "a case must be a mapping of keys and values"
        return None, [FileProblem(document.find_position(()), text)]
    problems: list[FileProblem] = []
    data = _fill_values(document, document.data, (), facts, problems)
    if problems:
        return None, problems
    try:
        case = EvaluationCase.model_validate(data)
    except ValidationError as error:
        for detail in error.errors(include_url=False, include_context=False):
            path = _path_in_file(detail["loc"])
            text = _describe_error(detail["type"], detail["msg"], path)
            problems.append(FileProblem(document.find_position(path), text))
        return None, problems
    return case, _check_examples(document, case)


def _fill_values(
    document: YamlDocument, data: Any, path: KeyPath, facts: FactTable, problems: list[FileProblem]
) -> Any:
    """The filled data; facts that do not exist are reported where they stand."""
    if isinstance(data, dict):
        filled: dict[str, Any] = {}
        for key, value in data.items():
            filled[key] = _fill_values(document, value, (*path, key), facts, problems)
        return filled
    if isinstance(data, list):
        return [
            _fill_values(document, item, (*path, index), facts, problems) for index, item in enumerate(data)
        ]
    key = path[-1] if path else ""
    try:
        return fill_data({key: data}, facts)[key]
    except UnknownFact as error:
        problems.append(FileProblem(document.find_position(path), str(error)))
        return data


def _check_examples(document: YamlDocument, case: EvaluationCase) -> list[FileProblem]:
    """A right answer that fails, or a wrong one that passes, is a mistake in the checks."""
    problems: list[FileProblem] = []
    if case.examples is None:
        return problems
    for index, answer in enumerate(case.examples.right):
        failures = find_text_failures(case, answer)
        if failures:
            position = document.find_position(("examples", "right", index))
            text = f"this right answer does not pass the checks: it {'; it '.join(failures)}"
            problems.append(FileProblem(position, text))
    for index, answer in enumerate(case.examples.wrong):
        if not find_text_failures(case, answer):
            position = document.find_position(("examples", "wrong", index))
            problems.append(FileProblem(position, "this wrong answer passes all checks"))
    return problems


def _path_in_file(location: tuple[int | str, ...]) -> KeyPath:
    """Without what pydantic adds for alternatives of a type."""
    return tuple(part for part in location if isinstance(part, int) or part.isidentifier())


def _describe_error(kind: str, message: str, path: KeyPath) -> str:
    key = next((part for part in reversed(path) if isinstance(part, str)), "")
    match kind:
        case "extra_forbidden":
            return _describe_unknown_key(key, _find_model(path[:-1]))
        case "missing":
            return f"the key `{key}` is missing"
        case "string_type":
            return f"`{key}` must be text; numbers, true and false need quotes"
        case "value_error":
            return message.removeprefix("Value error, ")
        case _:
            return f"`{key}`: {message.removeprefix('Input ')}" if key else message


def _find_model(path: KeyPath) -> type[BaseModel]:
    keys = [part for part in path if isinstance(part, str)]
    return _MODELS.get(keys[-1], EvaluationCase) if keys else EvaluationCase


def _describe_unknown_key(key: str, model: type[BaseModel]) -> str:
    similar = get_close_matches(key, model.model_fields, n=1)
    if similar:
        return f"unknown key `{key}`; did you mean `{similar[0]}`?"
    return f"unknown key `{key}`; known are {', '.join(f'`{name}`' for name in model.model_fields)}"
