"""What operators decide per channel, how the bot is started, and what `/caipe` says."""

import contextlib
import logging
import signal
import socket
from datetime import datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.integrations.slack_bot.channel_config import (
    ChannelConfig,
    ReloadableConfig,
    read_config,
)
from tests.integrations.slack_bot.test_conversations import ANSWER, asked, scripted, settled, whispers
from tests.support.asking_agent import Repos, form_tool, github
from tests.support.fakes.clock import ScaledClock
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.request import Request
from tests.support.fakes.script import Call, Say, Script, Turn
from tests.support.fakes.slack import FakeSlack, Fault
from tests.support.harness import agent
from tests.support.processes import invoke_caipe
from tests.support.processes import start_command as program
from tests.support.scenarios import delegate
from tests.support.slack_workspace import BotHarness, join_texts, start_harness

CONFIG = "SLACK_INTEGRATION_BOT_CONFIG"


def rules(tmp_path: Path, text: str) -> dict[str, str]:
    file = tmp_path / "channels.yaml"
    file.write_text(text, encoding="utf-8")
    return {CONFIG: str(file)}


async def answered(on: BotHarness, text: str = "What runs?", **more: Any) -> str:
    """What the bot answers to a mention."""
    ts = await on.slack.say(text, mention=True, **more)
    channel = more.get("channel", "C1")
    return join_texts(await on.wait_for_turns(channel, ts))


# --- per channel --------------------------------------------------------------------------------------------


async def test_a_channel_that_is_off_is_silent_and_the_others_follow_the_defaults(tmp_path: Path) -> None:
    model = scripted()
    env = rules(
        tmp_path,
        "defaults: {enabled: false}\ndirect_messages: {enabled: true}\nchannels: {C2: {enabled: true}}",
    )
    async with start_harness(tmp_path, model, env=env) as on, on.bot() as running:
        await on.slack.say("In C1?", mention=True)
        assert await answered(on, "In C2?", channel="C2") == ANSWER
        ts = await on.slack.say("Here?", channel="D1")
        assert join_texts(await on.wait_for_turns("D1", ts)) == ANSWER
        await settled(running)
        assert asked(model) == ["In C2?", "Here?"]
        assert on.slack.ephemerals == []


async def test_a_channel_has_its_agents_and_its_instructions(tmp_path: Path) -> None:
    agents = {name: scripted(Turn(Say(f"I am {name}."))) for name in ("jira", "github")}
    model = scripted(Turn(delegate("github"), delegate("jira")), Turn(Say("Got {{tool:github}}")))
    env = rules(tmp_path, "channels: {C1: {agents: [jira], instructions: Answer in rhymes.}}")
    async with (
        start_harness(
            tmp_path, model, agents=[agent(name, one) for name, one in agents.items()], env=env
        ) as on,
        on.bot(),
    ):
        assert await answered(on) == "Got There is no agent github. The agents are: jira."
        assert [name for name, one in agents.items() if one.requests] == ["jira"]
        told = model.requests[0]
        assert "Only these agents may be used: jira." in told.system
        assert told.system.endswith("Answer in rhymes.")
        assert told.last_user == "What runs?"
        assert await answered(on, channel="C2") == "Got I am github."
        assert "rhymes" not in model.requests[-1].system


async def test_it_is_quiet_over_midnight_in_the_channels_own_time_zone(tmp_path: Path) -> None:
    model, clock = scripted(), ScaledClock()
    zone = ZoneInfo("Asia/Tokyo")
    env = rules(tmp_path, "channels: {C1: {quiet_hours: {from: 22:00, to: 06:30, timezone: Asia/Tokyo}}}")

    def go_to(hour: int, minute: int) -> None:
        now = datetime.fromtimestamp(clock.now(), zone)
        due = datetime.combine(now.date(), time(hour, minute), zone)
        clock.advance((due - now + timedelta(days=due <= now)).total_seconds())

    go_to(21, 50)
    async with start_harness(tmp_path, model, env=env, clock=clock) as on, on.bot() as running:
        assert await answered(on, "Still?") == ANSWER
        for moment in ((22, 1), (23, 59), (0, 30), (6, 28)):
            go_to(*moment)
            await on.slack.say("Now?", mention=True)
            await settled(running)
        assert (
            whispers(on)
            == ["I am quiet in this channel until 06:30 (Asia/Tokyo). Ask me in a direct message."] * 4
        )
        ts = await on.slack.say("Here?", channel="D1")
        await on.wait_for_turns("D1", ts)
        go_to(6, 31)
        assert await answered(on, "Awake?") == ANSWER
        assert asked(model) == ["Still?", "Here?", "Awake?"]


