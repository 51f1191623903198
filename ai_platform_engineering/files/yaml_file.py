"""Configuration files in YAML or JSON: which files a folder holds, and reading one safely with errors for
people."""

import re
from pathlib import Path
from typing import Any

import yaml

SUFFIXES = (".yaml", ".yml", ".json")

_CONTROL_CHARACTER = "it holds a control character"
_UNQUOTED_BRACES = "a value that begins with {{ needs quotes around it"
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class YamlFileError(Exception):
    """A file that cannot be used; the text follows the file's name in a sentence."""


class UnreadableFile(YamlFileError):
    """A file that cannot be opened, or is not text."""


class InvalidYaml(YamlFileError):
    """A text that is not YAML; `problem` quotes nothing of the text, which may be a secret."""

    def __init__(self, problem: str, line: int | None = None) -> None:
        self.problem = problem
        self.line = line
        where = "" if line is None else f", line {line}"
        super().__init__(f"is not valid YAML{where}: {problem}")

    @classmethod
    def from_error(cls, error: yaml.YAMLError) -> "InvalidYaml":
        if not isinstance(error, yaml.MarkedYAMLError):  # it quotes the character and has no line
            return cls(_CONTROL_CHARACTER)
        mark = error.problem_mark or error.context_mark
        return cls(_describe(error), mark.line + 1 if mark else None)


class StrictLoader(yaml.SafeLoader):  # the slow one: libyaml's ends the process when a file nests without end
    """A safe loader that reads a date as text and refuses a key that is written twice."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - the library's own way to say it
        first: [rule for rule in rules if rule[0] != _TIMESTAMP]
        for first, rules in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> Any:
        keys: set[str] = set()
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            if key.value in keys:
                problem = f"`{key.value}` is written twice"
                raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark)
            keys.add(key.value)
        return super().construct_mapping(node, deep)


def list_config_files(folder: Path) -> list[Path]:
    """The YAML and JSON files of a folder, hidden ones left out, by name."""
    return sorted(file for file in folder.iterdir() if _is_config_file(file))


def read_text(path: Path) -> str:
    """Raises UnreadableFile."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableFile("is not UTF-8 text") from None


def load_yaml(path: Path, *, loader: type[yaml.SafeLoader] = yaml.SafeLoader) -> Any:
    """The data of a file; None when it is empty. Raises YamlFileError."""
    text = read_text(path)
    try:
        return yaml.load(text, Loader=loader)  # noqa: S506 - the type says that it is a safe one
    except yaml.YAMLError as error:
        raise InvalidYaml.from_error(error) from None
    except ValueError:  # a date that no calendar has
        raise InvalidYaml("it holds a value that YAML does not take as it is; put it in quotes") from None
    except RecursionError:
        raise InvalidYaml("it is nested too deep") from None


def _is_config_file(file: Path) -> bool:
    return file.suffix in SUFFIXES and not file.name.startswith(".") and file.is_file()


def _describe(error: yaml.MarkedYAMLError) -> str:
    if "unhashable" in (error.problem or ""):
        return _UNQUOTED_BRACES
    parts = [part for part in (error.context, error.problem) if part]
    if not parts:
        return "it ends too early"
    # What PyYAML quotes may be part of a secret; single characters are its own.
    return re.sub(r"'[^']{2,}'", "'...'", ", ".join(parts))
