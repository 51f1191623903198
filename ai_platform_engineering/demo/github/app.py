"""The stand-in for GitHub as a web application: token, rate limit, pages, errors, and the table of requests."""

import itertools
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route

from ai_platform_engineering.demo.github import issues, pulls, repositories, runs, search
from ai_platform_engineering.demo.github.responses import (
    BaseUrls,
    CreatedResponse,
    GitHubApiError,
    GitHubRequest,
    Json,
    ListResponse,
    RepositoryMoved,
)
from ai_platform_engineering.demo.github.sample_data import BOT
from ai_platform_engineering.demo.github.state import Account, GitHubState

DEMO_TOKEN = "demo-token"
DOCUMENTATION = "https://docs.github.com/rest"
ENTERPRISE = "/api/v3"
HOUR = 3600

Handler = Callable[[GitHubRequest], Any]

_REPO = "/repos/{owner}/{repo}"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/user", repositories.me),
    ("GET", "/user/repos", repositories.of_me),
    ("POST", "/user/repos", repositories.create_mine),
    ("GET", "/users/{login}", repositories.account),
    ("GET", "/users/{login}/repos", repositories.of_user),
    ("GET", "/orgs/{login}/repos", repositories.of_organisation),
    ("POST", "/orgs/{login}/repos", repositories.create_in_organisation),
    ("GET", "/search/repositories", search.repositories),
    ("GET", "/search/issues", search.issues),
    ("GET", _REPO, repositories.show),
    ("GET", _REPO + "/branches", repositories.branches),
    ("GET", _REPO + "/branches/{branch:path}", repositories.branch),
    ("GET", _REPO + "/commits", repositories.commits),
    ("GET", _REPO + "/commits/{ref:path}/check-runs", runs.checks),
    ("GET", _REPO + "/commits/{ref:path}/status", runs.status),
    ("GET", _REPO + "/commits/{ref:path}", repositories.commit),
    ("GET", _REPO + "/contents", repositories.contents),
    ("GET", _REPO + "/contents/{path:path}", repositories.contents),
    ("PUT", _REPO + "/contents/{path:path}", repositories.write_file),
    ("GET", _REPO + "/git/ref/heads/{branch:path}", repositories.reference),
    ("POST", _REPO + "/git/refs", repositories.create_reference),
    ("GET", _REPO + "/releases", repositories.releases),
    ("GET", _REPO + "/issues", issues.issues),
    ("POST", _REPO + "/issues", issues.create),
    ("GET", _REPO + "/issues/{number:int}", issues.show),
    ("PATCH", _REPO + "/issues/{number:int}", issues.update),
    ("GET", _REPO + "/issues/{number:int}/comments", issues.comments),
    ("POST", _REPO + "/issues/{number:int}/comments", issues.add_comment),
    ("GET", _REPO + "/pulls", pulls.pulls),
    ("POST", _REPO + "/pulls", pulls.create),
    ("GET", _REPO + "/pulls/{number:int}", pulls.show),
    ("GET", _REPO + "/pulls/{number:int}/files", pulls.files),
    ("GET", _REPO + "/pulls/{number:int}/reviews", pulls.reviews),
    ("PUT", _REPO + "/pulls/{number:int}/merge", pulls.merge),
    ("GET", _REPO + "/actions/runs", runs.runs),
    ("GET", _REPO + "/actions/runs/{run:int}", runs.show),
    ("GET", _REPO + "/actions/runs/{run:int}/jobs", runs.jobs),
    ("GET", _REPO + "/check-runs/{check:int}/annotations", runs.annotations),
)


@dataclass(slots=True)
class RateLimit:
    """How many calls a token has left in its hour."""

    each_hour: int
    reset: int = field(default_factory=lambda: int(time.time()) + HOUR)
    used: int = 0

    def count_call(self) -> bool:
        """Counts a call; False when there was none left."""
        if time.time() >= self.reset:
            self.reset, self.used = int(time.time()) + HOUR, 0
        left = self.used < self.each_hour
        self.used += left
        return left

    @property
    def headers(self) -> dict[str, str]:
        told = {
            "Limit": self.each_hour,
            "Remaining": self.each_hour - self.used,
            "Used": self.used,
            "Reset": self.reset,
        }
        return {f"X-RateLimit-{name}": str(value) for name, value in told.items()} | {
            "X-RateLimit-Resource": "core"
        }


