"""Tools for pull requests: reading them with files, reviews and checks, opening and merging."""

from typing import Annotated, Any, Literal

from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, at
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

MOST = 100
PASSED = frozenset({"success", "neutral", "skipped"})


class PullRequestTools:
    """A docstring says when to use the tool."""

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
        """List the pull requests of one repository, the newest first. Across repositories use search_issues."""
        asked: Json = {"state": state, "base": base, "head": head, "page": page, "per_page": per_page}
        found = await self._api.page(at("repos", owner, repo, "pulls"), **asked)
        return views.listed("pull_requests", found, [views.pull(item) for item in found.items], page)

    async def get_pull_request(
        self, owner: Owner, repo: Repo, number: Number, patches: Patches = False
    ) -> Json:
        """Read a pull request: state, the files it changes, reviews, and whether its checks pass. Its discussion: get_issue."""
        place = at("repos", owner, repo, "pulls", number)
        pull = views.pull(await self._api.get(place), whole=True)
        files = await self._api.page(f"{place}/files", per_page=MOST)
        reviews = await self._api.page(f"{place}/reviews", per_page=MOST)
        found: Json = {
            "pull_request": pull,
            "files": [views.changed_file(file, patch=patches) for file in files.items],
            "reviews": [views.review(review) for review in reviews.items],
            "checks": await self._checks(owner, repo, pull.get("head_sha") or ""),
        }
        cut = [name for name, page in (("files", files), ("reviews", reviews)) if page.more]
        if cut:
            return found | {"note": f"Only the first {MOST} are shown of: {', '.join(cut)}."}
        return found

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
        into = base or (await self._api.get(at("repos", owner, repo)))["default_branch"]
        given = {"title": title, "head": head, "base": into, "body": body or None, "draft": draft}
        return views.pull(await self._api.send("POST", at("repos", owner, repo, "pulls"), given))

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
        place = at("repos", owner, repo, "pulls", number)
        body = {"merge_method": merge_method, "commit_title": commit_title or None, "sha": sha}
        done = await self._api.send("PUT", f"{place}/merge", body)
        return views.chosen(done, "merged", "sha", "message") | {
            "html_url": f"{self._api.web}/{owner}/{repo}/pull/{number}"
        }

    async def _checks(self, owner: str, repo: str, sha: str) -> Json:
        """The checks of a commit, counted; what did not pass by name. Some tokens may not see them."""
        place = at("repos", owner, repo, "commits", sha)
        try:
            runs = await self._api.page(f"{place}/check-runs", key="check_runs", per_page=MOST)
            status = await self._api.get(f"{place}/status", per_page=MOST)
        except GitHubError as error:
            if error.status in (403, 404):
                return {"note": f"The checks cannot be seen. {error}"}
            raise
        results = [_result(item) for item in runs.items] + [
            _status(item) for item in status.get("statuses") or ()
        ]
        found = {
            "total": len(results),
            "passed": sum(one["result"] in PASSED for one in results),
            "failed": [one for one in results if one["result"] not in PASSED and one["result"] != "pending"],
            "pending": [one for one in results if one["result"] == "pending"],
        }
        if runs.more:
            return found | {"note": f"Only the first {MOST} checks are counted."}
        return found


def _result(item: Json) -> dict[str, Any]:
    return {"name": item.get("name"), "result": item.get("conclusion") or "pending"} | views.chosen(
        item, "html_url"
    )


def _status(item: Json) -> dict[str, Any]:
    return {"name": item.get("context"), "result": item.get("state") or "pending"} | views.said(
        html_url=item.get("target_url")
    )
