"""GitHub Actions: runs, jobs, and the checks of a commit."""

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.responses import GitHubRequest, Json, ListResponse, not_found
from ai_platform_engineering.demo.github.state import WorkflowJob, WorkflowRun
from ai_platform_engineering.demo.github.views import JsonRenderer


def runs(call: GitHubRequest) -> ListResponse:
    repository, query = call.repository, call.query
    chosen = [
        one
        for one in sorted(repository.runs, key=lambda one: one.created_at, reverse=True)
        if query.get("branch") in (None, one.branch)
        and query.get("event") in (None, one.event)
        and query.get("head_sha") in (None, one.sha)
        and query.get("status") in (None, one.status, one.conclusion)
    ]
    return ListResponse(
        [JsonRenderer(call.state, call.links).run(repository, one) for one in chosen], "workflow_runs"
    )


def show(call: GitHubRequest) -> Json:
    return JsonRenderer(call.state, call.links).run(call.repository, _find(call))


def jobs(call: GitHubRequest) -> ListResponse:
    found, render = _find(call), JsonRenderer(call.state, call.links)
    return ListResponse([render.job(call.repository, found, job) for job in found.jobs], "jobs")


def checks(call: GitHubRequest) -> ListResponse:
    return ListResponse(
        [
            JsonRenderer(call.state, call.links).check(call.repository, run, job)
            for run, job in _of_commit(call)
        ],
        "check_runs",
    )


def status(call: GitHubRequest) -> Json:
    """The older kind of checks, which nothing here reports."""
    commit = history.resolve_ref(call.repository, call.path["ref"])
    if commit is None:
        raise not_found()
    return {"state": "pending", "sha": commit.sha, "total_count": 0, "statuses": []}


def annotations(call: GitHubRequest) -> ListResponse:
    found = next(
        (job for run in call.repository.runs for job in run.jobs if job.id == call.path["check"]), None
    )
    if found is None:
        raise not_found()
    return ListResponse(
        [
            {
                "path": one.path,
                "start_line": one.line,
                "end_line": one.line,
                "annotation_level": one.level,
                "title": "",
                "message": one.message,
            }
            for one in found.annotations
        ]
    )


def _find(call: GitHubRequest) -> WorkflowRun:
    found = next((run for run in call.repository.runs if run.id == call.path["run"]), None)
    if found is None:
        raise not_found()
    return found


def _of_commit(call: GitHubRequest) -> list[tuple[WorkflowRun, WorkflowJob]]:
    commit = history.resolve_ref(call.repository, call.path["ref"])
    if commit is None:
        raise not_found()
    return [(run, job) for run in call.repository.runs if run.sha == commit.sha for job in run.jobs]
