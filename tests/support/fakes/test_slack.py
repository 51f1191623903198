"""The fake Slack, seen by the real client libraries: its limits, its clock, its faults, its people."""

import asyncio
from collections.abc import AsyncIterator, Awaitable
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from slack_bolt.adapter.socket_mode.async_handler import AsyncSocketModeHandler
from slack_bolt.async_app import AsyncApp
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.slack import FakeSlack, Fault, NotAcknowledged

# The tests that use this fake notice what is wrong with it, as a rule.
pytestmark = pytest.mark.full

Json = dict[str, Any]
FOR_U1: Json = {"recipient_team_id": "T1", "recipient_user_id": "U1"}
TEXT = {"type": "plain_text", "text": "x"}
BUTTON = {"type": "button", "action_id": "open", "text": TEXT, "value": "form-1"}
FEEDBACK = {
    "type": "context_actions",
    "elements": [
        {
            "type": "feedback_buttons",
            "action_id": "feedback",
            "positive_button": {"text": TEXT, "value": "good"},
            "negative_button": {"text": TEXT, "value": "bad"},
        }
    ],
}


@pytest.fixture
async def fake() -> AsyncIterator[FakeSlack]:
    async with FakeSlack(ScaledClock(0)) as slack:
        yield slack


def client_of(fake: FakeSlack, token: str = "xoxb-test") -> AsyncWebClient:
    return AsyncWebClient(token=token, base_url=fake.base_url, retry_handlers=[])


@pytest.fixture
def client(fake: FakeSlack) -> AsyncWebClient:
    return client_of(fake)


async def code(call: Awaitable[Any]) -> str:
    """Slack's error code, or ok."""
    try:
        await call
    except SlackApiError as error:
        return str(error.response["error"])
    return "ok"


async def root(client: AsyncWebClient, channel: str = "C1") -> str:
    return str((await client.chat_postMessage(channel=channel, text="root"))["ts"])


async def stream(client: AsyncWebClient, **more: Any) -> Json:
    """Where a new stream is, as later calls name it."""
    started = await client.chat_startStream(channel="C1", thread_ts=await root(client), **FOR_U1, **more)
    return {"channel": "C1", "ts": started["ts"]}


def step(**more: Any) -> Json:
    return {"type": "task_update", "id": "s1", "title": "Search", "status": "in_progress"} | more


def text(words: str) -> Json:
    return {"type": "markdown_text", "text": words}


# -- the clock


async def test_a_jump_wakes_the_sleepers_whose_time_has_come() -> None:
    clock = ScaledClock(0)
    before = clock.now()
    soon, late = asyncio.create_task(clock.sleep(5)), asyncio.create_task(clock.sleep(500))
    await asyncio.sleep(0)
    clock.advance(5)
    await soon
    assert not late.done()
    assert clock.now() - before == pytest.approx(5)
    clock.advance(495)
    await late


async def test_a_scaled_clock_goes_by_faster() -> None:
    clock = ScaledClock(1000)
    before = clock.now()
    await clock.sleep(20)
    assert clock.now() - before >= 20 - 1e-5


# -- streams


