"""The GitHub server over stdio, as an agent starts it, against the stand-in for GitHub on loopback."""

import asyncio
import contextlib
import re
import secrets
import sys
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from ai_platform_engineering.agents.agent_catalog import load_catalog
from ai_platform_engineering.demo.github.app import create_app
from ai_platform_engineering.demo.github.sample_data import build_sample_state
from ai_platform_engineering.demo.github.state import GitHubRepository, GitHubState, Issue, PullRequest, now
from ai_platform_engineering.mcp_servers.github.api import parse_api_url, web_url_of
from tests.support.command_process import forked_python
from tests.support.harness import serve_app

WEB = {"owner": "octo-org", "repo": "web"}
WRITES = {
    "create_repository",
    "create_issue",
    "add_issue_comment",
    "update_issue",
    "create_branch",
    "create_or_update_file",
    "create_pull_request",
    "merge_pull_request",
}
READS = {
    "get_me",
    "search_repositories",
    "get_repository",
    "list_repositories",
    "list_branches",
    "list_commits",
    "get_commit",
    "get_file_contents",
    "list_releases",
    "list_issues",
    "get_issue",
    "search_issues",
    "list_pull_requests",
    "get_pull_request",
    "list_workflow_runs",
    "get_workflow_run",
}


@contextlib.asynccontextmanager
async def started(environment: dict[str, str], url: str, token: str) -> AsyncIterator[ClientSession]:
    """The server started as the shipped definition says, with only the variables that it names."""
    entry = load_catalog({"GITHUB_TOKEN": token, "GITHUB_API_URL": url}, agents_config=None).get("github")
    assert entry
    server = entry.definition.mcp_servers["github"]
    command, *args = forked_python(*server.args)
    parameters = StdioServerParameters(command=command, args=args, env={**environment, **server.env})
    async with stdio_client(parameters) as streams, ClientSession(*streams) as session:
        await session.initialize()
        yield session


@contextlib.asynccontextmanager
async def github(
    environment: dict[str, str],
    state: GitHubState,
    *,
    path: str = "",
    rate_limit: int = 5000,
    token: str | None = None,
) -> AsyncIterator[ClientSession]:
    """A session with the server, whose GitHub is the state."""
    known = secrets.token_hex(8)
    async with (
        serve_app(create_app(state, tokens=[known], rate_limit=rate_limit)) as url,
        started(environment, url + path, token or known) as session,
    ):
        yield session


async def called(session: ClientSession, tool: str, **arguments: Any) -> Any:
    result = await session.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def failed(session: ClientSession, tool: str, **arguments: Any) -> str:
    result = await session.call_tool(tool, arguments)
    assert result.is_error, result.structured_content
    return "".join(getattr(block, "text", "") for block in result.content)


def titles(found: Sequence[dict[str, Any]]) -> list[str]:
    return [item["title"] for item in found]


def web_of(state: GitHubState) -> GitHubRepository:
    return state.repositories["octo-org/web"]


def issue(repository: GitHubRepository, title: str, **more: Any) -> Issue:
    number = max(repository.issues, default=0) + 1
    made = Issue.model_validate(
        {
            "id": number,
            "number": number,
            "title": title,
            "body": None,
            "author": "dev-one",
            "created_at": now(),
            "updated_at": now(),
            **more,
        }
    )
    repository.issues[number] = made
    return made


async def test_every_tool_is_covered_by_the_agents_policy_and_says_whether_it_changes_something(
    guarded_environment: dict[str, str],
) -> None:
    async with github(guarded_environment, build_sample_state()) as session:
        tools = {tool.name: tool for tool in (await session.list_tools()).tools}
    entry = load_catalog({}, agents_config=None).get("github")
    assert entry
    permissions = {name: entry.definition.tools.permission(name) for name in tools}
    assert {name for name, permission in permissions.items() if permission == "allow"} == READS
    assert {name for name, permission in permissions.items() if permission == "ask"} == WRITES
    hints = {name: tool.annotations for name, tool in tools.items() if tool.annotations}
    assert {name for name, hint in hints.items() if hint.read_only_hint} == READS
    assert {name for name, hint in hints.items() if hint.destructive_hint} == {
        "merge_pull_request",
        "update_issue",
        "create_or_update_file",
    }
    assert {name for name, hint in hints.items() if hint.idempotent_hint} == READS | {"update_issue"}
    for tool in tools.values():
        assert 20 < len(tool.description or "") < 300, tool.name
        assert all(
            schema.get("maximum") == 100
            for name, schema in tool.input_schema["properties"].items()
            if name == "per_page"
        )


