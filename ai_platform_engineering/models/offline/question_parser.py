"""Parses a question into requests, and tells them from politeness and background."""

import re
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from ai_platform_engineering.models.offline.clauses import split_clauses
from ai_platform_engineering.models.offline.entities import (
    SALIENT_KINDS,
    ArgumentAssignment,
    Entity,
    read_entities,
)
from ai_platform_engineering.models.offline.lexicon import (
    CAPABILITY_QUESTIONS,
    FOLLOW_UPS,
    GREETINGS,
    LAST_PRONOUNS,
    MODEL_QUESTIONS,
    POLITE,
    PRONOUNS,
    QUESTION_WORDS,
    THANKS,
)
from ai_platform_engineering.models.offline.word_matching import is_generic, split_words, stem_words

MAX_QUESTION_CHARS = 8000
MAX_REQUESTS = 8
CONTEXT_PREFIX = "Context: "  # how a delegation names what a request refers to
_MAX_REQUEST_CHARS = 1000
_MAX_ENTITIES = 40
_MAX_CONTEXT_LINES = 3
_MAX_EARLIER_QUESTIONS = 3

_BLANKS = re.compile(r"[^\S\n]+")
_LINE_BREAKS = re.compile(r"\n[\n ]*")
_LEADING_WORDS = re.compile(
    r"^(?:(?:and|also|then|or|but|please|plus|so|ok|okay|hey|hi|hello)\b[ ,:]*)+", re.IGNORECASE
)
# "what time is it in Tokyo?" points to nothing.
_IMPERSONAL_IT = re.compile(r"\b(?:time|day|date) (?:is|was) it\b", re.IGNORECASE)
_BACKGROUND = re.compile(r"(?:we|i|our|my|it|this|that|there|they|he|she|someone|somebody)\b", re.IGNORECASE)
_WISH = re.compile(r"(?:i|we)(?:'d| would)? (?:need|want|like|wonder|have to know)\b", re.IGNORECASE)
_SMALL_TALK_WORDS = GREETINGS | {"you", "there", "day", "a", "lot"}
_MAX_SMALL_TALK_WORDS = 12


SmallTalk = Literal["greeting", "thanks", "model", "abilities"]


@dataclass(frozen=True)
class ParsedRequest:
    """One request of a question, with its entities and the earlier texts that it may refer to."""

    text: str
    entities: tuple[Entity, ...] = ()
    assignments: tuple[ArgumentAssignment, ...] = ()
    context: tuple[str, ...] = ()  # nearest first
    refers_back: bool = False  # its subject is elsewhere: "and port 22?", "what about it?"

    @classmethod
    def parse(cls, text: str, context: Sequence[str] = (), *, refers_back: bool = False) -> "ParsedRequest":
        entities, assignments = read_entities(text)
        return cls(
            text,
            tuple(entities[:_MAX_ENTITIES]),
            tuple(assignments[:_MAX_ENTITIES]),
            tuple(context),
            refers_back,
        )

    @property
    def is_question(self) -> bool:
        return self.text.endswith("?")

    @cached_property
    def lacks_subject(self) -> bool:
        """Whether it points elsewhere, or names nothing but a port or a number."""
        if self.refers_back or self.has_pronoun:
            return True
        if self.assignments:
            return False
        return not any(entity.kind in SALIENT_KINDS - {"port"} for entity in self.entities)

    @cached_property
    def wording(self) -> str:
        """The text with its entities blanked out: the name of a host is not a word of the request."""
        spans = [(entity.start, entity.end) for entity in self.entities]
        for assignment in self.assignments:
            spans.append((assignment.start, assignment.start + len(assignment.value)))
        text = self.text
        for start, end in spans:
            text = text[:start] + " " * (end - start) + text[end:]
        return text

    @cached_property
    def has_pronoun(self) -> bool:
        words = split_words(_IMPERSONAL_IT.sub(" ", self.wording))
        if not words:
            return False
        return words[-1] in LAST_PRONOUNS or not PRONOUNS.isdisjoint(words)

    @property
    def points_elsewhere(self) -> bool:
        if self.refers_back or self.has_pronoun:
            return True
        return self.lacks_subject and bool(self.entities)

    def delegation_text(self, context: Sequence[str]) -> str:
        """The description of a delegation; the agent sees nothing else of the conversation."""
        lines = [self.text]
        if self.lacks_subject:
            for text in context[:_MAX_CONTEXT_LINES]:
                lines.append(CONTEXT_PREFIX + text)
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ParsedQuestion:
    """The requests of a question, and what was left out of it."""

    requests: tuple[ParsedRequest, ...] = ()
    omitted_requests: int = 0  # beyond the most that are taken
    is_truncated: bool = False  # the text was longer than what is read
    small_talk: SmallTalk | None = None  # when it asks for nothing else


def clean_text(text: str) -> str:
    """The text without control characters and runs of blanks, cut to what is read."""
    characters = list[str]()
    for character in text[:MAX_QUESTION_CHARS]:
        is_control = unicodedata.category(character) == "Cc" and character != "\n"
        characters.append(" " if is_control else character)
    single_blanks = _BLANKS.sub(" ", "".join(characters))
    return _LINE_BREAKS.sub("\n", single_blanks).strip()