async def test_a_stream_keeps_every_piece_card_and_block(fake: FakeSlack, client: AsyncWebClient) -> None:
    place = await stream(
        client, chunks=[{"type": "plan_update", "title": "Look"}, step()], task_display_mode="plan"
    )
    await client.chat_appendStream(**place, markdown_text="One ")
    source = {"type": "url", "url": "https://example.com/1", "text": "One"}
    await client.chat_appendStream(
        **place, chunks=[text("two"), step(status="complete", output="1 hit", sources=[source])]
    )
    await client.chat_stopStream(
        **place, blocks=[FEEDBACK], metadata={"event_type": "t", "event_payload": {}}, session_status="active"
    )
    message = fake.messages["C1", place["ts"]]
    assert (message.text_chunks, message.markdown, message.state) == (["One ", "two"], "One two", "done")
    assert message.plan_title == "Look"
    assert message.cards["s1"]["output"] == "1 hit"
    assert [card["status"] for card in message.card_history] == ["in_progress", "complete"]
    assert (message.stop_blocks, message.recipient, message.display_mode) == (
        [FEEDBACK],
        ("T1", "U1"),
        "plan",
    )
    assert fake.sessions["C1", str(message.thread_ts)].status == "active"
    assert fake.text_of("C1", str(message.thread_ts)) == "rootOne two"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"markdown_text": "a", "chunks": [text("b")]}, "invalid_arguments"),
        ({}, "invalid_arguments"),
        ({"markdown_text": "a" * 12_001}, "msg_too_long"),
        ({"chunks": [text("a" * 6_000), text("a" * 6_001)]}, "msg_too_long"),
        ({"chunks": [{"type": "image"}]}, "invalid_chunks"),
        ({"chunks": [step(status="completed")]}, "invalid_chunks"),
        ({"chunks": [step(title="t" * 257)]}, "invalid_chunks"),
        ({"chunks": [step(details="t" * 257)]}, "invalid_chunks"),
        ({"chunks": [step(details="t" * 256)]}, "ok"),
        ({"chunks": [step(sources=["https://example.com"])]}, "invalid_chunks"),
        ({"chunks": [{"type": "blocks", "blocks": [{"type": "section"}]}]}, "invalid_blocks"),
        ({"ts": "1.000001", "markdown_text": "a"}, "message_not_found"),
    ],
)
async def test_an_append_that_slack_refuses_changes_nothing(
    client: AsyncWebClient, fake: FakeSlack, more: Json, expected: str
) -> None:
    place = await stream(client, markdown_text="Kept.")
    assert await code(client.api_call("chat.appendStream", json=place | more)) == expected
    assert fake.messages["C1", place["ts"]].markdown == "Kept."


async def test_a_message_holds_twelve_thousand_streamed_characters(client: AsyncWebClient) -> None:
    place = await stream(client, markdown_text="a" * 11_999)
    assert await code(client.chat_appendStream(**place, markdown_text="bb")) == "msg_too_long"
    assert await code(client.chat_appendStream(**place, markdown_text="b")) == "ok"


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        ({"recipient_user_id": "U1"}, "missing_recipient_team_id"),
        ({"recipient_team_id": "T1"}, "missing_recipient_user_id"),
        (FOR_U1 | {"thread_ts": ""}, "invalid_arguments"),
        (FOR_U1 | {"thread_ts": "17.000001"}, "thread_not_found"),
        (FOR_U1 | {"thread_ts": "yesterday"}, "invalid_thread_ts"),
        (FOR_U1 | {"task_display_mode": "grid"}, "invalid_arguments"),
        ({"channel": "D1"}, "thread_not_found"),
        ({"channel": "general"} | FOR_U1, "channel_not_found"),
    ],
)
async def test_a_stream_starts_only_with_all_it_needs(
    client: AsyncWebClient, more: Json, expected: str
) -> None:
    where = {"channel": "C1", "thread_ts": await root(client)}
    assert await code(client.api_call("chat.startStream", json=where | more)) == expected


async def test_a_direct_message_needs_no_recipient_and_a_thread_without_root_takes_nothing(
    fake: FakeSlack, client: AsyncWebClient
) -> None:
    ts = await root(client, "D1")
    assert await code(client.chat_startStream(channel="D1", thread_ts=ts)) == "ok"
    fake.delete_thread("D1", ts)
    assert await code(client.chat_startStream(channel="D1", thread_ts=ts)) == "thread_not_found"
    assert await code(client.chat_postMessage(channel="D1", thread_ts=ts, text="x")) == "thread_not_found"
    assert fake.thread("D1", ts) == []


