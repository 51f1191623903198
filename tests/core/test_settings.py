"""Settings: the sources of values, what counts as set, and errors that name variables and no value."""

import os
from pathlib import Path

import pytest

from ai_platform_engineering.core.environment import export_variables, read_environment
from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.host_patterns import is_loopback
from ai_platform_engineering.core.settings import Settings
from ai_platform_engineering.core.settings_report import describe_settings

FLAGS = [row.name for row in describe_settings(Settings(), {}, {}) if row.value in ("True", "False")]

# --- where values come from ---------------------------------------------------------------------------------


def test_without_anything_the_server_listens_on_this_machine_alone() -> None:
    settings = Settings.load()
    assert (settings.server.host, settings.server.port, settings.server.loopback) == ("127.0.0.1", 8000, True)
    assert settings.server.url == "http://127.0.0.1:8000/"
    assert settings.model.name is None
    assert settings.limits.recursion == 500
    assert settings.server.keep_alive == 15


def write_home_file(text: str) -> None:
    """Writes the `.env` in CAIPE_HOME."""
    file = Path(os.environ["CAIPE_HOME"]) / ".env"
    file.parent.mkdir(exist_ok=True)
    file.write_text(text, encoding="utf-8")


def test_a_file_in_the_home_folder_sets_what_the_environment_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    write_home_file("A2A_PORT=9001\nLLM_MODEL='openai:from-file'\n# LOG_LEVEL=DEBUG\n")
    monkeypatch.setenv("A2A_PORT", "9002")
    settings = Settings.load()
    assert settings.server.port == 9002
    assert settings.model.name == "openai:from-file"
    assert settings.logging.level == "INFO"


def test_another_file_can_be_named(tmp_path: Path) -> None:
    other = tmp_path / "other.env"
    other.write_text("export A2A_PORT=9003\n", encoding="utf-8")
    assert Settings.load(other).server.port == 9003


def test_the_process_environment_is_not_changed_by_reading_a_file() -> None:
    write_home_file("A2A_PORT=9001\n")
    assert read_environment()["A2A_PORT"] == "9001"
    assert "A2A_PORT" not in os.environ


@pytest.mark.parametrize("empty", ["", " ", "\t"])
def test_an_empty_value_is_no_value(empty: str) -> None:
    settings = Settings.from_variables(
        {
            "A2A_PORT": empty,
            "LLM_MODEL": empty,
            "A2A_AUTH_SHARED_KEY": empty,
            "USE_STRUCTURED_RESPONSE": empty,
        }
    )
    assert settings == Settings.from_variables({})


def test_an_empty_value_in_the_file_is_no_value() -> None:
    write_home_file("A2A_PORT=\nLLM_MODEL\n")
    assert (Settings.load().server.port, Settings.load().model.name) == (8000, None)


def test_space_around_a_value_does_not_count() -> None:
    assert (
        Settings.from_variables({"A2A_PORT": " 9001 ", "LLM_MODEL": " openai:x\n"}).model.name == "openai:x"
    )


@pytest.mark.parametrize("name", ["host", "port", "name", "level", "recursion", "shared_key", "server"])
def test_a_variable_of_somebody_else_changes_nothing(name: str) -> None:
    """Shells export names such as `host`; only our own variables count."""
    assert Settings.from_variables({name: "0.0.0.0"}) == Settings.from_variables({})


def test_settings_cannot_be_changed_later() -> None:
    settings = Settings.from_variables({})
    with pytest.raises(ValueError, match="frozen"):
        settings.server.port = 1  # type: ignore[misc]


# --- kinds of values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "on"),
    [
        ("true", True),
        ("True", True),
        ("1", True),
        ("yes", True),
        ("on", True),
        ("false", False),
        ("0", False),
        ("no", False),
        ("", False),
    ],
)
def test_a_switch_is_on_with(value: str, on: bool) -> None:
    assert Settings.from_variables({"USE_STRUCTURED_RESPONSE": value}).agent.structured_response is on


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("value", ["ture", "flase", "2", "y", "enabled", "truefalse", "on off", "нет"])
def test_a_switch_that_is_neither_on_nor_off_is_refused(name: str, value: str) -> None:
    """READ_ONLY=ture is not false."""
    with pytest.raises(ConfigurationError, match=f"{name}: a switch is one of true, 1, yes, on or false"):
        Settings.from_variables({name: value})