async def test_repositories_are_found_below_the_path_of_an_enterprise_server(
    guarded_environment: dict[str, str],
) -> None:
    state, word = build_sample_state(), secrets.token_hex(4)
    web_of(state).description = f"The {word} shop"
    async with github(guarded_environment, state, path="api/v3/") as session:
        assert (await called(session, "get_me"))["login"] == "platform-bot"
        found = await called(session, "search_repositories", query=f"{word} org:octo-org")
        shown = await called(session, "get_repository", **WEB)
    assert (found["total"], [item["full_name"] for item in found["repositories"]]) == (1, ["octo-org/web"])
    assert (shown["description"], shown["default_branch"], shown["visibility"]) == (
        f"The {word} shop",
        "main",
        "public",
    )
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/octo-org/web", shown["html_url"])


async def test_repositories_branches_commits_and_releases_are_listed(
    guarded_environment: dict[str, str],
) -> None:
    state = build_sample_state()
    sha = web_of(state).branches["fix/checkout-timeout"]
    state.repositories["dev-one/notes"] = web_of(state).model_copy(
        update={"owner": "dev-one", "name": "notes"}
    )
    async with github(guarded_environment, state) as session:
        lists = [
            await called(session, "list_repositories", owner=owner) for owner in ("octo-org", "dev-one", "")
        ]
        branches = await called(session, "list_branches", **WEB)
        on_branch = await called(
            session, "list_commits", **WEB, ref="feature/dark-mode", path="src", author="dev-one"
        )
        recent = await called(session, "list_commits", **WEB, since=(now() - timedelta(hours=6)).isoformat())
        released = await called(session, "list_releases", **WEB)
        short = await called(session, "get_commit", **WEB, ref=sha[:10])
        whole = await called(session, "get_commit", **WEB, ref="fix/checkout-timeout", patches=True)
    names = [[item["full_name"] for item in found["repositories"]] for found in lists]
    assert names == [["octo-org/web", "octo-org/infra", "octo-org/payments"], ["dev-one/notes"], names[0]]
    assert {item["name"]: item["sha"] for item in branches["branches"]} == web_of(state).branches
    assert branches["branches"][0]["html_url"].endswith("/octo-org/web/tree/feature/dark-mode")
    assert [item["message"] for item in on_branch["commits"]] == ["Add dark mode", "Show delivery dates"]
    assert [item["author"] for item in recent["commits"]] == ["dev-two"]
    assert [item["tag_name"] for item in released["releases"]] == ["v1.4.0", "v1.3.0"]
    assert all(item["html_url"] for found in (on_branch["commits"], released["releases"]) for item in found)
    assert (short["sha"], short["stats"]["total"]) == (sha, 2)
    assert short["files"] == [
        {"filename": "src/checkout.ts", "status": "modified", "additions": 1, "deletions": 1}
    ]
    assert "+  return await pay(basket.total, { timeout: 30000 });" in whole["files"][0]["patch"]