async def test_a_stream_ends_after_five_minutes_and_an_update_replaces_it(
    fake: FakeSlack, client: AsyncWebClient
) -> None:
    place = await stream(client, markdown_text="Long.")
    fake.clock.advance(299)
    assert await code(client.chat_appendStream(**place, markdown_text=" Tail.")) == "ok"
    assert await code(client.chat_update(**place, text="x")) == "streaming_state_conflict"
    fake.clock.advance(1)
    assert (
        await code(client.chat_appendStream(**place, markdown_text="x")) == "message_not_in_streaming_state"
    )
    assert await code(client.chat_stopStream(**place)) == "message_not_in_streaming_state"
    await client.chat_update(**place, text="Repaired.")
    message = fake.messages["C1", place["ts"]]
    assert (message.shown, message.original, message.updates) == ("Repaired.", ["Long.", " Tail."], 1)


async def test_a_workspace_without_streams() -> None:
    async with FakeSlack(streaming=False, streaming_error="channel_type_not_supported") as fake:
        client = client_of(fake)
        start = client.chat_startStream(channel="C1", thread_ts=await root(client), **FOR_U1)
        assert await code(start) == "channel_type_not_supported"


# -- messages and blocks


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        ({"text": "a" * 40_001}, "msg_too_long"),
        ({}, "no_text"),
        ({"blocks": [{"type": "divider"}] * 51}, "invalid_blocks"),
        ({"blocks": [{"type": "divider"}] * 50}, "ok"),
        ({"blocks": [{"type": "mystery"}]}, "invalid_blocks"),
        (
            {"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 3_001}}]},
            "invalid_blocks",
        ),
        ({"blocks": [{"type": "section", "fields": [TEXT] * 11}]}, "invalid_blocks"),
        (
            {"blocks": [{"type": "section", "text": {"type": "mrkdwn", "text": "a" * 3_000}}] * 5},
            "msg_blocks_too_long",
        ),
        ({"blocks": [{"type": "markdown", "text": "a" * 6_001}] * 2}, "msg_blocks_too_long"),
        ({"blocks": [{"type": "markdown", "text": "a" * 12_001}]}, "invalid_blocks"),
        ({"blocks": [{"type": "actions", "elements": [BUTTON]}]}, "ok"),
        ({"blocks": [{"type": "actions", "elements": [BUTTON, BUTTON]}]}, "invalid_blocks"),
        ({"blocks": [{"type": "actions", "elements": [BUTTON | {"value": "v" * 2_001}]}]}, "invalid_blocks"),
        ({"blocks": [{"type": "actions", "elements": [BUTTON | {"type": "lever"}]}]}, "invalid_blocks"),
        (
            {"blocks": [{"type": "actions", "elements": [BUTTON | {"text": TEXT | {"text": "t" * 76}}]}]},
            "invalid_blocks",
        ),
        ({"blocks": [{"type": "divider", "block_id": "a"}] * 2}, "invalid_blocks"),
        ({"blocks": [FEEDBACK]}, "ok"),
    ],
)
async def test_a_message_is_checked_as_slack_checks_it(
    client: AsyncWebClient, content: Json, expected: str
) -> None:
    assert await code(client.api_call("chat.postMessage", json={"channel": "C1"} | content)) == expected


async def test_a_thread_is_read_in_pages(fake: FakeSlack, client: AsyncWebClient) -> None:
    ts = await root(client)
    fake.clock.advance(10)
    replies = [
        (await client.chat_postMessage(channel="C1", thread_ts=ts, text=f"r{number}"))["ts"]
        for number in range(3)
    ]
    first = await client.conversations_replies(channel="C1", ts=ts, limit=2)
    assert [message["text"] for message in first["messages"]] == ["root", "r0"]
    rest = await client.conversations_replies(
        channel="C1", ts=ts, limit=2, cursor=first["response_metadata"]["next_cursor"]
    )
    assert ([message["text"] for message in rest["messages"]], rest["has_more"]) == (["r1", "r2"], False)
    newer = await client.conversations_replies(channel="C1", ts=ts, oldest=replies[1])
    assert [message["text"] for message in newer["messages"]] == ["root", "r2"]
    also = await client.conversations_replies(channel="C1", ts=ts, oldest=replies[1], inclusive=True)
    assert [message["text"] for message in also["messages"]] == ["root", "r1", "r2"]
    assert await code(client.conversations_replies(channel="C1", ts="9.000001")) == "thread_not_found"


