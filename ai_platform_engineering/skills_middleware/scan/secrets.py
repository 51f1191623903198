"""Finds secrets by their format. They are never quoted, also not in findings about something else."""

from collections.abc import Iterator
from dataclasses import dataclass

from ai_platform_engineering.core.redaction import SECRET_FORMATS

_MIN_DISTINCT = 9  # characters; a placeholder such as ghp_xxxx has fewer


@dataclass(frozen=True, slots=True)
class SecretMatch:
    position: int
    end: int
    description: str


def find_secrets(text: str) -> Iterator[SecretMatch]:
    for secret_format in SECRET_FORMATS:
        if not secret_format.may_occur(text):
            continue
        for match in secret_format.pattern.finditer(text):
            if len(set(match[0])) >= _MIN_DISTINCT and "EXAMPLE" not in match[0]:
                yield SecretMatch(match.start(), match.end(), secret_format.description)


def mask_secrets(text: str) -> str:
    """The text with asterisks for everything in the format of a secret; positions stay."""
    for secret_format in SECRET_FORMATS:
        if secret_format.may_occur(text):
            text = secret_format.pattern.sub(lambda match: "*" * len(match[0]), text)
    return text
