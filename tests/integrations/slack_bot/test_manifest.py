"""The Slack app that docs/slack.md has an admin create: it may do what the code does, hears what the code
listens to, and nothing more.
"""

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast

import yaml
from pydantic import BaseModel
from slack_bolt.async_app import AsyncApp

from ai_platform_engineering.core.settings import SlackSettings
from ai_platform_engineering.integrations.slack_bot import (
    approval_messages,
    blocks,
    form_inputs,
    modals,
    request_messages,
    sign_in_messages,
)
from ai_platform_engineering.integrations.slack_bot.bot import Bot
from ai_platform_engineering.integrations.slack_bot.channel_config import (
    BotConfig,
    ChannelConfig,
    QuietHours,
    ReloadableConfig,
)
from ai_platform_engineering.integrations.slack_bot.event_tasks import EventTasks
from ai_platform_engineering.integrations.slack_bot.listeners import Listeners
from ai_platform_engineering.integrations.slack_bot.suggested_prompts import FIRST_PROMPT
from tests.conftest import ROOT

BOT = ROOT / "ai_platform_engineering/integrations/slack_bot"
EXAMPLE = ROOT / "deploy/slack-channels.example.yaml"
DOCS = (ROOT / "docs/slack.md").read_text(encoding="utf-8")
MANIFEST: dict[str, Any] = yaml.safe_load((ROOT / "deploy/slack-manifest.yaml").read_text(encoding="utf-8"))

HISTORY = {"channels:history", "groups:history", "im:history", "mpim:history"}
# Which scopes Slack wants for a call; what people hear of is Slack's word for the missing one.
METHODS: Mapping[str, set[str]] = {
    "agents.sessions.setStatus": {"assistant:write"},
    "assistant.threads.setStatus": {"assistant:write"},
    "assistant.threads.setSuggestedPrompts": {"assistant:write"},
    "auth.test": set(),
    "chat.appendStream": {"chat:write"},
    "chat.delete": {"chat:write"},
    "chat.getPermalink": set(),
    "chat.postEphemeral": {"chat:write"},
    "chat.postMessage": {"chat:write"},
    "chat.startStream": {"chat:write"},
    "chat.stopStream": {"chat:write"},
    "chat.update": {"chat:write"},
    "conversations.replies": HISTORY,
    "files.completeUploadExternal": {"files:write"},
    "files.getUploadURLExternal": {"files:write"},
    "files.info": {"files:read"},
    "usergroups.users.list": {"usergroups:read"},
    "users.info": {"users:read", "users:read.email"},
    "views.open": set(),
}
EVENTS: Mapping[str, set[str]] = {
    "agent_session_stopped": {"assistant:write"},
    "app_home_opened": set(),
    "app_mention": {"app_mentions:read"},
    "message.channels": {"channels:history"},
    "message.groups": {"groups:history"},
    "message.im": {"im:history"},
    "message.mpim": {"mpim:history"},
}
OTHERWISE = {"commands"}  # the slash command
FAMILIES = "agents|apps|assistant|auth|bots|chat|conversations|files|reactions|team|usergroups|users|views"


class Registered:
    """Bolt's app as far as listeners are registered with it."""

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}

    def __getattr__(self, kind: str) -> Callable[[str], Callable[[Any], None]]:
        def register(name: str, **_: object) -> Callable[[Any], None]:
            self.names.setdefault(kind, []).append(name)
            return lambda listener: None

        return register


def listened() -> dict[str, list[str]]:
    app = Registered()
    Listeners(cast(AsyncApp, app), cast(Bot, None), EventTasks())
    return app.names


def scopes() -> set[str]:
    return set(MANIFEST["oauth_config"]["scopes"]["bot"])


def called() -> Iterator[str]:
    """Every word of the bot's code that is a method of Slack's Web API."""
    method = re.compile(rf"(?:{FAMILIES})(?:\.[a-zA-Z]+)+")
    for path in BOT.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if (
                isinstance(node, ast.Constant)
                and isinstance(node.value, str)
                and method.fullmatch(node.value)
            ):
                yield node.value