async def test_people_places_and_sessions(fake: FakeSlack, client: AsyncWebClient) -> None:
    place: Json = {"channel_id": "C1", "thread_ts": await root(client)}
    fake.usergroups["S1"] = ["U1"]
    assert (await client.users_info(user="U1"))["user"]["profile"]["email"] == "first@example.com"
    link = await client.chat_getPermalink(channel="C1", message_ts=place["thread_ts"])
    assert link["permalink"].endswith("/C1/p" + place["thread_ts"].replace(".", ""))
    prompts = [{"title": "Ask", "message": "What is up?"}]
    await client.assistant_threads_setSuggestedPrompts(channel_id="D1", prompts=prompts)
    assert fake.prompts == {"D1": prompts}
    assert await code(client.users_info(user="U9")) == "user_not_found"
    assert (await client.usergroups_users_list(usergroup="S1"))["users"] == ["U1"]
    assert (await client.conversations_open(users="U1"))["channel"]["id"] == "D1"
    assert (await client.conversations_info(channel="D1"))["channel"]["is_im"]
    await client.chat_postEphemeral(channel="C1", user="U1", text="psst")
    assert (fake.ephemerals[0].text, fake.thread("C1", fake.ephemerals[0].ts)) == ("psst", [])
    await client.agents_sessions_setStatus(**place, status="processing", title="Title")
    await client.agents_sessions_setStatus(**place, status="active", title="Other")
    session = fake.sessions["C1", place["thread_ts"]]
    assert (session.title, session.history) == ("Title", ["processing", "active"])
    assert await code(client.agents_sessions_setStatus(**place, status="busy")) == "invalid_arguments"
    assert await code(client.agents_sessions_rename(**place, title="t" * 201)) == "invalid_arguments"
    await client.assistant_threads_setStatus(**place, status="is looking")
    assert fake.statuses["C1", place["thread_ts"]] == "is looking"
    await client.chat_postMessage(channel="C1", thread_ts=place["thread_ts"], text="done")
    assert fake.statuses == {}
    reaction = {"channel": "C1", "timestamp": place["thread_ts"], "name": "eyes"}
    assert [await code(client.reactions_add(**reaction)) for _ in range(2)] == ["ok", "already_reacted"]


async def test_a_token_opens_only_what_it_is_for(fake: FakeSlack, client: AsyncWebClient) -> None:
    assert "chat:write" in (await client.auth_test()).headers["x-oauth-scopes"]
    assert await code(client_of(fake, "xoxb-other").auth_test()) == "invalid_auth"
    assert await code(client.apps_connections_open(app_token="xoxb-test")) == "not_allowed_token_type"
    assert await code(client.api_call("chat.shout")) == "unknown_method"
    assert (fake.calls[0].method, fake.calls[0].token, fake.calls[0].answer) == (
        "auth.test",
        "xoxb-test",
        "ok",
    )


async def test_a_file_needs_the_token(fake: FakeSlack) -> None:
    file = fake.add_file("a.txt", b"content", "text/plain")
    async with aiohttp.ClientSession() as http:
        async with http.get(file["url_private"], headers={"Authorization": "Bearer xoxb-test"}) as response:
            assert await response.read() == b"content"
        async with http.get(file["url_private_download"], allow_redirects=False) as response:
            assert (response.status, response.headers["Location"]) == (302, "/login")


# -- rates and faults


