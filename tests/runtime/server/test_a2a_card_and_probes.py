"""The agent card at its addresses, and the probes: what is served beside A2A itself."""

import json
from email.utils import parsedate_to_datetime
from importlib.metadata import version

import pytest
from a2a.types import AgentCard
from google.protobuf.json_format import ParseDict

from tests.support.dialects import V03, Dialect, both_versions
from tests.support.echo_supervisor import BlockingScenario, VersionScenario
from tests.support.fakes.script import Say, Script, Turn
from tests.support.harness import agent, supervisor

YES = Script(Turn(Say("Yes.")))
CARD, OLD_CARD, STRICT_CARD = (
    ".well-known/agent-card.json",
    ".well-known/agent.json",
    "v1/.well-known/agent-card.json",
)
OF_0_3 = {
    "url",
    "preferredTransport",
    "protocolVersion",
    "additionalInterfaces",
    "supportsAuthenticatedExtendedCard",
}


async def test_the_card_speaks_to_both_versions_at_both_addresses() -> None:
    async with supervisor(YES, agents=[agent("argocd", YES), agent("jira", YES)]) as client:
        card, old = [(await client.http.get(client.url + path)).json() for path in (CARD, OLD_CARD)]
    assert card == old
    assert [(one["protocolBinding"], one["protocolVersion"]) for one in card["supportedInterfaces"]] == [
        ("JSONRPC", "1.0"),
        ("JSONRPC", "0.3.0"),
        ("HTTP+JSON", "1.0"),
    ]
    assert {one["url"] for one in card["supportedInterfaces"]} == {card["url"]} == {"http://127.0.0.1:8000/"}
    assert (card["protocolVersion"], card["preferredTransport"]) == ("0.3.0", "JSONRPC")
    assert (card["name"], card["version"]) == ("AI Platform Engineer", version("ai-platform-engineering"))
    [extension] = card["capabilities"].pop("extensions")
    assert extension["uri"] == "urn:caipe:events:1"
    assert card["capabilities"] == {"streaming": True, "pushNotifications": True}
    assert [(skill["id"], skill["tags"]) for skill in card["skills"]] == [
        ("ai_platform_engineer", ["argocd", "jira"]),
        ("argocd", ["argocd", "in-process"]),
        ("jira", ["jira", "in-process"]),
    ]
    assert "securitySchemes" not in card


async def test_the_strict_card_has_no_field_that_1_0_does_not_know() -> None:
    async with supervisor(YES) as client:
        merged, strict = [(await client.http.get(client.url + path)).json() for path in (CARD, STRICT_CARD)]
    assert OF_0_3 & merged.keys()
    assert not OF_0_3 & strict.keys()
    ParseDict(strict, AgentCard())  # refuses a field it does not know
    merged["capabilities"]["extensions"][0].pop("required")  # which 0.3 spells out
    assert {key: value for key, value in merged.items() if key not in OF_0_3} == strict


@pytest.mark.parametrize("path", [CARD, OLD_CARD, STRICT_CARD])
async def test_a_card_can_be_cached(path: str) -> None:
    async with supervisor(YES) as client:
        first = await client.http.get(client.url + path)
        again = await client.http.get(client.url + path, headers={"If-None-Match": first.headers["etag"]})
        other = await client.http.get(client.url + path, headers={"If-None-Match": '"another"'})
    assert first.headers["cache-control"].startswith("max-age=")
    assert parsedate_to_datetime(first.headers["last-modified"]).tzinfo is not None
    assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", first.headers["etag"])
    assert again.headers["cache-control"] == first.headers["cache-control"]
    assert (other.status_code, other.json()) == (200, first.json())


async def test_another_card_has_another_tag() -> None:
    tags = []
    for name in ("One", "Two", "One"):
        async with supervisor(YES, env={"A2A_AGENT_NAME": name}) as client:
            tags.append((await client.http.get(client.url + CARD)).headers["etag"])
    assert tags[0] == tags[2] != tags[1]


@pytest.mark.parametrize(
    "external", ["https://agents.example.com/platform", "https://agents.example.com/platform/"]
)
async def test_the_card_names_the_address_that_clients_use(external: str) -> None:
    async with supervisor(YES, env={"EXTERNAL_URL": external}) as client:
        merged, strict = [(await client.http.get(client.url + path)).json() for path in (CARD, STRICT_CARD)]
    assert merged["url"] == "https://agents.example.com/platform/"
    assert {one["url"] for one in strict["supportedInterfaces"]} == {"https://agents.example.com/platform/"}


async def test_the_probes_of_a_server_that_can_answer() -> None:
    async with supervisor(YES) as client:
        health = await client.http.get(client.url + "health")
        ready = await client.http.get(client.url + "ready")
    assert (health.status_code, health.json()) == (200, {"status": "ok"})
    assert (ready.status_code, ready.json()["status"], ready.json()["components"]["model"]["status"]) == (
        200,
        "ok",
        "ok",
    )


@both_versions
async def test_without_a_model_the_server_says_what_is_missing_and_a_question_fails_with_the_same_words(
    dialect: Dialect,
) -> None:
    async with supervisor(None) as client:
        health = await client.http.get(client.url + "health")
        ready = await client.http.get(client.url + "ready")
        stream = await client.ask("Well?", version=dialect.version)
    assert health.status_code == 200
    assert (ready.status_code, ready.json()["status"]) == (503, "unavailable")
    missing = ready.json()["components"]["model"]
    assert missing["status"] == "unavailable"
    assert "LLM_MODEL" in missing["message"]
    assert (stream.last.state, stream.last.status_text) == ("failed", missing["message"])
    assert stream.named("final_result") == []


async def test_a_model_that_cannot_be_set_up_is_named_without_its_key() -> None:
    async with supervisor(None, env={"LLM_MODEL": "xai:nothing"}) as client:
        ready = await client.http.get(client.url + "ready")
    assert ready.status_code == 503
    assert "LLM_MODEL=xai:nothing" in ready.json()["components"]["model"]["message"]


async def test_the_tools_are_listed_by_agent() -> None:
    version_of = VersionScenario()
    async with supervisor(
        YES, tools=[version_of.tool], agents=[agent("argocd", YES, version_of.tool), agent("jira", YES)]
    ) as client:
        answer = await client.http.get(client.url + "tools")
    assert answer.json() == {"tools": {"supervisor": ["version"], "argocd": ["version"], "jira": []}}


async def test_what_is_not_served_is_not_found() -> None:
    async with supervisor(YES) as client:
        missing = await client.http.get(client.url + "nothing")
        wrong = await client.http.get(client.url)
    assert (missing.status_code, wrong.status_code) == (404, 405)


async def test_a_quiet_stream_is_kept_alive_by_comments() -> None:
    waiting = BlockingScenario()
    async with supervisor(
        waiting.script, tools=[waiting.tool], env={"A2A_KEEP_ALIVE_SECONDS": "0.01"}
    ) as client:
        body = {"jsonrpc": "2.0", "id": 1, "method": V03.stream, "params": V03.message("Wait.")}
        content = b""
        async with client.http.stream("POST", client.url, json=body) as response:
            async for piece in response.aiter_raw():
                content += piece
                if b"\n\n: keep-alive\n\n" in content:
                    waiting.released.set()
    assert response.headers["cache-control"] == "no-store"
    frames = [
        json.loads(frame.partition(b"data: ")[2])
        for frame in content.split(b"\n\n")
        if frame.startswith(b"id: ")
    ]
    assert frames[-1]["result"]["status"]["state"] == "completed"
    assert waiting.answer in content.decode()
