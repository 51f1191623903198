"""What the stand-ins for Jira and Confluence have in common: whose token it is, bodies and pages."""

import base64
import binascii
import hmac
import json
from typing import Any

from starlette.requests import Request

from ai_platform_engineering.demo.estate.company import Company, Person

MAX_BODY_BYTES = 1_000_000

Json = dict[str, Any]


class AtlassianApiError(Exception):
    """A refused request; each stand-in answers it in its own shape.

    `errors` are those of single fields, by their names.
    """

    def __init__(self, status: int, message: str, errors: dict[str, str] | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.errors = errors or {}


def find_demo_user(company: Company) -> Person:
    """Whom the demo's token belongs to: the person on call in the platform team."""
    return company.teams[-1].on_call


def check_token(request: Request, token: str) -> None:
    """A personal access token, or the password of basic authentication. Raises AtlassianApiError."""
    scheme, _, credentials = request.headers.get("Authorization", "").partition(" ")
    if scheme.lower() == "basic":
        credentials = _read_password(credentials)
    if not hmac.compare_digest(credentials.encode(), token.encode()):
        raise AtlassianApiError(
            401, "You are not authenticated. Authentication required to perform this operation."
        )


def _read_password(credentials: str) -> str:
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except (binascii.Error, UnicodeDecodeError):
        return ""


async def read_object(request: Request) -> Json:
    """The body as a JSON object. Raises AtlassianApiError."""
    content = await _read_bytes(request)
    try:
        body = json.loads(content or b"{}")
    except (ValueError, RecursionError):
        body = None
    if not isinstance(body, dict):
        raise AtlassianApiError(400, "The body is not a JSON object.")
    return body


async def read_json(request: Request) -> Any:
    """The body as any JSON value. Raises AtlassianApiError."""
    try:
        return json.loads(await _read_bytes(request))
    except (ValueError, RecursionError) as error:
        raise AtlassianApiError(400, "The body is not JSON.") from error


async def _read_bytes(request: Request) -> bytes:
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > MAX_BODY_BYTES:
            raise AtlassianApiError(413, f"The body is longer than {MAX_BODY_BYTES} bytes.")
        chunks.append(chunk)
    return b"".join(chunks)


def read_number(request: Request, name: str, default: int, maximum: int) -> int:
    """A parameter that is no negative number; above the maximum it is the maximum."""
    text = request.query_params.get(name, "")
    if not text:
        return default
    if not text.isdecimal() or len(text) > 9:
        raise AtlassianApiError(400, f"The parameter {name} must be a number that is not negative.")
    return min(int(text), maximum)