async def retry_after(call: Awaitable[Any]) -> int:
    with pytest.raises(SlackApiError) as caught:
        await call
    assert (caught.value.response.status_code, caught.value.response["error"]) == (429, "ratelimited")
    return int(caught.value.response.headers["Retry-After"])


async def test_a_minute_holds_so_many_calls() -> None:
    async with FakeSlack(ScaledClock(0), limits={"chat.appendStream": 3}) as fake:
        client = client_of(fake)
        place = await stream(client)
        for _ in range(3):
            await client.chat_appendStream(**place, markdown_text="a")
            fake.clock.advance(10)
        assert await retry_after(client.chat_appendStream(**place, markdown_text="b")) == 30
        assert fake.messages["C1", place["ts"]].markdown == "aaa"
        assert [call.answer for call in fake.limited] == ["ratelimited"]
        fake.clock.advance(29)
        assert await retry_after(client.chat_appendStream(**place, markdown_text="b")) == 1
        fake.clock.advance(1)
        assert await code(client.chat_appendStream(**place, markdown_text="c")) == "ok"


async def test_the_usual_limits_are_slacks(fake: FakeSlack, client: AsyncWebClient) -> None:
    thread: Json = {"channel": "C1", "thread_ts": await root(client)}
    for _ in range(20):
        await client.chat_startStream(**thread, **FOR_U1)
    assert await retry_after(client.chat_startStream(**thread, **FOR_U1)) == 60


async def test_a_channel_takes_one_post_per_second_after_a_burst(
    fake: FakeSlack, client: AsyncWebClient
) -> None:
    for _ in range(4):
        await root(client)
    assert await retry_after(root(client)) == 1
    assert await root(client, "C2")
    fake.clock.advance(1)
    assert await root(client)
    assert await retry_after(root(client)) == 1


async def test_faults_come_once_and_in_order(fake: FakeSlack, client: AsyncWebClient) -> None:
    for fault in (Fault(error="is_archived"), Fault(retry_after=7), Fault(status=500)):
        fake.faults.add("chat.postMessage", fault)
    assert await code(root(client)) == "is_archived"
    assert await retry_after(root(client)) == 7
    with pytest.raises(SlackApiError) as caught:
        await root(client)
    assert caught.value.response.status_code == 500
    assert fake.messages == {}
    assert await code(root(client)) == "ok"


@pytest.mark.parametrize(("drop", "kept"), [("before", 0), ("after", 1)])
async def test_a_dropped_connection_says_nothing_about_what_happened(
    fake: FakeSlack, client: AsyncWebClient, drop: Any, kept: int
) -> None:
    fake.faults.add("chat.postMessage", Fault(drop=drop))
    with pytest.raises(aiohttp.ClientError):
        await root(client)
    assert (len(fake.messages), fake.calls[0].answer) == (kept, "dropped")


async def test_a_held_call_waits_for_the_test(fake: FakeSlack, client: AsyncWebClient) -> None:
    gate = asyncio.Event()
    fake.faults.add("chat.postMessage", Fault(hold_until=gate))
    posting = asyncio.create_task(root(client))
    await fake.wait(lambda: fake.called("chat.postMessage"))
    assert (fake.messages, fake.calls[0].answer) == ({}, "pending")
    gate.set()
    await posting
    with pytest.raises(AssertionError, match=r"chat\.postMessage .*root.* -> ok"):
        await fake.wait(lambda: False, timeout=0.01)


# -- a bot