async def test_files_are_decoded_bounded_and_named_binary(guarded_environment: dict[str, str]) -> None:
    state, word = build_sample_state(), secrets.token_hex(4)
    repository = web_of(state)
    lines = [f"{number} {word} ü {'x' * 90}\n" for number in range(1500)]
    tree = repository.commits[repository.branches["main"]].tree
    repository.blobs |= {"1" * 40: "".join(lines).encode(), "2" * 40: b"\xff\xfe\0"}
    tree |= {"docs/long text.md": "1" * 40, "docs/data.bin": "2" * 40}
    async with github(guarded_environment, state) as session:
        folder = await called(session, "get_file_contents", **WEB, path="docs/")
        top = await called(session, "get_file_contents", **WEB)
        first = await called(session, "get_file_contents", **WEB, path="docs/long text.md")
        parts, line = [first["text"]], first.get("next_line")
        while line:
            part = await called(
                session, "get_file_contents", **WEB, path="docs/long text.md", start_line=line
            )
            parts, line = [*parts, part["text"]], part.get("next_line")
        binary = await called(session, "get_file_contents", **WEB, path="docs/data.bin")
        picture = await called(session, "get_file_contents", **WEB, path="assets/logo.png")
        old = await called(session, "get_file_contents", **WEB, path="src/delivery.ts", ref="v1.4.0")
    assert [entry["path"] for entry in folder["entries"]] == ["docs/data.bin", "docs/long text.md"]
    assert {(entry["path"], entry["type"]) for entry in top["entries"]} >= {
        ("README.md", "file"),
        ("src", "dir"),
    }
    assert "".join(parts) == "".join(lines)
    assert all(len(text) <= 50_000 for text in parts)
    assert len(parts) > 1
    assert (first["sha"], first["lines"]) == ("1" * 40, 1500)
    assert "binary" in binary["note"]
    assert "binary" in picture["note"]
    assert "text" not in binary | picture
    assert old["text"] == "export const days = 3;\n"


async def test_an_issue_is_opened_discussed_changed_and_found(guarded_environment: dict[str, str]) -> None:
    state, word = build_sample_state(), secrets.token_hex(4)
    async with github(guarded_environment, state) as session:
        made = await called(
            session,
            "create_issue",
            **WEB,
            title=f"About {word}",
            body="Why.",
            labels=["bug"],
            assignees=["dev-two"],
        )
        place = {**WEB, "number": made["number"]}
        said = await called(session, "add_issue_comment", **place, body=f"More on {word}")
        read = await called(session, "get_issue", **place)
        listed = await called(session, "list_issues", **WEB, labels=["bug"], assignee="dev-two")
        found = await called(session, "search_issues", query=f"{word} is:issue is:open author:@me")
        closed = await called(
            session,
            "update_issue",
            **place,
            state="closed",
            state_reason="not_planned",
            labels=["done"],
            title="Old",
            assignees=[],
        )
        left = await called(session, "list_issues", **WEB)
    stored = web_of(state).issues[made["number"]]
    assert (stored.title, stored.body, stored.author, stored.state) == (
        "Old",
        "Why.",
        "platform-bot",
        "closed",
    )
    assert (stored.state_reason, stored.labels, stored.assignees) == ("not_planned", ["done"], [])
    assert [comment.body for comment in stored.comments] == [f"More on {word}"]
    assert (
        read["issue"] | {"body": "Why.", "comments": 1, "labels": ["bug"], "assignees": ["dev-two"]}
        == read["issue"]
    )
    assert read["comments"] == [said]
    assert titles(listed["issues"]) == [f"About {word}", "Checkout times out for large baskets"]
    assert (titles(found["issues"]), found["total"]) == ([f"About {word}"], 1)
    assert (closed["state"], closed["html_url"]) == ("closed", made["html_url"])
    assert made["number"] not in [item["number"] for item in left["issues"]]
    assert not any("is_pull_request" in item for item in left["issues"])


