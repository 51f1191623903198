"""What GitHub's refusals mean, in sentences that say what to do; no sentence holds a credential."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
from mcp.server.fastmcp.exceptions import ToolError

NOT_GITHUB = "What answers at GITHUB_API_URL is not GitHub's API: check the address (Enterprise Server: https://HOST/api/v3)."
REFUSED = "GitHub refused the token. Check GITHUB_TOKEN: it may be wrong, expired or revoked."
LONGEST = 400


@dataclass(frozen=True, slots=True)
class FieldProblem:
    """One entry of `errors` in a refusal."""

    field: str = ""
    code: str = ""
    message: str = ""

    def __str__(self) -> str:
        said = self.message or self.code.replace("_", " ") or "not accepted"
        if self.field:
            return f"{self.field}: {said}"
        return said


class GitHubError(ToolError):
    """A refusal: the sentence, and what a tool needs to say more about it."""

    def __init__(
        self, text: str, status: int, said: str = "", problems: tuple[FieldProblem, ...] = ()
    ) -> None:
        super().__init__(text)
        self.status = status
        self.said = said
        self.problems = problems


def refusal(answer: httpx.Response, path: str, token: str) -> GitHubError:
    """The error for an answer that is not a success; the far end may repeat the token, we do not."""
    body = _body(answer)
    if body is None and answer.status_code in (404, 405):
        return GitHubError(NOT_GITHUB, answer.status_code)
    found = body or {}
    said = _told(found.get("message"), token)
    problems = tuple(
        _problem(entry, token) for entry in found.get("errors") or () if isinstance(entry, dict | str)
    )
    return GitHubError(_sentence(answer, path, said, problems), answer.status_code, said, problems)


def _body(answer: httpx.Response) -> dict[str, Any] | None:
    try:
        found = answer.json()
    except ValueError:
        return None
    if isinstance(found, dict):
        return found
    return None


def _told(text: Any, token: str) -> str:
    """GitHub's words in one line; the token goes before the cut, which could leave a part of it."""
    return " ".join(str(text or "").replace(token, "***").split())[:LONGEST]


def _problem(entry: dict[str, Any] | str, token: str) -> FieldProblem:
    if isinstance(entry, str):
        return FieldProblem(message=_told(entry, token))
    field, code, message = (_told(entry.get(key), token) for key in ("field", "code", "message"))
    return FieldProblem(field, code, message)


def _sentence(answer: httpx.Response, path: str, said: str, problems: tuple[FieldProblem, ...]) -> str:
    told = f": {said.rstrip('.')}." if said else "."
    match answer.status_code:
        case 401:
            return REFUSED
        case 403 | 429 if limit := _limit(answer, said):
            return limit
        case 403:
            return f"The token may not do this{told} {_permission(answer)}"
        case 404:
            return f"GitHub finds nothing at {path}: the name is wrong, or the token may not see it."
        case 405:
            return f"GitHub cannot do this now{told}"
        case 409:
            return f"GitHub found a conflict{told} Read the current state and try again."
        case 410:
            return f"It is gone or switched off in this repository{told}"
        case 422:
            why = "; ".join(map(str, problems))
            return f"GitHub did not accept the values{told} {why}".strip()
        case status if status >= 500:
            return f"GitHub has a problem of its own (status {status}). Try again later."
        case status:
            return f"GitHub answered with status {status}{told}"


def _limit(answer: httpx.Response, said: str) -> str | None:
    """The sentence for a used-up limit, None when the refusal is about something else."""
    if (wait := answer.headers.get("Retry-After", "")).isdecimal():
        return f"GitHub asks for fewer calls. Try again in {wait} s."
    reset = answer.headers.get("X-RateLimit-Reset", "")
    if answer.headers.get("X-RateLimit-Remaining") == "0" and reset.isdecimal() and len(reset) < 12:
        at = datetime.fromtimestamp(int(reset), UTC)
        return (
            f"GitHub's rate limit for this token is used up. It is full again at {at:%Y-%m-%d %H:%M:%S} UTC."
        )
    if answer.status_code == 429 or "rate limit" in said.lower():
        return "GitHub asks for fewer calls. Wait a minute and try again."
    return None


def _permission(answer: httpx.Response) -> str:
    if answer.headers.get("X-GitHub-SSO"):
        return "Authorize the token for the organisation's single sign-on."
    needed = answer.headers.get("X-Accepted-GitHub-Permissions") or answer.headers.get(
        "X-Accepted-OAuth-Scopes"
    )
    if needed:
        return f"It needs: {needed[:LONGEST]}."
    return "Check the permissions of GITHUB_TOKEN."
