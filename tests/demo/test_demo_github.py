"""The stand-in for GitHub behaves as clients of GitHub's REST API expect."""

import asyncio
import contextlib
import secrets
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx

from ai_platform_engineering.demo.github.app import DEMO_TOKEN, create_app
from ai_platform_engineering.demo.github.history import blob_sha
from ai_platform_engineering.demo.github.sample_data import build_sample_state
from ai_platform_engineering.demo.github.state import GitHubState, load_state
from tests.support.harness import PLAIN, serve_app

WEB = "repos/octo-org/web"


def client(url: str, token: str = DEMO_TOKEN) -> httpx.AsyncClient:
    return httpx.AsyncClient(base_url=url, headers={"Authorization": f"Bearer {token}"}, verify=PLAIN)


@contextlib.asynccontextmanager
async def github(state: GitHubState, **more: Any) -> AsyncIterator[httpx.AsyncClient]:
    async with serve_app(create_app(state, **more)) as url, client(url) as http:
        yield http


async def test_a_created_repository_exists_and_is_listed_and_its_name_is_taken() -> None:
    state, name = build_sample_state(), secrets.token_hex(6)
    async with github(state) as http:
        created = await http.post(
            "orgs/octo-org/repos", json={"name": name, "private": True, "auto_init": True}
        )
        again = await http.post("orgs/octo-org/repos", json={"name": name.upper()})
        nameless = await http.post("user/repos", json={})
        repository = (await http.get(f"repos/octo-org/{name}")).json()
        listed = [item["name"] for item in (await http.get("orgs/octo-org/repos")).json()]
        elsewhere = await http.post("orgs/nobody/repos", json={"name": name})
    assert (created.status_code, created.json()) == (201, repository)
    assert name in listed
    assert state.repositories[f"octo-org/{name}"].private
    assert again.status_code == 422
    [error] = again.json()["errors"]
    assert error == {
        "resource": "Repository",
        "code": "custom",
        "field": "name",
        "message": "name already exists on this account",
    }
    assert (nameless.status_code, nameless.json()["errors"][0]["code"]) == (422, "missing_field")
    assert (elsewhere.status_code, elsewhere.json()["message"]) == (404, "Not Found")
    assert len(state.repositories) == 4


async def test_a_token_is_asked_for() -> None:
    async with serve_app(create_app(build_sample_state(), tokens={"a": "dev-one", "b": "dev-two"})) as url:
        async with httpx.AsyncClient(base_url=url, verify=PLAIN) as http:
            nobody = await http.get("user")
        answers = []
        for token in ("a", "b", DEMO_TOKEN):
            async with client(url, token) as http:
                answers.append(await http.get("user"))
    assert (nobody.status_code, nobody.json()["message"]) == (401, "Requires authentication")
    assert [answer.json().get("login") for answer in answers] == ["dev-one", "dev-two", None]
    assert (answers[2].status_code, answers[2].json()["message"]) == (401, "Bad credentials")
    assert answers[2].json()["documentation_url"]


async def test_pages_are_linked_to_each_other() -> None:
    async with github(build_sample_state()) as http:
        first = await http.get("search/issues", params={"q": "is:open org:octo-org", "per_page": 3})
        items, answer = first.json()["items"], first
        while "next" in answer.links:
            answer = await http.get(answer.links["next"]["url"])
            items += answer.json()["items"]
        last = await http.get(first.links["last"]["url"])
        alone = await http.get("user/repos")
    assert first.json()["total_count"] == len({item["html_url"] for item in items}) == len(items) > 6
    assert last.json()["items"] == answer.json()["items"]
    assert set(last.links) == {"first", "prev"}
    assert "Link" not in alone.headers


async def test_an_issue_lives() -> None:
    state = build_sample_state()
    async with github(state) as http:
        issue = (
            await http.post(f"{WEB}/issues", json={"title": "New", "labels": ["bug", {"name": "ui"}]})
        ).json()
        place = f"{WEB}/issues/{issue['number']}"
        comment = await http.post(f"{place}/comments", json={"body": "Hello"})
        closed = (await http.patch(place, json={"state": "closed"})).json()
        opened = (await http.patch(place, json={"state": "open"})).json()
        wrong = await http.patch(place, json={"state": "gone"})
        comments = (await http.get(f"{place}/comments")).json()
        as_pull = await http.get(f"{WEB}/pulls/{issue['number']}")
    assert issue["number"] == len(state.repositories["octo-org/web"].issues)
    assert [label["name"] for label in issue["labels"]] == ["bug", "ui"]
    assert (comment.status_code, comments) == (201, [comment.json()])
    assert (closed["state"], closed["state_reason"], bool(closed["closed_at"])) == (
        "closed",
        "completed",
        True,
    )
    assert (opened["state"], opened["closed_at"]) == ("open", None)
    assert wrong.json()["errors"] == [{"resource": "Issue", "field": "state", "code": "invalid"}]
    assert as_pull.status_code == 404