async def test_a_change_goes_from_a_new_repository_to_a_merge(guarded_environment: dict[str, str]) -> None:
    state, name, text = build_sample_state(), f"new-{secrets.token_hex(4)}", f"{secrets.token_hex(8)}\nü\n"
    place = {"owner": "octo-org", "repo": name}
    async with github(guarded_environment, state) as session:
        made = await called(
            session, "create_repository", owner="octo-org", name=name, description="Try", auto_init=True
        )
        branch = await called(session, "create_branch", **place, branch="feature/a")
        file = await called(
            session,
            "create_or_update_file",
            **place,
            path="docs/a b.md",
            content=text,
            message="Add",
            branch="feature/a",
        )
        again = await called(
            session,
            "create_or_update_file",
            **place,
            path="docs/a b.md",
            content="2",
            message="Two",
            branch="feature/a",
            sha=file["sha"],
        )
        pull = await called(
            session, "create_pull_request", **place, title="Take it", head="feature/a", body="Please."
        )
        listed = await called(session, "list_pull_requests", **place, base="main", head="octo-org:feature/a")
        shown = await called(session, "get_pull_request", **place, number=pull["number"], patches=True)
        head = shown["pull_request"]["head_sha"]
        merged = await called(
            session, "merge_pull_request", **place, number=pull["number"], merge_method="squash", sha=head
        )
        after = await called(session, "get_pull_request", **place, number=pull["number"])
    stored = state.repositories[f"octo-org/{name}"]
    assert (made["full_name"], made["private"], stored.private, stored.description) == (
        f"octo-org/{name}",
        True,
        True,
        "Try",
    )
    assert (branch["from"], branch["html_url"].endswith(f"/octo-org/{name}/tree/feature/a")) == ("main", True)
    assert [stored.blobs[file["sha"]], stored.blobs[again["sha"]]] == [text.encode(), b"2"]
    assert (pull["head"], pull["base"], pull["number"]) == ("feature/a", "main", 1)
    assert [item["number"] for item in listed["pull_requests"]] == [1]
    assert [(entry["filename"], entry["status"]) for entry in shown["files"]] == [("docs/a b.md", "added")]
    assert "+2" in shown["files"][0]["patch"]
    assert (shown["pull_request"]["commits"], shown["pull_request"]["mergeable"]) == (2, True)
    assert (merged["merged"], merged["sha"]) == (True, stored.branches["main"])
    assert stored.commits[stored.branches["main"]].message == "Take it (#1)"
    assert sorted(stored.commits[stored.branches["main"]].tree) == ["README.md", "docs/a b.md"]
    assert (after["pull_request"]["merged"], after["pull_request"]["merged_by"]) == (True, "platform-bot")


async def test_a_pull_request_comes_with_files_reviews_and_checks(
    guarded_environment: dict[str, str],
) -> None:
    async with github(guarded_environment, build_sample_state()) as session:
        waiting = await called(session, "search_issues", query="is:pr is:open review-requested:@me")
        [number] = [item["number"] for item in waiting["issues"]]
        bad = await called(session, "get_pull_request", **WEB, number=number)
        [good] = [
            item
            for item in (await called(session, "list_pull_requests", **WEB))["pull_requests"]
            if item["number"] != number
        ]
        checks = (await called(session, "get_pull_request", **WEB, number=good["number"]))["checks"]
    assert bad["pull_request"]["requested_reviewers"] == ["platform-bot"]
    assert [entry["filename"] for entry in bad["files"]] == ["src/checkout.ts"]
    assert [(review["reviewer"], review["state"]) for review in bad["reviews"]] == [
        ("dev-one", "CHANGES_REQUESTED")
    ]
    assert (bad["checks"]["total"], bad["checks"]["passed"]) == (2, 1)
    assert [(check["name"], check["result"]) for check in bad["checks"]["failed"]] == [("lint", "failure")]
    assert checks == {"total": 2, "passed": 2, "failed": [], "pending": []}


async def test_a_failed_run_tells_jobs_steps_and_what_they_reported(
    guarded_environment: dict[str, str],
) -> None:
    state, why = build_sample_state(), secrets.token_hex(8)
    last = max(web_of(state).runs, key=lambda run: run.created_at)
    last.jobs[1].annotations[0].message = why
    async with github(guarded_environment, state) as session:
        listed = await called(session, "list_workflow_runs", **WEB, branch="main")
        failures = await called(session, "list_workflow_runs", **WEB, status="failure", event="pull_request")
        run = await called(session, "get_workflow_run", **WEB, run_id=listed["workflow_runs"][0]["id"])
    assert [item["conclusion"] for item in listed["workflow_runs"]] == ["failure", "success"]
    assert listed["workflow_runs"][0]["id"] == last.id
    assert [item["head_branch"] for item in failures["workflow_runs"]] == ["fix/checkout-timeout"]
    assert [(job["name"], job["conclusion"]) for job in run["jobs"]] == [
        ("lint", "success"),
        ("test", "failure"),
    ]
    [job] = run["failed_jobs"]
    assert job["failed_steps"] == [{"number": 3, "name": "make test", "conclusion": "failure"}]
    assert [(note["path"], note["message"]) for note in job["annotations"]] == [("src/delivery.ts", why)]
    assert job["html_url"].startswith(run["workflow_run"]["html_url"])