def parse_question(text: str, earlier_questions: Sequence[str] = ()) -> ParsedQuestion:
    """The requests of a question; `earlier_questions` of the conversation come nearest first."""
    own_text, context = _separate_context(clean_text(text))
    small_talk = _find_small_talk(own_text)
    if small_talk is not None:
        return ParsedQuestion(is_truncated=len(text) > MAX_QUESTION_CHARS, small_talk=small_talk)
    clauses = _find_request_clauses(own_text)
    earlier_texts = [*context, *_find_earlier_texts(earlier_questions)]
    return ParsedQuestion(
        requests=tuple(_parse_requests(clauses[:MAX_REQUESTS], earlier_texts)),
        omitted_requests=max(0, len(clauses) - MAX_REQUESTS),
        is_truncated=len(text) > MAX_QUESTION_CHARS or any(map(_is_too_long, clauses)),
    )


def _parse_requests(clauses: Sequence[str], earlier_texts: Sequence[str]) -> list[ParsedRequest]:
    requests = list[ParsedRequest]()
    context = list(earlier_texts)
    for clause in clauses:
        text = _LEADING_WORDS.sub("", clause, count=1) or clause
        text = _restore_question_mark(text)[:_MAX_REQUEST_CHARS]
        requests.append(ParsedRequest.parse(text, context, refers_back=refers_back(clause)))
        context.insert(0, text)
    return requests


def _is_too_long(clause: str) -> bool:
    return len(clause) > _MAX_REQUEST_CHARS


def _restore_question_mark(text: str) -> str:
    """Puts the mark back that a question lost to the clause after it."""
    words = split_words(text)
    if words and words[0] in QUESTION_WORDS and text[-1].isalnum():
        return f"{text}?"
    return text


def _separate_context(text: str) -> tuple[str, list[str]]:
    """The text without its context lines, and those."""
    own_lines = list[str]()
    context = list[str]()
    for line in text.split("\n"):
        if line.startswith(CONTEXT_PREFIX):
            context.append(line.removeprefix(CONTEXT_PREFIX)[:_MAX_REQUEST_CHARS])
        else:
            own_lines.append(line)
    return "\n".join(own_lines), context


def _find_earlier_texts(earlier_questions: Sequence[str]) -> list[str]:
    """The question before this one; when that too referred back, also the one before it."""
    texts = list[str]()
    for question in earlier_questions[:_MAX_EARLIER_QUESTIONS]:
        text = clean_text(question)
        texts.append(text.replace("\n", " ")[:_MAX_REQUEST_CHARS])
        if not refers_back(text):
            break
    return texts


def refers_back(text: str) -> bool:
    """Whether the text begins like a follow-up question."""
    return text.lower().startswith(FOLLOW_UPS)


def _find_small_talk(text: str) -> SmallTalk | None:
    """What the text is when it asks for no work: a greeting, thanks, or a question about ourselves."""
    words = [word for word in split_words(text) if word not in POLITE - GREETINGS]
    if _SMALL_TALK_WORDS.issuperset(words):
        if not THANKS.isdisjoint(words):
            return "thanks"
        return "greeting" if words else "abilities"
    if len(words) > _MAX_SMALL_TALK_WORDS:
        return None
    sentence = " ".join(words)
    if any(phrase in sentence for phrase in MODEL_QUESTIONS):
        return "model"
    if words == ["help"] or any(phrase in sentence for phrase in CAPABILITY_QUESTIONS):
        return "abilities"
    return None


def _find_request_clauses(text: str) -> list[str]:
    clauses = _join_bare_clauses(list(filter(_has_content, split_clauses(text))))
    request_clauses = list[str]()
    for clause in clauses:
        if not _is_background(clause) and not _is_noise(clause):
            request_clauses.append(clause)
    return list(dict.fromkeys(request_clauses or clauses))


def _has_content(clause: str) -> bool:
    return bool(stem_words(clause) or read_entities(clause)[0])


def _join_bare_clauses(clauses: Sequence[str]) -> list[str]:
    """Joins a clause that only names entities with the request before it.

    "is port 22 open on these?", then a host per line.
    """
    joined = list[str]()
    for clause in clauses:
        if joined and _is_bare(clause) and _can_be_continued(joined[-1]):
            mark = "?" if joined[-1].endswith("?") else ""
            joined[-1] = f"{joined[-1].removesuffix(mark)} {clause}{mark}"
        else:
            joined.append(clause)
    return joined


def _is_bare(clause: str) -> bool:
    if clause.endswith("?") or refers_back(clause):
        return False
    return not _has_wording(clause)


def _can_be_continued(clause: str) -> bool:
    return len(clause) < _MAX_REQUEST_CHARS and _has_wording(clause)


def _has_wording(clause: str) -> bool:
    return bool(stem_words(ParsedRequest.parse(clause).wording))


def _is_background(clause: str) -> bool:
    if clause.endswith("?") or _WISH.match(clause):
        return False
    return bool(_BACKGROUND.match(clause))


def _is_noise(clause: str) -> bool:
    """Whether nothing in it names a subject: "report the results"."""
    entities, assignments = read_entities(clause)
    if entities or assignments:
        return False
    return all(map(is_generic, stem_words(clause)))