async def test_a_merge_brings_the_changes_and_refuses_a_conflict() -> None:
    state = build_sample_state()
    web = state.repositories["octo-org/web"]
    async with github(state) as http:
        for branch in ("one", "two"):
            await http.post(
                f"{WEB}/git/refs", json={"ref": f"refs/heads/{branch}", "sha": web.branches["main"]}
            )
            body = {
                "message": branch,
                "content": "eA==",
                "branch": branch,
                "sha": web.commits[web.branches[branch]].tree["README.md"],
            }
            assert (
                await http.put(
                    f"{WEB}/contents/README.md",
                    json=body | {"content": "MQ==" if branch == "one" else "Mg=="},
                )
            ).status_code == 200
        pulls = [
            (await http.post(f"{WEB}/pulls", json={"title": "T", "head": head, "base": "main"})).json()
            for head in ("one", "two")
        ]
        empty = await http.post(f"{WEB}/pulls", json={"title": "T", "head": "main", "base": "main"})
        merges = [await http.put(f"{WEB}/pulls/{pull['number']}/merge", json={}) for pull in pulls]
        states = [(await http.get(f"{WEB}/pulls/{pull['number']}")).json() for pull in pulls]
        text = (await http.get(f"{WEB}/contents/README.md")).json()
    assert "No commits between" in empty.json()["errors"][0]["message"]
    assert [answer.status_code for answer in merges] == [200, 405]
    assert [(pull["state"], pull["merged"], pull["mergeable"]) for pull in states] == [
        ("closed", True, None),
        ("open", False, False),
    ]
    assert text["sha"] == blob_sha(b"1")
    merge = web.commits[web.branches["main"]]
    assert (merge.sha, len(merge.parents)) == (merges[0].json()["sha"], 2)


async def test_the_rate_limit_is_counted_per_token_and_refuses() -> None:
    async with (
        serve_app(create_app(build_sample_state(), tokens=["a", "b"], rate_limit=2)) as url,
        client(url, "a") as first_client,
        client(url, "b") as other,
    ):
        answers = [await first_client.get("user") for _ in range(3)]
        another = await other.get("user")
    assert [answer.status_code for answer in answers] == [200, 200, 403]
    assert [answer.headers["X-RateLimit-Remaining"] for answer in [*answers, another]] == ["1", "0", "0", "1"]
    assert "rate limit exceeded" in answers[2].json()["message"]


async def test_an_old_name_redirects_and_unknown_requests_are_not_found() -> None:
    async with github(build_sample_state()) as http:
        old = await http.get("api/v3/repos/octo-org/webshop/issues", params={"state": "all"})
        write = await http.post("repos/octo-org/webshop/issues", json={"title": "x"})
        unknown = [
            await http.get("nothing"),
            await http.put("user"),
            await http.get(f"{WEB}/contents/nothing"),
        ]
        broken = await http.post(f"{WEB}/issues", content=b"{")
        links = (await http.get(f"api/v3/{WEB}")).json()
    assert (old.status_code, write.status_code) == (301, 307)
    assert old.headers["Location"] == f"{http.base_url}api/v3/repos/octo-org/web/issues?state=all"
    assert {(answer.status_code, answer.json()["message"]) for answer in unknown} == {(404, "Not Found")}
    assert broken.status_code == 400
    assert links["url"] == f"{http.base_url}api/v3/{WEB}"
    assert links["html_url"] == f"{http.base_url}octo-org/web"


async def test_as_a_command_it_tells_its_address_first_and_keeps_its_state(
    guarded_environment: dict[str, str], tmp_path: Path
) -> None:
    file, token = tmp_path / "github.json", secrets.token_hex(8)
    arguments = [
        "-m",
        "ai_platform_engineering.demo.github",
        "--port",
        "0",
        "--file",
        str(file),
        "--token",
        token,
    ]

    @contextlib.asynccontextmanager
    async def running() -> AsyncIterator[httpx.AsyncClient]:
        process = await asyncio.create_subprocess_exec(
            sys.executable, *arguments, env=guarded_environment, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert process.stdout
            line = (await process.stdout.readline()).decode()
            assert line.startswith("http://127.0.0.1:")
            async with client(line.strip(), token) as http:
                yield http
        finally:
            process.terminate()
            await process.wait()

    async with running() as http:
        assert (await http.post("user/repos", json={"name": "kept"})).status_code == 201
    assert load_state(file).repositories["platform-bot/kept"].owner == "platform-bot"
    async with running() as http:
        assert (await http.get("repos/platform-bot/kept")).status_code == 200
        assert (await http.get(f"{WEB}/contents/assets/logo.png")).json()["sha"] in load_state(
            file
        ).repositories["octo-org/web"].blobs