async def test_a_list_says_where_it_goes_on(guarded_environment: dict[str, str]) -> None:
    state = build_sample_state()
    repository = state.repositories["octo-org/infra"]
    for number in range(120):
        issue(repository, f"Number {number}")
    place = {"owner": "octo-org", "repo": "infra", "per_page": 50}
    async with github(guarded_environment, state) as session:
        pages = [await called(session, "list_issues", **place, page=page) for page in (1, 2, 3)]
        found = await called(
            session, "search_issues", query="Number repo:octo-org/infra", per_page=1, page=120
        )
        refused = await failed(session, "list_issues", **place | {"per_page": 101})
    assert [(page["more"], page.get("next_page"), len(page["issues"])) for page in pages] == [
        (True, 2, 50),
        (True, 3, 50),
        (False, None, 21),
    ]
    numbers = [item["number"] for page in pages for item in page["issues"]]
    assert sorted(numbers) == list(range(1, 122))
    assert (found["total"], found["more"]) == (120, False)
    assert "per_page" in refused


async def test_a_refusal_says_what_to_do(guarded_environment: dict[str, str]) -> None:
    state = build_sample_state()
    repository = web_of(state)
    readme = repository.commits[repository.branches["main"]].tree["README.md"]
    file = {**WEB, "path": "README.md", "content": "x", "message": "m"}
    head = repository.branches["feature/dark-mode"]
    draft = issue(
        repository,
        "Draft",
        pull=PullRequest(head="feature/dark-mode", base="main", head_sha=head, draft=True),
    )
    async with github(guarded_environment, state) as session:
        taken = await failed(session, "create_repository", owner="octo-org", name="web")
        assert "already a repository web in octo-org" in taken
        assert "repos/octo-org/nothing" in await failed(
            session, "get_repository", owner="octo-org", repo="nothing"
        )
        assert readme in await failed(session, "create_or_update_file", **file)
        stale = await failed(session, "create_or_update_file", **file, sha="0" * 40)
        assert f"its sha is now {readme}" in stale
        assert "finds nothing at" in await failed(session, "create_or_update_file", **file, branch="nowhere")
        assert "already a branch main" in await failed(session, "create_branch", **WEB, branch="main")
        assert "assignees: stranger" in await failed(
            session, "create_issue", **WEB, title="t", assignees=["stranger"]
        )
        assert "Say what to change" in await failed(session, "update_issue", **WEB, number=1)
        assert "head: invalid" in await failed(
            session, "create_pull_request", **WEB, title="t", head="nowhere"
        )
        assert "already exists for octo-org:feature/dark-mode" in await failed(
            session, "create_pull_request", **WEB, title="t", head="feature/dark-mode"
        )
        moved_on = await failed(session, "merge_pull_request", **WEB, number=4, sha="0" * 40)
        assert "Head branch was modified" in moved_on
        assert "still a draft" in await failed(session, "merge_pull_request", **WEB, number=draft.number)
        state.accounts["octo-org"].members.remove("platform-bot")
        assert "admin access" in await failed(session, "create_repository", owner="octo-org", name="other")
    assert repository.commits[repository.branches["main"]].tree["README.md"] == readme
    assert "octo-org/other" not in state.repositories
    assert [repository.issues[number].state for number in (4, draft.number)] == ["open", "open"]


async def test_a_renamed_repository_is_followed_and_my_login_means_me(
    guarded_environment: dict[str, str],
) -> None:
    state, old = build_sample_state(), {"owner": "octo-org", "repo": "webshop"}
    async with github(guarded_environment, state, path="api/v3") as session:
        shown = await called(session, "get_repository", **old)
        made = await called(session, "create_issue", **old, title="To the old name")
        await called(session, "create_repository", name="one", private=False)
        await called(session, "create_repository", name="two", owner="Platform-Bot")
    assert shown["full_name"] == "octo-org/web"
    assert web_of(state).issues[made["number"]].title == "To the old name"
    mine = {
        name: found.private for name, found in state.repositories.items() if name.startswith("platform-bot/")
    }
    assert mine == {"platform-bot/one": False, "platform-bot/two": True}


