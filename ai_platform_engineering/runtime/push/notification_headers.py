"""The headers of a push notification: its signature, the client's token, and the authentication asked for."""

import hashlib
import time
from importlib.metadata import version

from ai_platform_engineering.runtime.log.push_store import DueNotification, PushTarget
from ai_platform_engineering.runtime.server.signing_key import SigningKey

TOKEN_HEADER = "X-A2A-Notification-Token"
SIGNATURE_HEADER = "X-CAIPE-Signature"
_TOKEN_SECONDS = 300  # that a signature is valid; each attempt has a new one


def build_headers(
    notification: DueNotification, body: bytes, key: SigningKey, issuer: str, now: float | None = None
) -> dict[str, str]:
    """The JWT is always in a header of ours, and in `Authorization` unless the client wants something else
    there."""
    target = notification.config.target
    token = key.sign_token(_build_claims(notification, body, issuer, int(now or time.time())))
    headers = {
        "Content-Type": "application/json",
        "User-Agent": f"caipe/{version('ai-platform-engineering')}",
        SIGNATURE_HEADER: token,
    }
    authorization = _authorization(target, token)
    if authorization:
        headers["Authorization"] = authorization
    if target.token:
        headers[TOKEN_HEADER] = target.token
    return headers


def _build_claims(notification: DueNotification, body: bytes, issuer: str, now: int) -> dict[str, object]:
    config = notification.config
    return {
        "iss": issuer,
        "aud": config.target.host,
        "iat": now,
        "exp": now + _TOKEN_SECONDS,
        # The same when a notification is sent again: a receiver can tell that it has it.
        "jti": f"{config.run_id}/{config.number}/{notification.seq}",
        "taskId": config.run_id,
        "configId": config.target.config_id,
        "request_body_sha256": hashlib.sha256(body).hexdigest(),
    }


def _authorization(target: PushTarget, token: str) -> str:
    if target.credentials:
        return f"{target.scheme} {target.credentials}"
    if target.scheme.lower() in ("", "bearer"):
        return f"Bearer {token}"
    return ""  # a scheme whose credentials the client did not give
