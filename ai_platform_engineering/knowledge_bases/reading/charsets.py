"""Which charset a text is in, when nothing says so."""

import re
import unicodedata

_SAMPLE_BYTES = 65536
_MIN_NUL_SHARE = 0.02  # of the characters: even Chinese text has ASCII spaces, digits or line ends
_MAX_ODD_SHARE = 0.02  # of the characters, in a text
_ODD_CATEGORIES = frozenset({"Cn", "Co", "Cs"})
_HIGH_RUN = re.compile(rb"[\x80-\xff]+")
_ASCII_LETTERS = re.compile(rb"[A-Za-z]")
# What documents without a declaration are written in; more candidates make worse guesses.
_CANDIDATES = ["cp932", "gb18030", "euc_jp", "big5", "euc_kr", "cp1251", "koi8_r", "cp1253", "cp1252"]
_DEFAULT = "cp1252"
_MIN_HIGH_BYTES = 4


def detect_utf16(content: bytes) -> str | None:
    """UTF-16 without a byte order mark: the NUL bytes of its ASCII characters are all on one side."""
    sample = content[:_SAMPLE_BYTES]
    sample = sample[: len(sample) // 2 * 2]
    if len(content) % 2 or not sample:
        return None
    high_bytes = sample[0::2]
    low_bytes = sample[1::2]
    nuls_first = high_bytes.count(0)
    nuls_second = low_bytes.count(0)
    if nuls_first and nuls_second:
        return None
    if max(nuls_first, nuls_second) < _MIN_NUL_SHARE * len(high_bytes):
        return None
    encoding = "utf-16-be" if nuls_first else "utf-16-le"
    return encoding if _is_text(sample, encoding) else None


def detect_charset(content: bytes) -> str:
    """The charset of text that is not UTF-8; a guess, so what is declared comes first."""
    sample = content[:_SAMPLE_BYTES]
    if _looks_western(sample):
        return _DEFAULT
    # Imported late: only workers decode such texts.
    from charset_normalizer import from_bytes

    best = from_bytes(content, cp_isolation=_CANDIDATES).best()
    if best is None:
        return _DEFAULT
    return str(best.encoding)


def _is_text(sample: bytes, encoding: str) -> bool:
    text = sample.decode(encoding, "replace")
    odd = sum(
        unicodedata.category(character) in _ODD_CATEGORIES
        or (unicodedata.category(character) == "Cc" and character not in "\t\n\r\f")
        for character in text
    )
    return odd <= _MAX_ODD_SHARE * len(text)


def _looks_western(sample: bytes) -> bool:
    """Whether accented letters stand alone among many ASCII letters, or are too few for a guess."""
    runs = _HIGH_RUN.findall(sample)
    high_count = sum(map(len, runs))
    longest = max(map(len, runs), default=0)
    if high_count < _MIN_HIGH_BYTES:
        return True
    return longest <= 2 and high_count * 3 < len(_ASCII_LETTERS.findall(sample))