class Bot:
    """A small app that writes down what it hears."""

    def __init__(self, client: AsyncWebClient) -> None:
        self.app = AsyncApp(client=client, signing_secret="s3cret")
        self.heard: list[Json] = []
        self.actions: list[Json] = []
        self.retries: list[str] = []
        for kind in ("app_mention", "message", "app_home_opened", "agent_session_stopped"):
            self.app.event(kind)(self._event)
        self.app.action("open")(self._open)
        self.app.action("feedback")(self._open)
        self.app.action("mute")(self._mute)
        self.app.view("form")(self._submit)
        self.app.command("/caipe")(self._command)

    async def _event(self, event: Json, request: Any) -> None:
        self.heard.append(event)
        self.retries += request.headers.get("x-slack-retry-num", [])

    async def _open(self, ack: Any, body: Json) -> None:
        await ack()
        self.actions.append(body)

    async def _mute(self) -> None:
        """Never acknowledges."""

    async def _submit(self, ack: Any, view: Json) -> None:
        self.actions.append(view)
        if view["state"]["values"]["count"]["v"]["value"] == "0":
            await ack(response_action="errors", errors={"count": "too few"})
        else:
            await ack()

    async def _command(self, ack: Any, respond: Any, command: Json) -> None:
        await ack("working on " + command["text"])
        await respond("done")


@pytest.fixture(params=["socket", "http"])
async def bot(request: pytest.FixtureRequest, fake: FakeSlack, client: AsyncWebClient) -> AsyncIterator[Bot]:
    """The app, connected by Socket Mode or behind an address of its own."""
    made = Bot(client)
    if request.param == "socket":
        handler = AsyncSocketModeHandler(made.app, app_token="xapp-test", web_client=client)
        await handler.connect_async()
        yield made
        await handler.close_async()
    else:
        runner = web.AppRunner(made.app.web_app("/slack/events"), access_log=None)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        fake.post_to(f"http://127.0.0.1:{runner.addresses[0][1]}/slack/events", "s3cret")
        yield made
        await runner.cleanup()


only_socket = pytest.mark.parametrize("bot", ["socket"], indirect=True)
only_http = pytest.mark.parametrize("bot", ["http"], indirect=True)


async def test_a_mention_arrives_twice_and_again(fake: FakeSlack, bot: Bot) -> None:
    ts = await fake.say("hello", mention=True)
    assert sorted(event["type"] for event in bot.heard) == ["app_mention", "message"]
    assert {(event["ts"], event["text"], event["user"]) for event in bot.heard} == {
        (ts, "<@UBOT> hello", "U1")
    }
    assert len({payload["event_id"] for payload in fake.delivered}) == 2
    await fake.redeliver(2)
    await fake.redeliver(1)
    assert (len(bot.heard), [retry for retry in bot.retries if retry != "0"]) == (5, ["1", "1", "2"])


async def test_what_people_do_in_a_direct_message(fake: FakeSlack, bot: Bot) -> None:
    channel = await fake.open_messages_tab()
    file = fake.add_file("a.txt", b"x", "text/plain")
    ts = await fake.say("look", channel=channel, files=[file])
    await fake.edit(ts, "look here")
    await fake.remove(ts)
    tab, said, changed, deleted = bot.heard
    assert (tab["tab"], tab["channel"]) == ("messages", "D1")
    assert (said["channel_type"], said["subtype"], said["files"]) == ("im", "file_share", [file])
    assert (changed["subtype"], changed["message"]["text"], changed["previous_message"]["text"]) == (
        "message_changed",
        "look here",
        "look",
    )
    assert (deleted["subtype"], deleted["deleted_ts"], fake.thread("D1", ts)) == ("message_deleted", ts, [])


@only_socket
async def test_only_own_messages_change(fake: FakeSlack, client: AsyncWebClient, bot: Bot) -> None:
    theirs: Json = {"channel": "C1", "ts": await fake.say("theirs")}
    mine: Json = {"channel": "C1", "ts": await root(client)}
    assert await code(client.chat_update(**theirs, text="x")) == "cant_update_message"
    assert await code(client.chat_delete(**theirs)) == "message_not_found"
    await client.chat_update(**mine, text="new", blocks=[FEEDBACK])
    assert fake.messages["C1", mine["ts"]].blocks == [FEEDBACK]
    await client.chat_update(**mine, text="newer")
    assert fake.messages["C1", mine["ts"]].blocks == []
    assert await code(client.chat_delete(**mine)) == "ok"
    assert await code(client.chat_update(**mine, text="x")) == "message_not_found"


