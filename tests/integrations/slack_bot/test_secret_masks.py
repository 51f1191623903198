"""Which arguments a channel does not see, and that nothing hides behind a mask."""

import json
from typing import Any

import pytest

from ai_platform_engineering.integrations.slack_bot.secret_masks import (
    MaskChanged,
    is_secret_name,
    mask_secrets,
    restore_secrets,
)

SECRET = """
password Password db_password DB-PASSWORD dbPassword userPasswd passphrase pwd pass token Token jwt
secret client_secret clientSecret CLIENT_SECRET api_key apiKey apikey API-Key x-api-key private_key
sshPrivateKey aws_secret_access_key secret_key access_key signing_key access_token accessToken
github_access_token api_token auth_token bearerToken refresh_token session_token bot_token id_token
authorization Authorization cookie set_cookie credentials credential
""".split()
SHOWN = """
max_tokens maxTokens token_count tokenizer tokens page_token next_page_token nextToken
continuationToken token_type tokenUrl password_note passwordless password_policy secret_name
secretary secretRef key key_id access_key_id api_key_name keyboard public_key monkey bypass
pass_through passenger compass author authorization_url cookie_policy cookies_enabled
credential_type path note value
""".split()


@pytest.mark.parametrize("name", SECRET)
def test_a_name_that_says_secret_is_masked(name: str) -> None:
    assert is_secret_name(name)
    masked = mask_secrets({name: "hunter2", "more": [{name: 1234}]})
    assert masked[name].startswith("•••• (masked: 7 characters, ")
    assert masked["more"][0][name].startswith("•••• (masked: 4 characters, ")


@pytest.mark.parametrize("name", SHOWN)
def test_a_name_that_only_holds_such_a_word_is_shown(name: str) -> None:
    assert not is_secret_name(name)
    assert mask_secrets({name: "rm -rf /"}) == {name: "rm -rf /"}


def test_nothing_but_a_secret_is_behind_a_mask() -> None:
    nested = {"credentials": {"user": "me", "command": "rm -rf /", "password": ["a", "b"]}, "secret": True}
    masked = mask_secrets(nested)
    assert masked["credentials"]["command"] == "rm -rf /"
    assert masked["secret"] is True
    first, second = masked["credentials"]["password"]
    assert first != second  # values that differ look different
    assert mask_secrets({"password": "a"}) == mask_secrets({"password": "a"})
    assert "hunter" not in str(mask_secrets({"password": "hunter2"}))


def test_masks_are_restored_where_they_stood() -> None:
    original: dict[str, Any] = {
        "password": "hunter2",
        "key": {"pin": 1, "api_token": 12},
        "secret": ["a", "b"],
    }
    masked = mask_secrets(original)
    assert restore_secrets(masked, original) == original
    edited = {**masked, "key": {**masked["key"], "pin": 2}, "password": "new"}
    assert restore_secrets(edited, original) == {
        "password": "new",
        "key": {"pin": 2, "api_token": 12},
        "secret": ["a", "b"],
    }


@pytest.mark.parametrize(
    "edit",
    [
        {"other": "{mask}"},
        {"password": "x{mask}"},
        {"password": "•••• (masked: 7 characters, 00000000)"},
        {"list": ["{mask}"]},
    ],
    ids=["moved", "extended", "of another value", "in a list"],
)
def test_a_mask_that_stands_for_nothing_is_refused_and_never_sent(edit: Any) -> None:
    original = {"password": "hunter2", "other": "x", "list": ["x"]}
    mask = mask_secrets(original)["password"]
    filled = json.loads(json.dumps(edit, ensure_ascii=False).replace("{mask}", mask))
    with pytest.raises(MaskChanged, match="holds a mask that stands for nothing"):
        restore_secrets({**mask_secrets(original), **filled}, original)
