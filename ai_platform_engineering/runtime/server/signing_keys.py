"""The signing keys of a server: the configured one, or one of its own for what has to be signed anyway."""

import os
from functools import cached_property
from pathlib import Path
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.runtime.server.ascii_json import AsciiJSONResponse
from ai_platform_engineering.runtime.server.signing_key import KEY_SET_PATH, SigningKey

_KEY_FILE = "notification-key.pem"


class SigningKeys:
    """The key that cards are signed with, if one is configured, and the key of push notifications.

    Notifications are always signed. Without a configured key the server makes one when the first is sent, and
    keeps it beside its database: receivers that know the key set recognize it after a restart."""

    def __init__(self, key_file: Path | None, folder: Path | None, *, signs_notifications: bool) -> None:
        """`folder`: where a key of the server's own is kept; without one it lasts as long as the process.

        Raises ConfigurationError for a key that cannot be used."""
        self._own_file = folder / _KEY_FILE if folder is not None else None
        self._signs_notifications = signs_notifications
        self.card_key: SigningKey | None = None
        if key_file is not None:
            self.card_key = SigningKey.from_file(key_file)
        elif signs_notifications and self._own_file is not None and os.path.exists(self._own_file):
            self.notification_key  # noqa: B018 - a file that cannot be used is told at the start

    @cached_property
    def notification_key(self) -> SigningKey:
        if self.card_key is not None:
            return self.card_key
        return SigningKey.load_or_create(self._own_file)

    def key_set(self) -> dict[str, Any]:
        return self.notification_key.key_set()

    def routes(self) -> list[Route]:
        """The key set; none where nothing is signed."""
        if self.card_key is None and not self._signs_notifications:
            return []

        async def get(_: Request) -> Response:
            return AsciiJSONResponse(self.key_set(), headers={"Cache-Control": "max-age=3600"})

        return [Route(KEY_SET_PATH, get)]
