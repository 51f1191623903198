"""The reports of all agents on one service, and what follows from them together."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.systems import (
    ARGOCD,
    CONFLUENCE,
    GITHUB,
    JIRA,
    KUBERNETES,
    PAGERDUTY,
    SYSTEMS,
)

_MISSING_SETTING = re.compile(r"required setting (?P<name>[A-Z][A-Z0-9_]+) is not set")
_PROJECT = re.compile(r"^(?P<key>[A-Z][A-Z0-9]+)-\d+\b")
_EMPTY = Report()


@dataclass(frozen=True, slots=True)
class Evidence:
    """Reports by agent. Nothing here is known otherwise: what no report says is not concluded."""

    service: str
    reports: Mapping[str, Report]

    @property
    def argocd(self) -> Report:
        return self.reports.get(ARGOCD.agent, _EMPTY)

    @property
    def kubernetes(self) -> Report:
        return self.reports.get(KUBERNETES.agent, _EMPTY)

    @property
    def github(self) -> Report:
        return self.reports.get(GITHUB.agent, _EMPTY)

    @property
    def pagerduty(self) -> Report:
        return self.reports.get(PAGERDUTY.agent, _EMPTY)

    @property
    def jira(self) -> Report:
        return self.reports.get(JIRA.agent, _EMPTY)

    @property
    def confluence(self) -> Report:
        return self.reports.get(CONFLUENCE.agent, _EMPTY)

    @property
    def is_failing(self) -> bool | None:
        """Whether a system says that the service fails; None when none says anything."""
        if self.argocd.get("health") == "Degraded" or self.kubernetes.get("failing pod"):
            return True
        if self.argocd.get("health") == "Healthy" or self.kubernetes.get("all ready"):
            return False
        return None

    @property
    def missing_setting(self) -> str:
        """The setting that the containers miss, by their logs; empty when they do not say so."""
        match = _MISSING_SETTING.search(self.kubernetes.get("last log line"))
        return match["name"] if match else ""

    @property
    def change_explains_it(self) -> bool:
        """Whether the commit begins to require the missing setting and the manifest does not set it."""
        setting = self.missing_setting
        if not setting or setting not in self.github.get_all("added setting"):
            return False
        return bool(self.github.get("manifest")) and setting not in self.github.get_all("manifest sets")

    @property
    def version(self) -> str:
        return self.argocd.get("version") or self.argocd.get("revision")[:9]

    @property
    def missing(self) -> list[tuple[str, str]]:
        """What could not be seen, with the system's title."""
        rows: list[tuple[str, str]] = []
        for system in SYSTEMS:
            report = self.reports.get(system.agent)
            if report is not None:
                rows += [(system.title, what) for what in report.missing]
        return rows

    def find_project(self) -> str:
        """The Jira project that the runbook names, or that of the tickets that mention the service."""
        if self.confluence.get("jira project"):
            return self.confluence.get("jira project")
        for ticket in self.jira.get_all("ticket"):
            match = _PROJECT.match(ticket)
            if match is not None:
                return match["key"]
        return ""
