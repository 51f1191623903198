"""Legacy variables: what they mean here, ours before them, conflicts, and what is set in vain."""

import logging
import os
import secrets
from pathlib import Path

import pytest

from ai_platform_engineering.core.environment import (
    export_variables,
    read_environment,
    replace_exported_variables,
    reread_environment,
)
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.legacy_variables import (
    PROVIDERS,
    RENAMED,
    LegacyConflict,
    legacy_names,
    translate_legacy_variables,
)
from ai_platform_engineering.core.redaction import MASK
from ai_platform_engineering.core.setting_types import InvalidSettings
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import describe_settings
from ai_platform_engineering.core.unused_variables import (
    UNUSED_VARIABLES,
    UnusedVariable,
    find_unused_variables,
    warn_of_unused_variables,
)

OPENAI = {"LLM_PROVIDER": "openai", "OPENAI_MODEL_NAME": "gpt-4o"}


def sources(variables: dict[str, str]) -> dict[str, str]:
    rows = describe_settings(Settings.from_variables(variables), variables, {})
    return {row.name: row.source for row in rows if row.source not in ("default", "environment")}


# --- models -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_and_its_model_are_the_model(name: str) -> None:
    provider = PROVIDERS[name]
    variables = {"LLM_PROVIDER": name, provider.model: "eu.model-1:0", provider.temperature: "0.25"}
    settings = Settings.from_variables(variables)
    assert settings.model.name == f"{provider.prefix}:eu.model-1:0"
    assert settings.model.temperature == 0.25


@pytest.mark.parametrize("name", [name for name, provider in PROVIDERS.items() if provider.context_tokens])
def test_the_context_of_a_provider_goes_before_that_of_all(name: str) -> None:
    provider = PROVIDERS[name]
    assert provider.context_tokens
    variables = {"LLM_PROVIDER": name, provider.model: "x", "MAX_CONTEXT_TOKENS": "50000"}
    assert Settings.from_variables(variables).model.context_tokens == 50_000
    variables[provider.context_tokens] = "70000"
    assert Settings.from_variables(variables).model.context_tokens == 70_000


def test_variables_of_another_provider_say_nothing() -> None:
    others = {
        name: "99"
        for provider in PROVIDERS.values()
        if provider.prefix != "openai"
        for name in (provider.model, provider.temperature, provider.context_tokens or provider.model)
    }
    settings = Settings.from_variables({**OPENAI, **others})
    assert settings.model == Settings.from_variables(OPENAI).model
    assert list(find_unused_variables({**OPENAI, **others})) == []


@pytest.mark.parametrize("value", ["OpenAI", " openai ", "OPENAI"])
def test_a_provider_is_read_in_any_case(value: str) -> None:
    variables = {**OPENAI, "LLM_PROVIDER": value}
    assert Settings.from_variables(variables).model.name == "openai:gpt-4o"


def test_an_unknown_provider_is_refused_with_the_known_ones() -> None:
    word = secrets.token_hex(8)
    with pytest.raises(InvalidSettings) as refused:
        Settings.from_variables({"LLM_PROVIDER": word})
    [problem] = refused.value.problems
    assert problem.startswith("LLM_PROVIDER: ")
    assert [name for name in PROVIDERS if name not in problem] == []
    assert word not in str(refused.value)


@pytest.mark.parametrize("name", PROVIDERS)
def test_a_provider_without_its_model_is_refused(name: str) -> None:
    """Also Gemini, which had a model of its own choice: nothing is guessed."""
    with pytest.raises(ConfigurationError, match=f"LLM_PROVIDER: .*{PROVIDERS[name].model}"):
        Settings.from_variables({"LLM_PROVIDER": name})


def test_a_wrong_value_is_told_under_the_name_that_was_set() -> None:
    with pytest.raises(InvalidSettings) as refused:
        Settings.from_variables({**OPENAI, "OPENAI_TEMPERATURE": "warm", "AGENT_CONNECTIVITY_TIMEOUT": "-1"})
    assert [problem.split(":")[0] for problem in refused.value.problems] == [
        "OPENAI_TEMPERATURE",
        "AGENT_CONNECTIVITY_TIMEOUT",
    ]


@pytest.mark.parametrize(
    ("variables", "model"),
    [
        ({"SUPERVISOR_MODEL": "anthropic:claude"}, "anthropic:claude"),
        ({"SUPERVISOR_LLM_PROVIDER": "groq", "SUPERVISOR_GROQ_MODEL_NAME": "llama"}, "groq:llama"),
        ({"SUPERVISOR_LLM_PROVIDER": "openai"}, "openai:gpt-4o"),  # with the model of all
        ({"SUPERVISOR_OPENAI_MODEL_NAME": "x"}, "openai:gpt-4o"),  # nothing without its provider
    ],
)
def test_the_supervisors_own_model_goes_before_that_of_all(variables: dict[str, str], model: str) -> None:
    assert Settings.from_variables({**OPENAI, **variables}).model.name == model


