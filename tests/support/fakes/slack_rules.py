"""What Slack accepts: its limits and rates, what holds for blocks, chunks and views, what a form sends, what
a message keeps.
"""

import json
import math
import re
from collections import defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any, Literal

from slack_sdk.errors import SlackObjectFormationError
from slack_sdk.models.blocks import Block
from slack_sdk.models.views import View

Json = dict[str, Any]

TEAM, APP, BOT_USER, BOT_ID = "T1", "A1", "UBOT", "B1"

MARKDOWN_LIMIT = 12_000  # per call, per streamed message, and over the markdown blocks of one payload
BLOCK_TEXT_LIMIT = 13_200
TEXT_LIMIT = 40_000
MESSAGE_BLOCKS, VIEW_BLOCKS = 50, 100
STEP_LIMIT = 256
STREAM_SECONDS = 300.0
TRIGGER_SECONDS = 3.0
ACK_SECONDS = 3.0
RESPONSE_URL_USES = 5
SESSION_TITLE_LIMIT = 200
VIEW_BYTES = 250_000

STEP_STATES = frozenset({"pending", "in_progress", "complete", "error"})
SESSION_STATES = frozenset({"active", "processing", "suspended", "closed"})
DISPLAY_MODES = frozenset({"timeline", "plan"})
CHUNK_KEYS = {
    "markdown_text": ({"text"}, set()),
    "plan_update": ({"title"}, set()),
    "task_update": ({"id", "title", "status"}, {"details", "output", "sources"}),
    "blocks": ({"blocks"}, set()),
}

PER_MINUTE = {
    "chat.appendStream": 100,
    "chat.startStream": 20,
    "chat.stopStream": 20,
    "chat.update": 50,
    "agents.sessions.setStatus": 50,
    "agents.sessions.rename": 50,
    "assistant.threads.setStatus": 50,
    "assistant.threads.setSuggestedPrompts": 50,
    "views.open": 100,
}
POST_BURST = 4  # chat.postMessage: one per second and channel, after so many at once
_ROUNDING = 1e-6


class SlackRefusal(Exception):
    """Slack's error code, and for people why."""

    def __init__(self, code: str, *reasons: str, needed: str = "") -> None:
        super().__init__(code, *reasons)
        self.code = code
        self.reasons = reasons
        self.needed = needed

    @property
    def answer(self) -> Json:
        answer: Json = {"error": self.code}
        if self.reasons:
            answer["response_metadata"] = {"messages": list(self.reasons)}
        if self.needed:
            answer["needed"] = self.needed
        return answer


def require(holds: object, code: str, *reasons: str) -> None:
    if not holds:
        raise SlackRefusal(code, *reasons)


class Rates:
    """How many calls are allowed, by the time that is handed in; `limits` are per minute, for
    chat.postMessage the burst.
    """

    def __init__(self, limits: Mapping[str, int]) -> None:
        self._limits = {**PER_MINUTE, "chat.postMessage": POST_BURST, **limits}
        self._times: dict[str, deque[float]] = defaultdict(deque)
        self._booked: dict[str, float] = {}

    def seconds_to_wait(self, method: str, channel: str, now: float) -> int:
        """0 and the call is counted, or the whole seconds until it is allowed."""
        if method == "chat.postMessage":
            return self._post(channel, now)
        if method not in self._limits:
            return 0
        times = self._times[method]
        while times and times[0] + 60 <= now + _ROUNDING:
            times.popleft()
        if len(times) >= self._limits[method]:
            return _whole(times[0] + 60 - now)
        times.append(now)
        return 0

    def _post(self, channel: str, now: float) -> int:
        booked = max(self._booked.get(channel, now), now)
        if (wait := booked - now - (self._limits["chat.postMessage"] - 1)) > _ROUNDING:
            return _whole(wait)
        self._booked[channel] = booked + 1
        return 0


def _whole(seconds: float) -> int:
    return max(1, math.ceil(seconds - _ROUNDING))


def check_blocks(blocks: object, most: int = MESSAGE_BLOCKS, most_text: int = BLOCK_TEXT_LIMIT) -> list[Json]:
    """The blocks, if Slack would draw them."""
    if not isinstance(blocks, list) or not all(isinstance(block, dict) for block in blocks):
        raise SlackRefusal("invalid_blocks", "blocks must be an array of objects")
    require(len(blocks) <= most, "invalid_blocks", f"no more than {most} items allowed")
    for number, block in enumerate(blocks):
        if reason := _fault_of(block):
            raise SlackRefusal("invalid_blocks", f"{reason} [json-pointer:/blocks/{number}]")
    ids = [block["block_id"] for block in blocks if "block_id" in block]
    require(
        all(isinstance(one, str) and one.strip() for one in ids),
        "invalid_blocks",
        "block_id must not be empty",
    )
    require(len(ids) == len(set(ids)), "invalid_blocks", "block_id must be unique")
    require(
        sum(block["type"] == "table" for block in blocks) <= 1, "invalid_blocks", "only one table allowed"
    )
    markdown = sum(len(block["text"]) for block in blocks if block["type"] == "markdown")
    texts = sum(len(part["text"]) for part in parts(blocks) if isinstance(part.get("text"), str))
    require(
        markdown <= MARKDOWN_LIMIT and texts <= most_text,
        "msg_blocks_too_long",
        f"{texts} characters in blocks",
    )
    return blocks


