"""Regular expressions that somebody else wrote: matched in linear time, refused when they are too large.

Python's `re` tries every way to read a text, so a pattern such as `(a+)+b` stops the process for hours. The
engine here is the one inside pydantic, Rust's `regex`, which reads each character once. As in JSON Schema and
in browsers, `\\w` and `\\d` stand for ASCII characters.
"""

import functools
import re

from pydantic_core import SchemaError, SchemaValidator, core_schema

LONGEST_PATTERN = 500
LONGEST_TEXT = 10_000
_MAX_SIZE = 5_000  # such a pattern is compiled in about 20 ms
_CLASS_SIZE = 4
_UNICODE_CLASS_SIZE = 100  # such as \\p{L}: hundreds of ranges
_TOKEN = re.compile(
    r"(?P<unicode>\\[pP](?:\{[^{}]*\}|.)?)|(?P<class>\\[a-zA-Z]|\[(?:\\.|[^\]\\])*\]|\.)"
    r"|\{(?P<least>\d+)(?:,(?P<most>\d*))?\}|\\.|.",
    re.DOTALL,
)
_ESCAPE = re.compile(r"\\(.)", re.DOTALL)
_ASCII_CLASSES = {"w": "[0-9A-Za-z_]", "W": "[^0-9A-Za-z_]", "d": "[0-9]", "D": "[^0-9]"}


class UnsupportedPattern(ValueError):
    """The pattern cannot be used; the text says what to change."""


def check_pattern(pattern: str) -> None:
    """Raises UnsupportedPattern for what is wrong, too large, or cannot be matched in linear time."""
    _compile(pattern, whole=True)


def matches(pattern: str, text: str) -> bool:
    """Whether the whole text has the form of the pattern. Raises UnsupportedPattern."""
    return len(text) <= LONGEST_TEXT and _compile(pattern, whole=True).isinstance_python(text)


def finds(pattern: str, text: str) -> bool:
    """Whether the pattern occurs anywhere in the text, as in JSON Schema. Raises UnsupportedPattern."""
    return len(text) <= LONGEST_TEXT and _compile(pattern, whole=False).isinstance_python(text)


@functools.lru_cache(maxsize=64)
def _compile(pattern: str, *, whole: bool) -> SchemaValidator:
    if len(pattern) > LONGEST_PATTERN:
        raise UnsupportedPattern(f"the pattern has more than {LONGEST_PATTERN} characters")
    if _estimate_size(pattern) > _MAX_SIZE:
        raise UnsupportedPattern("the pattern repeats too much; use smaller numbers in {}, or max_length")
    ascii_pattern = _ESCAPE.sub(lambda match: _ASCII_CLASSES.get(match[1], match[0]), pattern)
    if whole:
        ascii_pattern = rf"\A(?:{ascii_pattern})\z"
    try:
        return SchemaValidator(core_schema.str_schema(pattern=ascii_pattern, regex_engine="rust-regex"))
    except SchemaError as error:
        reason = str(error).rpartition("error: ")[2].strip().partition("\n")[0]
        raise UnsupportedPattern(
            f"the pattern cannot be used ({reason}); use classes, groups, alternatives and repetitions"
        ) from None


def _estimate_size(pattern: str) -> int:
    """The size of the compiled pattern, in characters with all counted repetitions written out."""
    enclosing: list[int] = []
    size = 0  # of the group that is read
    last = 0  # of its last part, which a repetition multiplies
    for token in _TOKEN.finditer(pattern):
        if token[0] == "(":
            enclosing.append(size)
            size = last = 0
        elif token[0] == ")":
            if not enclosing:
                raise UnsupportedPattern("the pattern cannot be used: it closes a group that it did not open")
            last = size
            size += enclosing.pop()
        elif token["least"]:
            times = int(token["most"] or token["least"])
            size += last * times
            last *= times + 1
        else:
            last = _token_size(token)
            size += last
        if size > _MAX_SIZE:
            break
    return size


def _token_size(token: re.Match[str]) -> int:
    if token["unicode"] or r"\p" in (token["class"] or "").lower():
        return _UNICODE_CLASS_SIZE
    if token["class"]:
        return _CLASS_SIZE
    return 1