async def test_the_stop_button_closes_the_streams_itself(
    fake: FakeSlack, client: AsyncWebClient, bot: Bot
) -> None:
    ts = await fake.say("go", mention=True)
    place: Json = {
        "channel": "C1",
        "ts": (await client.chat_startStream(channel="C1", thread_ts=ts, **FOR_U1))["ts"],
    }
    await fake.stop("C1", ts)
    assert (bot.heard[-1]["type"], bot.heard[-1]["streaming_message_ts"]) == (
        "agent_session_stopped",
        [place["ts"]],
    )
    assert await code(client.chat_stopStream(**place)) == "message_not_in_streaming_state"


def form(**more: Any) -> Json:
    options = [{"text": TEXT, "value": value} for value in ("a", "b")]
    fields: Json = {
        "count": {"type": "number_input", "is_decimal_allowed": False},
        "where": {"type": "static_select", "options": options, "initial_option": options[0]},
        "which": {"type": "multi_static_select", "options": options},
        "sure": {"type": "checkboxes", "options": options[:1]},
        "day": {"type": "datepicker"},
    }
    blocks = [
        {
            "type": "input",
            "block_id": name,
            "label": TEXT,
            "optional": name != "count",
            "element": element | {"action_id": "v"},
        }
        for name, element in fields.items()
    ]
    return {
        "type": "modal",
        "callback_id": "form",
        "title": TEXT,
        "submit": TEXT,
        "blocks": blocks,
        "private_metadata": "id-1",
    } | more


async def shown(fake: FakeSlack, client: AsyncWebClient, *blocks: Json) -> Any:
    posted = await client.chat_postMessage(channel="C1", text="press", blocks=list(blocks))
    return fake.messages["C1", posted["ts"]]


async def test_a_click_opens_a_form_and_the_form_comes_back(
    fake: FakeSlack, client: AsyncWebClient, bot: Bot
) -> None:
    message = await shown(fake, client, {"type": "actions", "block_id": "ask", "elements": [BUTTON]})
    assert await fake.click(message, "open", user="U2") is None
    clicked = bot.actions.pop()
    assert (clicked["actions"][0]["value"], clicked["actions"][0]["block_id"]) == ("form-1", "ask")
    assert (clicked["user"]["id"], clicked["team"]["id"], clicked["message"]["ts"]) == (
        "U2",
        "T1",
        message.ts,
    )
    view = (await client.views_open(trigger_id=clicked["trigger_id"], view=form()))["view"]
    assert (
        await code(client.views_open(trigger_id=clicked["trigger_id"], view=form())) == "exchanged_trigger_id"
    )
    refused = await fake.submit(fake.views[view["id"]], {"count": 0})
    assert refused == {"response_action": "errors", "errors": {"count": "too few"}}
    assert view["id"] in fake.views
    assert await fake.submit(view, {"count": 3, "which": ["b"], "sure": ["a"], "day": "2030-01-02"}) is None
    values = {name: value["v"] for name, value in bot.actions[-1]["state"]["values"].items()}
    assert (values["count"]["value"], values["day"]["selected_date"]) == ("3", "2030-01-02")
    assert (values["where"]["selected_option"]["value"], values["sure"]["selected_options"][0]["value"]) == (
        "a",
        "a",
    )
    assert [option["value"] for option in values["which"]["selected_options"]] == ["b"]
    assert (bot.actions[-1]["private_metadata"], fake.views) == ("id-1", {})