def test_every_method_that_the_code_calls_has_its_scope_and_no_scope_is_asked_for_in_vain() -> None:
    assert set(called()) == set(METHODS)
    assert set().union(*METHODS.values(), *EVENTS.values()) | OTHERWISE == scopes()


def test_every_event_that_the_code_listens_to_is_sent_and_no_other() -> None:
    subscribed = set(MANIFEST["settings"]["event_subscriptions"]["bot_events"])
    assert subscribed == set(EVENTS)
    assert {name.partition(".")[0] for name in subscribed} == set(listened()["event"])


def test_commands_buttons_choices_and_modals_reach_the_bot() -> None:
    found = listened()
    assert [one["command"] for one in MANIFEST["features"]["slash_commands"]] == found["command"]
    assert MANIFEST["settings"]["interactivity"]["is_enabled"] is True
    buttons = {
        value
        for module in (approval_messages, blocks, request_messages, sign_in_messages)
        for name, value in vars(module).items()
        if name.endswith("_ACTION") and _is_action(value)
    }
    assert set(found["action"]) == buttons
    views = {
        value
        for module in (modals, sign_in_messages)
        for name, value in vars(module).items()
        if name.endswith("_VIEW")
    }
    assert (set(found["view"]), found["options"]) == (views, [form_inputs.VALUE_ACTION])


def _is_action(value: object) -> bool:
    return isinstance(value, str) and value.startswith("caipe_")


def test_the_app_is_an_agent_in_socket_mode_whose_tokens_stay_the_same() -> None:
    settings, features = MANIFEST["settings"], MANIFEST["features"]
    assert (settings["socket_mode_enabled"], settings["token_rotation_enabled"]) == (True, False)
    assert features["app_home"]["messages_tab_enabled"] is True
    assert features["app_home"]["messages_tab_read_only_enabled"] is False
    assert 0 < len(features["agent_view"]["agent_description"]) <= 140
    assert len(MANIFEST["display_information"]["name"]) <= 35
    assert len(MANIFEST["display_information"]["description"]) <= 140
    assert "assistant_view" not in features


def test_the_manifest_suggests_only_what_works_everywhere() -> None:
    assert MANIFEST["features"]["agent_view"]["suggested_prompts"] == [FIRST_PROMPT]


# What the documentation says


def keys(model: type[BaseModel]) -> set[str]:
    return {field.alias or name for name, field in model.model_fields.items()}


def test_the_example_of_a_configuration_is_right_and_shows_every_key() -> None:
    config, written = ReloadableConfig(EXAMPLE), yaml.safe_load(EXAMPLE.read_text(encoding="utf-8"))
    places = [written["defaults"], written["direct_messages"], *written["channels"].values()]
    assert set(written) == keys(BotConfig)
    assert set().union(*places) == keys(ChannelConfig)
    assert set(written["channels"]["C0SUPPORT"]["quiet_hours"]) == keys(QuietHours)
    assert config.for_channel("C0GENERAL").enabled is False
    assert config.for_channel("C0ELSEWHERE").questions_per_hour == 30
    assert config.for_channel("D1").questions_per_hour == 60


def test_the_documentation_explains_every_key_and_every_setting() -> None:
    named = set(re.findall(r"^\| `([^`]+)`", DOCS, re.MULTILINE))
    settings = {field.alias for field in SlackSettings.model_fields.values()}
    assert keys(ChannelConfig) | settings <= named
    assert {f"`{key}`" for key in keys(QuietHours) | keys(BotConfig) if f"`{key}`" not in DOCS} == set()


def test_the_documentation_names_files_and_events_that_exist() -> None:
    for path in ("deploy/slack-manifest.yaml", "deploy/slack-channels.example.yaml"):
        assert path in DOCS
        assert (ROOT / path).is_file()
    for link in re.findall(r"\]\((?!https?://)([^)#]+)", DOCS):
        assert (ROOT / "docs" / link).exists(), link
