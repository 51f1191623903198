"""Who is who: users of Slack as principals, and who may answer what a run asks."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from ai_platform_engineering.integrations.slack_bot.blocks import escape_line
from ai_platform_engineering.integrations.slack_bot.channel_config import ANYONE, REQUESTER
from ai_platform_engineering.integrations.slack_bot.web_api import DeliveryUnknown, SlackApi, SlackError

log = logging.getLogger(__name__)

_KEPT = 3600.0  # seconds that a profile counts as known
_GROUP_KEPT = 300.0


@dataclass(frozen=True, slots=True)
class SlackUser:
    user_id: str
    principal: str
    name: str
    email: str = ""


@dataclass(slots=True)
class UserDirectory:
    slack: SlackApi
    _known: dict[str, tuple[float, SlackUser]] = field(default_factory=dict)
    _groups: dict[str, tuple[float, frozenset[str]]] = field(default_factory=dict)

    async def find_user(self, team: str, user: str) -> SlackUser:
        """By the mail address of their profile, so that a person is the same one everywhere. Somebody of another workspace, or without
        an address, goes by the ids of Slack. Never by anything that is written in a message."""
        now = self.slack.rate_limiter.clock.now()
        if user in self._known and now - self._known[user][0] < _KEPT:
            return self._known[user][1]
        found = await self._profile(user)
        profile: dict[str, Any] = found.get("profile") or {}
        own = (
            found.get("team_id") in (None, team) and not found.get("is_stranger") and not found.get("is_bot")
        )
        email = str(profile.get("email") or "").lower() if own else ""
        name = str(
            profile.get("display_name")
            or profile.get("real_name")
            or found.get("real_name")
            or found.get("name")
            or user
        )
        person = SlackUser(user, email or f"slack:{team}:{user}", name, email)
        if found:
            self._known[user] = now, person
        return person

    async def _profile(self, user: str) -> dict[str, Any]:
        try:
            answer = await self.slack.call("users.info", {"user": user})
        except (SlackError, DeliveryUnknown) as error:
            log.warning("%s", error)
            return {}
        return dict((answer or {}).get("user") or {})

    def format_mention(self, principal: str) -> str:
        """A principal for people in Slack."""
        known = next(
            (person.user_id for _, person in self._known.values() if person.principal == principal), None
        )
        if known is None and principal.startswith("slack:"):
            known = principal.rpartition(":")[2]
        if known and known.isalnum():
            return f"<@{known}>"
        return escape_line(principal) or "somebody"

    async def may_answer(self, approvers: Sequence[str], person: SlackUser, requester: str) -> bool:
        """`requester` is the user who asked the question."""
        if ANYONE in approvers or (REQUESTER in approvers and person.user_id == requester):
            return True
        if person.user_id in approvers or (
            person.email and person.email in {name.lower() for name in approvers}
        ):
            return True
        for group in approvers:
            if group[0] == "S" and group.isalnum() and person.user_id in await self._members(group):
                return True
        return False

    async def _members(self, group: str) -> frozenset[str]:
        now = self.slack.rate_limiter.clock.now()
        if group in self._groups and now - self._groups[group][0] < _GROUP_KEPT:
            return self._groups[group][1]
        try:
            answer = await self.slack.call("usergroups.users.list", {"usergroup": group}) or {}
        except (SlackError, DeliveryUnknown) as error:
            log.warning("%s Nobody counts as a member of %s.", error, group)
            return frozenset()
        members = frozenset(map(str, answer.get("users") or ()))
        self._groups[group] = now, members
        return members