@only_socket
async def test_a_form_is_checked_and_its_trigger_grows_old(
    fake: FakeSlack, client: AsyncWebClient, bot: Bot
) -> None:
    message = await shown(fake, client, FEEDBACK)
    with pytest.raises(ValueError, match="feedback"):
        await fake.click(message, "open")
    await fake.click(message, "feedback", value="bad")
    clicked = bot.actions.pop()
    assert clicked["actions"][0]["value"] == "bad"
    trigger = clicked["trigger_id"]
    blocks = form()["blocks"]
    for wrong in (
        {"title": TEXT | {"text": "t" * 25}},
        {"private_metadata": "p" * 3_001},
        {"submit": None},
        {"blocks": blocks * 2},
    ):
        assert await code(client.views_open(trigger_id=trigger, view=form(**wrong))) == "invalid_arguments"
    assert await code(client.views_open(trigger_id="1.2.3", view=form())) == "invalid_trigger_id"
    fake.clock.advance(3.1)
    assert await code(client.views_open(trigger_id=trigger, view=form())) == "expired_trigger_id"
    with pytest.raises(ValueError, match="count must be filled in"):
        await fake.submit(form() | {"id": "V0"}, {})


@only_socket
async def test_a_view_changes_under_its_reader(fake: FakeSlack, client: AsyncWebClient, bot: Bot) -> None:
    await client.chat_postEphemeral(
        channel="C1", user="U1", text="again", blocks=[{"type": "actions", "elements": [BUTTON]}]
    )
    await fake.click(fake.ephemerals[0], "open")
    clicked = bot.actions.pop()
    assert clicked["container"]["is_ephemeral"]
    assert "message" not in clicked
    view = (await client.views_open(trigger_id=clicked["trigger_id"], view=form()))["view"]
    await client.views_update(view_id=view["id"], hash=view["hash"], view=form(private_metadata="id-2"))
    assert fake.views[view["id"]]["private_metadata"] == "id-2"
    assert (
        await code(client.views_update(view_id=view["id"], hash=view["hash"], view=form())) == "hash_conflict"
    )
    assert await code(client.views_update(view_id="V0", view=form())) == "not_found"


async def test_a_command_is_answered_now_and_later(fake: FakeSlack, bot: Bot) -> None:
    assert await fake.slash("status") == {"text": "working on status"}
    await fake.wait(lambda: fake.responses)
    assert fake.responses[0]["text"] == "done"


@only_socket
async def test_a_response_url_replaces_its_message_five_times_at_most(
    fake: FakeSlack, client: AsyncWebClient, bot: Bot
) -> None:
    message = await shown(fake, client, {"type": "actions", "elements": [BUTTON]})
    await fake.click(message, "open")
    url = bot.actions[0]["response_url"]
    async with aiohttp.ClientSession() as http:
        for expected in [200] * 5 + [404]:
            async with http.post(url, json={"replace_original": True, "text": "answered"}) as response:
                assert response.status == expected
    assert (message.text, message.blocks) == ("answered", [])


@only_socket
async def test_without_an_acknowledgement_a_delivery_fails(
    fake: FakeSlack, client: AsyncWebClient, bot: Bot
) -> None:
    message = await shown(fake, client, {"type": "actions", "elements": [BUTTON | {"action_id": "mute"}]})
    fake.ack_seconds = 0.05
    with pytest.raises(TimeoutError):
        await fake.click(message, "mute")


@only_http
async def test_a_wrong_signature_is_turned_away(fake: FakeSlack, bot: Bot) -> None:
    fake.post_to(fake.endpoint, "other")
    with pytest.raises(NotAcknowledged) as caught:
        await fake.say("hello")
    assert (caught.value.status, bot.heard) == (401, [])


@only_socket
async def test_a_socket_that_is_told_to_go_comes_back(fake: FakeSlack, bot: Bot) -> None:
    await fake.wait(lambda: fake.sockets)
    await fake.disconnect("refresh_requested")
    await fake.say("still there?", channel="D1")
    assert [event["text"] for event in bot.heard] == ["still there?"]
    assert len(fake.called("apps.connections.open")) == 2