def _fault_of(block: Json) -> str | None:
    try:
        parsed = Block.parse(block)
        if parsed is None:
            return f"unsupported type: {block.get('type')}"
        known = parsed.to_dict()
    except (SlackObjectFormationError, TypeError, ValueError, AttributeError, KeyError) as error:
        return str(error) or type(error).__name__
    if any(part is None for part in known.get("elements", [])) or (
        block.get("accessory") and not known.get("accessory")
    ):
        return "unsupported type of element"
    if block["type"] == "input" and not known.get("element"):
        return "missing required field: element"
    if block["type"] in {"actions", "context"} and not block.get("elements"):
        return "must provide elements"
    actions = [part["action_id"] for part in parts(block) if "action_id" in part]
    if len(actions) != len(set(actions)):
        return "action_id must be unique within a block"
    return next((reason for part in parts(block) if (reason := _fault_of_part(part))), None)


def _fault_of_part(part: Json) -> str | None:
    """What the numbers of the models leave open."""
    options = [option.get("value") for option in part.get("options") or []]
    match part.get("type"):
        case "plain_text" | "mrkdwn":
            said = part.get("text") or ""
            return None if said.strip() and len(said) <= 3000 else "text must be 1 to 3000 characters"
        case "text" if not part.get("text"):
            return "a text in rich text must not be empty"
        case "section":
            too_long = any(len(field["text"]) > 2000 for field in part.get("fields") or [])
            return "a field must be at most 2000 characters" if too_long else None
        case "button":
            return None if part.get("action_id") else "missing required field: action_id"
        case "checkboxes" | "radio_buttons" if not 0 < len(options) <= 10:
            return "must have 1 to 10 options"
        case "plain_text_input" if len(part.get("initial_value") or "") > part.get("max_length", 3000):
            return "initial_value is longer than max_length"
        case "number_input" if part.get("initial_value") is not None:
            number = r"-?\d+(\.\d+)?" if part["is_decimal_allowed"] else r"-?\d+"
            return None if re.fullmatch(number, part["initial_value"]) else "initial_value must be a number"
        case "datepicker" if part.get("initial_date") is not None:
            return None if _is_date(part["initial_date"]) else "initial_date must be YYYY-MM-DD"
        case "table" if len(part.get("rows") or []) > 100 or any(
            len(row) > 20 for row in part.get("rows") or []
        ):
            return "a table has at most 100 rows of 20 cells"
        case _:
            pass
    chosen = [
        option for option in [part.get("initial_option"), *(part.get("initial_options") or [])] if option
    ]
    values = [option.get("value") for option in chosen]
    if len(values) != len(set(values)):
        return "initial options must be unique"
    if options and (
        len(options) != len(set(options)) or any(option.get("value") not in options for option in chosen)
    ):
        return "options must be unique and hold the initial ones"
    return None


def _is_date(text: str) -> bool:
    try:
        return date.fromisoformat(text).isoformat() == text
    except ValueError:
        return False


def parts(tree: object) -> Iterator[Json]:
    """Every object in blocks, from the outside in."""
    if isinstance(tree, dict):
        yield tree
    for child in tree.values() if isinstance(tree, dict) else tree if isinstance(tree, list) else ():
        yield from parts(child)


def check_chunks(chunks: object) -> list[Json]:
    if not isinstance(chunks, list):
        raise SlackRefusal("invalid_chunks", "chunks must be an array")
    for chunk in chunks:
        _check_chunk(chunk)
    check_blocks([block for chunk in chunks if chunk["type"] == "blocks" for block in chunk["blocks"]])
    require(
        sum(len(chunk["text"]) for chunk in chunks if chunk["type"] == "markdown_text") <= MARKDOWN_LIMIT,
        "msg_too_long",
    )
    return chunks


