"""JSON and YAML as values, without what makes their parsers crash."""

import json
from typing import Any

import yaml

from ai_platform_engineering.files.yaml_limits import YamlLimitExceeded, YamlLimits, check_yaml
from ai_platform_engineering.knowledge_bases.reading.reading_limits import MAX_DEPTH

# A generated description of an API is long, and its aliases are few.
_LIMITS = YamlLimits(chars=20_000_000, depth=MAX_DEPTH, nodes=2_000_000, scalar_chars=5_000_000)
_Loader: Any = getattr(yaml, "CBaseLoader", yaml.BaseLoader)  # every value is text: no tags, no merged keys


def load_yaml(text: str) -> Any:
    """The first document of the text, or None. Values are text; aliases make parts of it the same object many
    times over."""
    try:
        check_yaml(text, _LIMITS)
        return next(yaml.load_all(text, _Loader), None)  # the base loader makes text, lists and mappings only
    except (yaml.YAMLError, YamlLimitExceeded, ValueError, RecursionError):
        return None


def load_json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
