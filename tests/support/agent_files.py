"""Definition files in the working folder, which is the test's own, and the catalogue that comes from them."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from ai_platform_engineering.agents.agent_catalog import AgentCatalog, load_catalog
from ai_platform_engineering.core.errors import ConfigurationError

GOOD = "name: demo\ndescription: A demo.\n"


def load_files(
    files: Mapping[str, str],
    variables: Mapping[str, str] | None = None,
    config: str | None = None,
    **more: Any,
) -> AgentCatalog:
    """Writes the files and loads them, each by its name or all by `config`; places then are names relative
    to the folder."""
    for name, text in files.items():
        Path(name).parent.mkdir(parents=True, exist_ok=True)
        Path(name).write_text(text, encoding="utf-8")
    agents_config = os.pathsep.join(files) if config is None else config
    return load_catalog(variables or {}, agents_config=agents_config, **{"shipped": False, **more})


def load_problems(files: Mapping[str, str], **more: Any) -> list[str]:
    """What is wrong with the files, one line each."""
    with pytest.raises(ConfigurationError) as caught:
        load_files(files, **more)
    first, *lines = str(caught.value).splitlines()
    assert first == "Agent definitions are wrong:"
    return [line.strip() for line in lines]
