"""Configuration files in YAML or JSON: which files a folder holds, and reading one safely with errors for
people."""

import re
from pathlib import Path
from typing import Any

import yaml

from ai_platform_engineering.files.yaml_limits import CONFIG_FILE_LIMITS, YamlLimitExceeded, check_yaml

SUFFIXES = (".yaml", ".yml", ".json")
# What the library raises for a value that its tag does not fit, such as `!!int ""` or a date of no calendar.
VALUE_ERRORS = (ValueError, LookupError, AttributeError, TypeError, ArithmeticError)

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
    def from_error(cls, error: yaml.YAMLError | YamlLimitExceeded) -> "InvalidYaml":
        if isinstance(error, YamlLimitExceeded):
            return cls(error.problem, error.line)
        if not isinstance(error, yaml.MarkedYAMLError):  # it quotes the character and has no line
            return cls(_CONTROL_CHARACTER)
        mark = error.problem_mark or error.context_mark
        return cls(_describe(error), mark.line + 1 if mark else None)


_FAST_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class StrictLoader(_FAST_LOADER):  # type: ignore[misc]
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
    """The text of a file within the limits. Raises UnreadableFile."""
    max_bytes = 4 * CONFIG_FILE_LIMITS.chars
    try:
        with path.open("rb") as file:
            content = file.read(max_bytes + 1)
        if len(content) > max_bytes:
            raise UnreadableFile(f"is larger than {max_bytes} bytes")
        return content.decode("utf-8-sig").replace("\r\n", "\n").replace("\r", "\n")
    except OSError as error:
        raise UnreadableFile(f"cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnreadableFile("is not UTF-8 text") from None


def load_yaml(path: Path) -> Any:
    """The data of a file; None when it is empty. Raises YamlFileError."""
    return parse_yaml(read_text(path))


def parse_yaml(text: str) -> Any:
    """The data of a text; None when it is empty. Raises InvalidYaml."""
    try:
        check_yaml(text)
        return yaml.load(text, Loader=StrictLoader)  # noqa: S506 - a safe one
    except (yaml.YAMLError, YamlLimitExceeded) as error:
        raise InvalidYaml.from_error(error) from None
    except VALUE_ERRORS:
        raise InvalidYaml("it holds a value that YAML does not accept unquoted; put it in quotes") from None


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
