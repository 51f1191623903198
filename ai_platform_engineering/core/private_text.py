"""Private text in the arguments of a call: whether they carry what a person had remembered, also encoded."""

import base64
import binascii
import codecs
import re
import unicodedata
from collections.abc import Iterable, Iterator
from urllib.parse import unquote

_MIN_RUN = 16  # letters and digits in a row; a name of a cluster or a city is shorter
_BASE64 = re.compile(r"[A-Za-z0-9+/_-]{16,}={0,2}")
_HEX = re.compile(r"(?:[0-9a-fA-F]{2}){12,}")


def carries_text(outgoing: str, private_texts: Iterable[str], said: str) -> bool:
    """Whether the outgoing text holds a run of a private one, plain or encoded, that people did not say."""
    private_runs: set[str] = set()
    for text in private_texts:
        private_runs |= _find_runs(text)
    private_runs -= _find_runs(said)
    return any(private_runs & _find_runs(variant) for variant in _decode(outgoing))


def _find_runs(text: str) -> set[str]:
    """All runs of letters and digits; a text that is shorter than one is a run itself."""
    letters = "".join(filter(str.isalnum, unicodedata.normalize("NFKC", text).casefold()))
    if not letters:
        return set()
    last_start = max(0, len(letters) - _MIN_RUN)
    return {letters[start : start + _MIN_RUN] for start in range(last_start + 1)}


def _decode(text: str) -> Iterator[str]:
    """The text as it is and as it reads in the usual encodings."""
    yield text
    yield text[::-1]
    yield codecs.encode(text, "rot13")
    yield unquote(text)
    for match in _HEX.finditer(text):
        yield bytes.fromhex(match[0]).decode(errors="replace")
    for match in _BASE64.finditer(text):
        yield _decode_base64(match[0])


def _decode_base64(text: str) -> str:
    characters = text.rstrip("=").replace("-", "+").replace("_", "/")
    padded = characters + "=" * (-len(characters) % 4)
    try:
        return base64.b64decode(padded).decode(errors="replace")
    except (binascii.Error, ValueError):
        return ""
