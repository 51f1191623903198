"""docs/migrating.md: the variables that it names are those of the tables, and the others exist."""

import re
from collections.abc import Iterator

import click
import pytest

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.cli.main import main
from ai_platform_engineering.core.legacy_variables import PROVIDERS, RENAMED, legacy_names
from ai_platform_engineering.core.model_providers import find_provider
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import describe_settings
from ai_platform_engineering.core.unused_variables import UNUSED_VARIABLES
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "migrating.md").read_text(encoding="utf-8")
PATTERNS = {"ENABLE_<NAME>", "<NAME>_AGENT_URL", "<NAME>_AGENT_HOST", "<NAME>_AGENT_PORT"}


def read_rows(heading: str) -> list[list[str]]:
    """The rows of the tables of a section, without the lines below their heads."""
    section = PAGE.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split(" | ") for line in section.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in row] for row in rows if not row[0].startswith("---")]


def read_names(text: str) -> set[str]:
    return set(re.findall(r"`([A-Z<][A-Z0-9_<>]*_[A-Z0-9_<>]*)`", text))


def command_variables(command: click.Command) -> Iterator[str]:
    for parameter in command.params:
        if isinstance(parameter.envvar, str):
            yield parameter.envvar
    if isinstance(command, click.Group):
        for subcommand in command.commands.values():
            yield from command_variables(subcommand)


def test_what_is_called_the_same_is_a_variable_of_ours() -> None:
    names = read_names(" ".join(row[-1] for row in read_rows("Variables that are the same")))
    assert len(names) > 50
    settings = {row.name for row in describe_settings(Settings(), {}, {})}
    agents = {name for entry in load_catalog({}, agents_config=None) for name in entry.variables}
    assert names - settings - agents - PATTERNS - set(command_variables(main)) == set()


def test_what_is_called_read_is_in_the_table_and_the_other_way_round() -> None:
    rows = read_rows("Variables that are read under their old name")
    assert read_names(" ".join(cell for row in rows for cell in row[:-1])) == legacy_names()


def test_each_provider_has_its_row_with_its_prefix_and_its_extra() -> None:
    rows = {row[0]: row for row in read_rows("Variables that are read under their old name") if len(row) == 5}
    del rows["`LLM_PROVIDER`"]
    assert set(rows) == set(PROVIDERS)
    for name, provider in PROVIDERS.items():
        _, model, connection, tuning, here = rows[name]
        assert read_names(model) == {provider.model}
        assert read_names(connection) == set(provider.connection)
        assert read_names(tuning) == {provider.temperature, provider.context_tokens} - {None}
        extra = find_provider(f"{provider.prefix}:x").extra
        assert here == f"`{provider.prefix}:…`" + (f" (`{extra}`)" if extra else "")


@pytest.mark.parametrize("legacy_name", RENAMED)
def test_each_renamed_variable_has_its_row_with_our_name(legacy_name: str) -> None:
    [here] = [
        row[1]
        for row in read_rows("Variables that are read under their old name")
        if len(row) == 2 and legacy_name in read_names(row[0])
    ]
    assert RENAMED[legacy_name] in read_names(here)


def test_what_is_called_not_read_is_in_the_table_with_what_there_is_in_its_place() -> None:
    documented = {}
    for names, instead in read_rows("Variables that are not read")[1:]:
        documented |= dict.fromkeys(read_names(names), instead.replace("`", ""))
    assert documented == {variable.name: variable.instead.replace("`", "") for variable in UNUSED_VARIABLES}


def test_no_variable_stands_in_two_sections() -> None:
    not_read = {variable.name for variable in UNUSED_VARIABLES}
    same = read_names(" ".join(row[-1] for row in read_rows("Variables that are the same")))
    assert same & not_read == set()


def test_readme_and_docs_lead_to_the_page() -> None:
    assert "docs/migrating.md" in (ROOT / "README.md").read_text(encoding="utf-8")
    for page in ("agents.md", "slack.md"):
        assert "migrating.md" in (ROOT / "docs" / page).read_text(encoding="utf-8")


def test_the_pages_that_it_leads_to_exist() -> None:
    for target in re.findall(r"\]\(([^)#]+)", PAGE):
        assert (ROOT / "docs" / target).exists(), target
