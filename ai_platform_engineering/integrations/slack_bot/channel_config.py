"""The configuration of channels: a YAML file that is read again when it changes."""

import logging
import re
from collections.abc import Mapping
from datetime import datetime, time
from pathlib import Path
from typing import Annotated, Any
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from ai_platform_engineering.core.errors import ConfigurationError
from ai_platform_engineering.files.yaml_file import YamlFileError, load_yaml

log = logging.getLogger(__name__)

REQUESTER = "requester"
ANYONE = "anyone"
_APPROVER = re.compile(rf"{REQUESTER}|{ANYONE}|[UWS][A-Z0-9]+|[^@\s]+@[^@\s]+")
_CHANNEL = re.compile(r"[CDG][A-Z0-9]+")
_TIME = re.compile(r"\d{1,2}:\d\d(:\d\d)?")
_KEYS = "The keys are defaults, direct_messages and channels."


def _check_time_zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError):
        raise ValueError(f"{name} is not a time zone such as Europe/Berlin") from None
    return name


def _parse_time(value: object) -> object:
    """A time of day as text for pydantic: YAML reads 22:00 as a number of minutes, 22:00:00 as one of
    seconds.
    """
    if isinstance(value, int) and not isinstance(value, bool) and value >= 60:
        minutes = value
        seconds = 0
        if value >= 3600:
            minutes, seconds = divmod(value, 60)
        value = f"{minutes // 60:02}:{minutes % 60:02}:{seconds:02}"
    if not isinstance(value, str) or not _TIME.fullmatch(value):
        raise ValueError("write a time of day such as 22:00")
    if value.count(":") == 2:
        return value.zfill(len("00:00:00"))
    return value.zfill(len("00:00"))


def _check_approvers(names: tuple[str, ...]) -> tuple[str, ...]:
    unknown = [name for name in names if not _APPROVER.fullmatch(name)]
    if unknown:
        raise ValueError(
            f"{', '.join(unknown)}: write requester, anyone, a user or group id (U…, S…) or a mail address"
        )
    return names


class _Strict(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)


class QuietHours(_Strict):
    """From one time of day to another, over midnight where the second is the earlier one."""

    begin: Annotated[time, BeforeValidator(_parse_time)] = Field(alias="from")
    end: Annotated[time, BeforeValidator(_parse_time)] = Field(alias="to")
    timezone: Annotated[str, AfterValidator(_check_time_zone)] = "UTC"

    def includes(self, now: datetime) -> bool:
        local_time = now.astimezone(ZoneInfo(self.timezone)).time()
        over_midnight = self.end <= self.begin
        if over_midnight:
            return local_time >= self.begin or local_time < self.end
        return self.begin <= local_time < self.end


class ChannelConfig(_Strict):
    """The configuration of a channel."""

    enabled: bool = True
    agents: tuple[str, ...] | None = None  # not given: all of them
    instructions: str = Field("", max_length=4000)
    approvers: Annotated[tuple[str, ...], AfterValidator(_check_approvers)] = (REQUESTER,)
    follow_ups: bool = True  # in a thread the bot takes part in, without a mention
    quiet_hours: QuietHours | None = None
    questions_per_hour: int = Field(60, ge=1)  # of one user
    bots: tuple[str, ...] = ()  # ids of other bots that are answered
    file_bytes: int = Field(200_000, ge=0)  # of all text files of a message

    def scope(self) -> dict[str, Any] | None:
        """The agents and instructions for a question from this channel, as the supervisor takes them."""
        if self.agents is None and not self.instructions.strip():
            return None
        agents = None
        if self.agents is not None:
            agents = list(self.agents)
        return {"agents": agents, "instructions": self.instructions.strip() or None}


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
    """The configuration in a YAML file. Raises ConfigurationError, which names what is wrong."""
    try:
        document = load_yaml(path) or {}
    except YamlFileError as error:
        raise _config_error(path, f" {error}.") from None
    if not isinstance(document, dict):
        raise _config_error(path, f" is not a mapping. {_KEYS}")
    try:
        return BotConfig.model_validate(_apply_defaults(document))
    except ValidationError as error:
        raise _config_error(path, f": {_describe_errors(error)}. {_KEYS}") from None
    except ValueError as error:
        raise _config_error(path, f": {error}") from None


def _config_error(path: Path, problem: str) -> ConfigurationError:
    return ConfigurationError(f"SLACK_INTEGRATION_BOT_CONFIG: {path}{problem}")


def _apply_defaults(document: dict[str, Any]) -> dict[str, Any]:
    """The document with the defaults filled in for each channel and direct messages. Raises ValueError."""
    defaults = _check_mapping(document.get("defaults"), "defaults")
    channels = _check_mapping(document.get("channels"), "channels")
    _Defaults.model_validate({"defaults": defaults})
    unknown = [str(name) for name in channels if not _CHANNEL.fullmatch(str(name))]
    if unknown:
        raise ValueError(
            f"channels: {', '.join(unknown)}: write the id of a channel (C…), "
            "which its details in Slack show at the end."
        )
    channels_with_defaults = {}
    for name, channel in channels.items():
        channels_with_defaults[str(name)] = defaults | _check_mapping(channel, f"channels.{name}")
    direct_messages = defaults | _check_mapping(document.get("direct_messages"), "direct_messages")
    return {
        **document,
        "defaults": defaults,
        "channels": channels_with_defaults,
        "direct_messages": direct_messages,
    }


def _check_mapping(value: object, key: str) -> dict[str, Any]:
    if value is not None and not isinstance(value, dict):
        raise ValueError(f"{key} is not a mapping.")
    return value or {}


def _describe_errors(error: ValidationError) -> str:
    problems = []
    for details in error.errors(include_input=False, include_url=False):
        location = ".".join(map(str, details["loc"]))
        problems.append(f"{location}: {details['msg'].replace('a valid tuple', 'a list')}")
    return "; ".join(problems)


class ReloadableConfig:
    """The configuration that holds now; read again when the file changes.

    When the changed file is wrong, that is logged, and the configuration before it still holds.
    """

    def __init__(self, path: Path | None) -> None:
        """Raises ConfigurationError when the file is wrong from the start."""
        self._path = path
        self._file_version = _file_version(path)
        self._config = BotConfig()
        if path is not None:
            self._config = read_config(path)

    def for_channel(self, channel: str) -> ChannelConfig:
        self.reload()
        return self._config.for_channel(channel)

    def reload(self) -> None:
        """Reads the file again when it has changed."""
        file_version = _file_version(self._path)
        if self._path is None or file_version == self._file_version:
            return
        self._file_version = file_version
        try:
            self._config = read_config(self._path)
            log.info("the channel configuration was reloaded")
        except ConfigurationError as error:
            log.error("%s The previous configuration stays in force.", error)


def _file_version(path: Path | None) -> tuple[int, int] | None:
    """Changes whenever the file changes; None when there is none."""
    if path is None:
        return None
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_mtime_ns, status.st_size
