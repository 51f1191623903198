"""What the scripted investigator does as the Kubernetes agent."""

import re
from dataclasses import dataclass

from ai_platform_engineering.demo.investigator.report import Report
from ai_platform_engineering.demo.investigator.script_run import CallOutcome, ScriptRun

_COLUMNS = re.compile(r"\s{2,}")
_RUNNING = "Running"


@dataclass(frozen=True, slots=True)
class _PodRow:
    namespace: str
    name: str
    ready: str
    status: str
    restarts: str

    @property
    def is_ready(self) -> bool:
        ready, _, containers = self.ready.partition("/")
        return self.status == _RUNNING and ready == containers


def investigate(run: ScriptRun, service: str) -> str:
    """The pods of the service by its label, and the log of one that is not ready."""
    report = Report()
    heading = f"Kubernetes on the pods of {service}:"
    listing = run.read("pods_list", _is_table, labelSelector=f"app={service}")
    if listing.failed:
        report.add_missing("its pods", listing.reason)
        return report.render(heading)
    pods = _read_pods(listing.text)
    failing = [pod for pod in pods if not pod.is_ready]
    if not pods:
        report.add_missing(f"a pod with the label app={service}", "there is none")
        return report.render(heading)
    namespace = pods[0].namespace
    report.add(
        "pods", f"{len(pods) - len(failing)} of {len(pods)} pods in the namespace {namespace} are ready"
    )
    if not failing:
        report.add("all ready", "yes")
    else:
        pod = failing[0]
        report.add("failing pod", pod.name)
        report.add("pod status", pod.status)
        report.add("restarts", pod.restarts)
        log = run.read("pods_log", _has_lines, name=pod.name, namespace=pod.namespace)
        if log.failed:
            report.add_missing(f"the log of {pod.name}", log.reason)
        else:
            report.add("last log line", log.text.strip().splitlines()[-1])
    return report.render(heading)


def _is_table(outcome: CallOutcome) -> bool:
    return "READY" in outcome.text.partition("\n")[0]


def _has_lines(outcome: CallOutcome) -> bool:
    return bool(outcome.text.strip())


def _read_pods(table: str) -> list[_PodRow]:
    """The rows of the table that the server prints; columns by their names."""
    lines = table.strip().splitlines()
    headers = _COLUMNS.split(lines[0].strip()) if lines else []
    pods: list[_PodRow] = []
    for line in lines[1:]:
        cells = dict(zip(headers, _COLUMNS.split(line.strip()), strict=False))
        if cells.get("KIND") != "Pod":
            continue
        pods.append(
            _PodRow(
                namespace=cells.get("NAMESPACE", ""),
                name=cells.get("NAME", ""),
                ready=cells.get("READY", ""),
                status=cells.get("STATUS", ""),
                restarts=cells.get("RESTARTS", ""),
            )
        )
    return pods