async def test_a_refused_token_is_told_and_not_shown(guarded_environment: dict[str, str]) -> None:
    wrong = secrets.token_hex(8)
    async with github(guarded_environment, build_sample_state(), token=wrong) as session:
        text = await failed(session, "get_me")
    assert "GITHUB_TOKEN" in text
    assert wrong not in text


async def test_a_used_up_rate_limit_says_when_it_is_full_again(guarded_environment: dict[str, str]) -> None:
    before = datetime.now(UTC).replace(microsecond=0)
    async with github(guarded_environment, build_sample_state(), rate_limit=2) as session:
        for _ in range(2):
            await called(session, "get_me")
        text = await failed(session, "get_me")
    told = re.search(r"full again at (.*) UTC", text)
    assert told
    at = datetime.fromisoformat(told[1]).replace(tzinfo=UTC)
    assert before + timedelta(hours=1) <= at <= datetime.now(UTC) + timedelta(hours=1)


@pytest.mark.parametrize(
    ("given", "api", "web"),
    [
        ("https://api.github.com", "https://api.github.com", "https://github.com"),
        ("https://api.github.com/", "https://api.github.com", "https://github.com"),
        ("https://github.com", "https://api.github.com", "https://github.com"),
        ("https://git.example", "https://git.example/api/v3", "https://git.example"),
        ("https://git.example/", "https://git.example/api/v3", "https://git.example"),
        ("https://git.example:8443/api/v3/", "https://git.example:8443/api/v3", "https://git.example:8443"),
        ("https://api.corp.ghe.com", "https://api.corp.ghe.com", "https://corp.ghe.com"),
        ("https://proxy.example/github", "https://proxy.example/github", "https://proxy.example/github"),
        ("http://127.0.0.1:9000/", "http://127.0.0.1:9000", "http://127.0.0.1:9000"),
    ],
)
def test_an_address_is_taken_as_people_give_it(given: str, api: str, web: str) -> None:
    assert parse_api_url(given) == api
    assert parse_api_url(api) == api
    assert web_url_of(api) == web


@pytest.mark.parametrize(
    "given",
    [
        "",
        "github.example",
        "ftp://github.example",
        "https://",
        "https://u:secret@git.example",
        "https://h/?q=1",
    ],
)
def test_what_is_no_address_is_refused_without_showing_it(given: str) -> None:
    with pytest.raises(ValueError, match="GITHUB_API_URL is not an address") as raised:
        parse_api_url(given)
    assert "secret" not in str(raised.value)


# Far ends that are not GitHub, do not answer, or answer strangely


@dataclass
class Far:
    """Whatever answers at the address: what it says, and what it was asked."""

    answer: Response = field(default_factory=lambda: JSONResponse({}))
    asked: list[tuple[str, str]] = field(default_factory=list)
    headers: dict[str, str] = field(default_factory=dict)

    async def _answer(self, request: Request) -> Response:
        self.asked.append((request.method, request.url.path))
        self.headers = dict(request.headers)
        return self.answer

    @property
    def app(self) -> Starlette:
        return Starlette(
            routes=[Route("/{path:path}", self._answer, methods=["GET", "POST", "PUT", "PATCH"])]
        )


