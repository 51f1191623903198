"""What the scripted investigator does as the Argo CD agent."""

from collections.abc import Mapping
from typing import Any

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun
from ai_platform_engineering.models.offline.router_reply import RoutedCall

_GET = "get_application"
_EVENTS = "get_application_events"
_SYNC = "sync_application"
_POLLS = 6
_POLL_SECONDS = 3.0
_SHORT_SHA = 9


def investigate(run: ScriptRun, service: str) -> str:
    """The application's health, what is deployed and what was deployed before."""
    application, events = run.read_all(
        [
            (RoutedCall(_GET, {"applicationName": service}), _is_application),
            (RoutedCall(_EVENTS, {"applicationName": service}), _is_list),
        ]
    )
    report = Report()
    _add_application(report, application)
    _add_events(report, events)
    return report.render(f"Argo CD on the application {service}:")


def roll_back(run: ScriptRun, service: str) -> str:
    """Syncs to the revision before the current one, which a person approves, and watches the rollout."""
    calls_before, calls_after = run.split_at(_SYNC)
    before = calls_before.read(_GET, _is_application, applicationName=service)
    report = Report()
    target = _find_previous(before.data)
    if target is None:
        report.add_missing(f"an earlier revision of {service}", before.reason if before.failed else "none")
        return report.render(f"The rollback of {service} was not tried:")
    _add_state(report, "before", before)
    revision = str(target.get("revision"))
    report.add("target revision", revision)
    change = run.change(_SYNC, {"applicationName": service, "revision": revision})
    if change.failed or not _is_application(change):
        report.add("not done", change.reason)
        return report.render(f"{service} was not rolled back:")
    after = calls_after.poll(
        RoutedCall(_GET, {"applicationName": service}), _is_settled, times=_POLLS, seconds=_POLL_SECONDS
    )
    _add_state(report, "after", after)
    return report.render(f"{service} was rolled back:")


def _is_application(outcome: CallOutcome) -> bool:
    return bool(_status(outcome.data).get("health"))


def _is_list(outcome: CallOutcome) -> bool:
    return isinstance(outcome.data, dict) and "items" in outcome.data


def _is_settled(outcome: CallOutcome) -> bool:
    status = _status(outcome.data)
    return bool(status) and status.get("health", {}).get("status") != "Progressing"


def _add_application(report: Report, outcome: CallOutcome) -> None:
    status = _status(outcome.data)
    if not status:
        report.add_missing("the application", outcome.reason)
        return
    spec = outcome.data.get("spec", {})
    report.add("health", status.get("health", {}).get("status"))
    report.add("sync", status.get("sync", {}).get("status"))
    report.add("image", next(iter(status.get("summary", {}).get("images", [])), ""))
    report.add("project", spec.get("project"))
    report.add("namespace", spec.get("destination", {}).get("namespace"))
    report.add("repository", spec.get("source", {}).get("repoURL"))
    history = status.get("history", [])
    if history:
        _add_deployment(report, "", history[-1])
    previous = _find_previous(outcome.data)
    if previous is not None:
        _add_deployment(report, "previous ", previous)


def _add_deployment(report: Report, prefix: str, entry: Mapping[str, Any]) -> None:
    report.add(f"{prefix}version", entry.get("source", {}).get("targetRevision"))
    report.add(f"{prefix}revision", entry.get("revision"))
    report.add(f"{prefix}deployed at", entry.get("deployStartedAt") or entry.get("deployedAt"))
    report.add(f"{prefix}deployed by", entry.get("initiatedBy", {}).get("username"))


def _add_events(report: Report, outcome: CallOutcome) -> None:
    if outcome.failed:
        report.add_missing("its events", outcome.reason)
        return
    for event in (outcome.data.get("items") or [])[:1]:
        report.add("event", f"{event.get('reason')}: {event.get('message')}")


def _add_state(report: Report, when: str, outcome: CallOutcome) -> None:
    status = _status(outcome.data)
    if not status:
        report.add_missing(f"the application {when} the change", outcome.reason)
        return
    revision = str(status.get("sync", {}).get("revision", ""))[:_SHORT_SHA]
    image = str(next(iter(status.get("summary", {}).get("images", [])), "")).rpartition(":")[2]
    health = status.get("health", {}).get("status")
    report.add(when, f"{health}, version {image}, revision {revision}")


def _find_previous(data: Any) -> Mapping[str, Any] | None:
    """The newest entry of the history with another revision than the current one."""
    history = _status(data).get("history", [])
    for entry in reversed(history):
        if entry.get("revision") != history[-1].get("revision"):
            return dict(entry)
    return None


def _status(data: Any) -> dict[str, Any]:
    status = data.get("status") if isinstance(data, dict) else None
    return status if isinstance(status, dict) else {}
