"""Every setting for people: its value, without secrets, and where it comes from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import SecretStr

from ai_platform_engineering.core.legacy_variables import translate_legacy_variables
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.setting_types import SettingsGroup
from ai_platform_engineering.core.settings import Settings


class SettingRow(NamedTuple):
    """A setting for people; of a secret only that it is set."""

    name: str
    value: str
    source: str  # `environment`, `.env`, `default`, or the legacy variable that it is read from


def describe_settings(
    settings: Settings, variables: Mapping[str, str], from_file: Mapping[str, str]
) -> list[SettingRow]:
    """Every setting with its value and its source."""
    legacy_names = translate_legacy_variables(variables).sources
    rows: list[SettingRow] = []
    for name in type(settings).model_fields:
        group: SettingsGroup = getattr(settings, name)
        for field, info in type(group).model_fields.items():
            variable = info.alias or field
            source = "default"
            if variable in legacy_names:
                source = legacy_names[variable]
            elif variables.get(variable, "").strip():
                source = ".env" if from_file.get(variable) == variables.get(variable) else "environment"
            rows.append(SettingRow(variable, _describe_value(getattr(group, field)), source))
    return rows


def _describe_value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "set"
    if value is None:
        return ""
    return mask_urls(str(value))
