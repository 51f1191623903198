"""The signature of an agent card: a JWS over its canonical JSON, as protocol 1.0 defines it."""

from typing import Any

from a2a.types import AgentCard, AgentCardSignature
from google.protobuf.json_format import MessageToDict

from ai_platform_engineering.runtime.server.signing_key import KEY_SET_PATH, SigningKey, canonical_json


class CardSigner:
    """Signs cards; a card that does not change is signed once."""

    def __init__(self, key: SigningKey) -> None:
        self._key = key
        self._signed: dict[bytes, AgentCardSignature] = {}

    def sign(self, card: AgentCard, base_url: str) -> AgentCard:
        """A copy of the card with the signature; `base_url` is where the key set is found."""
        content = MessageToDict(card)
        content.pop("signatures", None)
        payload = canonical_json(_without_empty(content))
        signature = self._signed.get(payload)
        if signature is None:
            header = {"typ": "JOSE", "jku": base_url.rstrip("/") + KEY_SET_PATH}
            protected, value = self._key.sign(payload, header)
            signature = AgentCardSignature(protected=protected, signature=value)
            self._signed = {payload: signature, **dict(list(self._signed.items())[:1])}
        signed = AgentCard()
        signed.CopyFrom(card)
        del signed.signatures[:]
        signed.signatures.append(signature)
        return signed


def _without_empty(value: Any) -> Any:
    """The value without empty texts, lists and objects, which the canonical form leaves out."""
    if isinstance(value, dict):
        cleaned = {key: _without_empty(item) for key, item in value.items()}
        return {key: item for key, item in cleaned.items() if item not in ("", [], {}, None)}
    if isinstance(value, list):
        items = [_without_empty(item) for item in value]
        return [item for item in items if item not in ("", [], {}, None)]
    return value
