"""Arbitrary payloads with Slack's signature: each is acknowledged or refused, and the bot goes on."""

import hashlib
import hmac
import json
import time
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import urlencode

import httpx
from hypothesis import given
from hypothesis import strategies as st

from tests.integrations.slack_bot.test_conversations import ANSWER, scripted
from tests.support.fuzzing import json_values, nothing_breaks, server_examples
from tests.support.harness import PLAIN
from tests.support.health_witness import health_witness
from tests.support.slack_workspace import join_texts, start_harness

SECRET = "signing-secret-of-the-tests"
HTTP_MODE = {"SLACK_INTEGRATION_BOT_MODE": "http", "SLACK_INTEGRATION_SIGNING_SECRET": SECRET}
KEYS = (
    *("type", "event", "user", "channel", "ts", "thread_ts", "text", "blocks", "files", "bot_id", "subtype"),
    *(
        "actions",
        "action_id",
        "value",
        "block_id",
        "view",
        "state",
        "values",
        "private_metadata",
        "callback_id",
    ),
    *("message", "container", "trigger_id", "response_url", "team", "item", "previous_message", "id"),
)
VALUES = json_values(*KEYS)
EVENT_TYPES = ("message", "app_mention", "reaction_added", "assistant_thread_started", "app_home_opened", "x")
ID = st.sampled_from(["U1", "C1", "D1", "1700000000.000100", "B1"]) | VALUES
EVENT = st.fixed_dictionaries(
    {"type": st.sampled_from(EVENT_TYPES)},
    optional={
        **dict.fromkeys(("user", "channel", "ts", "thread_ts", "bot_id", "channel_type", "subtype"), ID),
        **dict.fromkeys(("text", "blocks", "files", "message", "assistant_thread", "edited"), VALUES),
    },
)
CALLBACK = st.fixed_dictionaries(
    {"type": st.just("event_callback"), "event": EVENT | VALUES},
    optional={"team_id": ID, "event_id": ID, "api_app_id": ID, "authorizations": VALUES},
)
INTERACTION = st.fixed_dictionaries(
    {
        "type": st.sampled_from(
            ["block_actions", "view_submission", "view_closed", "shortcut", "message_action"]
        )
    },
    optional={
        **dict.fromkeys(("actions", "view", "user", "channel", "message", "container", "state"), VALUES),
        "trigger_id": ID,
        "callback_id": ID,
    },
)
COMMAND = st.dictionaries(
    st.sampled_from(["command", "text", "user_id", "channel_id", "trigger_id"]), st.text(max_size=30)
)
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
REQUEST = (
    st.tuples(st.builds(json.dumps, CALLBACK | VALUES), st.just(JSON))
    | st.tuples(
        st.builds(lambda payload: urlencode({"payload": json.dumps(payload)}), INTERACTION | VALUES),
        st.just(FORM),
    )
    | st.tuples(st.builds(lambda fields: urlencode({**fields}, errors="replace"), COMMAND), st.just(FORM))
    | st.tuples(st.text(max_size=60), st.sampled_from([JSON, FORM, "text/plain", ""]))
)


@given(st.lists(REQUEST, min_size=10, max_size=20))
@server_examples(3)
async def test_any_signed_payload_is_acknowledged_or_refused(requests: list[tuple[str, str]]) -> None:
    with TemporaryDirectory() as folder, nothing_breaks():
        async with start_harness(Path(folder), scripted(), env=HTTP_MODE) as on, on.bot():
            address = on.slack.endpoint.removesuffix("slack/events")
            async with health_witness(address), httpx.AsyncClient(verify=PLAIN, timeout=30) as http:
                for body, content_type in requests:
                    response = await post(http, on.slack.endpoint, body, content_type)
                    assert response.status_code < 500, (body, response.text[:300])
            ts = await on.slack.say("What runs?", mention=True)
            assert join_texts(await on.wait_for_turns("C1", ts)) == ANSWER


async def post(http: httpx.AsyncClient, url: str, text: str, content_type: str) -> httpx.Response:
    body = text.encode(errors="replace")
    stamp = str(int(time.time()))
    signature = hmac.new(SECRET.encode(), b"v0:%s:%s" % (stamp.encode(), body), hashlib.sha256).hexdigest()
    headers: dict[str, Any] = {
        "Content-Type": content_type,
        "X-Slack-Request-Timestamp": stamp,
        "X-Slack-Signature": f"v0={signature}",
    }
    return await http.post(url, content=body, headers=headers)


async def test_a_body_without_end_is_refused_before_its_signature(tmp_path: Path) -> None:
    async with (
        start_harness(tmp_path, scripted(), env=HTTP_MODE) as on,
        on.bot(),
        httpx.AsyncClient(verify=PLAIN) as http,
    ):
        response = await http.post(on.slack.endpoint, content=b"x" * (4 * 1024 * 1024 + 1))
    assert response.status_code == 413


async def test_members_of_other_kinds_than_slack_sends_are_refused(tmp_path: Path) -> None:
    payloads: list[Any] = [
        [],
        {"type": "event_callback", "event": []},
        {"type": "event_callback", "event": [{"type": "message"}], "authorizations": []},
        {"type": "event_callback", "event": {"type": "message", "message": "text"}},
        {"type": "event_callback", "event": {"type": "message"}, "authorizations": {"0": 1}},
    ]
    interactions: list[Any] = [
        {"type": "block_actions", "actions": [1]},
        {"type": "view_submission", "view": ["callback_id"]},
        {"type": "block_actions", "actions": [], "user": 5},
    ]
    async with (
        start_harness(tmp_path, scripted(), env=HTTP_MODE) as on,
        on.bot(),
        httpx.AsyncClient(verify=PLAIN) as http,
    ):
        for payload in payloads:
            response = await post(http, on.slack.endpoint, json.dumps(payload), JSON)
            assert (response.status_code, response.text) == (400, "The request cannot be read.\n"), payload
        for payload in interactions:
            form = urlencode({"payload": json.dumps(payload)})
            response = await post(http, on.slack.endpoint, form, FORM)
            assert response.status_code == 400, payload
