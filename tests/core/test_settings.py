"""Settings: the sources of values, what counts as set, and errors that name variables and no value."""

import os
from pathlib import Path

import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.settings import Settings, export_variables, is_loopback, read_environment

# --- where values come from ---------------------------------------------------------------------------------


def test_without_anything_the_server_listens_on_this_machine_alone() -> None:
    settings = Settings.load()
    assert (settings.server.host, settings.server.port, settings.server.loopback) == ("127.0.0.1", 8000, True)
    assert settings.server.url == "http://127.0.0.1:8000/"
    assert settings.model.name is None
    assert settings.limits.recursion == 500
    assert settings.server.keep_alive == 15


def test_a_file_beside_the_process_sets_what_the_environment_does_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    Path(".env").write_text(
        "A2A_PORT=9001\nLLM_MODEL='openai:from-file'\n# LOG_LEVEL=DEBUG\n", encoding="utf-8"
    )
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
    Path(".env").write_text("A2A_PORT=9001\n", encoding="utf-8")
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
    Path(".env").write_text("A2A_PORT=\nLLM_MODEL\n", encoding="utf-8")
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
    ],
)
def test_a_value_that_cannot_be_is_refused_by_name(name: str, value: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}: "):
        Settings.from_variables({name: value})


def test_a_secret_is_in_no_picture_of_the_settings() -> None:
    settings = Settings.from_variables({"A2A_AUTH_SHARED_KEY": "very-secret-key"})
    pictures = (
        f"{settings!r} {settings} {settings.server!r} {settings.model_dump()} {settings.model_dump_json()}"
    )
    assert "very-secret-key" not in pictures
    assert settings.server.shared_key is not None
    assert settings.server.shared_key.get_secret_value() == "very-secret-key"


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
