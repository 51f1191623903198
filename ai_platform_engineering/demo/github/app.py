"""The stand-in for GitHub as a web application: tokens, rate limits, pages, errors and routes."""

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

from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn
from ai_platform_engineering.demo.github import issues, pulls, repositories, search, workflow_runs
from ai_platform_engineering.demo.github.api_types import (
    CreatedResponse,
    GitHubApiError,
    GitHubRequest,
    ListResponse,
    RepositoryMoved,
    not_found,
)
from ai_platform_engineering.demo.github.json_renderer import BaseUrls, Json
from ai_platform_engineering.demo.github.sample_data import BOT
from ai_platform_engineering.demo.github.state import Account, GitHubState

DEMO_TOKEN = "demo-token"
DOCUMENTATION_URL = "https://docs.github.com/rest"
ENTERPRISE_PATH = "/api/v3"
HOUR_SECONDS = 3600

Handler = Callable[[GitHubRequest], Any]

_REPO = "/repos/{owner}/{repo}"
ROUTES: tuple[tuple[str, str, Handler], ...] = (
    ("GET", "/user", repositories.show_me),
    ("GET", "/user/repos", repositories.list_my_repositories),
    ("POST", "/user/repos", repositories.create_my_repository),
    ("GET", "/users/{login}", repositories.show_account),
    ("GET", "/users/{login}/repos", repositories.list_user_repositories),
    ("GET", "/orgs/{login}/repos", repositories.list_organisation_repositories),
    ("POST", "/orgs/{login}/repos", repositories.create_organisation_repository),
    ("GET", "/search/repositories", search.search_repositories),
    ("GET", "/search/issues", search.search_issues),
    ("GET", _REPO, repositories.show_repository),
    ("GET", _REPO + "/branches", repositories.list_branches),
    ("GET", _REPO + "/branches/{branch:path}", repositories.show_branch),
    ("GET", _REPO + "/commits", repositories.list_commits),
    ("GET", _REPO + "/commits/{ref:path}/check-runs", workflow_runs.list_checks),
    ("GET", _REPO + "/commits/{ref:path}/status", workflow_runs.show_status),
    ("GET", _REPO + "/commits/{ref:path}", repositories.show_commit),
    ("GET", _REPO + "/contents", repositories.show_contents),
    ("GET", _REPO + "/contents/{path:path}", repositories.show_contents),
    ("PUT", _REPO + "/contents/{path:path}", repositories.write_file),
    ("GET", _REPO + "/git/ref/heads/{branch:path}", repositories.show_reference),
    ("POST", _REPO + "/git/refs", repositories.create_reference),
    ("GET", _REPO + "/releases", repositories.list_releases),
    ("GET", _REPO + "/issues", issues.list_issues),
    ("POST", _REPO + "/issues", issues.create_issue),
    ("GET", _REPO + "/issues/{number:int}", issues.show_issue),
    ("PATCH", _REPO + "/issues/{number:int}", issues.update_issue),
    ("GET", _REPO + "/issues/{number:int}/comments", issues.list_comments),
    ("POST", _REPO + "/issues/{number:int}/comments", issues.add_comment),
    ("GET", _REPO + "/pulls", pulls.list_pulls),
    ("POST", _REPO + "/pulls", pulls.create_pull),
    ("GET", _REPO + "/pulls/{number:int}", pulls.show_pull),
    ("GET", _REPO + "/pulls/{number:int}/files", pulls.list_files),
    ("GET", _REPO + "/pulls/{number:int}/reviews", pulls.list_reviews),
    ("PUT", _REPO + "/pulls/{number:int}/merge", pulls.merge_pull),
    ("GET", _REPO + "/actions/runs", workflow_runs.list_runs),
    ("GET", _REPO + "/actions/runs/{run:int}", workflow_runs.show_run),
    ("GET", _REPO + "/actions/runs/{run:int}/jobs", workflow_runs.list_jobs),
    ("GET", _REPO + "/check-runs/{check:int}/annotations", workflow_runs.list_annotations),
)


@dataclass(slots=True)
class RequestQuota:
    """The calls that a token has left in its hour."""

    calls_per_hour: int
    reset: int = field(default_factory=lambda: int(time.time()) + HOUR_SECONDS)
    used: int = 0

    def count_call(self) -> bool:
        """Counts a call; False when there was none left."""
        if time.time() >= self.reset:
            self.reset = int(time.time()) + HOUR_SECONDS
            self.used = 0
        if self.used >= self.calls_per_hour:
            return False
        self.used += 1
        return True

    @property
    def headers(self) -> dict[str, str]:
        return {
            "X-RateLimit-Limit": str(self.calls_per_hour),
            "X-RateLimit-Remaining": str(self.calls_per_hour - self.used),
            "X-RateLimit-Used": str(self.used),
            "X-RateLimit-Reset": str(self.reset),
            "X-RateLimit-Resource": "core",
        }


