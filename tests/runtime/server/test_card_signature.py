"""The signature of the card, checked by the SDK with the key set that the server publishes."""

import json
from pathlib import Path
from typing import Any

import pytest
from a2a.client.card_resolver import parse_agent_card
from a2a.types import AgentCard
from a2a.utils.signing import InvalidSignaturesError, create_signature_verifier
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519
from google.protobuf.json_format import ParseDict
from jwt import PyJWK

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.runtime.server.signing_key import SigningKey
from ai_platform_engineering.runtime.server.signing_keys import SigningKeys
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import supervisor

YES = Script(Turn(Say("Yes.")))
NAME = "Ünïcode \u2028 & “quotes”"
KEY = "a-long-shared-key-0123456789abcdef"


def write_key(path: Path, private_key: Any) -> Path:
    path.write_bytes(
        private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    )
    return path


def verify(card: AgentCard, key_set: dict[str, Any]) -> None:
    """Raises InvalidSignaturesError."""
    keys = {key["kid"]: PyJWK(key) for key in key_set["keys"]}
    create_signature_verifier(lambda kid, jku: keys[str(kid)], ["ES256"])(card)


async def test_every_card_is_signed_with_the_published_key(tmp_path: Path) -> None:
    path = write_key(tmp_path / "key.pem", ec.generate_private_key(ec.SECP256R1()))
    env = {
        "A2A_CARD_SIGNING_KEY_FILE": str(path),
        "A2A_AGENT_NAME": NAME,
        "A2A_AUTH_SHARED_KEY": KEY,
    }
    async with supervisor(YES, env=env) as client:
        key_set = (await client.http.get(f"{client.url}.well-known/jwks.json")).json()
        client.headers["Authorization"] = f"Bearer {KEY}"
        extended = (await client.call("GetExtendedAgentCard", {}))["result"]
        cards = [ParseDict(extended, AgentCard())]
        for headers in ({}, client.headers):
            for location in ("agent-card.json", "agent.json"):
                url = f"{client.url}.well-known/{location}"
                cards.append(parse_agent_card((await client.http.get(url, headers=headers)).json()))
    assert "d" not in key_set["keys"][0]
    for card in cards:
        assert card.name == NAME
        verify(card, key_set)
    assert cards[1].description != cards[3].description  # without and with the key
    cards[0].description = "Something else."
    with pytest.raises(InvalidSignaturesError):
        verify(cards[0], key_set)


async def test_without_a_key_there_is_neither_a_signature_nor_a_key_set() -> None:
    async with supervisor(YES, env={"A2A_PUSH_NOTIFICATIONS": "false"}) as client:
        card = (await client.http.get(f"{client.url}.well-known/agent-card.json")).json()
        key_set = await client.http.get(f"{client.url}.well-known/jwks.json")
    assert "signatures" not in card
    assert key_set.status_code == 404


def test_a_key_that_cannot_be_used_is_a_clear_error(tmp_path: Path) -> None:
    text = tmp_path / "text.pem"
    text.write_text("no key, but a secret")
    other = write_key(tmp_path / "other.pem", ed25519.Ed25519PrivateKey.generate())
    for path, reason in (
        (tmp_path / "missing.pem", "cannot be read"),
        (text, "no private key in PEM"),
        (other, "not on the curve P-256"),
    ):
        with pytest.raises(ConfigurationError, match=reason) as refusal:
            SigningKey.from_file(path)
        assert "secret" not in str(refusal.value)


def test_the_key_id_is_the_thumbprint_of_the_public_key(tmp_path: Path) -> None:
    private_key = ec.generate_private_key(ec.SECP256R1())
    first, second = SigningKey(private_key), SigningKey(private_key)
    assert first.key_id == second.key_id == first.key_set()["keys"][0]["kid"]
    assert json.dumps(first.key_set()) == json.dumps(second.key_set())


async def test_the_key_of_notifications_is_kept_and_one_that_cannot_be_used_stops_the_start(
    tmp_path: Path,
) -> None:
    first = SigningKeys(None, tmp_path, signs_notifications=True)
    assert not list(tmp_path.iterdir())  # none is made before it is needed
    second = SigningKeys(None, tmp_path, signs_notifications=True)
    assert (
        first.key_set() == second.key_set() == SigningKeys(None, tmp_path, signs_notifications=True).key_set()
    )
    [path] = tmp_path.iterdir()
    path.write_text("no key")
    with pytest.raises(ConfigurationError, match="no private key in PEM"):
        SigningKeys(None, tmp_path, signs_notifications=True)
    SigningKeys(None, tmp_path, signs_notifications=False)  # it is not used