def _check_chunk(chunk: object) -> None:
    if not isinstance(chunk, dict) or chunk.get("type") not in CHUNK_KEYS:
        raise SlackRefusal("invalid_chunks", f"unknown chunk: {chunk!r:.80}")
    required, optional = CHUNK_KEYS[chunk["type"]]
    keys = set(chunk) - {"type"}
    require(
        required <= keys <= required | optional,
        "invalid_chunks",
        f"fields of {chunk['type']}: {sorted(keys)}",
    )
    for key in keys - {"sources", "blocks"}:
        require(isinstance(chunk[key], str), "invalid_chunks", f"{key} must be a string")
        require(
            chunk["type"] == "markdown_text" or len(chunk[key]) <= STEP_LIMIT,
            "invalid_chunks",
            f"{key} is longer than {STEP_LIMIT}",
        )
    require(
        chunk["type"] != "blocks" or isinstance(chunk["blocks"], list),
        "invalid_chunks",
        "blocks must be an array",
    )
    if chunk["type"] == "task_update":
        require(chunk["status"] in STEP_STATES, "invalid_chunks", f"unknown status: {chunk['status']}")
        require(chunk["id"] and chunk["title"].strip(), "invalid_chunks", "id and title must not be empty")
        require(
            all(_is_source(source) for source in chunk.get("sources", [])),
            "invalid_chunks",
            "sources must be url elements",
        )


def _is_source(source: object) -> bool:
    if not isinstance(source, dict) or set(source) != {"type", "url", "text"} or source["type"] != "url":
        return False
    return bool(source["text"]) and str(source["url"]).startswith(("https://", "http://"))


def check_view(view: object) -> Json:
    """The view, if Slack would open it as a modal."""
    if not isinstance(view, dict) or view.get("type") != "modal" or not view.get("title"):
        raise SlackRefusal("invalid_arguments", "a modal with a title is needed")
    require(len(json.dumps(view)) <= VIEW_BYTES, "view_too_large")
    try:
        View(**view).to_dict()
        check_blocks(view.get("blocks"), VIEW_BLOCKS, VIEW_BYTES)
    except SlackRefusal as refused:
        raise SlackRefusal("invalid_arguments", refused.code, *refused.reasons) from None
    except (SlackObjectFormationError, TypeError, ValueError, AttributeError) as error:
        raise SlackRefusal("invalid_arguments", str(error)) from None
    inputs = any(block["type"] == "input" for block in view["blocks"])
    require(view.get("submit") or not inputs, "invalid_arguments", "a view with inputs needs submit")
    return view


def block_id(block: Json, number: int) -> str:
    """The block's id; Slack makes one up where the app gave none."""
    return str(block.get("block_id") or f"b{number}")


def elements(blocks: Sequence[Json]) -> Iterator[tuple[str, Json]]:
    """Every element that people can act on, with the id of its block."""
    for number, block in enumerate(blocks):
        for part in parts(block):
            if "action_id" in part:
                yield block_id(block, number), part


def build_action(element: Json, value: str | None) -> Json | None:
    """The action this element sends for `value` (a button's own value when None); None if it has no such
    value.
    """
    head = {"type": element["type"], "action_id": element["action_id"]}
    match element["type"]:
        case "feedback_buttons":
            values = [element[side]["value"] for side in ("positive_button", "negative_button")]
            return head | {"value": value} if value in values else None
        case "button" | "icon_button":
            own = element.get("value")
            return head | {"value": own, "text": element.get("text")} if value in (None, own) else None
        case _:
            return head | element_state(element, value)


_SINGLE = {
    "datepicker": "selected_date",
    "timepicker": "selected_time",
    "datetimepicker": "selected_date_time",
    "users_select": "selected_user",
    "channels_select": "selected_channel",
    "conversations_select": "selected_conversation",
    "multi_users_select": "selected_users",
    "multi_channels_select": "selected_channels",
    "multi_conversations_select": "selected_conversations",
}


def element_state(element: Json, raw: Any) -> Json:
    """What people entered, in the shape Slack gives it for this type of element."""
    kind = element["type"]
    if kind in {"static_select", "external_select", "radio_buttons", "overflow"}:
        return {"type": kind, "selected_option": None if raw is None else _option(element, raw)}
    if kind in {"multi_static_select", "multi_external_select", "checkboxes"}:
        return {"type": kind, "selected_options": [_option(element, one) for one in raw or []]}
    if kind in _SINGLE:
        return {"type": kind, _SINGLE[kind]: raw}
    return {"type": kind, "value": None if raw is None else str(raw)}


def _option(element: Json, value: str) -> Json:
    if element["type"].endswith("external_select"):
        return {"text": {"type": "plain_text", "text": value}, "value": value}
    grouped = [option for group in element.get("option_groups") or [] for option in group["options"]]
    for option in [*(element.get("options") or []), *grouped]:
        if option["value"] == value:
            return dict(option)
    raise ValueError(f"{element['action_id']} has no option {value!r}")


