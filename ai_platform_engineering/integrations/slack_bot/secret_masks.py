"""Masks for secrets in tool arguments: hidden from a channel that approves a call, restored on an edit.

What is masked is decided by the argument's name alone, and never by a part of a word: `access_token` is a
secret, `max_tokens` and `password_note` are not. A mask says that it is one, how long the value is, and has a
digest, so that two values look different.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping
from typing import Any

# Names that are secret as a whole, and endings that make a name secret, in words: `githubAccessToken` and
# `GITHUB-ACCESS-TOKEN` end with `access token`. Other tokens, keys and notes are shown: `page_token`, `key`.
SECRET_NAMES = frozenset({"token", "pass", "pat", "jwt", "bearer"})
SECRET_ENDINGS = (
    ("password",),
    ("passwd",),
    ("pwd",),
    ("passphrase",),
    ("passcode",),
    ("secret",),
    ("credential",),
    ("credentials",),
    ("authorization",),
    ("cookie",),
    ("apikey",),
    ("api", "key"),
    ("access", "key"),
    ("private", "key"),
    ("secret", "key"),
    ("signing", "key"),
    ("encryption", "key"),
    ("access", "token"),
    ("api", "token"),
    ("app", "token"),
    ("auth", "token"),
    ("bearer", "token"),
    ("bot", "token"),
    ("deploy", "token"),
    ("github", "token"),
    ("gitlab", "token"),
    ("id", "token"),
    ("oauth", "token"),
    ("refresh", "token"),
    ("secret", "token"),
    ("service", "token"),
    ("session", "token"),
    ("user", "token"),
)

# A digest under a key of this process: it tells values apart, and nobody can try guesses against it.
_DIGEST_KEY = secrets.token_bytes(32)
_DIGEST_CHARS = 8
_MASK = re.compile(r"•••• \(masked: [0-9]+ characters, [0-9a-f]{8}\)")
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+|[^\W\d_A-Za-z]+")


class MaskChanged(ValueError):
    """An edit holds a mask that stands for no value of the call."""


def mask_secrets(value: Any) -> Any:
    """Arguments as a channel may see them: values whose name says that they are secret are masked."""
    if isinstance(value, list):
        return [mask_secrets(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    return {name: _mask_named(str(name), item) for name, item in value.items()}


def is_secret_name(name: str) -> bool:
    """Whether an argument of this name holds a secret."""
    words = tuple(word.lower() for word in _WORD.findall(name))
    if len(words) == 1 and words[0] in SECRET_NAMES:
        return True
    return any(words[-len(ending) :] == ending for ending in SECRET_ENDINGS)


def restore_secrets(edited: Any, original: Any) -> Any:
    """Edited arguments with the original values in the place of masks. Raises MaskChanged."""
    return _restore("", edited, original)


def _mask_named(name: str, value: Any) -> Any:
    """The value of an argument, masked where its name says that it is secret.

    An object is never masked as a whole: what is inside has names of its own.
    """
    if not is_secret_name(name) or isinstance(value, Mapping):
        return mask_secrets(value)
    if isinstance(value, list):
        return [_mask_named(name, item) for item in value]
    if value in (None, "") or isinstance(value, bool):
        return value
    return _mask(value)


def _mask(value: Any) -> str:
    text = str(value)
    digest = hmac.new(_DIGEST_KEY, text.encode("utf-8", "surrogatepass"), hashlib.sha256).hexdigest()
    return f"•••• (masked: {len(text)} characters, {digest[:_DIGEST_CHARS]})"


def _restore(name: str, edited: Any, original: Any) -> Any:
    if isinstance(edited, Mapping):
        originals: Mapping[Any, Any] = original if isinstance(original, Mapping) else {}
        return {key: _restore(str(key), item, originals.get(key)) for key, item in edited.items()}
    if isinstance(edited, list):
        return _restore_list(name, edited, original)
    if not isinstance(edited, str) or not _MASK.search(edited) or edited == original:
        return edited
    if _mask_named(name, original) == edited:
        return original
    raise MaskChanged(
        f"{name or 'A value'} holds a mask that stands for nothing here. Leave a masked value as it was, "
        "or write another value in its place."
    )


def _restore_list(name: str, edited: list[Any], original: Any) -> list[Any]:
    originals: list[Any] = [None] * len(edited)
    if isinstance(original, list) and len(original) == len(edited):
        originals = original
    return [_restore(name, item, other) for item, other in zip(edited, originals, strict=True)]