@pytest.mark.parametrize(
    ("variables", "model"),
    [
        ({"SUBAGENT_GITHUB_MODEL": "openai:small"}, "openai:small"),
        (
            {"SUBAGENT_GITHUB_LLM_PROVIDER": "openai", "SUBAGENT_GITHUB_OPENAI_MODEL_NAME": "small"},
            "openai:small",
        ),
        ({"SUBAGENT_GITHUB_LLM_PROVIDER": "openai"}, "openai:gpt-4o"),
    ],
)
def test_the_model_of_one_agent_is_read(variables: dict[str, str], model: str) -> None:
    assert translate_legacy_variables({**OPENAI, **variables}).variables["GITHUB_LLM_MODEL"] == model
    ours = {"GITHUB_LLM_MODEL": "openai:ours"}
    assert (
        translate_legacy_variables({**OPENAI, **variables, **ours}).variables["GITHUB_LLM_MODEL"]
        == "openai:ours"
    )


@pytest.mark.parametrize("prefix", ["SUPERVISOR_", "SUBAGENT_GITHUB_"])
def test_a_connection_of_one_model_alone_is_refused(prefix: str) -> None:
    """What was asked of a server of one's own must not go to another one."""
    secret = secrets.token_hex(12)
    variables = {**OPENAI, f"{prefix}LLM_PROVIDER": "openai", f"{prefix}OPENAI_API_KEY": secret}
    with pytest.raises(ConfigurationError, match=f"{prefix}OPENAI_API_KEY: ") as refused:
        Settings.from_variables({**variables, "OPENAI_API_KEY": "another-key"})
    assert secret not in str(refused.value)
    Settings.from_variables({**variables, "OPENAI_API_KEY": secret})


# --- ours before theirs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("legacy_name", RENAMED)
def test_a_renamed_variable_is_read_and_ours_counts(legacy_name: str) -> None:
    name = RENAMED[legacy_name]
    translation = translate_legacy_variables({legacy_name: " 4711 "})
    assert translation.variables[name] == "4711"
    assert (translation.sources, translation.conflicts) == ({name: legacy_name}, ())
    both = translate_legacy_variables({legacy_name: "4711", name: "17"})
    assert both.variables[name] == "17"
    assert (both.sources, both.conflicts) == ({}, (LegacyConflict(name, legacy_name),))
    same = translate_legacy_variables({legacy_name: "4711", name: "4711"})
    assert same.conflicts == ()
    assert translate_legacy_variables({legacy_name: "4711", name: " "}).variables[name] == "4711"


@pytest.mark.parametrize("provider", ["openai", "nobody"])
def test_our_model_counts_whatever_the_provider_is(provider: str) -> None:
    variables = {**OPENAI, "LLM_PROVIDER": provider, "LLM_MODEL": "anthropic:claude"}
    assert Settings.from_variables(variables).model.name == "anthropic:claude"
    assert translate_legacy_variables(variables).conflicts == (LegacyConflict("LLM_MODEL", "LLM_PROVIDER"),)


def test_translating_twice_changes_nothing() -> None:
    variables = {
        **OPENAI,
        "OPENAI_ENDPOINT": "http://127.0.0.1:9/v1",
        "SUBAGENT_JIRA_MODEL": "openai:x",
        "MAX_CONTEXT_TOKENS": "5000",
    }
    once = translate_legacy_variables(variables)
    twice = translate_legacy_variables(once.variables)
    assert twice == once
    assert sources(once.variables)["LLM_MODEL"] == "LLM_PROVIDER"


def test_nothing_is_added_where_no_legacy_variable_is_set() -> None:
    variables = {"LLM_MODEL": "openai:x", "MODEL": "y", "PATH": "/bin"}
    assert translate_legacy_variables(variables).variables == variables


# --- the process --------------------------------------------------------------------------------------------


