"""The server's signing key: signatures as JWS (ES256), and the public key as a JSON Web Key Set.

`cryptography` is imported when a key is used: it takes 7 MB, and most servers sign nothing.
"""

import base64
import hashlib
import json
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.core.private_files import write_private_file

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric import ec

log = logging.getLogger(__name__)

KEY_SET_PATH = "/.well-known/jwks.json"
_COORDINATE_BYTES = 32  # of P-256
_MAX_FILE_BYTES = 16 * 1024
_HELP = "Make one with: openssl ecparam -name prime256v1 -genkey -noout -out key.pem"


class SigningKey:
    """A private key on the curve P-256; its id is the thumbprint of the public key (RFC 7638)."""

    def __init__(self, private_key: "ec.EllipticCurvePrivateKey") -> None:
        self._private_key = private_key
        numbers = private_key.public_key().public_numbers()
        self._public_jwk = {
            "crv": "P-256",
            "kty": "EC",
            "x": _encode(numbers.x.to_bytes(_COORDINATE_BYTES, "big")),
            "y": _encode(numbers.y.to_bytes(_COORDINATE_BYTES, "big")),
        }
        self.key_id = _encode(hashlib.sha256(canonical_json(self._public_jwk)).digest())

    @classmethod
    def from_file(cls, path: Path) -> "SigningKey":
        """Reads an unencrypted PEM file. Raises ConfigurationError, whose text holds nothing of the file."""
        from cryptography.exceptions import UnsupportedAlgorithm
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        try:
            with path.open("rb") as file:
                content = file.read(_MAX_FILE_BYTES)
            private_key = serialization.load_pem_private_key(content, password=None)
        except OSError as error:
            raise ConfigurationError(f"The signing key {path} cannot be read: {error.strerror}.") from None
        except (ValueError, TypeError, UnsupportedAlgorithm):
            raise ConfigurationError(
                f"The signing key {path} is no private key in PEM without a password. {_HELP}"
            ) from None
        if not isinstance(private_key, ec.EllipticCurvePrivateKey) or private_key.curve.name != "secp256r1":
            raise ConfigurationError(f"The signing key {path} is not on the curve P-256. {_HELP}")
        return cls(private_key)

    @classmethod
    def load_or_create(cls, path: Path | None) -> "SigningKey":
        """The key in the file; a new one is made and kept there. Without a path it is kept nowhere.

        Raises ConfigurationError for a file that holds no such key."""
        from cryptography.hazmat.primitives import serialization
        from cryptography.hazmat.primitives.asymmetric import ec

        if path is not None and path.exists():
            return cls.from_file(path)
        private_key = ec.generate_private_key(ec.SECP256R1())
        content = private_key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        if path is not None:
            try:
                write_private_file(path, content)
            except OSError as error:
                log.warning(
                    "the signing key %s cannot be kept: %s. The next start makes another one",
                    path,
                    error.strerror,
                )
        return cls(private_key)

    def key_set(self) -> dict[str, Any]:
        """The public key as a JSON Web Key Set."""
        return {"keys": [{**self._public_jwk, "use": "sig", "alg": "ES256", "kid": self.key_id}]}

    def sign(self, payload: bytes, header: dict[str, str]) -> tuple[str, str]:
        """The protected header and the signature of a JWS, both as they stand in it."""
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

        protected = _encode(canonical_json({**header, "alg": "ES256", "kid": self.key_id}))
        signed = f"{protected}.{_encode(payload)}".encode()
        r, s = decode_dss_signature(self._private_key.sign(signed, ec.ECDSA(hashes.SHA256())))
        signature = r.to_bytes(_COORDINATE_BYTES, "big") + s.to_bytes(_COORDINATE_BYTES, "big")
        return protected, _encode(signature)

    def sign_token(self, claims: dict[str, Any]) -> str:
        """A JWT with these claims."""
        payload = canonical_json(claims)
        protected, signature = self.sign(payload, {"typ": "JWT"})
        return f"{protected}.{_encode(payload)}.{signature}"


def canonical_json(value: Any) -> bytes:
    """JSON in its canonical form (RFC 8785), for values without fractions."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode()


def _encode(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()
