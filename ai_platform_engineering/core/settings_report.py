"""Every setting for people: its value, without secrets, and where it comes from."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from pydantic import SecretStr

from ai_platform_engineering.core.legacy_variables import translate_legacy_variables
from ai_platform_engineering.core.redaction import mask_urls
from ai_platform_engineering.core.setting_types import SettingsGroup
from ai_platform_engineering.core.settings import Settings, list_groups


class SettingRow(NamedTuple):
    """A setting for people; of a secret only that it is set."""

    name: str
    value: str
    source: str  # `environment`, `.env`, `default`, or the legacy variable that it is read from
    group: str = ""
    is_secret: bool = False


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
            source = legacy_names.get(variable) or find_source(variable, variables, from_file)
            value = _describe_value(getattr(group, field))
            is_secret = "SecretStr" in str(info.annotation)
            rows.append(SettingRow(variable, value, source, name, is_secret))
    return rows


def find_source(variable: str, variables: Mapping[str, str], from_file: Mapping[str, str]) -> str:
    """Where a variable is set: in the environment, in `.env`, or nowhere."""
    if not variables.get(variable, "").strip():
        return "default"
    if from_file.get(variable) == variables.get(variable):
        return ".env"
    return "environment"


def _describe_value(value: Any) -> str:
    if isinstance(value, SecretStr):
        return "set"
    if value is None:
        return ""
    return mask_urls(str(value))


def list_setting_variables(group: type[SettingsGroup] | None = None) -> frozenset[str]:
    """The variables of a group of settings, or of all."""
    if group is not None:
        return frozenset(info.alias or field for field, info in group.model_fields.items())
    names: frozenset[str] = frozenset()
    for _, group_type in list_groups():
        names |= list_setting_variables(group_type)
    return names
