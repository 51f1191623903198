"""The JSON body of an A2A request: media type, limits, and strict JSON."""

import json
import math
from typing import Any, NoReturn

from starlette.requests import Request

from ai_platform_engineering.core.errors import CaipeError
from ai_platform_engineering.core.events import clean_json
from ai_platform_engineering.core.json_limits import JsonTooLarge
from ai_platform_engineering.runtime.server.request_limits import RequestLimits

_JSON_TYPES = ("application/json", "application/a2a+json")


class UnsupportedMediaType(CaipeError):
    """A body that does not say that it is JSON (HTTP 415)."""

    code = "unsupported_media_type"


class BodyTooLarge(CaipeError):
    """A body with more bytes, values or levels than the server reads (HTTP 413)."""

    code = "too_large"


class NotJson(CaipeError):
    """A body that cannot be parsed."""

    code = "not_json"


def check_media_type(request: Request) -> None:
    """Raises UnsupportedMediaType."""
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in _JSON_TYPES:
        raise UnsupportedMediaType("Unsupported media type: send application/json.")


async def read_body(request: Request, limits: RequestLimits) -> bytes:
    """Raises BodyTooLarge."""
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > limits.body_bytes:
            raise BodyTooLarge(
                f"The request is larger than {limits.body_bytes} bytes. "
                "Send less, or raise A2A_MAX_REQUEST_BYTES."
            )
        chunks.append(chunk)
    return b"".join(chunks)


def parse_body(content: bytes, limits: RequestLimits) -> Any:
    """Raises BodyTooLarge and NotJson."""
    try:
        limits.json.check(content)
        return _parse_json(content)
    except JsonTooLarge as refusal:
        raise BodyTooLarge(
            f"{refusal} Send less, or raise A2A_MAX_JSON_VALUES or A2A_MAX_JSON_DEPTH."
        ) from None
    except json.JSONDecodeError as problem:
        raise NotJson(
            f"Parse error at line {problem.lineno}, column {problem.colno}: this is not JSON."
        ) from None
    except (ValueError, RecursionError):
        raise NotJson("Parse error: this is not JSON in UTF-8, or too deep.") from None


def _parse_json(raw: bytes) -> Any:
    """Parses strict JSON in UTF-8; a lone surrogate becomes U+FFFD, since UTF-8 cannot hold it."""
    text = raw.decode("utf-8-sig")
    body = json.loads(text, parse_constant=_reject_number, parse_float=_parse_finite_float)
    if "\\ud" in text.lower():
        return clean_json(body)
    return body


def _reject_number(text: str) -> NoReturn:
    raise ValueError("not a number of JSON")


def _parse_finite_float(text: str) -> float:
    number = float(text)
    if math.isfinite(number):
        return number
    return _reject_number(text)
