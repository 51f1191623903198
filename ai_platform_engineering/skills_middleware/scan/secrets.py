"""Secrets by their shape. They are never quoted, also not in findings about something else."""

import re
from collections.abc import Iterator
from dataclasses import dataclass

_FEW = 8  # different characters; a placeholder such as ghp_xxxx has fewer


@dataclass(frozen=True, slots=True)
class _Shape:
    """`begins` is looked for first: most texts hold none."""

    what: str
    begins: tuple[str, ...]
    pattern: re.Pattern[str]


def _shape(what: str, begins: str, pattern: str) -> _Shape:
    return _Shape(what, tuple(begins.split()), re.compile(pattern))


_SHAPES = (
    _shape("an AWS access key", "AKIA ASIA", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
    _shape("a GitHub token", "ghp_ gho_ ghs_ ghu_ ghr_", r"\bgh[opsur]_[A-Za-z0-9]{30,}"),
    _shape("a GitHub token", "github_pat_", r"\bgithub_pat_[A-Za-z0-9_]{22,}"),
    _shape("a GitLab token", "glpat- gldt- glrt-", r"\bgl(?:pat|dt|rt)-[\w-]{20,}"),
    _shape("a Slack token", "xox xapp-", r"\b(?:xox[abeoprs]-|xapp-\d-)[\w-]{10,}"),
    _shape("a Slack webhook", "hooks.slack.com", r"hooks\.slack\.com/services/T\w{6,}/B\w{6,}/\w{16,}"),
    _shape("a key of a model provider", "sk-", r"(?<![\w-])sk-(?:ant-|proj-|svcacct-)?[A-Za-z0-9][\w-]{30,}"),
    _shape("a Google API key", "AIza", r"\bAIza[\w-]{35}\b"),
    _shape("an npm token", "npm_", r"\bnpm_[A-Za-z0-9]{36}\b"),
    _shape("a SendGrid key", "SG.", r"\bSG\.[\w-]{16,}\.[\w-]{16,}"),
    _shape("a storage key", "AccountKey=", r"\bAccountKey=[A-Za-z0-9+/=]{40,}"),
    _shape("a signed token", "eyJ", r"\beyJ[\w-]{15,2000}\.eyJ[\w-]{15,}\.[\w-]{20,}"),
    _shape("a private key", "-----BEGIN", r"-----BEGIN (?:[A-Z]+ ){0,3}PRIVATE KEY(?: BLOCK)?-----"),
)


@dataclass(frozen=True, slots=True)
class SecretMatch:
    position: int
    end: int
    description: str


def find_secrets(text: str) -> Iterator[SecretMatch]:
    for shape in _SHAPES:
        if any(begin in text for begin in shape.begins):
            for match in shape.pattern.finditer(text):
                if len(set(match[0])) > _FEW and "EXAMPLE" not in match[0]:
                    yield SecretMatch(match.start(), match.end(), shape.what)


def mask_secrets(text: str) -> str:
    """The text with every shape of a secret covered; positions stay."""
    for shape in _SHAPES:
        if any(begin in text for begin in shape.begins):
            text = shape.pattern.sub(lambda match: "*" * len(match[0]), text)
    return text
