"""Messages and the modal of a sign-in to an agent's hosted tool server; only the person sees them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any
from urllib.parse import parse_qs, urlsplit

from ai_platform_engineering.integrations.slack_bot.blocks import (
    RETRY_ACTION,
    Block,
    actions,
    button,
    escape_line,
    section,
)
from ai_platform_engineering.integrations.slack_bot.form_inputs import input_block, read_input, text_element
from ai_platform_engineering.integrations.slack_bot.modals import modal

SIGN_IN_ACTION = "caipe_sign_in"
LINK_ACTION = "caipe_sign_in_link"
PASTE_ACTION = "caipe_sign_in_paste"
PASTE_VIEW = "caipe_sign_in_address"
ADDRESS_BLOCK = "address"
_MAX_URL = 3_000  # of a button; Slack takes no more
_ONLY_YOURS = "The link is for you alone."


@dataclass(frozen=True, slots=True)
class SignInButton:
    """The server of an agent to sign in to, and the turn that needed it."""

    agent: str
    server: str
    turn_id: str = ""

    def to_value(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_value(cls, value: str) -> "SignInButton":
        """Raises ValueError and TypeError."""
        return cls(**json.loads(value))


@dataclass(frozen=True, slots=True)
class PasteMetadata:
    """A sign-in that the person finishes with the address at which the browser ended."""

    agent: str
    server: str
    turn_id: str
    state: str
    channel: str
    thread_ts: str


def offer_blocks(pressed: SignInButton) -> list[Block]:
    """What a run needs of the person who asked."""
    agent = escape_line(pressed.agent)
    server = escape_line(pressed.server)
    text = f":key: *{agent}* can do more for you when you sign in to {server}."
    return [section(text), actions(sign_in_button(pressed))]


def sign_in_button(pressed: SignInButton) -> Block:
    return button(f"Sign in to {pressed.server}", SIGN_IN_ACTION, pressed.to_value(), style="primary")


def browser_blocks(server: str, url: str, metadata: PasteMetadata) -> list[Block]:
    """The link, and a button to paste where it led."""
    text = (
        f"Sign in to *{escape_line(server)}*: open the page and allow it. {_ONLY_YOURS}\n"
        "Your browser then goes to an address that begins with `http://127.0.0.1`, and shows an error there. "
        "That is expected: copy this address, and paste it here."
    )
    paste = button("Paste the address", PASTE_ACTION, json.dumps(asdict(metadata)))
    return [section(text), actions(_link_button("Open the page", url), paste)]


def can_be_linked(url: str) -> bool:
    return len(url) <= _MAX_URL and url.startswith(("https://", "http://"))


def paste_modal(metadata: PasteMetadata) -> Block:
    label = "The address in the browser"
    address = input_block(ADDRESS_BLOCK, label, text_element(max_length=_MAX_URL))
    return modal(PASTE_VIEW, "Sign in", "Sign in", [address], **asdict(metadata))


def read_pasted_answer(view: Mapping[str, Any]) -> dict[str, str]:
    """What an authorization server wrote into the address that it sent the browser to."""
    location = str(read_input(view, ADDRESS_BLOCK).get("value") or "").strip()
    try:
        query = parse_qs(urlsplit(location).query)
    except ValueError:
        return {}
    names = ("state", "code", "iss", "error")
    return {name: query[name][0] for name in names if name in query}


def signed_in_blocks(server: str, turn_id: str) -> list[Block]:
    """That it is done; the question can be asked again where there was one."""
    blocks: list[Block] = [section(f":white_check_mark: You are signed in to *{escape_line(server)}*.")]
    if turn_id:
        blocks.append(actions(button("Ask again", RETRY_ACTION, turn_id, style="primary")))
    return blocks


def list_blocks(logins: Sequence[tuple[SignInButton, bool]]) -> list[Block]:
    """Where the person is signed in, and buttons for the rest."""
    blocks: list[Block] = []
    for login, is_signed_in in logins:
        state = "you are signed in" if is_signed_in else "you are not signed in"
        text = f"*{escape_line(login.agent)}*: {escape_line(login.server)}, {state}"
        block = section(text)
        if not is_signed_in:
            block["accessory"] = sign_in_button(login)
        blocks.append(block)
    return blocks


def _link_button(text: str, url: str) -> Block:
    link = button(text, LINK_ACTION, "", style="primary")
    del link["value"]
    return {**link, "url": url}
