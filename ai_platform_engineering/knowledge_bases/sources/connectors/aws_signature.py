"""AWS Signature Version 4 of GET requests to S3 and to what speaks its protocol."""

import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from urllib.parse import quote

_ALGORITHM = "AWS4-HMAC-SHA256"
_EMPTY_BODY = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True, slots=True)
class AwsCredentials:
    """An access key for one region."""

    region: str
    key_id: str
    secret: str = field(repr=False)
    session_token: str = field(default="", repr=False)


def encode_path(path: str) -> str:
    """A path as it is sent and signed."""
    return quote(path, safe="/-_.~")


def encode_query(query: Mapping[str, str]) -> str:
    """Parameters as they are sent and signed: sorted, with spaces as %20."""
    pairs = [f"{quote(name, safe='-_.~')}={quote(value, safe='-_.~')}" for name, value in query.items()]
    return "&".join(sorted(pairs))


def sign_request(
    credentials: AwsCredentials, host: str, path: str, query: str, now: datetime
) -> dict[str, str]:
    """The headers of a signed GET request. `path` and `query` are encoded, `now` is in UTC."""
    time = now.strftime("%Y%m%dT%H%M%SZ")
    scope = f"{time[:8]}/{credentials.region}/s3/aws4_request"
    headers = {"x-amz-content-sha256": _EMPTY_BODY, "x-amz-date": time}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    signed = {"host": host, **headers}
    names = ";".join(sorted(signed))
    lines = "".join(f"{name}:{signed[name]}\n" for name in sorted(signed))
    canonical = "\n".join(("GET", path, query, lines, names, _EMPTY_BODY))
    digest = hashlib.sha256(canonical.encode()).hexdigest()
    signature = _compute_signature(credentials, scope, "\n".join((_ALGORITHM, time, scope, digest)))
    credential = f"Credential={credentials.key_id}/{scope}"
    return {
        **headers,
        "Authorization": f"{_ALGORITHM} {credential}, SignedHeaders={names}, Signature={signature}",
    }


def _compute_signature(credentials: AwsCredentials, scope: str, text: str) -> str:
    key = f"AWS4{credentials.secret}".encode()
    for part in scope.split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()
