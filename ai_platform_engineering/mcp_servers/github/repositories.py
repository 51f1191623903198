"""Tools for repositories: finding them, their branches, commits, files and releases, and creating some of
these.
"""

import base64
import binascii
from typing import Annotated

from mcp.server.mcpserver.exceptions import ToolError
from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, api_path, quote_path
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

MAX_CHARACTERS = 50_000


class RepositoryTools:
    """The tools for repositories; the docstring of a tool is what the model reads."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api

    async def get_me(self) -> Json:
        """Tell which user the token belongs to. Call it when "my" or "I" is meant."""
        user = await self._api.get("user")
        if "login" not in user:
            raise ToolError(NOT_GITHUB)
        return views.pick(user, "login", "name", "email", "company", "html_url")

    async def search_repositories(self, query: Query, page: PageNumber = 1, per_page: PerPage = 30) -> Json:
        """Find repositories by words and qualifiers, like
        "web org:octo-org language:python archived:false"."""
        listing = await self._api.get_page(
            "search/repositories", key="items", q=query, page=page, per_page=per_page
        )
        return views.list_result(
            "repositories", listing, [views.repository(item) for item in listing.items], page
        )

    async def get_repository(self, owner: Owner, repo: Repo) -> Json:
        """Describe one repository: default branch, visibility, language, open issues, last push."""
        return views.repository(await self._api.get(api_path("repos", owner, repo)), full=True)

    async def list_repositories(
        self, owner: OwnerOrMe = "", page: PageNumber = 1, per_page: PerPage = 30
    ) -> Json:
        """List the repositories of an organisation or user, or all that I can work with,
        the last changed first."""
        params: Json = {"sort": "pushed", "page": page, "per_page": per_page}
        if not owner:
            listing = await self._api.get_page("user/repos", **params)
        else:
            try:
                listing = await self._api.get_page(api_path("orgs", owner, "repos"), **params)
            except GitHubError as error:
                if error.status != 404:
                    raise
                listing = await self._api.get_page(api_path("users", owner, "repos"), **params)
        return views.list_result(
            "repositories", listing, [views.repository(item) for item in listing.items], page
        )

    async def list_branches(
        self, owner: Owner, repo: Repo, page: PageNumber = 1, per_page: PerPage = 30
    ) -> Json:
        """List the branches of a repository with their last commits."""
        listing = await self._api.get_page(
            api_path("repos", owner, repo, "branches"), page=page, per_page=per_page
        )
        branches = [
            views.drop_empty(
                name=item["name"],
                sha=(item.get("commit") or {}).get("sha"),
                protected=item.get("protected"),
                html_url=self._tree_url(owner, repo, item["name"]),
            )
            for item in listing.items
        ]
        return views.list_result("branches", listing, branches, page)

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
        params: Json = {
            "sha": ref,
            "path": path,
            "author": author,
            "since": since,
            "until": until,
            "page": page,
            "per_page": per_page,
        }
        listing = await self._api.get_page(api_path("repos", owner, repo, "commits"), **params)
        return views.list_result("commits", listing, [views.commit(item) for item in listing.items], page)

    async def get_commit(
        self,
        owner: Owner,
        repo: Repo,
        ref: Annotated[str, Field(min_length=1, max_length=250, description="Commit, branch or tag.")],
        patches: Patches = False,
    ) -> Json:
        """Show one commit: message, author, and the files it changed."""
        item = await self._api.get(f"{api_path('repos', owner, repo, 'commits')}/{quote_path(ref)}")
        files = [views.changed_file(file, patch=patches) for file in item.get("files") or ()]
        return views.commit(item) | views.drop_empty(stats=item.get("stats"), files=files)

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
        contents = await self._api.get_any(self._contents_path(owner, repo, path), ref=ref)
        if isinstance(contents, list):
            entries = [
                views.pick(entry, "name", "path", "type", "size", "sha", "html_url") for entry in contents
            ]
            return {
                "type": "folder",
                "path": path,
                "entries": entries,
                "html_url": self._tree_url(owner, repo, ref, path),
            }
        file = views.pick(contents, "type", "path", "size", "sha", "html_url")
        return file | _read_text(contents, start_line)

    async def list_releases(
        self, owner: Owner, repo: Repo, page: PageNumber = 1, per_page: PerPage = 10
    ) -> Json:
        """List releases, the newest first, with their notes."""
        listing = await self._api.get_page(
            api_path("repos", owner, repo, "releases"), page=page, per_page=per_page
        )
        return views.list_result("releases", listing, [views.release(item) for item in listing.items], page)

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
            repository = await self._api.send("POST", await self._creation_path(owner), body)
        except GitHubError as error:
            messages = [problem.message.lower() for problem in error.problems]
            if error.status == 422 and any("already exists" in message for message in messages):
                account = owner or "your account"
                raise ToolError(
                    f"There is already a repository {name} in {account}. "
                    "Nothing was created: choose another name."
                ) from None
            raise
        return views.repository(repository, full=True)

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
        base_path = api_path("repos", owner, repo)
        source = from_branch or (await self._api.get(base_path))["default_branch"]
        sha = (await self._api.get(f"{base_path}/git/ref/heads/{quote_path(source)}"))["object"]["sha"]
        try:
            await self._api.send("POST", f"{base_path}/git/refs", {"ref": f"refs/heads/{branch}", "sha": sha})
        except GitHubError as error:
            if error.status == 422 and "already exists" in error.message:
                raise ToolError(
                    f"There is already a branch {branch} in {owner}/{repo}. Nothing was created."
                ) from None
            raise
        return {"branch": branch, "from": source, "sha": sha, "html_url": self._tree_url(owner, repo, branch)}

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
        """Commit one file: a new one, or with `sha` the replacement of one.
        It changes things: only when asked for."""
        text = base64.b64encode(content.encode()).decode()
        body = {"message": message, "content": text, "branch": branch or None, "sha": sha}
        try:
            commit = await self._api.send("PUT", self._contents_path(owner, repo, path), body)
        except GitHubError as error:
            if error.status == 409 or (error.status == 422 and '"sha"' in error.message):
                raise await self._explain_conflict(owner, repo, path, branch, error) from None
            raise
        details = commit.get("commit") or {}
        file = views.pick(commit.get("content") or {}, "path", "sha", "html_url")
        return file | views.drop_empty(commit=details.get("sha"), commit_url=details.get("html_url"))

    async def _explain_conflict(
        self, owner: str, repo: str, path: str, branch: str, error: GitHubError
    ) -> ToolError:
        """The error when a file exists already: it names its sha, or is GitHub's own where there is none."""
        try:
            sha = (await self._api.get(self._contents_path(owner, repo, path), ref=branch))["sha"]
        except (KeyError, ToolError):
            return error
        if error.status == 409:
            return ToolError(
                f"{path} is not what the given sha says: it has changed. Read it again; its sha is now {sha}."
            )
        return ToolError(
            f"{path} exists already. To replace it, read it and give its sha: {sha}. Nothing was changed."
        )

    async def _creation_path(self, owner: str) -> str:
        """The API path to create a repository: there is one for me and one for organisations."""
        if not owner:
            return "user/repos"
        user = await self._api.get("user")
        if str(user.get("login")).lower() == owner.lower():
            return "user/repos"
        return api_path("orgs", owner, "repos")

    def _contents_path(self, owner: str, repo: str, path: str) -> str:
        return f"{api_path('repos', owner, repo, 'contents')}/{quote_path(path)}"

    def _tree_url(self, owner: str, repo: str, ref: str, path: str = "") -> str:
        steps = [self._api.web_url, owner, repo, "tree", quote_path(ref or "HEAD"), quote_path(path)]
        return "/".join(filter(None, steps))


def _read_text(file: Json, start: int) -> Json:
    """The text of a file from a line on, or why there is none to show."""
    if file.get("type") != "file":
        return {"note": "This is not a file with text."}
    if file.get("encoding") != "base64":
        return {"note": "The file is too large to be read here: open the link."}
    try:
        text = base64.b64decode(file.get("content") or "").decode()
    except (binascii.Error, UnicodeDecodeError):
        return {"note": "The file is binary: it has no text to show."}
    if "\0" in text:
        return {"note": "The file is binary: it has no text to show."}
    return _cut_to_size(text.splitlines(keepends=True), start)


def _cut_to_size(lines: list[str], start: int) -> Json:
    """As many lines as fit, and the number of the line to go on with."""
    text = ""
    for number, line in enumerate(lines[start - 1 :], start):
        if text and len(text) + len(line) > MAX_CHARACTERS:
            return {
                "text": text,
                "lines": len(lines),
                "next_line": number,
                "note": f"Not complete: go on with start_line={number}.",
            }
        text += line
    return {"text": views.truncate(text, MAX_CHARACTERS), "lines": len(lines)}
