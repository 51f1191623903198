"""Where the bot answers: mentions, threads, direct messages; each message once, for whoever wrote it, with
what was said before.
"""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from langchain_core.tools import StructuredTool, ToolException

from ai_platform_engineering.a2a.codec import decode_snapshot
from ai_platform_engineering.a2a.on_behalf_of import on_behalf_of_headers
from ai_platform_engineering.core.events import RunStarted
from ai_platform_engineering.integrations.slack_bot.app import RunningBot
from ai_platform_engineering.integrations.slack_bot.message_reader import EARLIER_MESSAGES_FILE
from ai_platform_engineering.integrations.slack_bot.suggested_prompts import FIRST_PROMPT
from tests.support.echo_supervisor import BlockingScenario
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fakes.slack import Fault, NotAcknowledged
from tests.support.harness import Client, agent
from tests.support.scenarios import delegate, tool
from tests.support.slack_workspace import BotHarness, join_texts, start_harness

ANSWER = "Here you are."


def scripted(*turns: Turn) -> ScriptedChatModel:
    return ScriptedChatModel(script=Script(*turns or (Turn(Say(ANSWER)),)))


def asked(model: ScriptedChatModel) -> list[str]:
    """What the model was asked, in order."""
    return [request.last_user for request in model.requests]


def given(*lines: str) -> str:
    """Earlier messages, as the model reads them below the question."""
    return f"\n\nFile {EARLIER_MESSAGES_FILE}:\n```\n" + "\n".join(lines) + "\n```"


async def settled(running: RunningBot) -> None:
    """All that was heard is worked on, and every turn that came of it is over."""
    await running.listeners.drain()
    await asyncio.gather(*(turn.task for turn in running.bot.turns._active.values() if turn.task is not None))


async def started(on: BotHarness, message: Any, user: str, owner: str) -> RunStarted:
    """How the run behind a message began, as the supervisor tells the user."""
    task_id = message.metadata["event_payload"]["task_id"]
    answer = await Client(on.client.url, on.client.http, on_behalf_of_headers(user, owner)).call(
        "GetTask", {"id": task_id}
    )
    (first,) = [
        item.event for item in decode_snapshot(answer["result"]) if isinstance(item.event, RunStarted)
    ]
    return first


def whispers(on: BotHarness, user: str = "U1") -> list[str]:
    return [one.text for one in on.slack.ephemerals if one.recipient[1] == user]


# --- where --------------------------------------------------------------------------------------------------


