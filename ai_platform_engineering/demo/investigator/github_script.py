"""What the scripted investigator does as the GitHub agent."""

import re
from typing import Any

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun, UsableRule
from ai_platform_engineering.models.offline.router_reply import RoutedCall

_SETTING = re.compile(r"\b[A-Z][A-Z0-9]+(?:_[A-Z0-9]+)+\b")
_MANIFEST = "deploy/deployment.yaml"


def investigate(run: ScriptRun, repository: str, revision: str) -> str:
    """What the deployed commit changed, its pull request, and what the manifest at that commit sets."""
    owner, _, name = repository.partition("/")
    place = {"owner": owner, "repo": name}
    commit, pulls, manifest = run.read_all(
        [
            (RoutedCall("get_commit", {**place, "ref": revision, "patches": True}), _has("sha")),
            (RoutedCall("list_pull_requests", {**place, "state": "closed"}), _has("pull_requests")),
            (RoutedCall("get_file_contents", {**place, "path": _MANIFEST, "ref": revision}), _has("text")),
        ]
    )
    report = Report()
    report.add("repository", repository)
    title = _add_commit(report, commit)
    _add_pull(report, pulls, title)
    _add_manifest(report, manifest)
    return report.render(f"GitHub on {repository} at {revision[:9]}:")


def investigate_newest_change(run: ScriptRun, service: str) -> str:
    """As `investigate`, for the newest commit of the repository that is called like the service."""
    listing = run.read("search_repositories", _has("repositories"), query=service)
    repositories = listing.data.get("repositories", []) if isinstance(listing.data, dict) else []
    for repository in repositories:
        full_name = str(repository.get("full_name", ""))
        if full_name.endswith(f"/{service}"):
            return investigate(run, full_name, str(repository.get("default_branch") or "main"))
    report = Report()
    report.add_missing(f"a repository {service}", listing.reason if listing.failed else "none has this name")
    return report.render(f"GitHub on {service}:")


def _has(key: str) -> UsableRule:
    return lambda outcome: isinstance(outcome.data, dict) and key in outcome.data


def _add_commit(report: Report, outcome: CallOutcome) -> str:
    """Returns the first line of the commit's message."""
    commit = outcome.data
    if not isinstance(commit, dict):
        report.add_missing("the commit", outcome.reason)
        return ""
    title = str(commit.get("message", "")).partition("\n")[0]
    report.add("commit", title)
    report.add("sha", commit.get("sha"))
    report.add("author", commit.get("author"))
    report.add("commit link", commit.get("html_url"))
    for file in commit.get("files", []):
        report.add("changed file", file.get("filename"))
        _add_settings(report, str(file.get("patch", "")))
    return title


def _add_settings(report: Report, patch: str) -> None:
    """The names of settings in the lines that a patch removes and adds."""
    lines = patch.splitlines()
    for sign, label in (("-", "removed setting"), ("+", "added setting")):
        names: set[str] = set()
        for line in lines:
            if line.startswith(sign):
                names.update(_SETTING.findall(line))
        for name in sorted(names):
            if name not in report.get_all(label):
                report.add(label, name)


def _add_pull(report: Report, outcome: CallOutcome, title: str) -> None:
    pulls: Any = outcome.data
    if not isinstance(pulls, dict):
        report.add_missing("its pull request", outcome.reason)
        return
    for pull in pulls.get("pull_requests", []):
        if title and pull.get("title") == title:
            report.add("pull request", f"#{pull.get('number')}")
            report.add("pull request link", pull.get("html_url"))
            report.add("merged at", pull.get("merged_at"))
            return


def _add_manifest(report: Report, outcome: CallOutcome) -> None:
    manifest = outcome.data
    if not isinstance(manifest, dict):
        report.add_missing("the deployment's manifest", outcome.reason)
        return
    report.add("manifest", _MANIFEST)
    for name in dict.fromkeys(_SETTING.findall(str(manifest.get("text")))):
        report.add("manifest sets", name)