def test_libraries_find_the_names_that_they_know(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_ENDPOINT", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("OPENAI_BASE_URL", "")  # as compose passes one that is not set
    export_variables(read_environment())
    assert os.environ["OPENAI_BASE_URL"] == "http://127.0.0.1:9/v1"


def test_a_changed_file_is_translated_anew(tmp_path: Path) -> None:
    file = Path(os.environ["CAIPE_HOME"]) / ".env"
    file.parent.mkdir()
    file.write_text("LLM_PROVIDER=openai\nOPENAI_MODEL_NAME=one\nOPENAI_ENDPOINT=http://127.0.0.1:1/v1\n")
    replace_exported_variables(read_environment())
    assert os.environ["LLM_MODEL"] == "openai:one"
    file.write_text("LLM_PROVIDER=openai\nOPENAI_MODEL_NAME=two\n")
    changed = reread_environment()
    assert Settings.from_variables(changed).model.name == "openai:two"
    replace_exported_variables(changed)
    assert os.environ["LLM_MODEL"] == "openai:two"
    assert "OPENAI_BASE_URL" not in os.environ


@pytest.mark.parametrize(
    "name",
    sorted(
        name
        for name in legacy_names()
        if name.endswith(("KEY", "SECRET_ACCESS_KEY", "CREDENTIALS", "DSN")) and "<" not in name
    ),
)
def test_the_secrets_of_legacy_variables_are_removed_from_texts(name: str) -> None:
    secret = secrets.token_hex(12)
    value = f"postgresql://me:{secret}@db/x" if name.endswith("DSN") else secret
    settings = Settings.from_variables({name: value})
    assert settings.redactor.redact(f"refused: {secret}!") == f"refused: {MASK}!"
    shown = " ".join(row.value for row in describe_settings(settings, {name: value}, {}))
    assert secret not in f"{shown} {settings!r}"


# --- set in vain --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("unused", UNUSED_VARIABLES, ids=lambda unused: unused.name)
def test_a_variable_that_is_not_used_is_reported(unused: UnusedVariable) -> None:
    name = unused.name.replace("<NAME>", "MY_AGENT")
    report = list(find_unused_variables({name: "something"}, of_slack_bot=unused.of_slack_bot))
    assert report == [(name, unused.instead)]
    assert list(find_unused_variables({name: "something"}, of_slack_bot=not unused.of_slack_bot)) == []
    for value in ("", *unused.harmless):
        assert list(find_unused_variables({name: value}, of_slack_bot=unused.of_slack_bot)) == []


def test_no_variable_is_both_read_and_unused() -> None:
    unused_names = {variable.name for variable in UNUSED_VARIABLES}
    our_names = {row.name for row in describe_settings(Settings(), {}, {})}
    assert unused_names & (legacy_names() | our_names) == set()
    assert len(unused_names) == len(UNUSED_VARIABLES)


def test_a_variable_that_an_agents_definition_names_is_used() -> None:
    variables = {"ARGOCD_MCP_HOST": "tools.example"}
    assert list(find_unused_variables(variables)) != []
    assert list(find_unused_variables(variables, {"ARGOCD_MCP_HOST"})) == []


@pytest.mark.parametrize("name", ["OPENAI_MODEL_NAME", "BEDROCK_TEMPERATURE", "OPENAI_MAX_CONTEXT_TOKENS"])
def test_what_only_a_provider_gives_a_meaning_is_reported_without_one(name: str) -> None:
    assert [unused for unused, _ in find_unused_variables({name: "1"})] == [name]


def test_the_warning_has_names_and_no_value(caplog: pytest.LogCaptureFixture) -> None:
    secret = secrets.token_hex(12)
    variables = {
        "LANGFUSE_SECRET_KEY": secret,
        "A2A_TRANSPORT": "p2p",
        "LLM_PROVIDER": secret,
        "LLM_MODEL": "openai:x",
    }
    with caplog.at_level(logging.WARNING):
        warn_of_unused_variables(variables)
    [record] = caplog.records
    text = record.getMessage()
    assert "LANGFUSE_SECRET_KEY: " in text
    assert "LLM_PROVIDER: LLM_MODEL is set as well" in text
    assert secret not in text
    assert "A2A_TRANSPORT" not in text
    caplog.clear()
    warn_of_unused_variables({"A2A_PORT": "8000"})
    assert caplog.records == []


# --- values that were taken ---------------------------------------------------------------------------------


def test_zero_minutes_are_no_expiry() -> None:
    assert Settings.from_variables({"LANGGRAPH_CHECKPOINT_TTL_MINUTES": "0"}).storage.ttl_minutes is None
    assert Settings.from_variables({"LANGGRAPH_CHECKPOINT_TTL_MINUTES": "7"}).storage.ttl_minutes == 7
    with pytest.raises(ConfigurationError, match="LANGGRAPH_CHECKPOINT_TTL_MINUTES: "):
        Settings.from_variables({"LANGGRAPH_CHECKPOINT_TTL_MINUTES": "-1"})


def test_the_text_of_a_file_is_not_taken_for_its_name() -> None:
    text = "C0EXAMPLE:\n  ai_enabled: true\n"
    with pytest.raises(
        ConfigurationError, match=r"SLACK_INTEGRATION_BOT_CONFIG: .* the name of one"
    ) as refused:
        Settings.from_variables({"SLACK_INTEGRATION_BOT_CONFIG": text})
    assert "C0EXAMPLE" not in str(refused.value)
