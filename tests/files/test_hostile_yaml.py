"""Hostile YAML, JSON and SKILL.md: every reader ends with data within its limits, or with its own error."""

from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.cli.options import read_values_file
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.files.yaml_document import MalformedFile, read_document
from ai_platform_engineering.files.yaml_file import YamlFileError, load_yaml
from ai_platform_engineering.files.yaml_limits import YamlLimitExceeded, YamlLimits, check_yaml
from ai_platform_engineering.integrations.slack_bot.channel_config import read_config
from ai_platform_engineering.knowledge_bases.reading import json_yaml
from ai_platform_engineering.multi_agents.platform_engineer.prompts import PromptConfig
from ai_platform_engineering.skills_middleware.file_rules import SkillErrors
from ai_platform_engineering.skills_middleware.front_matter import split_front_matter
from ai_platform_engineering.workflows.workflow_catalog import load_workflows

NINE = ",".join(["*{}"] * 9)


def alias_bomb(levels: int = 12) -> str:
    """Nine to the power of `levels` values in a few hundred bytes."""
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"]
    for level in range(1, levels):
        lines.append(f"a{level}: &a{level} [{NINE.replace('{}', f'a{level - 1}')}]")
    return "\n".join(lines) + "\n"


def merge_bomb(levels: int = 12) -> str:
    lines = ["m0: &m0 {k: v}"]
    for level in range(1, levels):
        merged = NINE.replace("{}", f"m{level - 1}")
        lines.append(f"m{level}: &m{level} {{<<: [{merged}], k{level}: [{merged}]}}")
    return "\n".join(lines) + "\n"


HOSTILE = {
    "alias bomb": alias_bomb(),
    "merge bomb": merge_bomb(),
    "brackets": "[" * 200_000,
    "closed brackets": "[" * 100_000 + "]" * 100_000,
    "braces": '{"a":' * 200_000,
    "closed braces": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "dashes": "- " * 200_000,
    "questions": "? " * 200_000,
    "a list that holds itself": "a: &a [*a]\n",
    "a mapping that holds itself": "&a {b: *a}\n",
    "a number in base 60": "a: 1" + ":59" * 100_000 + "\n",
    "a tagged number": 'a: !!int "' + "9" * 100_000 + '"\n',
    "many digits": "a: " + "9" * 100_000 + "\n",
    "many values": "- 1\n" * 110_000,
    "many documents": "---\na\n" * 60_000,
    "a long value": "a: " + "x" * 1_000_000 + "\n",
    "a long text": "# " + "x" * 9_000_000 + "\n",
    "an object": "a: !!python/object/apply:os.system ['true']\n",
    "an empty number": 'a: !!int ""\n',
    "a wrong date": 'a: !!timestamp "x"\nb: 2024-99-99\n',
    "a wrong switch": "a: !!bool maybe\n",
    "a wrong set": "a: !!set [1]\nb: !!omap 3\nc: !!pairs x\n",
    "a list as a key": "? [a, b]\n: 1\n",
    "half a character": '{"name": "\\ud800"}',
    "a zero byte": "a: \x00\n",
    "nested variables": "name: x\ndescription: " + "${A:-" * 3_000 + "}" * 3_000 + "\n",
    "unknown anchor": "a: *b\n",
    "twice": "a: 1\na: 2\n",
}
# What a reader may also take as text or leave alone: SKILL.md knows texts only, and a definition no tags.
TAKEN = {
    "load_yaml": {"nested variables", "half a character"},
    "read_document": {"nested variables", "half a character", "an object", "a wrong set"},
    "AGENTS_CONFIG": set[str](),
    "PROMPT_CONFIG": {"nested variables"},
    "SLACK_INTEGRATION_BOT_CONFIG": set[str](),
    "SKILL.md": {
        "nested variables",
        "an object",
        "an empty number",
        "a wrong date",
        "a wrong switch",
        "a wrong set",
        "many documents",
    },
}


class Reader(NamedTuple):
    """A reader of a file, and the only errors that it may raise."""

    read: Callable[[Path], Any]
    errors: tuple[type[Exception], ...]


def read_skill(path: Path) -> Any:
    with path.open(encoding="utf-8", errors="surrogatepass", newline="") as file:
        return split_front_matter(f"---\n{file.read()}\n---\nBody.\n")


def read_values(path: Path) -> Any:
    import click

    try:
        return read_values_file(path)
    except click.UsageError as error:
        raise ConfigurationError(str(error)) from None


READERS = {
    "load_yaml": Reader(load_yaml, (YamlFileError,)),
    "read_document": Reader(lambda path: read_document(path, path.name), (MalformedFile,)),
    "AGENTS_CONFIG": Reader(
        lambda path: load_catalog({}, agents_config=str(path), shipped=False), (ConfigurationError,)
    ),
    "PROMPT_CONFIG": Reader(PromptConfig.load, (ConfigurationError,)),
    "SLACK_INTEGRATION_BOT_CONFIG": Reader(read_config, (ConfigurationError,)),
    "WORKFLOWS_CONFIG": Reader(lambda path: load_workflows([path], ["a"]), (ConfigurationError,)),
    "SKILL.md": Reader(read_skill, (SkillErrors,)),
    "documents": Reader(lambda path: json_yaml.load_yaml(read_any(path)), ()),
    "JSON documents": Reader(lambda path: json_yaml.load_json(read_any(path)), ()),
    "values": Reader(read_values, (ConfigurationError,)),
}


