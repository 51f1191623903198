"""A question as a list of requests: where one ends and the next begins, and what is only politeness or background."""

import re
import unicodedata
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from ai_platform_engineering.models.offline.entities import SALIENT, ArgumentAssignment, Entity, quotes, read
from ai_platform_engineering.models.offline.lexicon import (
    ALSO_READ,
    CAPABILITY_QUESTIONS,
    CHANGES,
    CLAUSE_STARTS,
    DETERMINERS,
    FOLLOW_UPS,
    GREETINGS,
    LAST_PRONOUNS,
    POLITE,
    PRONOUNS,
    QUESTION_WORDS,
)
from ai_platform_engineering.models.offline.words import is_generic, plain_words, stems

MOST_CHARS = 8000
MOST_REQUESTS = 8
_MOST_IN_REQUEST = 1000  # characters
_MOST_ENTITIES = 40
_MOST_CONTEXT = 3
CONTEXT = "Context: "  # how an assignment names what a request refers to

_SPACES = re.compile(r"[^\S\n]+")
_LINES = re.compile(r"\n[\n ]*")
_SEPARATOR = re.compile(
    r"(?P<hard>\n|;|[?!]+(?=\s|$)|(?<!\be\.g)(?<!\bi\.e)(?<!\bvs)(?<!\betc)\.+(?=\s|$)|(?:(?<=\s)|^)(?:\d{1,2}[.)]|[-*•])(?= ))"
    r"|(?P<soft>,? (?:and then|and also|and|then|as well as|plus|&) |, )",
    re.IGNORECASE,
)
_CHANGE_VERBS = frozenset(verb for verbs in CHANGES.values() for verb in verbs.split())
_LEADING = re.compile(
    r"^(?:(?:and|also|then|or|but|please|plus|so|ok|okay|hey|hi|hello)\b[ ,:]*)+", re.IGNORECASE
)
_BACKGROUND = re.compile(r"(?:we|i|our|my|it|this|that|there|they|he|she|someone|somebody)\b", re.IGNORECASE)
_WISH = re.compile(r"(?:i|we)(?:'d| would)? (?:need|want|like|wonder|have to know)\b", re.IGNORECASE)


@dataclass(frozen=True)
class ParsedRequest:
    """One thing that is asked, with what is recognised in it and the text that it may refer to."""

    text: str
    entities: tuple[Entity, ...] = ()
    assignments: tuple[ArgumentAssignment, ...] = ()
    context: tuple[str, ...] = ()  # nearest first
    refers: bool = False  # its subject is elsewhere: "and port 22?", "what about it?"

    @classmethod
    def of(cls, text: str, context: Sequence[str] = (), *, refers: bool = False) -> "ParsedRequest":
        entities, assignments = read(text)
        return cls(
            text,
            tuple(entities[:_MOST_ENTITIES]),
            tuple(assignments[:_MOST_ENTITIES]),
            tuple(context),
            refers,
        )

    @property
    def is_question(self) -> bool:
        return self.text.endswith("?")

    @cached_property
    def lacks_subject(self) -> bool:
        """It points elsewhere, or names nothing but a port or a number."""
        named = any(entity.kind in SALIENT - {"port"} for entity in self.entities) or bool(self.assignments)
        return self.refers or not named or self.has_pronoun

    @cached_property
    def wording(self) -> str:
        """The text without the things in it: the name of a host is not a word of the request."""
        spans = [(one.start, one.end) for one in self.entities] + [
            (one.start, one.start + len(one.value)) for one in self.assignments
        ]
        kept = self.text
        for start, end in spans:
            kept = kept[:start] + " " * (end - start) + kept[end:]
        return kept

    @cached_property
    def has_pronoun(self) -> bool:
        words = plain_words(self.wording)
        return bool(PRONOUNS & set(words)) or (bool(words) and words[-1] in LAST_PRONOUNS)

    @property
    def points_elsewhere(self) -> bool:
        return self.refers or self.has_pronoun or (self.lacks_subject and bool(self.entities))

    def assignment(self, context: Sequence[str]) -> str:
        """What an agent is told, which sees nothing else of the conversation."""
        return "\n".join(
            [self.text, *(CONTEXT + text for text in context[:_MOST_CONTEXT] if self.lacks_subject)]
        )


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    requests: tuple[ParsedRequest, ...] = ()
    left_out: int = 0  # requests beyond the most that are taken
    cut: bool = False  # the text was longer than what is read
    small_talk: bool = False  # a greeting, or a question about ourselves
    greeting: bool = False


def tidy(text: str) -> str:
    """The text without control characters and without runs of blanks; cut to what is read."""
    kept = "".join(
        " " if unicodedata.category(char) == "Cc" and char != "\n" else char for char in text[:MOST_CHARS]
    )
    return _LINES.sub("\n", _SPACES.sub(" ", kept)).strip()


