"""Decodes bytes to text, and normalises text: no control characters, plain line ends, tidy blank lines."""

import codecs
import re
import unicodedata

from ai_platform_engineering.core.storable_text import clean_text
from ai_platform_engineering.knowledge_bases.documents import UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.charsets import detect_charset, detect_utf16

_BOMS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32"),  # before UTF-16, whose mark it begins with
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_DECLARED = re.compile(rb"""(?:charset|encoding)\s{0,4}=\s{0,4}["']?([A-Za-z0-9._-]{1,40})""", re.IGNORECASE)
_BREAKS = re.compile("\r\n|[\r\x0b\x0c\x85\u2028\u2029]")
# C0 and C1 but tab and newline, marks that turn the direction of text, the byte order mark, noncharacters
_INVISIBLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ufeff\ufffe\uffff]")
_ANSI_COLOURS = re.compile("\x1b\\[[0-9;]{0,20}[A-Za-z]")
_NEEDS_TIDYING = re.compile(r"[ \t]\n|\n\n\n")
_BLANK_LINES = re.compile(r"\n{3,}")
_LONGEST_LINE = 300
_CONTROLS = bytes(
    set(range(32)) - {8, 9, 10, 12, 13, 27}
)  # backspace and escape stand in logs and manual pages


def decode_text(content: bytes, media_type: str) -> str:
    """Decodes by byte order mark, declared charset, as UTF-8, or else by what the bytes look like. Raises
    UnreadableDocument for what is no text."""
    for mark, encoding in _BOMS:
        if content.startswith(mark):
            if encoding == "utf-8":  # the other decoders remove the mark themselves
                content = content.removeprefix(mark)
            return normalise_text(content.decode(encoding, "replace"))
    utf16 = detect_utf16(content)
    if utf16 is not None:
        return normalise_text(content.decode(utf16, "replace"))
    if _is_binary(content):
        raise UnreadableDocument("The document is not a text file.")
    for encoding in (*_find_declared_encodings(content, media_type), "utf-8"):
        try:
            return normalise_text(content.decode(encoding))
        except (UnicodeDecodeError, LookupError):
            continue
    return normalise_text(_decode_undeclared(content))


def _decode_undeclared(content: bytes) -> str:
    for encoding in (detect_charset(content), "cp1252"):
        try:
            return content.decode(encoding)
        except (UnicodeDecodeError, LookupError):
            continue
    return content.decode("latin-1")


def _is_binary(content: bytes) -> bool:
    sample = content[:65536]
    controls = len(sample) - len(sample.translate(None, _CONTROLS))
    return b"\0" in sample or controls > 4 + len(sample) // 50


def _find_declared_encodings(content: bytes, media_type: str) -> list[str]:
    """Encodings of text that the source or the document itself names."""
    names = _DECLARED.findall(media_type.encode("ascii", "replace"))
    if content[:1024].lstrip().startswith(b"<"):
        names += _DECLARED.findall(content[:1024])
    return [name for name in map(bytes.decode, names) if _decodes_text(name)]


def _decodes_text(name: str) -> bool:
    try:
        # UTF-7 hides markup, and what a page says in readable bytes cannot be UTF-16.
        return codecs.lookup(name).name not in {
            "utf-7",
            "utf-16",
            "utf-16-le",
            "utf-16-be",
            "utf-32",
        } and bool(b"a".decode(name))
    except (LookupError, UnicodeError, ValueError):
        return False


def normalise_text(text: str) -> str:
    """Composed characters, plain line ends, nothing unseen, no spaces at line ends, no runs of blank
    lines."""
    text = _BREAKS.sub("\n", clean_text(text.replace("\x00", "")))
    if "\x1b" in text:
        text = _ANSI_COLOURS.sub("", text)
    if _INVISIBLE.search(text):
        text = _INVISIBLE.sub("", text)
    if not unicodedata.is_normalized("NFC", text):
        text = unicodedata.normalize("NFC", text)
    if _NEEDS_TIDYING.search(text):
        text = "\n".join(line.rstrip(" \t") for line in text.split("\n"))
        text = _BLANK_LINES.sub("\n\n", text)
    return text


def to_single_line(text: str) -> str:
    """For headings and titles."""
    return " ".join(normalise_text(text[: _LONGEST_LINE * 4]).split())[:_LONGEST_LINE]


def split_paragraphs(text: str) -> list[str]:
    return [stripped for part in text.split("\n\n") if (stripped := part.strip("\n").rstrip())]
