"""The TLS context of outgoing HTTP connections: the trusted certificates, read once for the process."""

import ssl
from functools import lru_cache

import certifi

from ai_platform_engineering.core.environment import find_certificates

_MOST_CONTEXTS = 4  # one, unless the environment changes


def trusted_tls_context() -> ssl.SSLContext:
    """Trusts the certificates that SSL_CERT_FILE or SSL_CERT_DIR name, else those of certifi, as httpx does.

    Reading them takes some 20 ms and a megabyte, which each client would spend anew.
    """
    return _load_context(*find_certificates())


@lru_cache(_MOST_CONTEXTS)
def _load_context(file: str | None, folder: str | None) -> ssl.SSLContext:
    if file:
        return ssl.create_default_context(cafile=file)
    if folder:
        return ssl.create_default_context(capath=folder)
    return ssl.create_default_context(cafile=certifi.where())