def form_values(view: Json, values: Mapping[str, Any]) -> Json:
    """`view.state.values`; what is not given keeps its initial value, and like the real form it holds no
    empty required field.
    """
    inputs = {
        block_id(block, number): block
        for number, block in enumerate(view["blocks"])
        if block["type"] == "input"
    }
    if unknown := values.keys() - inputs.keys():
        raise ValueError(f"the form has no {sorted(unknown)}, only {list(inputs)}")
    state: Json = {}
    for name, block in inputs.items():
        element = block["element"]
        raw = values[name] if name in values else _initial(element)
        if raw in (None, "", []) and not block.get("optional"):
            raise ValueError(f"{name} must be filled in")
        state[name] = {element["action_id"]: element_state(element, None if raw == "" else raw)}
    return state


def _initial(element: Json) -> Any:
    if option := element.get("initial_option"):
        return option["value"]
    if "initial_options" in element:
        return [option["value"] for option in element["initial_options"]]
    names = (
        "initial_value",
        "initial_date",
        "initial_time",
        "initial_date_time",
        "initial_user",
        "initial_users",
    )
    return next((element[name] for name in names if name in element), None)


@dataclass
class Message:
    """What a channel holds; `pieces` is streamed text, verbatim, and `original` what it was before an update
    cleared it.
    """

    channel: str
    ts: str
    thread_ts: str | None
    user: str
    state: Literal["streaming", "done", "posted", "user", "ephemeral"]
    bot_id: str | None = None
    text: str = ""
    blocks: list[Json] = field(default_factory=list)
    files: list[Json] = field(default_factory=list)
    text_chunks: list[str] = field(default_factory=list)
    original: list[str] = field(default_factory=list)
    cards: dict[str, Json] = field(default_factory=dict)
    card_history: list[Json] = field(default_factory=list)
    plan_title: str | None = None
    display_mode: str | None = None
    stream_blocks: list[Json] = field(default_factory=list)
    stop_blocks: list[Json] = field(default_factory=list)
    metadata: Json | None = None
    session_status: str | None = None
    recipient: tuple[str | None, str | None] = (None, None)
    reactions: list[str] = field(default_factory=list)
    created_at: float = 0.0
    updates: int = 0
    deleted: bool = False

    @property
    def markdown(self) -> str:
        return "".join(self.text_chunks)

    @property
    def shown(self) -> str:
        """The text a reader sees: streamed, or in markdown blocks, or plain."""
        return (
            self.markdown
            or "\n".join(block["text"] for block in self.blocks if block["type"] == "markdown")
            or self.text
        )

    @property
    def all_blocks(self) -> list[Json]:
        return [*self.blocks, *self.stream_blocks, *self.stop_blocks]

    def add_chunks(self, chunks: Sequence[Json]) -> None:
        """Adds what was streamed, all of it or nothing."""
        texts = [chunk["text"] for chunk in chunks if chunk["type"] == "markdown_text"]
        blocks = [block for chunk in chunks if chunk["type"] == "blocks" for block in chunk["blocks"]]
        require(len(self.markdown) + sum(map(len, texts)) <= MARKDOWN_LIMIT, "msg_too_long")
        check_blocks([*self.stream_blocks, *blocks])
        self.text_chunks += texts
        self.stream_blocks += blocks
        for chunk in chunks:
            if chunk["type"] == "plan_update":
                self.plan_title = chunk["title"]
            elif chunk["type"] == "task_update":
                self.card_history.append(chunk)
                self.cards[chunk["id"]] = self.cards.get(chunk["id"], {}) | chunk

    def replace(self, text: str | None, blocks: list[Json] | None) -> None:
        """As chat.update does: text without blocks removes the blocks, and nothing of a stream stays."""
        self.original = self.original or self.text_chunks
        self.text_chunks, self.stream_blocks, self.stop_blocks, self.cards, self.plan_title = (
            [],
            [],
            [],
            {},
            None,
        )
        self.text = self.text if text is None else text
        self.blocks = blocks or [] if blocks is not None or text is not None else self.blocks
        self.updates += 1

    def as_json(self) -> Json:
        more = {
            "thread_ts": self.thread_ts,
            "blocks": self.all_blocks,
            "files": self.files,
            "metadata": self.metadata,
        }
        author = {"bot_id": self.bot_id, "app_id": APP} if self.bot_id else {}
        head = {
            "type": "message",
            "user": self.user,
            "text": self.markdown or self.text,
            "ts": self.ts,
            "team": TEAM,
        }
        return head | author | {key: value for key, value in more.items() if value}


@dataclass
class Session:
    """An agent session: its title is the one it was created with or renamed to."""

    status: str
    title: str | None
    history: list[str] = field(default_factory=list)