def ask(text: str, before: Sequence[str] = ()) -> ParsedQuestion:
    """The requests of a question; `before` are the earlier questions of the conversation, nearest first."""
    clean = tidy(text)
    own, told = _without_context(clean)
    small_talk = _is_small_talk(own)
    earlier = [*told, *_earlier(before)]
    parts = [] if small_talk else _requests(own)
    kept = [
        (_as_question(_LEADING.sub("", part, count=1) or part), refers_back(part))
        for part in parts[:MOST_REQUESTS]
    ]
    kept = [(part[:_MOST_IN_REQUEST], refers) for part, refers in kept]
    texts = [part for part, _ in kept]
    requests = [
        ParsedRequest.of(part, (*reversed(texts[:at]), *earlier), refers=refers)
        for at, (part, refers) in enumerate(kept)
    ]
    greeting = small_talk and bool(GREETINGS & set(plain_words(own)[:1]))
    return ParsedQuestion(
        tuple(requests),
        len(parts) - len(kept),
        len(text) > MOST_CHARS or any(len(one) > _MOST_IN_REQUEST for one in parts),
        small_talk,
        greeting,
    )


def _as_question(text: str) -> str:
    """A question that lost its mark to the clause after it gets one again."""
    first = (plain_words(text) or [""])[0]
    if first in QUESTION_WORDS and text[-1].isalnum():
        return f"{text}?"
    return text


def _without_context(text: str) -> tuple[str, list[str]]:
    lines = text.split("\n")
    told = [line.removeprefix(CONTEXT)[:_MOST_IN_REQUEST] for line in lines if line.startswith(CONTEXT)]
    return "\n".join(line for line in lines if not line.startswith(CONTEXT)), told


def _earlier(before: Sequence[str]) -> list[str]:
    """The question before this one; when that too referred back, also the one before it."""
    found = list[str]()
    for text in before[:3]:
        clean = tidy(text)
        found.append(" ".join(clean.split("\n"))[:_MOST_IN_REQUEST])
        if not refers_back(clean):
            break
    return found


def refers_back(text: str) -> bool:
    return text.lower().startswith(FOLLOW_UPS)


def _is_small_talk(text: str) -> bool:
    words = [word for word in plain_words(text) if word not in POLITE - GREETINGS]
    said = " ".join(words)
    if (
        not words
        or said == "help"
        or all(word in GREETINGS or word in ("you", "there", "day", "a", "lot") for word in words)
    ):
        return True
    return len(words) <= 12 and any(phrase in said for phrase in CAPABILITY_QUESTIONS)


def _requests(text: str) -> list[str]:
    parts = _joined([part for part in split(text) if stems(part) or read(part)[0]])
    real = [part for part in parts if not _is_background(part) and not _is_noise(part)]
    return list(dict.fromkeys(real or parts))


def _joined(parts: Sequence[str]) -> list[str]:
    """A part that only names things goes with the request before it: "is port 22 open on these?", then a host per line."""
    done = list[str]()
    for part in parts:
        bare = not part.endswith("?") and not refers_back(part) and not stems(ParsedRequest.of(part).wording)
        if bare and done and len(done[-1]) < _MOST_IN_REQUEST and stems(ParsedRequest.of(done[-1]).wording):
            mark = "?" if done[-1].endswith("?") else ""
            done[-1] = f"{done[-1].removesuffix(mark)} {part}{mark}"
        else:
            done.append(part)
    return done


def _is_background(part: str) -> bool:
    return bool(_BACKGROUND.match(part)) and not part.endswith("?") and not _WISH.match(part)


def _is_noise(part: str) -> bool:
    """Words such as "report the results": nothing in it names a subject."""
    entities, assignments = read(part)
    return not entities and not assignments and all(is_generic(word) for word in stems(part))


def split(text: str) -> list[str]:
    """The clauses that ask something of their own; never inside quotes, addresses or "between a and b"."""
    parts, start = list[str](), 0
    for found in _separators(text):
        if found["soft"] and not (
            _starts_clause(text[found.end() :]) and not _is_between(text[start : found.start()])
        ):
            continue
        end = found.end() if found[0][0] in "?!" else found.start()
        parts.append(text[start:end])
        start = found.end()
    return [part for part in (_trimmed(part) for part in [*parts, text[start:]]) if part]


def segments(text: str) -> list[str]:
    """The parts of an enumeration: what stands between commas and "and"."""
    parts, start = list[str](), 0
    for found in _separators(text):
        if found["soft"] and not _is_between(text[start : found.start()]):
            parts.append(text[start : found.start()])
            start = found.end()
    return [part for part in (_trimmed(part) for part in [*parts, text[start:]]) if part]


def _separators(text: str) -> Iterator[re.Match[str]]:
    quoted = iter([*quotes(text), (len(text) + 1, len(text) + 1)])
    span = next(quoted)
    for found in _SEPARATOR.finditer(text):
        while found.start() >= span[1]:
            span = next(quoted)
        if found.end() <= span[0] or found.start() >= span[1]:
            yield found


def _starts_clause(rest: str) -> bool:
    first = [word.strip(",:").lower().removesuffix("'s") for word in rest[:80].split()]
    words = [word for word in first if word not in POLITE]
    if not words or words[0] not in CLAUSE_STARTS:
        return False
    # A verb of change may be a noun here ("the state and sync history"): only with a determiner it surely is an order.
    surely = words[0] not in _CHANGE_VERBS or (words[0] in ALSO_READ and words[0] != "open")
    return surely or bool(words[1:] and words[1] in DETERMINERS)


def _is_between(before: str) -> bool:
    words = plain_words(before[-200:])
    last = max((index for index, word in enumerate(words) if word in ("between", "both")), default=-1)
    return last >= 0 and "and" not in words[last:]


def _trimmed(part: str) -> str:
    return part.strip(" \n\t,;:-*•").removesuffix(".").strip()
