"""Encryption of stored tokens: AES-256-GCM with a configured key, or with one in a private file.

`cryptography` is imported when something is encrypted: it takes 7 MB, and most installations have no logins.
"""

import contextlib
import hmac
import os
import secrets
import tempfile
from pathlib import Path

from pydantic import SecretStr

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.private_files import create_private_folder

_KEY_FILE = "mcp-oauth.key"
_KEY_BYTES = 32
_NONCE_BYTES = 12
_PURPOSE = b"caipe: tokens of MCP servers, 1"


class UnreadableSecret(Exception):
    """The ciphertext was made with another key, for another row, or was changed."""


class TokenCipher:
    """Encrypts and decrypts rows. What a row belongs to is authenticated too: no row can take another's
    place."""

    def __init__(self, key: bytes) -> None:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        self._aead = AESGCM(key)

    @classmethod
    def from_settings(cls, configured_key: SecretStr | None, home: Path) -> "TokenCipher":
        """Raises ConfigurationError for a key file that cannot be used."""
        if configured_key is not None:
            return cls(hmac.digest(configured_key.get_secret_value().encode(), _PURPOSE, "sha256"))
        return cls(_load_or_create_key(home / _KEY_FILE))

    def encrypt(self, text: bytes, row: str) -> bytes:
        nonce = secrets.token_bytes(_NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, text, row.encode())

    def decrypt(self, ciphertext: bytes, row: str) -> bytes:
        """Raises UnreadableSecret."""
        from cryptography.exceptions import InvalidTag

        try:
            return self._aead.decrypt(ciphertext[:_NONCE_BYTES], ciphertext[_NONCE_BYTES:], row.encode())
        except (InvalidTag, ValueError):
            raise UnreadableSecret from None


def _load_or_create_key(path: Path) -> bytes:
    try:
        if not path.exists():
            _create_key(path)
        text = path.read_text(encoding="ascii").strip()
        key = bytes.fromhex(text)
    except OSError as error:
        raise ConfigurationError(f"The key file {path} cannot be used: {error.strerror}.") from None
    except ValueError:
        key = b""
    if len(key) != _KEY_BYTES:
        raise ConfigurationError(
            f"The key file {path} holds no key. Restore it, or delete it: then everybody signs in again."
        )
    return key


def _create_key(path: Path) -> None:
    """Creates the file as a whole; of two processes that do so at once, both use the key of the first."""
    create_private_folder(path.parent)
    descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}-")  # made with 0600
    try:
        with open(descriptor, "w", encoding="ascii") as file:
            file.write(secrets.token_hex(_KEY_BYTES) + "\n")
            file.flush()
            os.fsync(file.fileno())
        with contextlib.suppress(FileExistsError):
            os.link(temporary, path)
    finally:
        os.unlink(temporary)