class GitHubService:
    """One GitHub: its state, who may ask, and how often."""

    def __init__(
        self, state: GitHubState, tokens: Mapping[str, str], rate_limit: int, file: Path | None
    ) -> None:
        self._state = state
        self._tokens = tokens
        self._file = file
        self._limits = {token: RateLimit(rate_limit) for token in tokens}
        self._numbers = itertools.count(1)

    def route(self, method: str, path: str, handler: Handler) -> Route:
        async def answer(request: Request) -> Response:
            return await self._answer(request, handler)

        return Route(path, answer, methods=[method])

    async def _answer(self, request: Request, handler: Handler) -> Response:
        headers = {
            "X-GitHub-Request-Id": f"DEMO:{next(self._numbers):06X}",
            "X-GitHub-Media-Type": "github.v3; format=json",
        }
        try:
            account, limit = self._admitted(request)
            headers |= limit.headers
            if not limit.count_call():
                raise GitHubApiError(403, f"API rate limit exceeded for user ID {account.id}.")
            headers |= limit.headers
            call = GitHubRequest(
                self._state,
                account,
                _links(request),
                request.path_params,
                request.query_params,
                await _body(request),
            )
            response = _response(request, handler(call))
        except GitHubApiError as error:
            response = error_response(error)
        except RepositoryMoved as error:
            response = _moved(request, error)
        if self._file and request.method != "GET" and response.status_code < 300:
            self._state.save(self._file)
        response.headers.update(headers)
        return response

    def _admitted(self, request: Request) -> tuple[Account, RateLimit]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            raise GitHubApiError(401, "Requires authentication")
        account = self._state.find_account(self._tokens.get(token.strip(), ""))
        if scheme.lower() not in ("bearer", "token") or account is None:
            raise GitHubApiError(401, "Bad credentials")
        return account, self._limits[token.strip()]


def create_app(
    state: GitHubState,
    *,
    tokens: Sequence[str] | Mapping[str, str] = (DEMO_TOKEN,),
    rate_limit: int = 5000,
    file: Path | None = None,
) -> Starlette:
    """The application over a state; tokens alone stand for the bot, a mapping says whose each is."""
    owners = tokens if isinstance(tokens, Mapping) else dict.fromkeys(tokens, BOT)
    service = GitHubService(state, owners, rate_limit, file)
    routes = [service.route(*row) for row in ROUTES]
    # An Enterprise Server has the same API below a path.
    return Starlette(
        routes=[Mount(ENTERPRISE, routes=routes), *routes], exception_handlers={HTTPException: _unknown}
    )


def error_response(error: GitHubApiError) -> Response:
    body: Json = {"message": error.message}
    if error.errors:
        body["errors"] = list(error.errors)
    return JSONResponse(
        body | {"documentation_url": DOCUMENTATION, "status": str(error.status)}, error.status
    )


async def _unknown(_: Request, error: Exception) -> Response:
    return error_response(GitHubApiError(404, "Not Found"))


async def _body(request: Request) -> Json:
    raw = await request.body()
    try:
        found = json.loads(raw) if raw else {}
    except ValueError:
        raise GitHubApiError(400, "Problems parsing JSON") from None
    if not isinstance(found, dict):
        raise GitHubApiError(400, "Body should be a JSON object")
    return found


def _links(request: Request) -> BaseUrls:
    web = str(request.base_url).rstrip("/")
    return BaseUrls(web, web + (ENTERPRISE if request.url.path.startswith(ENTERPRISE + "/") else ""))


def _response(request: Request, found: Any) -> Response:
    if isinstance(found, CreatedResponse):
        return JSONResponse(found.body, 201)
    if isinstance(found, ListResponse):
        return _page(request, found)
    return JSONResponse(found)


def _page(request: Request, found: ListResponse) -> Response:
    size, number = _number(request, "per_page", 30, 100), _number(request, "page", 1, 10**6)
    last = max(1, -(-len(found.items) // size))
    items = list(found.items[(number - 1) * size : number * size])
    body: Any = items
    if found.key:
        body = {"total_count": len(found.items), **dict(found.extra), found.key: items}
    return JSONResponse(body, headers=_link(request, number, last))


def _number(request: Request, name: str, default: int, most: int) -> int:
    given = request.query_params.get(name, "")
    if given.isdecimal() and int(given) > 0:
        return min(int(given), most)
    return default


def _link(request: Request, number: int, last: int) -> dict[str, str]:
    """Where the other pages are; none when all is on one."""
    pages = {"prev": number - 1, "first": 1} if number > 1 else {}
    pages |= {"next": number + 1, "last": last} if number < last else {}
    told = [
        f'<{request.url.replace(query=urlencode({**request.query_params, "page": page}))}>; rel="{rel}"'
        for rel, page in pages.items()
    ]
    if told:
        return {"Link": ", ".join(told)}
    return {}


def _moved(request: Request, error: RepositoryMoved) -> Response:
    path = request.url.path
    old = f"{request.path_params['owner']}/{request.path_params['repo']}"
    target = str(
        request.url.replace(path=path.replace(f"/repos/{old}", f"/repos/{error.repository.full_name}", 1))
    )
    status = 301 if request.method == "GET" else 307
    return JSONResponse(
        {"message": "Moved Permanently", "url": target, "documentation_url": DOCUMENTATION},
        status,
        {"Location": target},
    )
