"""Tools for issues: finding, reading, opening, commenting and changing them."""

from typing import Annotated, Literal

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, api_path
from ai_platform_engineering.mcp_servers.github.arguments import (
    Assignees,
    Body,
    Labels,
    Number,
    Owner,
    PageNumber,
    PerPage,
    Query,
    Repo,
    Title,
)


class IssueTools:
    """The tools for issues; the docstring of a tool is what the model reads."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api

    async def list_issues(
        self,
        owner: Owner,
        repo: Repo,
        state: Literal["open", "closed", "all"] = "open",
        labels: Annotated[Labels | None, Field(description="Only issues with all of these labels.")] = None,
        assignee: Annotated[
            str, Field(max_length=100, description="Only issues of this login; `none` or `*` work too.")
        ] = "",
        page: PageNumber = 1,
        per_page: PerPage = 30,
    ) -> Json:
        """List the issues of one repository, the newest first.

        Pull requests are left out, so a page may hold fewer.
        """
        params: Json = {
            "state": state,
            "labels": ",".join(labels or ()),
            "assignee": assignee,
            "page": page,
            "per_page": per_page,
        }
        listing = await self._api.get_page(api_path("repos", owner, repo, "issues"), **params)
        issues = [views.issue(item) for item in listing.items if "pull_request" not in item]
        return views.list_result("issues", listing, issues, page)

    async def get_issue(
        self, owner: Owner, repo: Repo, number: Number, page: PageNumber = 1, per_page: PerPage = 30
    ) -> Json:
        """Read an issue with its comments (`page` is theirs).

        With the number of a pull request: its discussion.
        """
        base_path = api_path("repos", owner, repo, "issues", number)
        issue = views.issue(await self._api.get(base_path), full=True)
        listing = await self._api.get_page(f"{base_path}/comments", page=page, per_page=per_page)
        return {"issue": issue} | views.list_result(
            "comments", listing, [views.comment(item) for item in listing.items], page
        )

    async def search_issues(self, query: Query, page: PageNumber = 1, per_page: PerPage = 30) -> Json:
        """Find issues and pull requests anywhere by words and qualifiers, like "is:pr is:open
        review-requested:@me", "is:issue repo:octo-org/web label:bug", "is:pr author:@me".
        """
        listing = await self._api.get_page(
            "search/issues", key="items", q=query, page=page, per_page=per_page
        )
        return views.list_result("issues", listing, [views.issue(item) for item in listing.items], page)

    async def create_issue(
        self,
        owner: Owner,
        repo: Repo,
        title: Title,
        body: Body = "",
        labels: Labels | None = None,
        assignees: Assignees | None = None,
    ) -> Json:
        """Open an issue. It changes things: only when asked for."""
        values = {"title": title, "body": body or None, "labels": labels, "assignees": assignees}
        return views.issue(await self._api.send("POST", api_path("repos", owner, repo, "issues"), values))

    async def add_issue_comment(
        self, owner: Owner, repo: Repo, number: Number, body: Annotated[Body, Field(min_length=1)]
    ) -> Json:
        """Comment on an issue or a pull request. It changes things: only when asked for."""
        return views.comment(
            await self._api.send(
                "POST", api_path("repos", owner, repo, "issues", number, "comments"), {"body": body}
            )
        )

    async def update_issue(
        self,
        owner: Owner,
        repo: Repo,
        number: Number,
        state: Literal["open", "closed"] | None = None,
        state_reason: Annotated[
            Literal["completed", "not_planned"] | None, Field(description="Why it is closed.")
        ] = None,
        title: Title | None = None,
        labels: Annotated[
            Labels | None, Field(description="All labels it should have; others are removed.")
        ] = None,
        assignees: Annotated[
            Assignees | None, Field(description="All assignees it should have; others are removed.")
        ] = None,
    ) -> Json:
        """Change an issue: close or open it, rename it, set labels and assignees.

        It changes things: only when asked for.
        """
        values = {
            "state": state,
            "state_reason": state_reason,
            "title": title,
            "labels": labels,
            "assignees": assignees,
        }
        if all(value is None for value in values.values()):
            raise ToolError("Say what to change: state, title, labels or assignees.")
        return views.issue(
            await self._api.send("PATCH", api_path("repos", owner, repo, "issues", number), values)
        )