def read_any(path: Path) -> str:
    return path.read_bytes().decode("utf-8", "surrogatepass")


def attempt(reader: Reader, path: Path) -> Exception | None:
    """The reader's own error, if it raised one; any other ends the test."""
    try:
        reader.read(path)
    except reader.errors as error:
        return error
    return None


@pytest.mark.sample(100)
@pytest.mark.parametrize("reader", READERS)
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_ends_in_the_readers_own_error(case: str, reader: str, tmp_path: Path) -> None:
    path = tmp_path / "file.yaml"
    path.write_text(HOSTILE[case], encoding="utf-8")
    error = attempt(READERS[reader], path)
    if reader in TAKEN and case not in TAKEN[reader]:
        assert error is not None
        assert len(str(error)) < 2000


@pytest.mark.parametrize("case", ["alias bomb", "brackets", "closed braces"])
def test_the_error_names_the_file_and_the_limit(case: str, tmp_path: Path) -> None:
    path = tmp_path / "agents.yaml"
    path.write_text(HOSTILE[case], encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"agents\.yaml:\d+: .*(more than|deeper than) \d+"):
        load_catalog({}, agents_config=str(path), shipped=False)


def test_a_file_without_end_is_not_read() -> None:
    with pytest.raises(ConfigurationError, match="larger than"):
        load_catalog({}, agents_config="/dev/zero", shipped=False)


def test_what_people_write_is_within_the_limits() -> None:
    check_yaml("base: &base {a: 1, b: [1, 2]}\none: {<<: *base, c: 3}\ntwo: {<<: *base}\nthree: *base\n")
    check_yaml("prompt: |\n" + "  A line of a long prompt.\n" * 10_000)
    check_yaml("version: 1.10.0\ndate: 2024-01-01\nhex: 0xff\n")


@given(st.integers(1, 6), st.integers(1, 6))
def test_aliases_count_as_often_as_they_are_used(levels: int, width: int) -> None:
    text = "a0: &a0 [" + ",".join("x" * width) + "]\n"
    size = width + 1
    total = size
    for level in range(1, levels):
        text += f"a{level}: &a{level} [" + ",".join([f"*a{level - 1}"] * width) + "]\n"
        size = width * size + 1
        total += size
    total += levels + 1  # the keys, and the mapping
    check_yaml(text, YamlLimits(nodes=total + 1))
    with pytest.raises(YamlLimitExceeded):
        check_yaml(text, YamlLimits(nodes=total - 1))


# --- arbitrary texts ----------------------------------------------------------------------------------------

SCALARS = st.sampled_from(
    [
        "x",
        "'x'",
        '"\\x00"',
        '"\\ud800"',
        "~",
        "null",
        "true",
        "1e400",
        ".inf",
        "1:59:59",
        "0x_",
        "0b",
        "2024-01-01",
        "2024-13-45 99:99:99",
        "<<",
        "=",
        "*a",
        "&a x",
        "!!int ''",
        "!!float x",
        "!!binary '=='",
        "!!null x",
        "!!bool x",
        "!x y",
        "!!python/name:os.system x",
        "${A:-${B}}",
        "{{ a }}",
        "name",
        "description",
        "mcpServers",
        "channels",
        "steps",
        "prompt",
    ]
)


def nest(children: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    lists = st.lists(children, max_size=4).map(lambda items: f"[{', '.join(items)}]")
    pairs = st.tuples(children, children).map(lambda pair: f"{pair[0]}: {pair[1]}")
    mappings = st.lists(pairs, max_size=4).map(lambda items: f"{{{', '.join(items)}}}")
    anchored = st.tuples(
        st.sampled_from(["&a ", "&b ", "!!set ", "!!omap ", "!!pairs ", ""]), lists | mappings
    )
    return lists | mappings | anchored.map("".join)


STRUCTURES = st.recursive(SCALARS, nest, max_leaves=12)
FIELDS = st.sampled_from(
    """
    name description title prompt mcpServers url tools requires examples model install channels defaults << ~
    direct_messages additions agent_prompts workflows steps inputs allowed-tools metadata license
    """.split()
)
DOCUMENTS = st.lists(st.tuples(FIELDS, STRUCTURES), max_size=6).map(
    lambda items: "".join(f"{name}: {value}\n" for name, value in items)
)
TEXTS = st.text(max_size=200) | st.text(alphabet="-?:,[]{}#&*!|>'\"%@`~<= \n\ta1", max_size=120)
ANY_TEXT = TEXTS | STRUCTURES | DOCUMENTS


@pytest.mark.parametrize("reader", READERS)
@settings(suppress_health_check=[HealthCheck.too_slow])
@given(text=ANY_TEXT)
def test_no_text_breaks_a_reader(reader: str, text: str) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.yaml"
        path.write_bytes(text.encode("utf-8", "surrogatepass"))
        attempt(READERS[reader], path)


@given(content=st.binary(max_size=200))
def test_no_bytes_break_a_reader(content: bytes) -> None:
    with TemporaryDirectory() as folder:
        path = Path(folder) / "file.yaml"
        path.write_bytes(content)
        for name in ("load_yaml", "read_document", "AGENTS_CONFIG", "PROMPT_CONFIG", "WORKFLOWS_CONFIG"):
            attempt(READERS[name], path)
