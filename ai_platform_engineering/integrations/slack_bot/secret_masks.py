"""Masks for secrets in tool arguments: hidden from people who approve, restored when they edit."""

import re
from collections.abc import Mapping
from typing import Any

_MASK = "•••"
_SECRET_NAME = re.compile(
    r"password|passwd|passphrase|(?<![a-z])pass(?![a-z])|secret|token|api[-_]?key|private[-_]?key"
    r"|credential|authorization|cookie",
    re.IGNORECASE,
)


def mask_secrets(value: Any) -> Any:
    """Arguments as people may see them: values whose name says that they are secret are masked."""
    if isinstance(value, list):
        return [mask_secrets(item) for item in value]
    if not isinstance(value, Mapping):
        return value
    masked = {}
    for name, item in value.items():
        if _is_secret(str(name), item):
            masked[name] = _MASK
        else:
            masked[name] = mask_secrets(item)
    return masked


def _is_secret(name: str, value: Any) -> bool:
    if value in (None, "") or isinstance(value, bool):
        return False
    return _SECRET_NAME.search(name) is not None


def restore_secrets(edited: Any, original: Any) -> Any:
    """Edited arguments with the original values in the place of masks."""
    if edited == _MASK:
        if original is None:
            return edited
        return original
    if isinstance(edited, Mapping):
        originals: Mapping[Any, Any] = {}
        if isinstance(original, Mapping):
            originals = original
        return {name: restore_secrets(item, originals.get(name)) for name, item in edited.items()}
    if isinstance(edited, list) and isinstance(original, list) and len(edited) == len(original):
        return [restore_secrets(item, other) for item, other in zip(edited, original, strict=True)]
    return edited
