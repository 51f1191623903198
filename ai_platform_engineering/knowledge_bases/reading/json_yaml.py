"""JSON and YAML as values, without what makes their parsers crash."""

import json
from typing import Any

import yaml

from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DEPTH

_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every value is text: no tags, no merged keys


def load_yaml(text: str) -> Any:
    """The first document of the text, or None. Values are text; aliases make parts of it the same object many
    times over."""
    if _too_deep(text):
        return None
    try:
        return next(yaml.load_all(text, _Loader), None)  # the base loader makes text, lists and mappings only
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def _too_deep(text: str) -> bool:
    """The C parser overflows its stack when it builds deep values; its events come one by one."""
    depth = 0
    try:
        for event in yaml.parse(text, _Loader):
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                return True
    except (yaml.YAMLError, ValueError):
        return True
    return False