@pytest.mark.parametrize("value", ["inf", "nan", "-inf", "Infinity"])
@pytest.mark.parametrize("name", ["RUN_TIMEOUT_SECONDS", "LLM_TIMEOUT_SECONDS", "MCP_CALL_TIMEOUT"])
def test_no_limit_is_endless(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: "):
        Settings.from_variables({name: value})


@pytest.mark.parametrize("name", ["A2A_AUTH_SHARED_KEY", "A2A_AUTH_DELEGATE_KEY"])
def test_a_short_key_is_refused_with_a_way_to_make_one(name: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: .*16 characters.*openssl rand -hex 32") as refused:
        Settings.from_variables({name: "hunter2-hunter2"})
    assert "hunter2" not in str(refused.value)
    assert Settings.from_variables({name: "hunter2-hunter2-"}).server.needs_key


def test_a_list_is_separated_by_commas_and_trimmed() -> None:
    assert Settings.from_variables(
        {"A2A_ALLOWED_HOSTS": " a.example , ,b.example,"}
    ).server.allowed_hosts == ("a.example", "b.example")


@pytest.mark.parametrize("value", ["debug", "Debug", "DEBUG"])
def test_a_log_level_is_read_in_any_case(value: str) -> None:
    assert Settings.from_variables({"LOG_LEVEL": value}).logging.level == "DEBUG"


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({"A2A_PORT": "9001"}, "http://127.0.0.1:9001/"),
        ({"A2A_HOST": "::1"}, "http://[::1]:8000/"),
        ({"EXTERNAL_URL": "https://caipe.example/a2a"}, "https://caipe.example/a2a/"),
        ({"EXTERNAL_URL": "https://caipe.example/"}, "https://caipe.example/"),
    ],
)
def test_the_card_names_the_address_that_clients_reach(variables: dict[str, str], url: str) -> None:
    assert Settings.from_variables(variables).server.url == url


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.9.9.9", True),
        ("::1", True),
        ("[::1]", True),
        ("localhost", True),
        ("LOCALHOST.", True),
        ("0.0.0.0", False),
        ("::", False),
        ("192.168.0.7", False),
        ("localhost.example", False),
        ("127.0.0.1.example", False),
    ],
)
def test_only_this_machine_is_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) is loopback


# --- what is wrong ------------------------------------------------------------------------------------------


WRONG = {
    "A2A_PORT": "70000-secretvalue",
    "A2A_MAX_REQUEST_BYTES": "-77123",
    "LLM_TIMEOUT_SECONDS": "soon-secretvalue",
    "LLM_ATTEMPTS": "77123",
    "LANGGRAPH_RECURSION_LIMIT": "1.77123",
    "STREAM_COALESCE_CHARS": "zero-secretvalue",
    "LOG_LEVEL": "loud-secretvalue",
}


def test_all_wrong_variables_are_named_in_one_error() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_variables({**WRONG, "LLM_MODEL": "openai:fine"})
    text = str(caught.value)
    assert [name for name in WRONG if f"{name}: " not in text] == []
    assert "LLM_MODEL" not in text


def test_an_error_never_shows_a_value() -> None:
    with pytest.raises(ConfigurationError) as caught:
        Settings.from_variables(WRONG)
    message = f"{caught.value} {caught.value!r} {caught.value.__cause__!r}"
    assert "secretvalue" not in message.lower()
    assert "77123" not in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("A2A_PORT", "70000"),
        ("A2A_PORT", "-1"),
        ("A2A_PORT", "http"),
        ("A2A_KEEP_ALIVE_SECONDS", "0"),
        ("LLM_ATTEMPTS", "0"),
        ("LANGGRAPH_RECURSION_LIMIT", "4"),
        ("LLM_CONTEXT_TOKENS", "10"),
        ("LOG_LEVEL", "LOUD"),
        ("WHEN_BUSY", "sometimes"),
        ("RAG_EMBEDDINGS", "of"),
        ("LANGGRAPH_CHECKPOINT_TYPE", "postgre"),
        ("EXTERNAL_URL", "caipe.example"),
        ("EXTERNAL_URL", "javascript://x"),
        ("RAG_SERVER_URL", "http://"),
        ("EMBEDDINGS_BASE_URL", "https://host:port/"),
        ("SLACK_INTEGRATION_API_URL", "file:///etc"),
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: "):
        Settings.from_variables({name: value})