async def test_a_strange_answer_is_told_for_what_it_is(guarded_environment: dict[str, str]) -> None:
    far, token = Far(), secrets.token_hex(8)
    not_github = "not GitHub's API"
    expected: list[tuple[Response, str]] = [
        (PlainTextResponse("<html>"), not_github),
        (JSONResponse({"hello": "world"}), not_github),
        (JSONResponse([1, 2]), not_github),
        (PlainTextResponse("nothing", 404), not_github),
        (PlainTextResponse("bad gateway", 502), "status 502"),
        (JSONResponse({"message": f"bad {token}"}, 401), "refused the token"),
        (
            JSONResponse(
                {"message": f"{token} may not"}, 403, {"X-Accepted-GitHub-Permissions": "issues=write"}
            ),
            "It needs: issues=write",
        ),
        (
            JSONResponse({"message": "SSO"}, 403, {"X-GitHub-SSO": "required; url=https://x"}),
            "single sign-on",
        ),
        (
            JSONResponse({"message": "You have exceeded a secondary rate limit"}, 403, {"Retry-After": "42"}),
            "in 42 s",
        ),
        (JSONResponse({"message": "You have exceeded a secondary rate limit"}, 403), "Wait a minute"),
        (JSONResponse({}, 429), "fewer calls"),
        (
            JSONResponse(
                {"message": "No", "errors": [f"with {token}", {"field": "q", "code": "missing_field"}]}, 422
            ),
            "q: missing field",
        ),
        (JSONResponse({"message": "x" * 395 + token}, 418), "status 418"),
    ]
    async with serve_app(far.app) as url, started(guarded_environment, url, token) as session:
        for far.answer, said in expected:
            text = await failed(session, "get_me")
            assert said in text
            assert token[:5] not in text
        far.answer = JSONResponse({"items": "none"})
        assert not_github in await failed(session, "search_issues", query="x")
    sent = {name: far.headers[name] for name in ("authorization", "accept", "x-github-api-version")}
    assert sent == {
        "authorization": f"Bearer {token}",
        "accept": "application/vnd.github+json",
        "x-github-api-version": "2022-11-28",
    }


async def test_no_argument_and_no_redirect_leads_to_another_place(
    guarded_environment: dict[str, str],
) -> None:
    other, far = Far(JSONResponse({"login": "trap"})), Far()
    strange: list[tuple[str, dict[str, Any]]] = [
        ("get_file_contents", {**WEB, "path": "../../../user"}),
        ("get_commit", {**WEB, "ref": "a/../../b"}),
        ("create_branch", {**WEB, "branch": "x", "from_branch": ".."}),
        ("get_repository", {"owner": "octo-org", "repo": ".."}),
        ("get_repository", {"owner": "..", "repo": "web"}),
        ("list_repositories", {"owner": "octo-org/repos?x="}),
        ("get_issue", {**WEB, "number": 0}),
        ("create_repository", {"name": "x", "organisation": "octo-org"}),
        ("merge_pull_request", {**WEB, "number": 1, "sha": "main"}),
    ]
    async with (
        serve_app(other.app) as elsewhere,
        serve_app(far.app) as url,
        started(guarded_environment, url, "t") as session,
    ):
        for tool, arguments in strange:
            await failed(session, tool, **arguments)
        assert far.asked == []
        far.answer = Response(status_code=302, headers={"Location": f"{elsewhere}user"})
        assert "which is not followed" in await failed(session, "get_me")
        far.answer = Response(status_code=301, headers={"Location": "/repositories/1"})
        assert "redirects in a circle" in await failed(session, "get_me")
        assert "has moved" in await failed(session, "create_issue", **WEB, title="t")
    assert other.asked == []
    assert far.asked[-1] == ("POST", "/repos/octo-org/web/issues")


async def test_a_connection_that_breaks_leaves_a_change_unknown(guarded_environment: dict[str, str]) -> None:
    async def broken(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.close()

    async with await asyncio.start_server(broken, "127.0.0.1", 0) as server:
        url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with started(guarded_environment, url, "t") as session:
            assert "not known whether it was done" in await failed(session, "create_issue", **WEB, title="t")
            assert "Try again" in await failed(session, "get_me")
            server.close()
            assert "cannot be reached" in await failed(session, "create_issue", **WEB, title="t")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("variables", "said"),
    [
        ({}, "Set GITHUB_TOKEN"),
        ({"GITHUB_TOKEN": "geheim ü"}, "characters that no token has"),
        (
            {"GITHUB_PERSONAL_ACCESS_TOKEN": "geheim", "GITHUB_API_URL": "geheim"},
            "GITHUB_API_URL is not an address",
        ),
    ],
)
async def test_a_start_that_cannot_work_ends_with_a_sentence(
    guarded_environment: dict[str, str], variables: dict[str, str], said: str
) -> None:
    command = [sys.executable, "-m", "ai_platform_engineering.mcp_servers.github"]
    process = await asyncio.create_subprocess_exec(
        *command,
        env={**guarded_environment, **variables},
        stdin=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.PIPE,
    )
    _, err = await process.communicate()
    assert process.returncode == 2
    assert said in err.decode()
    assert "geheim" not in err.decode()
