"""Requests in Slack, for tests: tools that ask, the results the model got, and the buttons of a message."""

import json
from pathlib import Path
from typing import Any

import yaml

from ai_platform_engineering.integrations.slack_bot.request_messages import RequestButton
from tests.support.fakes.model import ScriptedChatModel
from tests.support.fakes.script import Book, Call, Say, Script, Turn
from tests.support.slack_workspace import BotHarness

ZONES = [f"zone-{number}" for number in range(150)]
FIELDS: list[dict[str, Any]] = [
    {"field_name": "name", "field_label": "Name", "pattern": "[a-z-]+", "default_value": "cai"},
    {"field_name": "about", "field_type": "textarea", "required": False, "placeholder": "A few words"},
    {
        "field_name": "visibility",
        "field_type": "select",
        "field_values": ["public", "private"],
        "default_value": "private",
    },
    {
        "field_name": "topics",
        "field_type": "multiselect",
        "field_values": ["a", "b", "c"],
        "default_value": ["a"],
    },
    {"field_name": "issues", "field_type": "boolean", "default_value": True},
    {"field_name": "stars", "field_type": "integer", "minimum": 0, "default_value": 3},
    {"field_name": "ratio", "field_type": "number"},
    {"field_name": "due", "field_type": "date", "default_value": "2026-12-24"},
    {"field_name": "home", "field_type": "url", "field_description": "Where it lives."},
    {"field_name": "mail", "field_type": "email"},
    {"field_name": "zone", "field_type": "select", "field_values": ZONES},
    {"field_name": "hosts", "field_type": "multiselect", "field_values": ZONES, "default_value": ["zone-7"]},
]
FORM_VALUES = {
    "topics": ["1", "2"],
    "issues": [],
    "ratio": "0.5",
    "home": "https://example.com",
    "mail": "a@example.com",
    "zone": "141",
}
TEXT_FIELDS: list[dict[str, Any]] = [
    {"field_name": "answer", "field_label": "The cluster", "pattern": "[a-z]+"}
]


def model_that_calls(name: str) -> ScriptedChatModel:
    """Calls a tool, and says what it gave; a text that is no answer to what it asked is repeated."""
    asks = Script(Turn(Say("One moment. "), Call(name)), Turn(Say(f"Got {{{{tool:{name}}}}}")))
    return ScriptedChatModel(script=Book({"Go": asks}, default=Script(Turn(Say("You said {{user}}")))))


def tool_result(model: ScriptedChatModel) -> Any:
    """The result of its tool call that the model got."""
    [result] = [message.text for message in model.requests[-1].since_user if message.role == "tool"]
    return json.loads(result)


def buttons(message: Any) -> list[str]:
    rows = [block for block in message.all_blocks if block["type"] == "actions"]
    return [element["text"]["text"] for row in rows for element in row["elements"]]


def turn_and_request_ids(message: Any) -> tuple[str, str]:
    """The turn and the request of a message with buttons."""
    [row] = [block for block in message.blocks if block["type"] == "actions"]
    pressed = RequestButton.from_value(row["elements"][0]["value"])
    return pressed.turn_id, pressed.request_id


def write_approvers(folder: Path, *approvers: str) -> dict[str, str]:
    """Writes a configuration with these approvers, and returns the environment of a bot that reads it."""
    file = folder / "channels.yaml"
    file.write_text(yaml.safe_dump({"defaults": {"approvers": list(approvers)}}))
    return {"SLACK_INTEGRATION_BOT_CONFIG": str(file)}


def task_of(on: BotHarness, thread: str) -> str:
    """The task id in the metadata of the thread's last message."""
    return str(on.bot_messages("C1", thread)[-1].metadata["event_payload"]["task_id"])


def count_stopped_notes(on: BotHarness, thread: str) -> int:
    """How many messages of the thread say that it was stopped."""
    return sum(str(one.all_blocks).count("Stopped.") for one in on.bot_messages("C1", thread))
