"""The keys of a server: whose key was sent, and which addresses have sent too many wrong ones."""

import hmac

from ai_platform_engineering.core.settings import ServerSettings
from ai_platform_engineering.runtime.server.rate_limits import WrongKeyCounter

SHARED_KEY_USER = "shared-key"
DELEGATE_USER = "delegate"


class AccessKeys:
    """The configured keys by their users; truthy when there are any."""

    def __init__(self, settings: ServerSettings) -> None:
        self._keys: dict[str, bytes] = {}
        if settings.shared_key is not None:
            self._keys[SHARED_KEY_USER] = settings.shared_key.get_secret_value().encode()
        if settings.delegate_key is not None:
            self._keys[DELEGATE_USER] = settings.delegate_key.get_secret_value().encode()
        self.wrong = WrongKeyCounter(settings.max_wrong_keys, settings.wrong_key_seconds)

    def __bool__(self) -> bool:
        return bool(self._keys)

    def find_user(self, token: bytes) -> str | None:
        """The user of a key. Every key is compared, so that the time tells nothing."""
        users = [user for user, key in self._keys.items() if hmac.compare_digest(token, key)]
        if users:
            return users[0]
        return None
