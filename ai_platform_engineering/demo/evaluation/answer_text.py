"""What an answer says: whether it names a fact, blames something, or says that it cannot be answered."""

import re
from collections.abc import Iterable

from ai_platform_engineering.core.text_patterns import LONGEST_TEXT, finds

# Emphasis and code marks, and typographic signs that models write in place of plain ones.
_MARKUP = re.compile(r"\*\*|__(?=\W|$)|(?<!\w)__|[`*]")
_ESCAPED = re.compile(r"\\([^\w\s]|_)")  # Markdown and Jira write a backslash before an underscore
_PLAIN_SIGNS = str.maketrans({"’": "'", "‘": "'", "“": '"', "”": '"', "‑": "-", "–": "-", "\u00a0": " "})
_VERSION_PREFIX = re.compile(r"\bv(?=\d+\.\d)")
_CLAUSE_END = re.compile(r"(?<=[.!?])\s|[;\n]|, (?:but|and not|not|while|whereas)\b")

_NEGATIONS = re.compile(
    r"\b(?:not|no|never|neither|nor|none|without|unrelated|unaffected|healthy|fine|ruled out|innocent"
    r"|instead of|rather than|victim|symptom)\b|n't\b"
)
_FAULT = (
    r"(?:root cause|cause|reason|culprit|at fault|to blame|responsible|broken|down|failing|degraded|crashing)"
)
_CAUSES = (
    r"(?:root cause|cause|reason|culprit)\b[^,]{0,40}?(?:\b(?:is|was|lies in)\b|:)[^,]{0,60}\b{name}\b",
    r"\b(?:caused by|because of|because|due to|fault of|triggered by|blame)\b[^,]{0,60}\b{name}\b",
    rf"\b{{name}}\b[^,]{{0,60}}\b(?:is|was|are|were) (?:the |a )?{_FAULT}\b",
    r"\b{name}\b[^,]{0,40}\b(?:caused|causes|breaks|broke|fails|crashes)\b",
)
_CANNOT = (
    r"(?:can ?not|can't|could ?not|couldn't|unable|not able|do not|don't|does not|doesn't|did not|didn't"
    r"|has no|have no|there is no|there's no|there are no|no such|not possible|impossible|none of)"
)
_KNOW = (
    r"(?:answer\w*|determine\w*|tell|know\w*|find|found|see|access\w*|data|information|record\w*|exist\w*"
    r"|available|provide\w*|contain\w*|hold\w*|ha(?:ve|s)|service|system\w*|source\w*|tool\w*|figure\w*"
    r"|metric\w*|say)"
)
_UNKNOWN = re.compile(
    rf"\b{_CANNOT}\b[^.!?\n]{{0,80}}\b{_KNOW}\b"
    r"|\b(?:no (?:data|information|records?|access|metrics?|way)|unknown|f(?:ou|i)nd (?:nothing|no)"
    r"|not (?:available|known|found|recorded))\b"
)


def normalize(text: str) -> str:
    """Lower case, single spaces, without emphasis; `v1.2.3` and `1.2.3` are the same version."""
    unescaped = _ESCAPED.sub(r"\1", text.translate(_PLAIN_SIGNS))
    plain = _MARKUP.sub("", unescaped)
    return _VERSION_PREFIX.sub("", " ".join(plain.lower().split()))


def names(text: str, phrase: str) -> bool:
    """Whether the phrase stands in the text by itself: `1.2` is not in `1.2.3`, nor `A` in `A_V2`."""
    pattern = rf"(?<![\w])(?<!\d\.){re.escape(normalize(phrase))}(?!\w)(?!\.\d)"
    return re.search(pattern, normalize(text)) is not None


def finds_pattern(text: str, pattern: str) -> bool:
    """Whether a pattern with `escape` for its facts occurs in the normalized text, in any case."""
    return finds(f"(?i){pattern}", normalize(text)[:LONGEST_TEXT])


def escape(fact: str) -> str:
    """A fact as part of a pattern."""
    return re.escape(normalize(fact))


def blames(text: str, name: str) -> bool:
    """Whether a clause says that it is the cause. Clauses that negate something blame nobody."""
    own_name = re.escape(normalize(name))
    patterns = [cause.replace("{name}", own_name) for cause in _CAUSES]
    for clause in _split_clauses(text):
        if _NEGATIONS.search(clause):
            continue
        if any(re.search(pattern, clause) for pattern in patterns):
            return True
    return False


def says_unknown(text: str) -> bool:
    """Whether it says that something cannot be found, known or answered."""
    return _UNKNOWN.search(normalize(text)) is not None


def _split_clauses(text: str) -> Iterable[str]:
    for line in text.splitlines():
        yield from _CLAUSE_END.split(normalize(line))
