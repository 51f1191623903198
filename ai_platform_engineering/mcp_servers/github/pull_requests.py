"""Tools for pull requests: reading them with files, reviews and checks, opening and merging."""

from typing import Annotated, Literal

from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, api_path
from ai_platform_engineering.mcp_servers.github.arguments import (
    Body,
    BranchOrDefault,
    Number,
    Owner,
    PageNumber,
    Patches,
    PerPage,
    Repo,
    Sha,
    Title,
)
from ai_platform_engineering.mcp_servers.github.errors import GitHubError

MAX_ITEMS = 100
PASSED = frozenset({"success", "neutral", "skipped"})


class PullRequestTools:
    """The tools for pull requests; the docstring of a tool is what the model reads."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api

    async def list_pull_requests(
        self,
        owner: Owner,
        repo: Repo,
        state: Literal["open", "closed", "all"] = "open",
        base: Annotated[str, Field(max_length=250, description="Only those into this branch.")] = "",
        head: Annotated[
            str, Field(max_length=350, description="Only those from this branch, as owner:branch.")
        ] = "",
        page: PageNumber = 1,
        per_page: PerPage = 30,
    ) -> Json:
        """List the pull requests of one repository, the newest first.

        Across repositories use search_issues.
        """
        params: Json = {"state": state, "base": base, "head": head, "page": page, "per_page": per_page}
        listing = await self._api.get_page(api_path("repos", owner, repo, "pulls"), **params)
        return views.list_result("pull_requests", listing, [views.pull(item) for item in listing.items], page)

    async def get_pull_request(
        self, owner: Owner, repo: Repo, number: Number, patches: Patches = False
    ) -> Json:
        """Read a pull request: state, the files it changes, reviews, and whether its checks pass.
        Its discussion: get_issue."""
        base_path = api_path("repos", owner, repo, "pulls", number)
        pull = views.pull(await self._api.get(base_path), full=True)
        files = await self._api.get_page(f"{base_path}/files", per_page=MAX_ITEMS)
        reviews = await self._api.get_page(f"{base_path}/reviews", per_page=MAX_ITEMS)
        result: Json = {
            "pull_request": pull,
            "files": [views.changed_file(file, patch=patches) for file in files.items],
            "reviews": [views.review(review) for review in reviews.items],
            "checks": await self._summarize_checks(owner, repo, pull.get("head_sha") or ""),
        }
        incomplete = [name for name, page in (("files", files), ("reviews", reviews)) if page.more]
        if incomplete:
            result["note"] = f"Only the first {MAX_ITEMS} are shown of: {', '.join(incomplete)}."
        return result

    async def create_pull_request(
        self,
        owner: Owner,
        repo: Repo,
        title: Title,
        head: Annotated[str, Field(min_length=1, max_length=350, description="The branch with the changes.")],
        base: BranchOrDefault = "",
        body: Body = "",
        draft: bool = False,
    ) -> Json:
        """Open a pull request from a branch into another. It changes things: only when asked for."""
        into = base or (await self._api.get(api_path("repos", owner, repo)))["default_branch"]
        values = {"title": title, "head": head, "base": into, "body": body or None, "draft": draft}
        return views.pull(await self._api.send("POST", api_path("repos", owner, repo, "pulls"), values))

    async def merge_pull_request(
        self,
        owner: Owner,
        repo: Repo,
        number: Number,
        merge_method: Literal["merge", "squash", "rebase"] = "merge",
        commit_title: Annotated[str, Field(max_length=256)] = "",
        sha: Annotated[
            Sha | None, Field(description="Merge only if this is still its last commit (`head_sha`).")
        ] = None,
    ) -> Json:
        """Merge a pull request. It cannot be taken back: only when exactly this was asked for."""
        base_path = api_path("repos", owner, repo, "pulls", number)
        body = {"merge_method": merge_method, "commit_title": commit_title or None, "sha": sha}
        merge = await self._api.send("PUT", f"{base_path}/merge", body)
        url = f"{self._api.web_url}/{owner}/{repo}/pull/{number}"
        return views.pick(merge, "merged", "sha", "message") | {"html_url": url}

    async def _summarize_checks(self, owner: str, repo: str, sha: str) -> Json:
        """The checks of a commit: counts, and the names of those that did not pass.

        Some tokens may not see them.
        """
        base_path = api_path("repos", owner, repo, "commits", sha)
        try:
            runs = await self._api.get_page(f"{base_path}/check-runs", key="check_runs", per_page=MAX_ITEMS)
            status = await self._api.get(f"{base_path}/status", per_page=MAX_ITEMS)
        except GitHubError as error:
            if error.status in (403, 404):
                return {"note": f"The checks cannot be seen. {error}"}
            raise
        checks = [_view_check_run(item) for item in runs.items]
        checks += [_view_commit_status(item) for item in status.get("statuses") or ()]
        not_passed = [check for check in checks if check["result"] not in PASSED]
        summary: Json = {
            "total": len(checks),
            "passed": len(checks) - len(not_passed),
            "failed": [check for check in not_passed if check["result"] != "pending"],
            "pending": [check for check in not_passed if check["result"] == "pending"],
        }
        if runs.more:
            summary["note"] = f"Only the first {MAX_ITEMS} checks are counted."
        return summary


def _view_check_run(item: Json) -> Json:
    check = {"name": item.get("name"), "result": item.get("conclusion") or "pending"}
    return check | views.pick(item, "html_url")


def _view_commit_status(item: Json) -> Json:
    check = {"name": item.get("context"), "result": item.get("state") or "pending"}
    return check | views.drop_empty(html_url=item.get("target_url"))
