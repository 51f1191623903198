"""Error messages for GitHub's error responses: they say what to do, and hold no credential."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
from mcp.server.mcpserver.exceptions import ToolError

NOT_GITHUB = "What answers at GITHUB_API_URL is not GitHub's API: check the address (Enterprise Server: https://HOST/api/v3)."
TOKEN_REFUSED = "GitHub refused the token. Check GITHUB_TOKEN: it may be wrong, expired or revoked."
MAX_MESSAGE = 400


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One entry of `errors` in an error response."""

    field: str = ""
    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        message = self.message or self.code.replace("_", " ") or "not accepted"
        if self.field:
            return f"{self.field}: {message}"
        return message


class GitHubError(ToolError):
    """An error response: a sentence for the model, and the details that a tool needs to say more."""

    def __init__(
        self, text: str, status: int, message: str = "", problems: tuple[FieldProblem, ...] = ()
    ) -> None:
        super().__init__(text)
        self.status = status
        self.message = message
        self.problems = problems


def build_error(response: httpx.Response, path: str, token: str) -> GitHubError:
    """The error for a response that is not a success; GitHub may repeat the token, the error does not."""
    body = _parse_body(response)
    if body is None and response.status_code in (404, 405):
        return GitHubError(NOT_GITHUB, response.status_code)
    details = body or {}
    message = _clean(details.get("message"), token)
    problems = []
    for entry in details.get("errors") or ():
        if isinstance(entry, dict | str):
            problems.append(_parse_problem(entry, token))
    return GitHubError(
        _describe(response, path, message, problems), response.status_code, message, tuple(problems)
    )


def _parse_body(response: httpx.Response) -> dict[str, Any] | None:
    try:
        body = response.json()
    except ValueError:
        return None
    if isinstance(body, dict):
        return body
    return None


def _clean(text: Any, token: str) -> str:
    """A text of GitHub on one line, without the token: it is replaced before the cut, which could leave a
    part.
    """
    return " ".join(str(text or "").replace(token, "***").split())[:MAX_MESSAGE]


def _parse_problem(entry: dict[str, Any] | str, token: str) -> FieldProblem:
    if isinstance(entry, str):
        return FieldProblem(message=_clean(entry, token))
    return FieldProblem(
        field=_clean(entry.get("field"), token),
        code=_clean(entry.get("code"), token),
        message=_clean(entry.get("message"), token),
    )


def _describe(response: httpx.Response, path: str, message: str, problems: Sequence[FieldProblem]) -> str:
    reason = "."
    if message:
        reason = f": {message.rstrip('.')}."
    match response.status_code:
        case 401:
            return TOKEN_REFUSED
        case 403 | 429 if limit := _describe_rate_limit(response, message):
            return limit
        case 403:
            return f"The token may not do this{reason} {_describe_permission(response)}"
        case 404:
            return f"GitHub finds nothing at {path}: the name is wrong, or the token may not see it."
        case 405:
            return f"GitHub cannot do this now{reason}"
        case 409:
            return f"GitHub found a conflict{reason} Read the current state and try again."
        case 410:
            return f"It is gone or switched off in this repository{reason}"
        case 422:
            why = "; ".join(map(str, problems))
            return f"GitHub did not accept the values{reason} {why}".strip()
        case status if status >= 500:
            return f"GitHub has a problem of its own (status {status}). Try again later."
        case status:
            return f"GitHub answered with status {status}{reason}"


def _describe_rate_limit(response: httpx.Response, message: str) -> str | None:
    """The sentence for an exhausted rate limit; None when the error is about something else."""
    wait = response.headers.get("Retry-After", "")
    if wait.isdecimal():
        return f"GitHub asks for fewer calls. Try again in {wait} s."
    reset = response.headers.get("X-RateLimit-Reset", "")
    if response.headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal() and len(reset) < 12:
        reset_at = datetime.fromtimestamp(int(reset), UTC)
        return (
            f"GitHub's rate limit for this token is used up. "
            f"It is full again at {reset_at:%Y-%m-%d %H:%M:%S} UTC."
        )
    if response.status_code == 429 or "rate limit" in message.lower():
        return "GitHub asks for fewer calls. Wait a minute and try again."
    return None


def _describe_permission(response: httpx.Response) -> str:
    if response.headers.get("X-GitHub-SSO"):
        return "Authorize the token for the organisation's single sign-on."
    needed = response.headers.get("X-Accepted-GitHub-Permissions")
    needed = needed or response.headers.get("X-Accepted-OAuth-Scopes")
    if needed:
        return f"It needs: {needed[:MAX_MESSAGE]}."
    return "Check the permissions of GITHUB_TOKEN."
