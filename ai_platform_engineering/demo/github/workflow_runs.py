"""Handlers for GitHub Actions: workflow runs, jobs, and the checks of a commit."""

from ai_platform_engineering.demo.github import history
from ai_platform_engineering.demo.github.api_types import GitHubRequest, ListResponse, not_found
from ai_platform_engineering.demo.github.json_renderer import Json
from ai_platform_engineering.demo.github.state import Annotation, Commit, WorkflowRun


def list_runs(request: GitHubRequest) -> ListResponse:
    repository = request.repository
    items: list[Json] = []
    for run in sorted(repository.runs, key=lambda run: run.created_at, reverse=True):
        if _matches_query(request, run):
            items.append(request.renderer.run(repository, run))
    return ListResponse(items, "workflow_runs")


def _matches_query(request: GitHubRequest, run: WorkflowRun) -> bool:
    query = request.query
    return (
        query.get("branch") in (None, run.branch)
        and query.get("event") in (None, run.event)
        and query.get("head_sha") in (None, run.sha)
        and query.get("status") in (None, run.status, run.conclusion)
    )


def show_run(request: GitHubRequest) -> Json:
    return request.renderer.run(request.repository, _find_run(request))


def list_jobs(request: GitHubRequest) -> ListResponse:
    run = _find_run(request)
    return ListResponse([request.renderer.job(request.repository, run, job) for job in run.jobs], "jobs")


def list_checks(request: GitHubRequest) -> ListResponse:
    """Lists the jobs of all runs on a commit."""
    repository = request.repository
    commit = _find_commit(request)
    items: list[Json] = []
    for run in repository.runs:
        if run.sha == commit.sha:
            items.extend(request.renderer.check(repository, run, job) for job in run.jobs)
    return ListResponse(items, "check_runs")


def show_status(request: GitHubRequest) -> Json:
    """Shows commit statuses, the older kind of checks, which nothing here reports."""
    commit = _find_commit(request)
    return {"state": "pending", "sha": commit.sha, "total_count": 0, "statuses": []}


def list_annotations(request: GitHubRequest) -> ListResponse:
    for run in request.repository.runs:
        for job in run.jobs:
            if job.id == request.path["check"]:
                return ListResponse([_render_annotation(annotation) for annotation in job.annotations])
    raise not_found()


def _render_annotation(annotation: Annotation) -> Json:
    return {
        "path": annotation.path,
        "start_line": annotation.line,
        "end_line": annotation.line,
        "annotation_level": annotation.level,
        "title": "",
        "message": annotation.message,
    }


def _find_run(request: GitHubRequest) -> WorkflowRun:
    for run in request.repository.runs:
        if run.id == request.path["run"]:
            return run
    raise not_found()


def _find_commit(request: GitHubRequest) -> Commit:
    commit = history.resolve_ref(request.repository, request.path["ref"])
    if commit is None:
        raise not_found()
    return commit