class GitHubService:
    """One GitHub: its state, its tokens with their owners, and their rate limits."""

    def __init__(
        self, state: GitHubState, token_owners: Mapping[str, str], rate_limit: int, file: Path | None
    ) -> None:
        self._state = state
        self._token_owners = token_owners
        self._file = file
        self._rate_limits = {token: RequestQuota(rate_limit) for token in token_owners}
        self._request_numbers = itertools.count(1)

    def create_route(self, method: str, path: str, handler: Handler) -> Route:
        async def endpoint(request: Request) -> Response:
            return await self._respond(request, handler)

        return Route(path, endpoint, methods=[method])

    async def _respond(self, request: Request, handler: Handler) -> Response:
        headers = {
            "X-GitHub-Request-Id": f"DEMO:{next(self._request_numbers):06X}",
            "X-GitHub-Media-Type": "github.v3; format=json",
        }
        try:
            account, rate_limit = self._authenticate(request)
            headers |= rate_limit.headers
            if not rate_limit.count_call():
                raise GitHubApiError(403, f"API rate limit exceeded for user ID {account.id}.")
            headers |= rate_limit.headers
            github_request = GitHubRequest(
                self._state,
                account,
                _base_urls(request),
                request.path_params,
                request.query_params,
                await _read_body(request),
            )
            response = _http_response(request, handler(github_request))
        except GitHubApiError as error:
            response = error_response(error)
        except RepositoryMoved as error:
            response = _redirect(request, error)
        if self._file and request.method != "GET" and response.status_code < 300:
            self._state.save(self._file)
        response.headers.update(headers)
        return response

    def _authenticate(self, request: Request) -> tuple[Account, RequestQuota]:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        if not scheme:
            raise GitHubApiError(401, "Requires authentication")
        account = self._state.find_account(self._token_owners.get(token.strip(), ""))
        if scheme.lower() not in ("bearer", "token") or account is None:
            raise GitHubApiError(401, "Bad credentials")
        return account, self._rate_limits[token.strip()]


def create_app(
    state: GitHubState,
    *,
    tokens: Sequence[str] | Mapping[str, str] = (DEMO_TOKEN,),
    rate_limit: int = 5000,
    file: Path | None = None,
) -> Starlette:
    """Creates the application over a state; tokens alone are the bot's, a mapping names each one's owner."""
    token_owners = tokens if isinstance(tokens, Mapping) else dict.fromkeys(tokens, BOT)
    service = GitHubService(state, token_owners, rate_limit, file)
    routes = [service.create_route(*row) for row in ROUTES]
    # An Enterprise Server has the same API below a path.
    return Starlette(
        routes=[Mount(ENTERPRISE_PATH, routes=routes), *routes],
        exception_handlers={HTTPException: _not_found_response},
    )


def _create_estate_app(estate: Estate) -> Starlette:
    return create_app(estate.github)


def _variables(running: RunningStandIn) -> Mapping[str, str]:
    return {"GITHUB_API_URL": running.url, "GITHUB_TOKEN": DEMO_TOKEN}


STAND_IN = StandIn("github", _create_estate_app, _variables)


def error_response(error: GitHubApiError) -> Response:
    body: Json = {"message": error.message}
    if error.errors:
        body["errors"] = list(error.errors)
    body |= {"documentation_url": DOCUMENTATION_URL, "status": str(error.status)}
    return JSONResponse(body, error.status)


async def _not_found_response(_: Request, error: Exception) -> Response:
    return error_response(not_found())


async def _read_body(request: Request) -> Json:
    raw_body = await request.body()
    if not raw_body:
        return {}
    try:
        body = json.loads(raw_body)
    except ValueError:
        raise GitHubApiError(400, "Problems parsing JSON") from None
    if not isinstance(body, dict):
        raise GitHubApiError(400, "Body should be a JSON object")
    return body


def _base_urls(request: Request) -> BaseUrls:
    web = str(request.base_url).rstrip("/")
    if request.url.path.startswith(f"{ENTERPRISE_PATH}/"):
        return BaseUrls(web, web + ENTERPRISE_PATH)
    return BaseUrls(web, web)


def _http_response(request: Request, result: Any) -> Response:
    if isinstance(result, CreatedResponse):
        return JSONResponse(result.body, 201)
    if isinstance(result, ListResponse):
        return _page_response(request, result)
    return JSONResponse(result)


def _page_response(request: Request, result: ListResponse) -> Response:
    size = _read_number(request, "per_page", 30, 100)
    number = _read_number(request, "page", 1, 10**6)
    total = len(result.items)
    last = max(1, -(-total // size))
    items = list(result.items[(number - 1) * size : number * size])
    body: Any = items
    if result.key:
        body = {"total_count": total, **dict(result.extra), result.key: items}
    return JSONResponse(body, headers=_link_headers(request, number, last))


def _read_number(request: Request, name: str, default: int, maximum: int) -> int:
    text = request.query_params.get(name, "")
    if text.isdecimal() and int(text) > 0:
        return min(int(text), maximum)
    return default


def _link_headers(request: Request, number: int, last: int) -> dict[str, str]:
    """The Link header with the other pages; none when there is one page."""
    pages: dict[str, int] = {}
    if number > 1:
        pages |= {"prev": number - 1, "first": 1}
    if number < last:
        pages |= {"next": number + 1, "last": last}
    links: list[str] = []
    for relation, page in pages.items():
        query = urlencode({**request.query_params, "page": page})
        links.append(f'<{request.url.replace(query=query)}>; rel="{relation}"')
    if links:
        return {"Link": ", ".join(links)}
    return {}


def _redirect(request: Request, error: RepositoryMoved) -> Response:
    old_path = f"/repos/{request.path_params['owner']}/{request.path_params['repo']}"
    new_path = f"/repos/{error.repository.full_name}"
    url = str(request.url.replace(path=request.url.path.replace(old_path, new_path, 1)))
    status = 301 if request.method == "GET" else 307
    body = {"message": "Moved Permanently", "url": url, "documentation_url": DOCUMENTATION_URL}
    return JSONResponse(body, status, {"Location": url})
