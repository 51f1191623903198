"""Tools for repositories: finding them, their branches, commits, files and releases, and creating some of these."""

import base64
import binascii
from typing import Annotated

from mcp.server.fastmcp.exceptions import ToolError
from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, at, inside
from ai_platform_engineering.mcp_servers.github.arguments import (
    Branch,
    BranchOrDefault,
    Owner,
    OwnerOrMe,
    PageNumber,
    Patches,
    Path,
    PerPage,
    Query,
    Ref,
    Repo,
    Sha,
)
from ai_platform_engineering.mcp_servers.github.errors import NOT_GITHUB, GitHubError

MOST_CHARACTERS = 50_000


class RepositoryTools:
    """A docstring says when to use the tool."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api

    async def get_me(self) -> Json:
        """Tell which user the token belongs to. Call it when "my" or "I" is meant."""
        found = await self._api.get("user")
        if "login" not in found:
            raise ToolError(NOT_GITHUB)
        return views.chosen(found, "login", "name", "email", "company", "html_url")

    async def search_repositories(self, query: Query, page: PageNumber = 1, per_page: PerPage = 30) -> Json:
        """Find repositories by words and qualifiers, like "web org:octo-org language:python archived:false"."""
        found = await self._api.page(
            "search/repositories", key="items", q=query, page=page, per_page=per_page
        )
        return views.listed("repositories", found, [views.repository(item) for item in found.items], page)

    async def get_repository(self, owner: Owner, repo: Repo) -> Json:
        """Describe one repository: default branch, visibility, language, open issues, last push."""
        return views.repository(await self._api.get(at("repos", owner, repo)), whole=True)

    async def list_repositories(
        self, owner: OwnerOrMe = "", page: PageNumber = 1, per_page: PerPage = 30
    ) -> Json:
        """List the repositories of an organisation or user, or all that I can work with, the last changed first."""
        asked: Json = {"sort": "pushed", "page": page, "per_page": per_page}
        if not owner:
            found = await self._api.page("user/repos", **asked)
        else:
            try:
                found = await self._api.page(at("orgs", owner, "repos"), **asked)
            except GitHubError as error:
                if error.status != 404:
                    raise
                found = await self._api.page(at("users", owner, "repos"), **asked)
        return views.listed("repositories", found, [views.repository(item) for item in found.items], page)

    async def list_branches(
        self, owner: Owner, repo: Repo, page: PageNumber = 1, per_page: PerPage = 30
    ) -> Json:
        """List the branches of a repository with their last commits."""
        found = await self._api.page(at("repos", owner, repo, "branches"), page=page, per_page=per_page)
        branches = [
            views.said(
                name=item["name"],
                sha=(item.get("commit") or {}).get("sha"),
                protected=item.get("protected"),
                html_url=self._tree(owner, repo, item["name"]),
            )
            for item in found.items
        ]
        return views.listed("branches", found, branches, page)

    async def list_commits(
        self,
        owner: Owner,
        repo: Repo,
        ref: Ref = "",
        path: Annotated[str, Field(max_length=1000, description="Only commits that changed this path.")] = "",
        author: Annotated[
            str, Field(max_length=100, description="Only commits of this login or e-mail.")
        ] = "",
        since: Annotated[str, Field(max_length=40, description="ISO time, like 2026-01-31T00:00:00Z.")] = "",
        until: Annotated[str, Field(max_length=40, description="ISO time.")] = "",
        page: PageNumber = 1,
        per_page: PerPage = 30,
    ) -> Json:
        """List commits, the newest first: "what changed since ..."."""
        asked: Json = {
            "sha": ref,
            "path": path,
            "author": author,
            "since": since,
            "until": until,
            "page": page,
            "per_page": per_page,
        }
        found = await self._api.page(at("repos", owner, repo, "commits"), **asked)
        return views.listed("commits", found, [views.commit(item) for item in found.items], page)

    async def get_commit(
        self,
        owner: Owner,
        repo: Repo,
        ref: Annotated[str, Field(min_length=1, max_length=250, description="Commit, branch or tag.")],
        patches: Patches = False,
    ) -> Json:
        """Show one commit: message, author, and the files it changed."""
        item = await self._api.get(f"{at('repos', owner, repo, 'commits')}/{inside(ref)}")
        files = [views.changed_file(file, patch=patches) for file in item.get("files") or ()]
        return views.commit(item) | views.said(stats=item.get("stats"), files=files)

    async def get_file_contents(
        self,
        owner: Owner,
        repo: Repo,
        path: Annotated[
            str, Field(max_length=1000, description="Path of a file or folder; empty: the top folder.")
        ] = "",
        ref: Ref = "",
        start_line: Annotated[
            int, Field(ge=1, description="First line to show, for the rest of a long file.")
        ] = 1,
    ) -> Json:
        """Read a text file, or list a folder. The file's `sha` is what create_or_update_file wants."""
        found = await self._api.any(self._contents(owner, repo, path), ref=ref)
        if isinstance(found, list):
            entries = [
                views.chosen(entry, "name", "path", "type", "size", "sha", "html_url") for entry in found
            ]
            return {
                "type": "folder",
                "path": path,
                "entries": entries,
                "html_url": self._tree(owner, repo, ref, path),
            }
        return views.chosen(found, "type", "path", "size", "sha", "html_url") | _text(found, start_line)

    async def list_releases(
        self, owner: Owner, repo: Repo, page: PageNumber = 1, per_page: PerPage = 10
    ) -> Json:
        """List releases, the newest first, with their notes."""
        found = await self._api.page(at("repos", owner, repo, "releases"), page=page, per_page=per_page)
        return views.listed("releases", found, [views.release(item) for item in found.items], page)

    async def create_repository(
        self,
        name: Repo,
        owner: Annotated[OwnerOrMe, Field(description="Organisation; empty: my own account.")] = "",
        description: Annotated[str, Field(max_length=350)] = "",
        private: bool = True,
        auto_init: Annotated[
            bool, Field(description="Begin with a README, so that there is a branch.")
        ] = False,
    ) -> Json:
        """Create a repository, private unless told otherwise. It changes things: only when asked for."""
        body = {"name": name, "description": description, "private": private, "auto_init": auto_init}
        try:
            return views.repository(
                await self._api.send("POST", await self._new_under(owner), body), whole=True
            )
        except GitHubError as error:
            if error.status == 422 and any(
                "already exists" in problem.message.lower() for problem in error.problems
            ):
                place = owner or "your account"
                raise ToolError(
                    f"There is already a repository {name} in {place}. Nothing was created: choose another name."
                ) from None
            raise

    async def create_branch(
        self,
        owner: Owner,
        repo: Repo,
        branch: Branch,
        from_branch: Annotated[
            str, Field(max_length=250, description="Where it begins; empty: the default branch.")
        ] = "",
    ) -> Json:
        """Create a branch. It changes things: only when asked for."""
        place = at("repos", owner, repo)
        source = from_branch or (await self._api.get(place))["default_branch"]
        sha = (await self._api.get(f"{place}/git/ref/heads/{inside(source)}"))["object"]["sha"]
        try:
            await self._api.send("POST", f"{place}/git/refs", {"ref": f"refs/heads/{branch}", "sha": sha})
        except GitHubError as error:
            if error.status == 422 and "already exists" in error.said:
                raise ToolError(
                    f"There is already a branch {branch} in {owner}/{repo}. Nothing was created."
                ) from None
            raise
        return {"branch": branch, "from": source, "sha": sha, "html_url": self._tree(owner, repo, branch)}

    async def create_or_update_file(
        self,
        owner: Owner,
        repo: Repo,
        path: Annotated[Path, Field(min_length=1)],
        content: Annotated[str, Field(max_length=500_000, description="The whole text of the file.")],
        message: Annotated[str, Field(min_length=1, max_length=1000, description="The commit's message.")],
        branch: BranchOrDefault = "",
        sha: Annotated[
            Sha | None, Field(description="To replace a file: its sha, from get_file_contents.")
        ] = None,
    ) -> Json:
        """Commit one file: a new one, or with `sha` the replacement of one. It changes things: only when asked for."""
        text = base64.b64encode(content.encode()).decode()
        body = {"message": message, "content": text, "branch": branch or None, "sha": sha}
        try:
            done = await self._api.send("PUT", self._contents(owner, repo, path), body)
        except GitHubError as error:
            if error.status == 409 or (error.status == 422 and '"sha"' in error.said):
                raise await self._exists(owner, repo, path, branch, error) from None
            raise
        kept, made = done.get("content") or {}, done.get("commit") or {}
        return views.chosen(kept, "path", "sha", "html_url") | views.said(
            commit=made.get("sha"), commit_url=made.get("html_url")
        )

    async def _exists(self, owner: str, repo: str, path: str, branch: str, error: GitHubError) -> ToolError:
        """What to tell when a file is in the way: its sha, or GitHub's own word where it is something else."""
        try:
            sha = (await self._api.get(self._contents(owner, repo, path), ref=branch))["sha"]
        except (KeyError, ToolError):
            return error
        if error.status == 409:
            return ToolError(
                f"{path} is not what the given sha says: it has changed. Read it again; its sha is now {sha}."
            )
        return ToolError(
            f"{path} exists already. To replace it, read it and give its sha: {sha}. Nothing was changed."
        )

    async def _new_under(self, owner: str) -> str:
        """Where repositories of an owner are created: GitHub has one place for me and one for organisations."""
        if not owner or str((await self._api.get("user")).get("login")).lower() == owner.lower():
            return "user/repos"
        return at("orgs", owner, "repos")

    def _contents(self, owner: str, repo: str, path: str) -> str:
        return f"{at('repos', owner, repo, 'contents')}/{inside(path)}"

    def _tree(self, owner: str, repo: str, ref: str, path: str = "") -> str:
        return "/".join(
            filter(None, (self._api.web, owner, repo, "tree", inside(ref or "HEAD"), inside(path)))
        )


def _text(found: Json, start: int) -> Json:
    """The text of a file from a line on, or why there is none to show."""
    if found.get("type") != "file":
        return {"note": "This is not a file with text."}
    if found.get("encoding") != "base64":
        return {"note": "The file is too large to be read here: open the link."}
    try:
        text = base64.b64decode(found.get("content") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        return {"note": "The file is binary: it has no text to show."}
    if "\0" in text:
        return {"note": "The file is binary: it has no text to show."}
    return _bounded(text.splitlines(keepends=True), start)


def _bounded(lines: list[str], start: int) -> Json:
    shown = ""
    for number, line in enumerate(lines[start - 1 :], start):
        if shown and len(shown) + len(line) > MOST_CHARACTERS:
            return {
                "text": shown,
                "lines": len(lines),
                "next_line": number,
                "note": f"Not complete: go on with start_line={number}.",
            }
        shown += line
    return {"text": views.cut(shown, MOST_CHARACTERS), "lines": len(lines)}
