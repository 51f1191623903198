"""Finds secrets by their format. They are never quoted, also not in findings about something else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_MIN_DISTINCT = 9  # characters; a placeholder such as ghp_xxxx has fewer


@dataclass(frozen=True, slots=True)
class _SecretFormat:
    description: str
    prefixes: tuple[str, ...]  # searched first, since most texts hold none
    pattern: re.Pattern[str]

    def may_occur(self, text: str) -> bool:
        return any(prefix in text for prefix in self.prefixes)


def _format(description: str, prefixes: str, pattern: str) -> _SecretFormat:
    return _SecretFormat(description, tuple(prefixes.split()), re.compile(pattern))


_FORMATS = (
    _format("an AWS access key", "AKIA ASIA", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _format("a GitHub token", "ghp_ gho_ ghs_ ghu_ ghr_", r"\bgh[opsur]_[A-Za-z0-9]{30,}"),
    _format("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    _format("a GitLab token", "glpat- gldt- glrt-", r"\bgl(?:pat|dt|rt)-[\w-]{20,}"),
    _format("a Slack token", "xox xapp-", r"\b(?:xox[abeoprs]-|xapp-\d-)[\w-]{10,}"),
    _format("a Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{16,}"),
    _format(
        "a key of a model provider", "sk-", r"(?<![\w-])sk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9][\w-]{30,}"
    ),
    _format("a Google API key", "AIza", r"\bAIza[\w-]{35}\b"),
    _format("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    _format("a SendGrid key", "SG.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    _format("a storage key", "AccountKey=", r"\bAccountKey=[A-Za-z0-9+/=]{40,}"),
    _format("a signed token", "eyJ", r"\beyJ[\w-]{15,2000}\.eyJ[\w-]{15,}\.[\w-]{20,}"),
    _format("a private key", "-----BEGIN", r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
)


@dataclass(frozen=True, slots=True)
class SecretMatch:
    position: int
    end: int
    description: str


def find_secrets(text: str) -> Iterator[SecretMatch]:
    for secret_format in _FORMATS:
        if not secret_format.may_occur(text):
            continue
        for match in secret_format.pattern.finditer(text):
            if len(set(match[0])) >= _MIN_DISTINCT and "EXAMPLE" not in match[0]:
                yield SecretMatch(match.start(), match.end(), secret_format.description)


def mask_secrets(text: str) -> str:
    """The text with asterisks for everything in the format of a secret; positions stay."""
    for secret_format in _FORMATS:
        if secret_format.may_occur(text):
            text = secret_format.pattern.sub(lambda match: "*" * len(match[0]), text)
    return text
