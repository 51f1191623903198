"""What the bot may do in which channel: a YAML file that is read again when it changes."""

import logging
import re
from collections.abc import Mapping
from datetime import datetime, time
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

import yaml
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError

log = logging.getLogger(__name__)

REQUESTER, ANYONE = "requester", "anyone"
_APPROVER = re.compile(rf"{REQUESTER}|{ANYONE}|[UWS][A-Z0-9]+|[^@\s]+@[^@\s]+")
_CHANNEL = re.compile(r"[CDG][A-Z0-9]+")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_KEYS = "The keys are defaults, direct_messages and channels."


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{name} is not a time zone such as Europe/Berlin") from None
    return name


def _time(given: object) -> object:
    """YAML reads 22:00 as a number of minutes, and 22:00:00 as one of seconds."""
    if isinstance(given, int) and not isinstance(given, bool) and given >= 60:
        minutes, seconds = (given, 0) if given < 3600 else divmod(given, 60)
        given = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    if not isinstance(given, str) or not _TIME.fullmatch(given):
        raise ValueError("write a time of day such as 22:00")
    return given.zfill(len("00:00:00") if given.count(":") == 2 else len("00:00"))


def _approvers(names: tuple[str, ...]) -> tuple[str, ...]:
    wrong = [name for name in names if not _APPROVER.fullmatch(name)]
    if wrong:
        raise ValueError(
            f"{', '.join(wrong)}: write requester, anyone, a user or group id (U…, S…) or a mail address"
        )
    return names


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class QuietHours(_Strict):
    """From one time of day to another, over midnight where the second is the earlier one."""

    begin: Annotated[time, BeforeValidator(_time)] = Field(alias="from")
    end: Annotated[time, BeforeValidator(_time)] = Field(alias="to")
    timezone: Annotated[str, AfterValidator(_zone)] = "UTC"

    def includes(self, now: datetime) -> bool:
        at = now.astimezone(ZoneInfo(self.timezone)).time()
        over_midnight = self.end <= self.begin
        if over_midnight:
            return at >= self.begin or at < self.end
        return self.begin <= at < self.end


class ChannelConfig(_Strict):
    """What holds in a channel."""

    enabled: bool = True
    agents: tuple[str, ...] | None = None  # not given: all of them
    instructions: str = Field("", max_length=4000)
    approvers: Annotated[tuple[str, ...], AfterValidator(_approvers)] = (REQUESTER,)
    follow_ups: bool = True  # in a thread the bot takes part in, without a mention
    quiet_hours: QuietHours | None = None
    questions_per_hour: int = Field(60, ge=1)  # of one user
    bots: tuple[str, ...] = ()  # ids of other bots that are answered
    file_bytes: int = Field(200_000, ge=0)  # of all text files of a message

    def scope(self) -> dict[str, Any] | None:
        """What a question from here may use, for the supervisor."""
        if self.agents is None and not self.instructions.strip():
            return None
        return {
            "agents": list(self.agents) if self.agents is not None else None,
            "instructions": self.instructions.strip() or None,
        }


class _Defaults(_Strict):
    defaults: ChannelConfig


class BotConfig(_Strict):
    defaults: ChannelConfig = ChannelConfig()
    direct_messages: ChannelConfig = ChannelConfig()
    channels: Mapping[str, ChannelConfig] = {}

    def for_channel(self, channel: str) -> ChannelConfig:
        if channel in self.channels:
            return self.channels[channel]
        if channel.startswith("D"):
            return self.direct_messages
        return self.defaults


def read_config(path: Path) -> BotConfig:
    """Raises ConfigurationError, which names what is wrong."""
    try:
        read = yaml.safe_load(path.read_text(encoding="utf-8")) or {}
    except OSError as error:
        raise ConfigurationError(
            f"SLACK_INTEGRATION_BOT_CONFIG: {path} cannot be read: {error.strerror}."
        ) from None
    except (UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"SLACK_INTEGRATION_BOT_CONFIG: {path} is not valid YAML: {error}") from None
    if not isinstance(read, dict):
        raise ConfigurationError(f"SLACK_INTEGRATION_BOT_CONFIG: {path} is not a mapping. {_KEYS}")
    try:
        return BotConfig.model_validate(_with_defaults(read))
    except ValidationError as error:
        raise ConfigurationError(f"SLACK_INTEGRATION_BOT_CONFIG: {path}: {_wrong(error)}. {_KEYS}") from None
    except ValueError as error:
        raise ConfigurationError(f"SLACK_INTEGRATION_BOT_CONFIG: {path}: {error}") from None


def _with_defaults(read: dict[str, Any]) -> dict[str, Any]:
    """A channel has what it says, and of the rest what the defaults say. Raises ValueError."""
    defaults, given = _mapping(read.get("defaults"), "defaults"), _mapping(read.get("channels"), "channels")
    _Defaults.model_validate({"defaults": defaults})
    if unknown := [str(name) for name in given if not _CHANNEL.fullmatch(str(name))]:
        raise ValueError(
            f"channels: {', '.join(unknown)}: write the id of a channel (C…), which its details in Slack show at the end."
        )
    channels = {str(name): {**defaults, **_mapping(one, f"channels.{name}")} for name, one in given.items()}
    direct = {**defaults, **_mapping(read.get("direct_messages"), "direct_messages")}
    return {**read, "defaults": defaults, "channels": channels, "direct_messages": direct}


def _mapping(given: object, where: str) -> dict[str, Any]:
    if given is not None and not isinstance(given, dict):
        raise ValueError(f"{where} is not a mapping.")
    return given or {}


def _wrong(error: ValidationError) -> str:
    found = error.errors(include_input=False, include_url=False)
    return "; ".join(
        f"{'.'.join(map(str, one['loc']))}: {one['msg'].replace('a valid tuple', 'a list')}" for one in found
    )


class ReloadableConfig:
    """The configuration as it is now. A file that has become wrong is told of, and what held before goes on."""

    def __init__(self, path: Path | None) -> None:
        """Raises ConfigurationError when the file is wrong from the start."""
        self._path, self._stamp = path, self._looked(path)
        self._config = read_config(path) if path is not None else BotConfig()

    def for_channel(self, channel: str) -> ChannelConfig:
        self.reload()
        return self._config.for_channel(channel)

    def reload(self) -> None:
        """Reads the file again when it has changed."""
        stamp = self._looked(self._path)
        if self._path is None or stamp == self._stamp:
            return
        self._stamp = stamp
        try:
            self._config = read_config(self._path)
            log.info("the configuration of the channels was read again")
        except ConfigurationError as error:
            log.error("%s What held before goes on.", error)

    @staticmethod
    def _looked(path: Path | None) -> tuple[int, int] | None:
        try:
            found = path.stat() if path is not None else None
        except OSError:
            return None
        if found is not None:
            return (found.st_mtime_ns, found.st_size)
        return None
