"""What a reader has seen of a foreign agent: messages that grow, are replaced and end, and the events that tell it."""

from collections.abc import Sequence
from dataclasses import dataclass

from ai_platform_engineering.a2a.third_party_parts import remove_whitespace
from ai_platform_engineering.core.events import AnyEvent, TextDelta, TextDiscarded, TextEnded, TextRole

MAX_SHOWN = 1_000_000
TRUNCATED = "\n[Output truncated]"

_COMPARED = 1000  # so many of the last messages are searched for a repeated text


@dataclass(slots=True)
class _Shown:
    """A message that a reader sees; a later attempt has an id of its own."""

    first: str
    text: str = ""
    attempt: int = 1
    ended: bool = False

    @property
    def message_id(self) -> str:
        if self.attempt == 1:
            return self.first
        return f"{self.first}~{self.attempt}"

    @property
    def slot(self) -> str | None:
        if self.attempt == 1:
            return None
        return self.first


class ThirdPartyMessages:
    """What a reader has seen, one message per key; every change gives the events that tell it."""

    def __init__(self, agent: str) -> None:
        self._agent = agent
        self._left = MAX_SHOWN
        self._full = False
        self._messages: dict[str, _Shown] = {}
        self._ids: dict[str, int] = {}  # and how often each was asked for
        self._latest = ""

    def new_id(self, base: str) -> str:
        """The id, or one like it when it is taken."""
        free = base
        while free in self._ids:
            self._ids[base] += 1
            free = f"{base}/{self._ids[base]}"
        self._ids[free] = 1
        return free

    def text(self, key: str) -> str:
        if key in self._messages:
            return self._messages[key].text
        return ""

    def texts(self, prefix: str) -> list[str]:
        return [
            message.text
            for key, message in self._messages.items()
            if key.startswith(prefix) and message.text.strip()
        ]

    def keys(self, prefix: str) -> list[str]:
        return [key for key, message in self._messages.items() if key.startswith(prefix) and message.text]

    def add(self, key: str, base: str, text: str) -> list[AnyEvent]:
        """The text goes to the end of the message."""
        if self._full or not text:
            return []
        if len(text) > self._left:
            text, self._full = text[: self._left] + TRUNCATED, True
        self._left -= len(text)
        message = self._messages.get(key)
        if message is None:
            message = self._messages[key] = _Shown(self.new_id(base))
        offset = len(message.text)
        message.text += text
        message.ended, self._latest = False, key
        return [
            TextDelta(
                agent=self._agent, message_id=message.message_id, offset=offset, text=text, slot=message.slot
            )
        ]

    def put(self, key: str, base: str, text: str) -> list[AnyEvent]:
        """The text is the whole message: what is missing is said, what differs is discarded first."""
        old = self.text(key)
        if text.startswith(old):
            return self.add(key, base, text[len(old) :])
        return [*self.discard(key), *self.add(key, base, text)]

    def discard(self, key: str) -> list[AnyEvent]:
        message = self._messages[key]
        if self._full or not message.text:
            return []
        event = TextDiscarded(
            agent=self._agent, message_id=message.message_id, reason="replaced", slot=message.slot
        )
        message.text = ""
        message.attempt = message.attempt + 1
        message.ended = False
        return [event]

    def end(self, key: str, role: TextRole) -> list[AnyEvent]:
        message = self._messages.get(key)
        if message is None or not message.text or (message.ended and role != "answer"):
            return []
        message.ended = True
        return [TextEnded(agent=self._agent, message_id=message.message_id, role=role)]

    def adopt(self, text: str, prefix: str, key: str) -> bool:
        """Gives the latest message another key if it says just this and was kept under the prefix."""
        if key in self._messages or not self.just_said(text) or not self._latest.startswith(prefix):
            return False
        self._messages[key] = self._messages.pop(self._latest)
        self._latest = key
        return True

    def just_said(self, text: str) -> bool:
        return self._latest in self._messages and remove_whitespace(
            self.text(self._latest)
        ) == remove_whitespace(text)

    def holds(self, text: str, prefix: str) -> bool:
        """Whether the text was shown: as whole messages in a row, or as the end of one kept under the prefix."""
        if any(shown.rstrip().endswith(text.strip()) for shown in self.texts(prefix)):
            return True
        wanted, shown = (
            remove_whitespace(text),
            [remove_whitespace(one) for one in self.texts("")[-_COMPARED:]],
        )
        return any(_begins(wanted, shown[first:]) for first in range(len(shown)))

    def saying(self, text: str) -> str | None:
        """The key of the last message that says just this."""
        return next((key for key in reversed(self._messages) if self.text(key).strip() == text.strip()), None)


def truncate_text(text: str) -> str:
    if len(text) <= MAX_SHOWN + len(TRUNCATED):
        return text
    return text[:MAX_SHOWN] + TRUNCATED


def _begins(wanted: str, texts: Sequence[str]) -> bool:
    """Whether the first so many texts make just what is wanted."""
    position = 0
    for text in texts:
        if not wanted.startswith(text, position):
            return False
        position += len(text)
        if position == len(wanted):
            return True
    return False
