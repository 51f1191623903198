"""Slack's users as principals, and who may answer the requests of a run."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.integrations.slack_bot.blocks import escape_line
from ai_platform_engineering.integrations.slack_bot.channel_config import ANYONE, REQUESTER
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackApi, SlackError

log = logging.getLogger(__name__)

_PROFILE_TTL = 3600.0  # seconds
_GROUP_TTL = 300.0


@dataclass(frozen=True, slots=True)
class SlackUser:
    user_id: str
    principal: str
    name: str
    email: str = ""


@dataclass(slots=True)
class UserDirectory:
    """The users and user groups of the workspace, cached for a while."""

    slack: SlackApi
    _users: dict[str, tuple[float, SlackUser]] = field(default_factory=dict)
    _groups: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)

    async def find_user(self, team: str, user_id: str) -> SlackUser:
        """The user with this id; the principal is the mail address of the profile.

        So a person is the same one in every client. Users of another workspace, and those without an address,
        go by the ids of Slack. Nothing that is written in a message counts.
        """
        now = self.slack.rate_limiter.clock.now()
        if user_id in self._users:
            cached_at, user = self._users[user_id]
            if now - cached_at < _PROFILE_TTL:
                return user
        info = await self._fetch_user_info(user_id)
        user = _parse_user(info, team, user_id)
        if info:
            self._users[user_id] = now, user
        return user

    async def _fetch_user_info(self, user_id: str) -> dict[str, Any]:
        try:
            response = await self.slack.call("users.info", {"user": user_id})
        except (SlackError, DeliveryUnknown) as error:
            log.warning("%s", error)
            return {}
        return dict((response or {}).get("user") or {})

    def format_mention(self, principal: str) -> str:
        """The principal as a mention, or as text when it is no user of Slack."""
        user_id = ""
        for _, user in self._users.values():
            if user.principal == principal:
                user_id = user.user_id
                break
        if not user_id and principal.startswith("slack:"):
            user_id = principal.rpartition(":")[2]
        if user_id.isalnum():
            return f"<@{user_id}>"
        return escape_line(principal) or "somebody"

    async def may_answer(self, approvers: Sequence[str], user: SlackUser, requester: str) -> bool:
        """Whether a user is among the approvers of a channel; `requester` is the id of who asked the
        question.
        """
        if ANYONE in approvers or user.user_id in approvers:
            return True
        if REQUESTER in approvers and user.user_id == requester:
            return True
        if user.email and user.email in {name.lower() for name in approvers}:
            return True
        for group in approvers:
            if group[0] == "S" and group.isalnum() and user.user_id in await self._find_members(group):
                return True
        return False

    async def _find_members(self, group: str) -> frozenset[str]:
        now = self.slack.rate_limiter.clock.now()
        if group in self._groups:
            cached_at, members = self._groups[group]
            if now - cached_at < _GROUP_TTL:
                return members
        try:
            response = await self.slack.call("usergroups.users.list", {"usergroup": group}) or {}
        except (SlackError, DeliveryUnknown) as error:
            log.warning("%s Nobody counts as a member of %s.", error, group)
            return frozenset()
        members = frozenset(map(str, response.get("users") or ()))
        self._groups[group] = now, members
        return members


def _parse_user(info: Mapping[str, Any], team: str, user_id: str) -> SlackUser:
    profile: Mapping[str, Any] = info.get("profile") or {}
    email = ""
    if _is_member(info, team):
        email = str(profile.get("email") or "").lower()
    names = (profile.get("display_name"), profile.get("real_name"), info.get("real_name"), info.get("name"))
    name = next(filter(None, names), user_id)
    return SlackUser(user_id, email or f"slack:{team}:{user_id}", str(name), email)


def _is_member(info: Mapping[str, Any], team: str) -> bool:
    """Whether it is a person of this workspace."""
    if info.get("is_stranger") or info.get("is_bot"):
        return False
    return info.get("team_id") in (None, team)
