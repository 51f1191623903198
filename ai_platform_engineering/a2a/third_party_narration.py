"""Status texts of a third-party agent: whole, in tokens, or growing, each shown once.

Some agents send each token as a status message with an id of its own, others the whole text so far, and then
the whole text again. What belongs together is found by content, since their ids say nothing."""

import unicodedata
from dataclasses import dataclass

from ai_platform_engineering.a2a.third_party_messages import MAX_TEXT_LENGTH, ThirdPartyMessages
from ai_platform_engineering.a2a.third_party_parts import is_same_text, remove_whitespace
from ai_platform_engineering.core.events import AnyEvent

STATUS_PREFIX = "status:"

# Of a run; a larger one is compared by its messages alone.
_MAX_PIECES = 20_000
_MAX_RUN_LENGTH = 2 * MAX_TEXT_LENGTH
_MAX_BLANK = 1000
# A repeated text in the middle of a message: shorter ones may be there by chance.
_MIN_REPEATED_PIECES = 3
_MIN_REPEATED_LENGTH = 20
_SENTENCE_ENDS = ".!?:;…。！？"
_CLOSING_MARKS = ")]}\"'»”’*_`"
_NEVER_FIRST = ",.;:!?)]}%'’”…"
_MARKDOWN_STARTS = "#*->`|•"
_LOOK_BACK = 20


@dataclass(frozen=True, slots=True)
class _NarrationPiece:
    """One status text, and where it stands in its message."""

    key: str
    offset: int
    text: str


