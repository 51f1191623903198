"""Redaction: secrets removed from texts, by their values, by their format, and from URLs."""

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import parse_qsl, unquote, urlsplit

MASK = "***"

SECRET_NAME = re.compile(
    r"key|token|secret|passw|pwd|auth|credential|cookie|session|signature|private|dsn|pat\b|_pat_",
    re.IGNORECASE,
)
# Narrower than the one above: an environment also holds an SSH_AUTH_SOCK and a SESSION_MANAGER.
_SECRET_VARIABLE = re.compile(
    r"(?:key|token|secret|passw(?:or)?d|passphrase|pwd|credentials?|cookie|dsn|(?:^|_)pat)(?:_\d+)?$",
    re.IGNORECASE,
)
_MIN_SECRET_LENGTH = 8  # a shorter value is a word like any other, and hiding it would hide nothing
_URL_USER = re.compile(r"(?<=://)[^\s/?#@\"'<>]{1,2000}(?=@)")
_URL_PARAMETER = re.compile(r"([?&;][^\s=&#\"'<>]{1,200}=)([^\s&#\"'<>]+)")


@dataclass(frozen=True, slots=True)
class SecretFormat:
    """How the secrets of one issuer look."""

    description: str
    prefixes: tuple[str, ...]  # searched first, since most texts hold none
    pattern: re.Pattern[str]

    def may_occur(self, text: str) -> bool:
        return any(prefix in text for prefix in self.prefixes)


def _format(description: str, prefixes: str, pattern: str) -> SecretFormat:
    return SecretFormat(description, tuple(prefixes.split()), re.compile(pattern))


SECRET_FORMATS = (
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
# Providers echo a key shortened, as in `sk-pro***************abcd`; nobody needs the rest of it either.
_SHORTENED_KEY = re.compile(r"(?<![\w-])sk-[\w-]{0,40}\*{3,}[\w-]{0,40}")


@dataclass(frozen=True, slots=True, repr=False)
class Redactor:
    """Removes secrets from texts: the values it was made of, and what has the format of a secret."""

    _pattern: re.Pattern[str] | None = None

    @classmethod
    def from_secrets(cls, secrets: Iterable[str]) -> "Redactor":
        values = {secret for secret in secrets if len(secret) >= _MIN_SECRET_LENGTH}
        if not values:
            return cls()
        # The longest first: one secret may begin with another.
        longest_first = sorted(sorted(values), key=len, reverse=True)
        return cls(re.compile("|".join(map(re.escape, longest_first))))

    @classmethod
    def from_variables(cls, variables: Mapping[str, str]) -> "Redactor":
        """A redactor of the secrets in an environment."""
        return cls.from_secrets(_find_variable_secrets(variables))

    def redact_values(self, text: str) -> str:
        """The text without the values alone, for what a tool returns: a format may be its very subject."""
        if self._pattern:
            return self._pattern.sub(MASK, text)
        return text

    def redact(self, text: str) -> str:
        """The text without values, formats, and secrets in URLs, for errors and what is stored of them."""
        text = _SHORTENED_KEY.sub(MASK, self.redact_values(text))
        for secret_format in SECRET_FORMATS:
            if secret_format.may_occur(text):
                text = secret_format.pattern.sub(MASK, text)
        return mask_urls(text)

    def redact_error(self, error: BaseException) -> None:
        """Redacts the texts of an exception in place: LangGraph stores it as it is."""
        error.args = tuple(self.redact(arg) if isinstance(arg, str) else arg for arg in error.args)
        message = getattr(error, "message", None)
        if isinstance(message, str):
            with contextlib.suppress(AttributeError):  # where it is made of the arguments
                error.message = self.redact(message)  # type: ignore[attr-defined]


def mask_urls(text: str) -> str:
    """The text without users, passwords and secret parameters of its URLs."""
    if "://" not in text:
        return text
    return _URL_PARAMETER.sub(_mask_parameter, _URL_USER.sub(MASK, text))


def find_url_secrets(url: str) -> Iterator[str]:
    """The password and the secret parameters of a URL."""
    try:
        parts = urlsplit(url)
    except ValueError:
        return
    for name, value in parse_qsl(parts.query):
        if SECRET_NAME.search(name):
            yield value
    if parts.password:
        yield parts.password
        yield unquote(parts.password)


def _mask_parameter(match: re.Match[str]) -> str:
    if SECRET_NAME.search(match[1]):
        return f"{match[1]}{MASK}"
    return match[0]


def _find_variable_secrets(variables: Mapping[str, str]) -> Iterator[str]:
    for name, value in variables.items():
        value = value.strip()
        if "://" in value:
            yield from find_url_secrets(value)
        elif _SECRET_VARIABLE.search(name):
            yield value