def test_a_secret_is_in_no_picture_of_the_settings() -> None:
    settings = Settings.from_variables({"A2A_AUTH_SHARED_KEY": "a-very-secret-key"})
    pictures = (
        f"{settings!r} {settings} {settings.server!r} {settings.model_dump()} {settings.model_dump_json()}"
    )
    assert "a-very-secret-key" not in pictures
    assert settings.server.shared_key is not None
    assert settings.server.shared_key.get_secret_value() == "a-very-secret-key"


# --- for libraries that read the environment themselves -----------------------------------------------------


def test_exported_variables_reach_libraries_and_the_environment_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "from-environment")
    export_variables({"OPENAI_API_KEY": "from-file", "ANTHROPIC_API_KEY": "from-file"})
    assert (os.environ["OPENAI_API_KEY"], os.environ["ANTHROPIC_API_KEY"]) == (
        "from-environment",
        "from-file",
    )


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_a_ca_bundle_under_any_of_its_names_is_used(name: str) -> None:
    export_variables({name: "/etc/own-ca.pem"})
    assert os.environ["SSL_CERT_FILE"] == "/etc/own-ca.pem"


# --- what people are shown ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "shown"),
    [
        ("EMBEDDINGS_BASE_URL", "https://me:hunter2hunter2@host/v1", "https://***@host/v1"),
        ("RAG_SERVER_URL", "https://host/mcp?api_key=hunter2hunter2&x=1", "https://host/mcp?api_key=***&x=1"),
        ("EXTERNAL_URL", "https://hunter2hunter2@host/", "https://***@host/"),
        ("SKILL_HUBS", "https://me:hunter2hunter2@host/a.git@main", "***@host/a.git@main"),
        ("DATABASE_URL", "postgres://me:hunter2hunter2@host/db", "set"),
    ],
)
def test_the_password_of_a_url_is_not_shown(name: str, value: str, shown: str) -> None:
    variables = {name: value}
    rows = describe_settings(Settings.from_variables(variables), variables, {})
    (row,) = [row for row in rows if row.name == name]
    assert "hunter2" not in row.value
    assert shown in row.value


@pytest.mark.parametrize(
    ("variables", "opens"),
    [
        ({}, True),
        ({"A2A_HOST": "::1"}, True),
        ({"A2A_HOST": "0.0.0.0", "A2A_AUTH_SHARED_KEY": "k" * 16}, False),
        ({"A2A_AUTH_SHARED_KEY": "k" * 16}, False),
        ({"A2A_AUTH_DELEGATE_KEY": "k" * 16}, False),
        ({"A2A_ALLOW_UNAUTHENTICATED": "true"}, False),
        ({"EXTERNAL_URL": "https://caipe.example.com"}, False),
        ({"A2A_ALLOWED_HOSTS": "caipe.example.com"}, False),
        ({"SLACK_INTEGRATION_BOT_TOKEN": "xoxb-1"}, False),
        ({"NETWORK_ALLOW_PRIVATE_ADDRESSES": "false"}, False),
        ({"NETWORK_ALLOW_PRIVATE_ADDRESSES": "true", "A2A_AUTH_SHARED_KEY": "k" * 16}, True),
    ],
)
def test_private_addresses_are_open_to_one_person_alone(variables: dict[str, str], opens: bool) -> None:
    assert Settings.from_variables(variables).allows_private_addresses is opens


@pytest.mark.parametrize("hosts", ["*", "db.example.com, not a host", "10.0.0.0/99"])
def test_a_host_that_is_not_understood_is_refused(hosts: str) -> None:
    with pytest.raises(ConfigurationError, match="NETWORK_ALLOWED_HOSTS"):
        Settings.from_variables({"NETWORK_ALLOWED_HOSTS": hosts})
