"""Tools for GitHub Actions: which workflows ran, and why one failed."""

from typing import Annotated, Literal

from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, api_path
from ai_platform_engineering.mcp_servers.github.arguments import Owner, PageNumber, PerPage, Repo, RunId
from ai_platform_engineering.mcp_servers.github.errors import GitHubError

MAX_JOBS = 100
MAX_FAILED_JOBS = 5
MAX_ANNOTATIONS = 20
FAILED = frozenset({"failure", "timed_out", "startup_failure"})

Status = Literal[
    "success",
    "failure",
    "cancelled",
    "timed_out",
    "skipped",
    "action_required",
    "queued",
    "in_progress",
    "completed",
]


class WorkflowRunTools:
    """The tools for GitHub Actions; the docstring of a tool is what the model reads."""

    def __init__(self, api: GitHubApi) -> None:
        self._api = api

    async def list_workflow_runs(
        self,
        owner: Owner,
        repo: Repo,
        branch: Annotated[str, Field(max_length=250, description="Only runs of this branch.")] = "",
        status: Annotated[
            Status | None, Field(description="Only runs with this status or conclusion.")
        ] = None,
        event: Annotated[
            str,
            Field(max_length=60, description="Only runs triggered by this event, such as push or schedule."),
        ] = "",
        page: PageNumber = 1,
        per_page: PerPage = 20,
    ) -> Json:
        """List the runs of GitHub Actions workflows, the newest first."""
        params: Json = {
            "branch": branch,
            "status": status,
            "event": event,
            "page": page,
            "per_page": per_page,
        }
        listing = await self._api.get_page(
            api_path("repos", owner, repo, "actions", "runs"), key="workflow_runs", **params
        )
        return views.list_result("workflow_runs", listing, [views.run(item) for item in listing.items], page)

    async def get_workflow_run(self, owner: Owner, repo: Repo, run_id: RunId) -> Json:
        """Read one run: its jobs, and for each failed job the failed steps and what they reported.
        For "why did the build fail"."""
        base_path = api_path("repos", owner, repo, "actions", "runs", run_id)
        run = views.run(await self._api.get(base_path))
        jobs = await self._api.get_page(f"{base_path}/jobs", key="jobs", per_page=MAX_JOBS)
        failed = [job for job in jobs.items if job.get("conclusion") in FAILED]
        failed_jobs = [await self._view_failed_job(owner, repo, job) for job in failed[:MAX_FAILED_JOBS]]
        result: Json = {
            "workflow_run": run,
            "jobs": [views.pick(job, "name", "status", "conclusion", "html_url") for job in jobs.items],
            "failed_jobs": failed_jobs,
        }
        if len(failed) > len(failed_jobs):
            result["note"] = f"{len(failed)} jobs failed; only the first {MAX_FAILED_JOBS} are told in full."
        return result

    async def _view_failed_job(self, owner: str, repo: str, job: Json) -> Json:
        steps = [step for step in job.get("steps") or () if step.get("conclusion") in FAILED]
        result = views.pick(job, "id", "name", "conclusion", "started_at", "completed_at", "html_url")
        return result | views.drop_empty(
            failed_steps=[views.pick(step, "number", "name", "conclusion") for step in steps],
            annotations=await self._fetch_annotations(owner, repo, job),
        )

    async def _fetch_annotations(self, owner: str, repo: str, job: Json) -> list[Json]:
        """The annotations of a job's check run, which has the same id.

        Logs are not read: GitHub keeps them on another host, where the token must not go.
        """
        path = api_path("repos", owner, repo, "check-runs", job.get("id"), "annotations")
        try:
            listing = await self._api.get_page(path, per_page=MAX_ANNOTATIONS)
        except GitHubError as error:
            if error.status in (403, 404):
                return []
            raise
        annotations = []
        for item in listing.items:
            annotation = views.pick(item, "annotation_level", "path", "start_line", "title", "message")
            annotation |= views.drop_empty(message=views.truncate(item.get("message"), 1000))
            annotations.append(annotation)
        return annotations
