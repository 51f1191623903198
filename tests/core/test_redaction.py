"""Redaction: values, formats, and what URLs hold."""

import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ai_platform_engineering.core.redaction import Redactor, mask_urls

FORMATS = [
    "sk-" + "a1B2" * 10,
    "sk-proj-" + "a1B2-_c3" * 6,
    "sk-ant-api03-" + "a1B2" * 10,
    "ghp_" + "a1B2" * 9,
    "github_pat_" + "a1B2" * 8,
    "xoxb-123456789012-abcdefghij",
    "xapp-1-A0123456789-abcdef",
    "AKIA" + "ABCD" * 4,
    "AIza" + "a1B2c" * 7,
    "glpat-" + "a1B2c" * 5,
    "eyJhbGciOiJIUzI1NiIsInR5.eyJzdWIiOiIxMjM0NTY3ODkw.SflKxwRJSMeKKF2QT4fwpMeJf36P",
    "sk-pro***************abcd",
]


@pytest.mark.parametrize("secret", FORMATS)
def test_what_looks_like_a_key_is_removed(secret: str) -> None:
    text = Redactor().redact(f"Incorrect API key provided: {secret}. See https://example.com/keys.")
    assert text == "Incorrect API key provided: ***. See https://example.com/keys."


def test_the_secrets_of_the_environment_are_removed_whatever_they_look_like() -> None:
    values = [secrets.token_hex(8) for _ in range(5)]
    redactor = Redactor.from_variables(
        {
            "OPENAI_API_KEY": values[0],
            "A2A_AUTH_SHARED_KEY": values[1],
            "ARGOCD_TOKEN": f" {values[2]}\n",
            "DATABASE_URL": f"postgres://me:{values[3]}@db/x",
            "SPLUNK_URL": f"https://splunk/?api_key={values[4]}",
            "SSH_AUTH_SOCK": "/tmp/agent.sock",
            "SHELL": "/bin/a-shell",
        }
    )
    text = redactor.redact(f"{' '.join(values)} /tmp/agent.sock /bin/a-shell")
    assert text == "*** *** *** *** *** /tmp/agent.sock /bin/a-shell"


def test_plain_words_stay() -> None:
    text = "The task-runner of ghp says sk- and eyJ; see https://host/a?page=2#key and me@example.com."
    assert Redactor.from_variables({"DB_PASSWORD": "short"}).redact(text) == text


@pytest.mark.parametrize(
    ("url", "masked"),
    [
        ("https://user:pass@host:8443/x?y=1", "https://***@host:8443/x?y=1"),
        ("redis://:pass@host/0", "redis://***@host/0"),
        ("https://token@host/", "https://***@host/"),
        ("https://host/?token=abc&y=1", "https://host/?token=***&y=1"),
        ("https://host/?y=1&X-Amz-Signature=abc#x", "https://host/?y=1&X-Amz-Signature=***#x"),
        ("https://us%40er:p%2Fa@host/@me", "https://***@host/@me"),
        ("https://host/path", "https://host/path"),
    ],
)
def test_the_secrets_of_a_url_are_masked(url: str, masked: str) -> None:
    assert mask_urls(url) == masked
    assert mask_urls(f"GET {url} failed, {url}") == f"GET {masked} failed, {masked}"


@given(st.text(max_size=300))
def test_any_text_can_be_redacted(text: str) -> None:
    Redactor.from_variables({"A_TOKEN": "abcdefgh"}).redact(text)


def test_an_error_is_redacted_in_place() -> None:
    error = ValueError("the key sk-" + "a1B2" * 10, 7)
    Redactor().redact_error(error)
    assert repr(error) == "ValueError('the key ***', 7)"
