"""Routes of the agent card."""

import hashlib
import json
from collections.abc import Callable
from email.utils import formatdate
from typing import Any

from a2a.types import AgentCard
from google.protobuf.json_format import MessageToDict
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.runtime.server.authentication import is_trusted
from ai_platform_engineering.runtime.server.card_json import card_to_json
from ai_platform_engineering.runtime.server.card_signature import CardSigner
from ai_platform_engineering.runtime.server.public_card import public_card
from ai_platform_engineering.runtime.server.signing_key import SigningKey


class ServedCards:
    """The cards of an agent: the full one, and the public one for callers without a key; signed if there is
    a signing key."""

    def __init__(
        self, card: Callable[[], AgentCard], settings: ServerSettings, key: SigningKey | None
    ) -> None:
        self._card = card
        self._settings = settings
        self._signer: CardSigner | None = None
        if key is not None:
            self._signer = CardSigner(key)

    def full(self) -> AgentCard:
        return self._sign(self._card())

    def public(self) -> AgentCard:
        return self._sign(public_card(self._card()))

    def _sign(self, card: AgentCard) -> AgentCard:
        if self._signer is None:
            return card
        return self._signer.sign(card, self._settings.url)

    def routes(self) -> list[Route]:
        """For both protocol versions at the new and the old path, and for 1.0 alone."""
        return [
            self._card_route("/.well-known/agent-card.json", card_to_json),
            self._card_route("/.well-known/agent.json", card_to_json),
            self._card_route("/v1/.well-known/agent-card.json", MessageToDict),
        ]

    def _card_route(self, path: str, card_to_dict: Callable[[AgentCard], dict[str, Any]]) -> Route:
        cache_headers = {"Cache-Control": "max-age=60", "Last-Modified": formatdate(usegmt=True)}
        if self._settings.needs_key:
            cache_headers["Cache-Control"] = "private, max-age=60"
            cache_headers["Vary"] = "Authorization"

        async def get(request: Request) -> Response:
            card = self.full() if is_trusted(request.scope, self._settings) else self.public()
            body = json.dumps(card_to_dict(card), separators=(",", ":"))
            etag = f'W/"{hashlib.sha256(body.encode()).hexdigest()[:32]}"'
            headers = {**cache_headers, "ETag": etag}
            if request.headers.get("if-none-match") == etag:
                return Response(status_code=304, headers=headers)
            return Response(body, headers=headers, media_type="application/json")

        return Route(path, get)