async def test_a_mention_in_a_channel_is_answered_once_in_a_thread_below_it(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on, on.bot() as running:
        ts = await on.slack.say("What runs in *prod*?", mention=True)
        (message,) = await on.wait_for_turns("C1", ts)
        await settled(running)
        assert join_texts([message]) == ANSWER
        assert (message.thread_ts, message.recipient) == (ts, ("T1", "U1"))
        assert asked(model) == ["What runs in *prod*?"]
        session = on.slack.sessions["C1", ts]
        assert (session.title, session.history) == ("What runs in *prod*?", ["processing", "active"])
        assert on.slack.statuses == {}
        began = await started(on, message, "first@example.com", f"slack:T1:C1:{ts}")
        assert (began.principal, began.owner) == ("first@example.com", f"slack:T1:C1:{ts}")
        assert on.slack.called("conversations.replies") == []


async def test_only_what_is_configured_is_suggested(tmp_path: Path) -> None:
    async def search(query: str) -> str:
        """Search the documents."""
        return query

    tools = [StructuredTool.from_function(coroutine=search)]
    async with (
        start_harness(tmp_path, scripted(), agents=[agent("netutils", None)], tools=tools) as on,
        on.bot(),
    ):
        channel = await on.slack.open_messages_tab("U2")
        await on.slack.wait(lambda: on.slack.prompts)

    titles = [prompt["title"] for prompt in on.slack.prompts[channel]]
    assert titles == ["What can you do?", "Check a service", "Search the documents"]


async def test_a_failed_tool_gives_its_reason(tmp_path: Path) -> None:
    async def find_pod(name: str) -> str:
        """Find a pod."""
        raise ToolException(f"there is no <pod> {name}")

    failing = StructuredTool.from_function(coroutine=find_pod, handle_tool_error=True)
    calls = Script(Turn(Call("find_pod", {"name": "web-1"})), Turn(Say("No.")))
    domain = agent("kubernetes", calls, failing)
    model = scripted(Turn(delegate("kubernetes", id="one")), Turn(Say(ANSWER)))
    async with start_harness(tmp_path, model, agents=[domain]) as on, on.bot():
        ts = await on.slack.say("Where is it?", mention=True)
        (message,) = await on.wait_for_turns("C1", ts)

    [card] = message.cards.values()
    assert "❌ Kubernetes: Find_Pod: " in card["details"]
    assert "there is no &lt;pod&gt; web-1" in card["details"]


async def test_code_reaches_slack_with_every_special_character_escaped(tmp_path: Path) -> None:
    text = "> quoted\n\n```sh\n> a.log && cat < b.log\n```\n> again"
    async with start_harness(tmp_path, scripted(Turn(Say(text)))) as on, on.bot():
        ts = await on.slack.say("How?", mention=True)
        (message,) = await on.wait_for_turns("C1", ts)

    assert message.markdown == "> quoted\n\n```sh\n&gt; a.log &amp;&amp; cat &lt; b.log\n```\n> again"


async def test_a_direct_message_needs_no_mention_and_the_messages_tab_suggests_prompts(
    tmp_path: Path,
) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on, on.bot():
        channel = await on.slack.open_messages_tab("U2")
        await on.slack.wait(lambda: on.slack.prompts)
        assert on.slack.prompts == {channel: [FIRST_PROMPT]}, "no workflow can start, and there is no search"
        ts = await on.slack.say(FIRST_PROMPT["message"], user="U2", channel=channel)
        (message,) = await on.wait_for_turns(channel, ts)
        assert join_texts([message]) == ANSWER
        assert asked(model) == [FIRST_PROMPT["message"]]
        await on.slack.say("And now?", user="U2", channel=channel, thread_ts=ts)
        await on.wait_for_turns(channel, ts, 2)
        assert [one.text for one in model.requests[-1].messages] == [
            FIRST_PROMPT["message"],
            ANSWER,
            "And now?",
        ]


async def test_follow_ups_in_a_thread_it_takes_part_in_need_no_mention(tmp_path: Path) -> None:
    model = scripted()
    rules = tmp_path / "channels.yaml"
    rules.write_text("channels: {C2: {follow_ups: false}}")
    async with (
        start_harness(tmp_path, model, env={"SLACK_INTEGRATION_BOT_CONFIG": str(rules)}) as on,
        on.bot() as running,
    ):
        say = on.slack.say
        ts = await say("First?", mention=True)
        await on.wait_for_turns("C1", ts)
        await say("Second?", thread_ts=ts)
        await on.wait_for_turns("C1", ts, 2)
        await say("Third?", thread_ts=ts, subtype="thread_broadcast")
        await on.wait_for_turns("C1", ts, 3)
        # To somebody else, to a group, empty, elsewhere: none of the bot's business.
        for text in ("<@U2> have you seen this?", "<!subteam^S1> please look", "<!here> lunch?", ""):
            await say(text, thread_ts=ts)
        await say("A new topic.")
        other = await say("Somebody's thread.")
        await say("Between us.", thread_ts=other)
        away = await say("First there?", channel="C2", mention=True)
        await on.wait_for_turns("C2", away)
        await say("Without a mention?", channel="C2", thread_ts=away)
        await settled(running)
        assert whispers(on) == []
        await say("With one?", channel="C2", thread_ts=away, mention=True)
        await on.wait_for_turns("C2", away, 2)
        assert [text.partition("\n")[0] for text in asked(model)] == [
            "First?",
            "Second?",
            "Third?",
            "First there?",
            "With one?",
        ]
        assert model.requests[-1].last_user == "With one?" + given("first: Without a mention?")


async def test_an_empty_mention_gets_a_word_for_the_person_alone(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on, on.bot() as running:
        ts = await on.slack.say("", mention=True)
        await settled(running)
        assert model.requests == []
        assert on.bot_messages("C1", ts) == []
        (said,) = whispers(on)
        assert "/caipe help" in said
        await on.slack.say("Do you know <@UBOT|caipe>?", user="U2")  # named in the middle, under its name
        await on.slack.wait(lambda: on.slack.called("chat.stopStream"))
        assert asked(model) == ["Do you know @me?"]


# --- whose --------------------------------------------------------------------------------------------------


async def test_two_people_in_one_thread_have_one_history_and_each_run_has_its_person(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on:
        on.slack.add_user("U9", "guest", email="first@example.com")
        on.slack.users["U9"]["team_id"] = "T9"  # of another workspace, where anybody may claim any address
        async with on.bot() as running:
            ts = await on.slack.say("What runs?", mention=True)
            await on.wait_for_turns("C1", ts)
            await on.slack.say("And where?", user="U2", thread_ts=ts)
            await on.wait_for_turns("C1", ts, 2)
            await settled(running)
        async with on.bot():  # the thread is the same conversation for the next process
            await on.slack.say("And why?", user="U9", thread_ts=ts, team="T9")
            messages = await on.wait_for_turns("C1", ts, 3)
        owner = f"slack:T1:C1:{ts}"
        for message, person in zip(
            messages, ("first@example.com", "second@example.com", "slack:T1:U9"), strict=True
        ):
            began = await started(on, message, "second@example.com", owner)
            assert (began.principal, began.owner) == (person, owner)
        history = ["What runs?", ANSWER, "And where?", ANSWER, "And why?"]
        assert [one.text for one in model.requests[-1].messages] == history


async def test_what_was_said_before_is_given_once_and_what_is_said_in_between_too(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on:
        say = on.slack.say
        on.slack.add_user("U8", "alerts", is_bot=True)
        async with on.bot() as running:
            root = await say("The site is down.", user="U2")
            await say("Since 9:00, says <@U2>.", user="U3", thread_ts=root)
            await say("CPU &gt; 90%", user="U8", thread_ts=root, bot_id="B8")
            await say("Why?", mention=True, thread_ts=root)
            await on.wait_for_turns("C1", root)
            talk = ("second: The site is down.", "third: Since 9:00, says @second.", "alerts: CPU > 90%")
            assert asked(model) == ["Why?" + given(*talk)]
            await say("<@U3> I restarted it.", user="U2", thread_ts=root)
            await settled(running)
        async with on.bot():
            await say("Is it up?", thread_ts=root)
            await on.wait_for_turns("C1", root, 2)
            await say("Really?", mention=True, thread_ts=root)
            await on.wait_for_turns("C1", root, 3)
        assert asked(model)[1:] == ["Is it up?" + given("second: @third I restarted it."), "Really?"]
        said = "\n".join(one.text for one in model.requests[-1].messages)
        assert [said.count(line) for line in (*talk, "I restarted it")] == [1, 1, 1, 1]


async def test_a_message_that_arrives_late_is_answered_and_nothing_is_given_again(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on, on.bot():
        root = await on.slack.say("The site is down.", user="U2")
        early, between, late, last = (
            {
                "type": "message",
                "channel": "C1",
                "thread_ts": root,
                "ts": f"{int(root.partition('.')[0]) + 1}.{number:06}",
            }
            | {"user": user, "text": text}
            for number, (user, text) in enumerate(
                (("U3", "<@UBOT> Early?"), ("U2", "Hm."), ("U1", "<@UBOT> Late?"), ("U1", "<@UBOT> Last?"))
            )
        )
        on.slack._hear(early)
        await on.slack.deliver(between)
        for count, event in enumerate((late, early, last), 1):
            await on.slack.deliver(event)
            await on.wait_for_turns("C1", root, count)
        context = given("second: The site is down.", "third: @caipe Early?", "second: Hm.")
        assert asked(model) == [f"Late?{context}", "Early?", "Last?"]


# --- once ---------------------------------------------------------------------------------------------------


async def test_redelivery_edits_deletions_and_bots_never_cause_another_answer(tmp_path: Path) -> None:
    model = scripted()
    rules = tmp_path / "channels.yaml"
    rules.write_text("defaults: {bots: [B7]}")
    async with start_harness(tmp_path, model, env={"SLACK_INTEGRATION_BOT_CONFIG": str(rules)}) as on:
        slack = on.slack
        slack.add_user("U7", "deployer", is_bot=True)
        async with on.bot() as running:
            ts = await slack.say("What runs?", mention=True)
            await slack.redeliver(2)
            event = slack.delivered[-1]["event"]
            await slack.deliver(event, event_id="EvOther", retry=1)
            (message,) = await on.wait_for_turns("C1", ts)
            await settled(running)
            assert on.bot_messages("C1", ts) == [message]
        async with on.bot() as running:  # the next process knows it, too
            await slack.redeliver(3)
            await slack.edit(ts, "<@UBOT> What runs now?")
            own = {
                "type": "message",
                "channel": "C1",
                "channel_type": "channel",
                "thread_ts": ts,
                "team": "T1",
            }
            await slack.deliver(
                {**own, "user": "UBOT", "bot_id": "B1", "app_id": "A1", "text": ANSWER, "ts": message.ts}
            )
            await slack.deliver(
                {
                    **own,
                    "subtype": "bot_message",
                    "bot_id": "B1",
                    "text": "<@UBOT> me?",
                    "ts": "1999999999.000001",
                }
            )
            await slack.deliver(
                {
                    **own,
                    "subtype": "bot_message",
                    "bot_id": "B6",
                    "text": "<@UBOT> you?",
                    "ts": "1999999999.000002",
                }
            )
            await slack.say("Answer me.", user="U7", bot_id="B6", mention=True)
            await slack.remove(ts)
            await slack.deliver(
                {
                    **own,
                    "subtype": "channel_join",
                    "user": "U2",
                    "text": "<@U2> has joined",
                    "ts": "1999999999.000003",
                }
            )
            await settled(running)
            assert asked(model) == ["What runs?"]
            allowed = await slack.say("Is it <@UBOT|caipe>?", user="U7", bot_id="B7", mention=True)
            await on.wait_for_turns("C1", allowed)
            bare = {
                "type": "message",
                "subtype": "bot_message",
                "bot_id": "B7",
                "text": "<@UBOT> Alert!",
                "ts": "1999999999.000004",
            }
            slack.messages["C1", bare["ts"]] = type(message)(
                "C1", bare["ts"], None, "", "user", "B7", bare["text"]
            )
            await slack.deliver({"channel": "C1", "channel_type": "channel", **bare})
            (last,) = await on.wait_for_turns("C1", bare["ts"])
            assert asked(model)[1:] == ["Is it @caipe?", "Alert!"]
            assert (
                await started(on, last, "anybody", f"slack:T1:C1:{bare['ts']}")
            ).principal == "slack:T1:B7"
        assert whispers(on) == []


async def test_two_questions_in_one_thread_at_once_are_answered_in_order_each_once(tmp_path: Path) -> None:
    waiting = BlockingScenario()

    def step(request: Request) -> Turn:
        return (
            Turn(Call("wait"))
            if "One" in request.last_user and not request.tool_results
            else Turn(Say("To {{user}}"))
        )

    async def elsewhere(on: BotHarness) -> None:
        """Another question is answered meanwhile, so that whatever could go on has gone on."""
        ts = await on.slack.say("Three?", channel="C2", mention=True)
        await on.wait_for_turns("C2", ts)

    model = ScriptedChatModel(script=Script(step))
    held, slow, slower = asyncio.Event(), asyncio.Event(), asyncio.Event()
    async with start_harness(tmp_path, model, tools=[waiting.tool]) as on, on.bot() as running:
        root = await on.slack.say("A topic.", user="U2")
        on.slack.faults.add("users.info", Fault(hold_until=held))  # the first one's name takes long to find
        await on.slack.say("One?", mention=True, thread_ts=root)
        await on.slack.say("Two?", user="U3", mention=True, thread_ts=root)
        await on.slack.redeliver(4)
        on.slack.faults.add("agents.sessions.setStatus", Fault(hold_until=slow))
        held.set()
        await on.slack.wait(
            lambda: on.slack.called("assistant.threads.setStatus")
        )  # the second has come so far, the first has not
        await elsewhere(on)
        assert [text for text in asked(model) if "Two" in text] == []
        on.slack.faults.add("chat.startStream", Fault(hold_until=slower))
        slow.set()
        await waiting.started.wait()
        waiting.released.set()
        await on.slack.wait(
            lambda: [call for call in on.slack.called("chat.startStream") if call.params["thread_ts"] == root]
        )
        await elsewhere(on)
        assert on.bot_messages("C1", root) == []
        slower.set()
        messages = await on.wait_for_turns("C1", root, 2)
        await settled(running)
        context = given("second: A topic.")
        assert [join_texts([one]) for one in messages] == [f"To One?{context}", "To Two?"]
        assert on.bot_messages("C1", root) == messages
        assert [text for text in asked(model) if text != "Three?"] == [
            f"One?{context}",
            f"One?{context}",
            "Two?",
        ]


async def test_slack_hears_at_once_however_long_the_work_takes(tmp_path: Path) -> None:
    waiting, held = BlockingScenario(), asyncio.Event()
    model = scripted(Turn(Call("wait")), Turn(Say(ANSWER)))
    async with start_harness(tmp_path, model, tools=[waiting.tool]) as on, on.bot():
        on.slack.faults.add("users.info", Fault(hold_until=held))
        ts = await on.slack.say("What runs?", mention=True)  # returns with the acknowledgement
        assert model.requests == []
        held.set()
        await waiting.started.wait()
        await on.slack.say("And this?", mention=True, thread_ts=ts)
        assert on.count_ended_turns("C1", ts) == 0
        waiting.released.set()
        await on.wait_for_turns("C1", ts, 2)


async def test_a_question_that_was_acknowledged_is_answered_by_the_next_process(tmp_path: Path) -> None:
    model, held = scripted(), asyncio.Event()
    async with start_harness(tmp_path, model) as on:
        on.slack.faults.add("users.info", Fault(hold_until=held, drop="before"))
        async with on.bot() as running:
            ts = await on.slack.say("What runs?", mention=True)
            await on.slack.wait(lambda: on.slack.called("users.info"))
            (said,) = await running.bot.store.list_unhandled()
            running.listeners._tasks.cancel()  # as when the process is killed
        held.set()
        async with on.bot() as running:
            await on.slack.redeliver(2)
            assert join_texts(await on.wait_for_turns("C1", ts)) == ANSWER
            await settled(running)
            assert await running.bot.store.list_unhandled() == []
            # as when it is killed right after it has asked
            await running.bot.store.receive(said, "killed", follow_up=False)
        async with on.bot() as running:
            await settled(running)
        assert asked(model) == ["What runs?"]
        assert on.count_ended_turns("C1", ts) == 1


# --- words and files ----------------------------------------------------------------------------------------


WORDS = {
    "<@U2> and <@U2|someone>, <#C9|general>, <#C8>, <!here>, <!subteam^S1|@sre>": (
        "@second and @second, #general, #C8, @here, @sre"
    ),
    "<https://a.example/x?a=1&amp;b=2|the page>, <https://a.example/>": (
        "the page (https://a.example/x?a=1&b=2), https://a.example/"
    ),
    "<http://a.example|a.example>, <mailto:a@b.example|a@b.example>": "http://a.example, a@b.example",
    "1 &lt; 2 &amp;&amp; 3 &gt; 2, &amp;lt;": "1 < 2 && 3 > 2, &lt;",
    "<!date^1392734382^{date}|2014-02-18> &lt;!channel&gt; <@U404>": "2014-02-18 <!channel> @U404",
}


async def test_the_model_reads_the_words_that_people_read(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on, on.bot():
        ts = await on.slack.say("\n".join(WORDS), mention=True)
        await on.wait_for_turns("C1", ts)
        assert asked(model) == ["\n".join(WORDS.values())]


async def test_nothing_that_anybody_writes_makes_the_bot_mention_anyone(tmp_path: Path) -> None:
    bad = "<!channel> <@U1> <!here|here> <#C1> <https://evil.example|click>"
    agent_says = scripted(Turn(Call("look", {}, id="inner")), Turn(Say(f"Found {bad}")))
    model = scripted(
        Turn(
            Say(f"I look for {bad}."),
            Call("write_todos", {"todos": [{"content": bad, "status": "in_progress"}]}),
        ),
        Turn(delegate("jira", f"Ask {bad}")),
        Turn(Say(f"The answer is {bad}, as `{bad}` says.")),
    )
    async with (
        start_harness(tmp_path, model, agents=[agent("jira", agent_says, tool("look", bad))]) as on,
        on.bot() as running,
    ):
        file = on.slack.add_file("<!channel>.bin", b"\x00\x01", "application/octet-stream")
        ts = await on.slack.say(f"{bad} &lt;!everyone&gt;", mention=True, files=[file])
        messages = await on.wait_for_turns("C1", ts)
        await settled(running)
        assert f"The answer is {bad}, as `{bad}` says." in join_texts(messages)
        assert whispers(on) == [
            "&lt;!channel&gt;.bin is not a text file (application/octet-stream), and only text can be read."
        ]
        sent = [call for call in on.slack.calls if call.method.startswith(("chat.", "agents.", "assistant."))]
        assert [
            call.params
            for call in sent
            if any(mark in str(call.params) for mark in ("<!", "<@", "<#", "<http"))
        ] == []
        assert str(on.slack.sessions["C1", ts].title).endswith("&lt;!everyone&gt;")


async def test_text_files_are_read_within_the_limit_and_the_rest_is_said(tmp_path: Path) -> None:
    model = scripted()
    rules = tmp_path / "channels.yaml"
    rules.write_text("defaults: {file_bytes: 40}")
    async with (
        start_harness(tmp_path, model, env={"SLACK_INTEGRATION_BOT_CONFIG": str(rules)}) as on,
        on.bot() as running,
    ):
        slack = on.slack
        notes = slack.add_file("notes.md", "é: ok".encode(), "text/markdown")
        more = slack.add_file("c.json", b'{"a": 1}', "application/json")
        large, rest = (
            slack.add_file("large.log", b"x" * 41, "text/plain"),
            slack.add_file("rest.log", b"y" * 30, "text/plain"),
        )
        lies = slack.add_file("lies.log", b"z" * 41, "text/plain") | {"size": 1}
        image, latin = (
            slack.add_file("a.png", b"\x89PNG", "image/png"),
            slack.add_file("l.txt", b"\xe9", "text/plain"),
        )
        other = dict(
            notes,
            id="F0",
            name="drive.txt",
            url_private="http://localhost:9/drive.txt",
            url_private_download=None,
        )
        hidden = slack.add_file("hidden.txt", b"no", "text/plain")
        hidden |= {"url_private_download": hidden["url_private"].replace("/files/", "/login?")}
        ts = await slack.say(
            "Read.", mention=True, files=[notes, large, more, lies, image, latin, other, rest, hidden]
        )
        await on.wait_for_turns("C1", ts)
        assert asked(model) == [
            'Read.\n\nFile notes.md:\n```\né: ok\n```\n\nFile c.json:\n```\n{"a": 1}\n```'
        ]
        (said,) = whispers(on)
        assert on.slack.ephemerals[0].thread_ts is None  # there was no thread yet, in which it would be seen
        left = 40 - len("é: ok".encode())
        assert said.splitlines() == [
            f"large.log is too large: {left} bytes are left for the files of a message. "
            f"lies.log is too large: {left - 8} bytes are left for the files of a message. "
            "a.png is not a text file (image/png), and only text can be read. "
            "l.txt is not text in UTF-8, and only that can be read. "
            "drive.txt is stored outside Slack and is not fetched. "
            f"rest.log is too large: {left - 8} bytes are left for the files of a message. "
            "hidden.txt could not be read: Slack did not provide it. Does the app have the scope files:read?"
        ]
        only = await slack.say("", mention=True, files=[more])
        await on.wait_for_turns("C1", only)
        await slack.say("", mention=True, files=[image])
        await settled(running)
        assert asked(model)[1:] == ['File c.json:\n```\n{"a": 1}\n```']


# --- how Slack reaches it -----------------------------------------------------------------------------------

HTTP = {"SLACK_INTEGRATION_BOT_MODE": "http", "SLACK_INTEGRATION_SIGNING_SECRET": "s3cret"}


async def test_over_http_everything_is_signed_and_what_is_not_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = scripted()
    async with start_harness(tmp_path, model, env=HTTP) as on, on.bot() as running:
        slack = on.slack
        ts = await slack.say("What runs?", mention=True)
        (message,) = await on.wait_for_turns("C1", ts)
        await slack.redeliver(2)
        assert join_texts([message]) == ANSWER
        feedback = message.stop_blocks[-1]["elements"][0]
        await slack.click(message, feedback["action_id"], value=feedback["negative_button"]["value"])
        (view,) = await slack.wait(lambda: list(slack.views.values()))
        block = next(one["block_id"] for one in view["blocks"] if one["type"] == "input")
        assert await slack.submit(view, {block: "Wrong."}) is None
        assert not await slack.slash("help")
        (answer,) = await slack.wait(lambda: slack.responses)
        assert "/caipe pending" in answer["text"]
        slack.post_to(slack.endpoint, "another")
        praise = slack.click(message, feedback["action_id"], value=feedback["positive_button"]["value"])
        for forged in (slack.say("Mine?", mention=True), slack.slash("help"), praise):
            with pytest.raises(NotAcknowledged) as refused:
                await forged
            assert refused.value.status == 401
        slack.post_to(slack.endpoint, "s3cret")
        with monkeypatch.context() as patch:
            patch.setattr("tests.support.fakes.slack.time.time", lambda: 1_700_000_000.0)
            with pytest.raises(NotAcknowledged) as stale:
                await slack.say("Old?", mention=True)
            assert stale.value.status == 401
        await settled(running)
        assert asked(model) == ["What runs?"]
        assert slack.responses == [answer]


async def test_a_socket_that_slack_ends_is_replaced_and_nothing_is_lost(tmp_path: Path) -> None:
    model = scripted()
    async with start_harness(tmp_path, model) as on, on.bot():
        for number, reason in enumerate(("warning", "refresh_requested")):
            await on.slack.disconnect(reason)  # type: ignore[arg-type]
            ts = await on.slack.say(f"Question {number}?", mention=True)  # waits for the next socket
            (message,) = await on.wait_for_turns("C1", ts)
            assert join_texts([message]) == ANSWER
        assert asked(model) == ["Question 0?", "Question 1?"]


async def test_an_answer_keeps_its_language_and_loses_what_reorders_it(tmp_path: Path) -> None:
    family = "👩\u200d👩\u200d👧"
    model = scripted(Turn(Say(f"مرحبا {family}: exe\u202egpj\u2066.\x1b[2J txt")))
    async with start_harness(tmp_path, model) as on, on.bot():
        thread = await on.slack.say("Go.", mention=True)
        messages = await on.wait_for_turns("C1", thread)
    assert join_texts(messages).strip() == f"مرحبا {family}: exegpj.[2J txt"
