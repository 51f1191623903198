"""Messages of a third-party agent: texts that grow, are replaced and end, as text events."""

from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.a2a.third_party_parts import is_same_text, remove_whitespace
from ai_platform_engineering.core.events import AnyEvent, TextDelta, TextDiscarded, TextEnded, TextRole

MAX_TEXT_LENGTH = 1_000_000  # of all messages together
TRUNCATED = "\n[Output truncated]"

_MAX_WHITESPACE_RATIO = (
    4  # a text that is longer by more is another one; comparing costs time with each token
)
_MAX_COMPARED = 1000  # so many of the last messages are searched for a repeated text


@dataclass(slots=True)
class _GrowingMessage:
    """A message with the text so far; after it was discarded, the next attempt has an id of its own."""

    first_id: str
    text: str = ""
    attempt: int = 1
    ended: bool = False

    @property
    def message_id(self) -> str:
        if self.attempt == 1:
            return self.first_id
        return f"{self.first_id}~{self.attempt}"

    @property
    def slot(self) -> str | None:
        if self.attempt == 1:
            return None
        return self.first_id


class ThirdPartyMessages:
    """The messages of one turn by key; every change returns the text events that tell it."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._remaining = MAX_TEXT_LENGTH
        self._truncated = False
        self._messages: dict[str, _GrowingMessage] = {}
        self._id_counts: dict[str, int] = {}
        self._latest_key = ""

    def new_id(self, base: str) -> str:
        """The base as an id, or with a number when that id exists."""
        new_id = base
        while new_id in self._id_counts:
            self._id_counts[base] += 1
            new_id = f"{base}/{self._id_counts[base]}"
        self._id_counts[new_id] = 1
        return new_id

    def text(self, key: str) -> str:
        if key in self._messages:
            return self._messages[key].text
        return ""

    def texts(self, prefix: str) -> list[str]:
        """The texts of all messages whose key has the prefix, without blank ones."""
        return [self.text(key) for key in self.keys(prefix) if self.text(key).strip()]

    def keys(self, prefix: str) -> list[str]:
        """The keys with the prefix whose message has a text."""
        return [key for key, message in self._messages.items() if key.startswith(prefix) and message.text]

    def append(self, key: str, id_base: str, text: str) -> list[AnyEvent]:
        """Adds the text to the end of the message, up to the limit for all messages."""
        if self._truncated or not text:
            return []
        if len(text) > self._remaining:
            text = text[: self._remaining] + TRUNCATED
            self._truncated = True
        self._remaining -= len(text)
        message = self._messages.get(key)
        if message is None:
            message = _GrowingMessage(self.new_id(id_base))
            self._messages[key] = message
        offset = len(message.text)
        message.text += text
        message.ended = False
        self._latest_key = key
        return [
            TextDelta(
                agent=self._agent,
                message_id=message.message_id,
                offset=offset,
                text=text,
                slot=message.slot,
            )
        ]

    def replace(self, key: str, id_base: str, text: str) -> list[AnyEvent]:
        """Makes the text the message's: appends what is missing, or discards the old text when it differs."""
        old_text = self.text(key)
        if text.startswith(old_text):
            return self.append(key, id_base, text[len(old_text) :])
        return [*self.discard(key), *self.append(key, id_base, text)]

    def discard(self, key: str) -> list[AnyEvent]:
        message = self._messages[key]
        if self._truncated or not message.text:
            return []
        event = TextDiscarded(
            agent=self._agent, message_id=message.message_id, reason="replaced", slot=message.slot
        )
        message.text = ""
        message.attempt += 1
        message.ended = False
        return [event]

    def end(self, key: str, role: TextRole) -> list[AnyEvent]:
        message = self._messages.get(key)
        if message is None or not message.text:
            return []
        if message.ended and role != "answer":
            return []
        message.ended = True
        return [TextEnded(agent=self._agent, message_id=message.message_id, role=role)]

    def rekey_latest(self, text: str, prefix: str, new_key: str) -> bool:
        """Gives the latest message another key, if it has this text and its key has the prefix."""
        if new_key in self._messages or not self._latest_key.startswith(prefix):
            return False
        if not self.is_latest_text(text):
            return False
        self.rekey(self._latest_key, new_key)
        return True

    def rekey(self, key: str, new_key: str) -> None:
        """Gives a message another key. The messages keep their order."""
        new_keys = {key: new_key}
        self._messages = {new_keys.get(old, old): message for old, message in self._messages.items()}
        if self._latest_key == key:
            self._latest_key = new_key

    def is_latest_text(self, text: str) -> bool:
        """Whether the latest message has this text, whitespace aside."""
        if self._latest_key not in self._messages:
            return False
        latest_text = self.text(self._latest_key)
        if len(latest_text) > _MAX_WHITESPACE_RATIO * len(text):
            return False
        return is_same_text(latest_text, text)

    def contains(self, text: str, prefix: str) -> bool:
        """Whether the text was shown: as whole messages in a row, or as the end of one with the prefix."""
        if any(shown_text.rstrip().endswith(text.strip()) for shown_text in self.texts(prefix)):
            return True
        searched = remove_whitespace(text)
        shown_texts = [remove_whitespace(shown_text) for shown_text in self.texts("")[-_MAX_COMPARED:]]
        return any(_is_joined_prefix(searched, shown_texts[first:]) for first in range(len(shown_texts)))

    def find_key(self, text: str) -> str | None:
        """The key of the last message with this text, surrounding whitespace aside."""
        for key in reversed(self._messages):
            if self.text(key).strip() == text.strip():
                return key
        return None


def truncate_text(text: str) -> str:
    if len(text) <= MAX_TEXT_LENGTH + len(TRUNCATED):
        return text
    return text[:MAX_TEXT_LENGTH] + TRUNCATED


def _is_joined_prefix(searched: str, texts: Sequence[str]) -> bool:
    """Whether some first texts, joined, are exactly the searched one."""
    position = 0
    for text in texts:
        if not searched.startswith(text, position):
            return False
        position += len(text)
        if position == len(searched):
            return True
    return False