async def test_a_person_asks_so_often_in_an_hour_and_everybody_for_themselves(tmp_path: Path) -> None:
    model, clock = scripted(), ScaledClock()
    async with (
        start_harness(
            tmp_path, model, env=rules(tmp_path, "defaults: {questions_per_hour: 2}"), clock=clock
        ) as on,
        on.bot() as running,
    ):
        ts = await on.slack.say("One?", mention=True)
        await on.wait_for_turns("C1", ts)
        clock.advance(1800)
        await on.slack.say("Two?", thread_ts=ts)
        await on.wait_for_turns("C1", ts, 2)
        await on.slack.say("Three?", thread_ts=ts)
        await settled(running)
        assert whispers(on) == [
            "You have asked 2 questions here in the last hour, which is the limit. Ask again in 30 min."
        ]
        assert on.slack.ephemerals[0].thread_ts == ts
        assert await answered(on, "Mine?", user="U2") == ANSWER
        assert await answered(on, "Elsewhere?", channel="C2") == ANSWER
        clock.advance(1801)
        assert await answered(on, "Four?") == ANSWER
        assert asked(model) == ["One?", "Two?", "Mine?", "Elsewhere?", "Four?"]


async def test_a_changed_file_counts_at_once_and_a_broken_one_leaves_what_held(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    model = scripted()
    env = rules(tmp_path, "defaults: {instructions: Rhyme.}")
    async with start_harness(tmp_path, model, env=env) as on, on.bot():
        for written, ending in (
            (None, "Rhyme."),
            ("defaults: {instructions: Sing it.}", "Sing it."),
            ("defaults: {instructions: [", "Sing it."),
            ("", "Dance."),
        ):
            if written is not None:
                Path(env[CONFIG]).write_text(written or "defaults: {instructions: Dance.}", encoding="utf-8")
            await answered(on)
            assert model.requests[-1].system.endswith(ending)
        Path(env[CONFIG]).unlink()
        await answered(on)
        assert model.requests[-1].system.endswith("Dance.")
    (broken, gone) = [one.getMessage() for one in caplog.records if one.levelno == logging.ERROR]
    assert "is not valid YAML" in broken
    assert "No such file" in gone
    assert all(text.endswith("The previous configuration stays in force.") for text in (broken, gone))


def test_a_channel_has_what_it_says_and_of_the_rest_what_the_defaults_say(tmp_path: Path) -> None:
    env = rules(
        tmp_path,
        """
        defaults: {agents: [jira], questions_per_hour: 5, quiet_hours: {from: "7:05", to: 21:00:30}}
        direct_messages: {questions_per_hour: 9}
        channels:
          C1: {agents: null, quiet_hours: null}
          C2:
        """,
    )
    read = read_config(Path(env[CONFIG]))
    (one, two, other, direct) = (read.for_channel(name) for name in ("C1", "C2", "C3", "D1"))
    assert (one.agents, one.quiet_hours, one.questions_per_hour) == (None, None, 5)
    assert two == other == ChannelConfig.model_validate(read.defaults)
    assert other.quiet_hours is not None
    assert (other.agents, other.quiet_hours.begin, other.quiet_hours.end) == (
        ("jira",),
        time(7, 5),
        time(21, 0, 30),
    )
    assert (direct.agents, direct.questions_per_hour) == (("jira",), 9)
    assert ReloadableConfig(None).for_channel("C1") == ChannelConfig()


BAD = {
    "channels: [": "is not valid YAML",
    "- C1": "is not a mapping. The keys are defaults, direct_messages and channels.",
    "channel: {}": (
        "channel: Extra inputs are not permitted. The keys are defaults, direct_messages and channels."
    ),
    "channels: [C1]": "channels is not a mapping.",
    "channels: {C1: off}": "channels.C1 is not a mapping.",
    "channels: {general: {}}": (
        "channels: general: write the id of a channel (C…), which its details in Slack show at the end."
    ),
    "direct_messages: 3": "direct_messages is not a mapping.",
    "defaults: []": "defaults is not a mapping.",
    "defaults: {enabeld: true}": "defaults.enabeld: Extra inputs are not permitted",
    "channels: {C1: {agents: jira}}": "channels.C1.agents: Input should be a list",
    "channels: {C1: {approvers: [everybody]}}": (
        "everybody: write requester, anyone, a user or group id (U…, S…) or a mail address"
    ),
    "channels: {C1: {questions_per_hour: 0}}": (
        "channels.C1.questions_per_hour: Input should be greater than or equal to 1"
    ),
    "channels: {C1: {quiet_hours: {from: 22, to: 6}}}": (
        "channels.C1.quiet_hours.from: Value error, write a time of day such as 22:00"
    ),
    "channels: {C1: {quiet_hours: {from: '22:00'}}}": "channels.C1.quiet_hours.to: Field required",
    "channels: {C1: {quiet_hours: {from: 25:00, to: 6:00}}}": (
        "channels.C1.quiet_hours.from: Input should be in a valid time format"
    ),
    "channels: {C1: {quiet_hours: {from: 22:00, to: 6:00, timezone: Berlin}}}": (
        "Berlin is not a time zone such as Europe/Berlin"
    ),
}


@pytest.mark.parametrize("text", BAD, ids=str)
async def test_a_file_that_is_wrong_from_the_start_is_said_in_a_sentence(tmp_path: Path, text: str) -> None:
    file = rules(tmp_path, text)
    done = await invoke_caipe(
        "slack",
        env={**file, "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test", "SLACK_INTEGRATION_APP_TOKEN": "xapp-test"},
    )
    assert done.code == 1
    assert BAD[text] in done.err
    assert done.err.startswith(f"{CONFIG}: {file[CONFIG]}")
    with pytest.raises(ConfigurationError):
        ReloadableConfig(Path(file[CONFIG]))


# --- starting -----------------------------------------------------------------------------------------------


async def test_the_command_says_which_token_is_missing_or_wrong() -> None:
    bot, app = {"SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test"}, {"SLACK_INTEGRATION_APP_TOKEN": "xapp-test"}
    async with FakeSlack() as slack:
        here = {"SLACK_INTEGRATION_API_URL": slack.base_url}
        with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as taken:
            port = taken.getsockname()[1]
            http = {**bot, "SLACK_INTEGRATION_BOT_MODE": "http"}
            listening = {
                **http,
                "SLACK_INTEGRATION_SIGNING_SECRET": "s3cret",
                "SLACK_INTEGRATION_PORT": str(port),
            }
            for env, said in (
                ({}, "SLACK_INTEGRATION_APP_TOKEN is not set. docs/slack.md says where to find it."),
                (app, "SLACK_INTEGRATION_BOT_TOKEN is not set. docs/slack.md says where to find it."),
                (http, "SLACK_INTEGRATION_SIGNING_SECRET is not set. docs/slack.md says where to find it."),
                (
                    {**app, "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-wrong-one"},
                    "Slack refused auth.test: invalid_auth.",
                ),
                (
                    {**bot, "SLACK_INTEGRATION_APP_TOKEN": "xapp-wrong-one"},
                    "Slack refused Socket Mode: invalid_auth.",
                ),
                (listening, f"Cannot listen on 127.0.0.1, port {port}: Address already in use."),
            ):
                done = await invoke_caipe("slack", env={**here, **env})
                assert done.code == 1
                assert said in done.err.splitlines()[-1]
                assert "wrong-one" not in done.err


async def test_the_command_listens_for_signed_requests_and_ends_when_it_is_told(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    model = scripted()
    async with start_harness(tmp_path, model) as on:
        env = {
            "SLACK_INTEGRATION_BOT_TOKEN": "xoxb-test",
            "SLACK_INTEGRATION_SIGNING_SECRET": "s3cret",
            "SLACK_INTEGRATION_API_URL": on.slack.base_url,
            "SLACK_INTEGRATION_PORT": str(port),
            "CAIPE_HOME": str(on.home),
        }
        async with program("caipe", "slack", "--mode", "http", "--url", on.client.url, env=env) as running:
            await running.wait_for_stderr("connected to Slack")
            on.slack.post_to(f"http://127.0.0.1:{port}/slack/events", "s3cret")
            assert await answered(on) == ANSWER
            running.send_signal(signal.SIGTERM)
            done = await running.wait_for_exit()
        assert done.code == 0
        assert "Traceback" not in running.err
        assert "s3cret" not in running.err


KEYS = {"A2A_AUTH_SHARED_KEY": "the-shared-key-of-tests"}


@pytest.mark.parametrize("token", [None, "the-shared-key-of-tests", "no-key"])
async def test_a_supervisor_that_does_not_let_the_bot_in_is_said_with_what_to_do(
    tmp_path: Path, token: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    model = scripted()
    async with start_harness(tmp_path, model, env=KEYS) as on, on.bot(token=token):
        ts = await on.slack.say("What runs?", mention=True)
        (message,) = await on.wait_for_turns("C1", ts)
        shown = str(message.all_blocks)
        assert "The supervisor does not let me act for you." in shown
        assert (
            "A2A_AUTH_DELEGATE_KEY must be set to the same key for the supervisor and for the bot." in shown
        )
        assert "Try again" in shown
        await on.slack.slash("agents")
        (answer,) = await on.slack.wait(lambda: on.slack.responses)
        assert (":warning:" in answer["text"]) == (
            token != "the-shared-key-of-tests"
        )  # a list is no person's business
        assert model.requests == []
    assert "A2A_AUTH_DELEGATE_KEY" in caplog.text
    assert "the-shared-key-of-tests" not in caplog.text


async def test_with_the_delegate_key_it_works(tmp_path: Path) -> None:
    env = {**KEYS, "A2A_AUTH_DELEGATE_KEY": "the-delegate-key"}
    async with start_harness(tmp_path, scripted(), env=env) as on, on.bot(token="the-delegate-key"):
        assert await answered(on) == ANSWER


# --- /caipe -------------------------------------------------------------------------------------------------


async def commanded(on: BotHarness, text: str, **more: str) -> str:
    """What the command answers, to the person alone."""
    before = len(on.slack.responses)
    assert not await on.slack.slash(text, **more)
    await on.slack.wait(lambda: len(on.slack.responses) > before)
    answer = on.slack.responses[-1]
    assert answer["response_type"] == "ephemeral"
    assert "\n".join(block["text"]["text"] for block in answer["blocks"]) == answer["text"]
    return str(answer["text"])


def _repo_or_form(request: Request) -> Turn:
    if request.tool_results:
        return Turn(Say("Done."))
    return Turn(delegate("github")) if "repo" in request.last_user else Turn(Call("details"))


async def test_the_command_lists_agents_workflows_and_what_waits_for_whom(tmp_path: Path) -> None:
    form = form_tool("details", [{"field_name": "name", "field_label": "Name"}])
    model = ScriptedChatModel(script=Script(_repo_or_form))
    repos = Repos()
    team = [github(repos, {"name": "x"}), agent("jira", scripted())]
    async with start_harness(tmp_path, model, agents=team, tools=[form]) as on, on.bot():
        help_text = await commanded(on, "help")
        assert await commanded(on, "") == await commanded(on, " HELP ") == help_text
        assert (
            await commanded(on, "dance &lt;!channel&gt;")
            == f"Unknown command `dance &amp;lt;!channel&amp;gt;`.\n{help_text}"
        )
        agents = (await commanded(on, "agents")).splitlines()
        assert agents[0] == "*Agents*"
        assert [line.partition("*")[2].partition("*")[0] for line in agents[1:]] == ["github", "jira"]
        assert agents[1].endswith("1 tool")
        assert "Create GitHub Repo" in await commanded(on, "workflows")
        assert await commanded(on, "pending") == "*Waiting for an answer*\nNothing is waiting."
        here = await on.slack.say("A repo!", mention=True)
        there = await on.slack.say("Details!", channel="D1")
        await on.slack.wait(
            lambda: (
                on.message_with("caipe_approve", "C1", here) and on.message_with("caipe_fill", "D1", there)
            )
        )
        mine = (await commanded(on, "pending")).splitlines()[1:]
        assert [line.partition("|the thread>: ")[2] for line in mine] == [
            "a decision on create_repo (asked by <@U1>)",
            "About details (asked by <@U1>)",
        ]
        on.slack.faults.add("chat.getPermalink", Fault(error="message_not_found"))
        assert (await commanded(on, "pending", user="U2")).splitlines()[1:] == [
            "• a thread in <#C1>: a decision on create_repo (asked by <@U1>)"
        ]
        assert (
            await commanded(on, "pending", user="U2", channel="C2")
            == "*Waiting for an answer*\nNothing is waiting."
        )


async def test_a_command_says_that_the_supervisor_is_away(tmp_path: Path) -> None:
    with contextlib.closing(socket.create_server(("127.0.0.1", 0))) as free:
        port = free.getsockname()[1]
    async with start_harness(tmp_path, scripted()) as on, on.bot(url=f"http://127.0.0.1:{port}/"):
        for text in ("agents", "workflows"):
            assert "cannot be reached" in await commanded(on, text)
        assert "help" in await commanded(on, "help")