class ThirdPartyNarration:
    """The status texts of one turn, as messages.

    A run is the texts between which nothing else came: only they can be parts of one text."""

    def __init__(self, messages: ThirdPartyMessages) -> None:
        self._messages = messages
        self._open_key = ""  # the message that may go on
        self._run: list[_NarrationPiece] = []
        self._run_length = 0  # in characters, with what was repeated
        self.in_tokens = False  # the agent sends pieces of texts
        self._blank = ""  # whitespace, which may stand between two pieces

    def read(self, text: str, id_base: str) -> list[AnyEvent]:
        """A status text: the start of a message, or what it adds to the one before."""
        if not text.strip():
            if self._run:
                self._blank = (self._blank + text)[:_MAX_BLANK]
            return []
        open_text = self._messages.text(self._open_key)
        if not self._run and self._messages.is_latest_text(text):
            return []  # an artifact, or a message before a tool call, said it
        repeated_from = self._find_repeated(text)
        if repeated_from is not None and self._may_repeat(repeated_from, text):
            return self._repeat(repeated_from, text)
        if open_text and text.startswith(open_text):
            return self._grow(text, len(open_text))
        text = self._blank + text
        self._blank = ""
        if not open_text:
            return self._start(text, id_base)
        if self._continues(open_text, text):
            self._add_piece(_NarrationPiece(self._open_key, len(open_text), text))
            return self._messages.append(self._open_key, id_base, text)
        return [*self._messages.end(self._open_key, "narration"), *self._start(text, id_base)]

    def end_run(self) -> list[AnyEvent]:
        """Something else comes: what follows is another text.

        Until then the last message stays open, since it may turn out to be the answer."""
        events = self._messages.end(self._open_key, "narration")
        self._forget_run()
        return events

    def move_to(self, key: str, text: str) -> list[AnyEvent] | None:
        """Gives the message with this text another key; None if no message of the run has it.

        A message that has only the beginning of the text gets the rest of it."""
        repeated_from = self._find_origin(text)
        if repeated_from is None:
            return None
        events = self._unite(repeated_from, text)
        self._messages.rekey(self._open_key, key)
        self._forget_run()
        return events

    def take_back(self, text: str) -> list[AnyEvent]:
        """Removes the last status text if it is this one, because it is told in another way."""
        if not self._run or not is_same_text(self._run[-1].text, text):
            return []
        piece = self._run.pop()
        text_before = self._messages.text(piece.key)[: piece.offset]
        if text_before.strip():
            return self._messages.replace(piece.key, piece.key, text_before)
        self._open_key = ""
        return self._messages.discard(piece.key)

    @property
    def last_text(self) -> str:
        """The last message; all of the run when it came in tokens, since a cut between them may be wrong."""
        if self.in_tokens and self._run:
            return "".join(self._messages.text(key) for key in _unique_keys(self._run))
        return "".join(self._messages.texts(STATUS_PREFIX)[-1:])

    def _forget_run(self) -> None:
        self._open_key = ""
        self._run = []
        self._run_length = 0
        self._blank = ""

    def _start(self, text: str, id_base: str) -> list[AnyEvent]:
        self._open_key = self._messages.new_id(f"{STATUS_PREFIX}{id_base}")
        self._add_piece(_NarrationPiece(self._open_key, 0, text))
        return self._messages.append(self._open_key, id_base, text)

    def _grow(self, text: str, known_length: int) -> list[AnyEvent]:
        """The open message again, with more text or none."""
        self._add_piece(_NarrationPiece(self._open_key, 0, text))
        return self._messages.append(self._open_key, self._open_key, text[known_length:])

    def _may_repeat(self, first: int, text: str) -> bool:
        """Whether the text can be the same as the pieces; with a space that they lack it goes on."""
        return not text[0].isspace() or self._run[first].text[0].isspace()

    def _repeat(self, first: int, text: str) -> list[AnyEvent]:
        """The text of some pieces again, as a whole. It stays a piece: it may turn out to be a token."""
        events = self._unite(first, text)
        self._add_piece(_NarrationPiece(self._open_key, 0, text))
        return events

    def _continues(self, open_text: str, text: str) -> bool:
        continues = is_continuation(open_text, text)
        if continues is None:
            return self.in_tokens
        self.in_tokens = self.in_tokens or continues
        return continues

    def _add_piece(self, piece: _NarrationPiece) -> None:
        self._run.append(piece)
        self._run_length += len(piece.text)
        if len(self._run) > _MAX_PIECES or self._run_length > _MAX_RUN_LENGTH:
            self._run = [_NarrationPiece(key, 0, self._messages.text(key)) for key in _unique_keys(self._run)]
            self._run_length = sum(len(piece.text) for piece in self._run)

    def _find_repeated(
        self, text: str, min_pieces: int = _MIN_REPEATED_PIECES, min_length: int = _MIN_REPEATED_LENGTH
    ) -> int | None:
        """The first piece of the run from which on its pieces are this text, whitespace aside.

        The minimum is for a piece in the middle of a message."""
        searched = remove_whitespace(text)
        end = len(searched)  # what is behind it was found
        for index in range(len(self._run) - 1, -1, -1):
            piece = self._run[index]
            piece_text = remove_whitespace(piece.text)
            if piece_text == searched and piece.offset == 0:
                return self._first_piece(piece.key)  # the message has grown to this text
            if not searched.endswith(piece_text, 0, end):
                return None
            end -= len(piece_text)
            is_long = len(self._run) - index >= min_pieces and len(searched) >= min_length
            if end == 0 and (piece.offset == 0 or is_long):
                return index
        return None

    def _find_origin(self, text: str) -> int | None:
        """The first piece of an artifact's text, wherever that piece is; or of its beginning."""
        open_text = self._messages.text(self._open_key)
        if open_text and open_text.strip() == text.strip():  # most often; the rest costs more
            return self._first_piece(self._open_key)
        repeated_from = self._find_repeated(text, min_pieces=1, min_length=1)
        if repeated_from is None and open_text and text.startswith(open_text):
            return self._first_piece(self._open_key)
        return repeated_from

    def _first_piece(self, key: str) -> int:
        return next(index for index, piece in enumerate(self._run) if piece.key == key)

    def _unite(self, first: int, text: str) -> list[AnyEvent]:
        """Makes the pieces from the first one on a message of their own with this text; it is open then."""
        key, *other_keys = _unique_keys(self._run[first:])
        events: list[AnyEvent] = []
        for other_key in other_keys:
            events += self._messages.discard(other_key)
        text_before = self._messages.text(key)[: self._run[first].offset]
        if text_before.strip():
            events += self._messages.replace(key, key, text_before)
            events += self._messages.end(key, "narration")
            key = self._messages.new_id(key)
            events += self._messages.append(key, key.removeprefix(STATUS_PREFIX), text)
        elif not is_same_text(self._messages.text(key), text):
            events += self._messages.replace(key, key, text)
        self._open_key = key
        self._run[first:] = _move_pieces(self._run[first:], key)
        return events


def _move_pieces(pieces: list[_NarrationPiece], key: str) -> list[_NarrationPiece]:
    """The pieces as those of one message."""
    moved: list[_NarrationPiece] = []
    offset = 0
    for piece in pieces:
        moved.append(_NarrationPiece(key, offset, piece.text))
        offset += len(piece.text)
    return moved


def _unique_keys(pieces: list[_NarrationPiece]) -> list[str]:
    return list(dict.fromkeys(piece.key for piece in pieces))


def is_continuation(open_text: str, text: str) -> bool | None:
    """Whether a text goes on where another one stopped, judged by the two characters that meet.

    None if both may be: a sentence, a line or a capital letter may begin a text of its own."""
    last = open_text[-1]
    first = text[0]
    if first in " \t" or last in " \t":
        return True
    if first in "\r\n" or last in "\r\n":
        return None
    if first in _NEVER_FIRST:
        return True
    if open_text[-_LOOK_BACK:].rstrip(_CLOSING_MARKS).endswith(tuple(_SENTENCE_ENDS)):
        if first.isupper():
            return False  # within a text a space would stand between them
        return None
    if first.isupper() or first in _MARKDOWN_STARTS or unicodedata.category(first).startswith("S"):
        return None
    return True
