"""Tools for GitHub Actions: which workflows ran, and why one failed."""

from typing import Annotated, Literal

from pydantic import Field

from ai_platform_engineering.mcp_servers.github import views
from ai_platform_engineering.mcp_servers.github.api import GitHubApi, Json, at
from ai_platform_engineering.mcp_servers.github.arguments import Owner, PageNumber, PerPage, Repo, RunId
from ai_platform_engineering.mcp_servers.github.errors import GitHubError

MOST_JOBS = 100
MOST_ANNOTATED = 5
MOST_ANNOTATIONS = 20
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
    """A docstring says when to use the tool."""

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
            str, Field(max_length=60, description="Only runs begun by this, like push or schedule.")
        ] = "",
        page: PageNumber = 1,
        per_page: PerPage = 20,
    ) -> Json:
        """List the runs of GitHub Actions workflows, the newest first."""
        asked: Json = {"branch": branch, "status": status, "event": event, "page": page, "per_page": per_page}
        found = await self._api.page(
            at("repos", owner, repo, "actions", "runs"), key="workflow_runs", **asked
        )
        return views.listed("workflow_runs", found, [views.run(item) for item in found.items], page)

    async def get_workflow_run(self, owner: Owner, repo: Repo, run_id: RunId) -> Json:
        """Read one run: its jobs, and for each failed job the failed steps and what they reported. For "why did the build fail"."""
        place = at("repos", owner, repo, "actions", "runs", run_id)
        run = views.run(await self._api.get(place))
        jobs = await self._api.page(f"{place}/jobs", key="jobs", per_page=MOST_JOBS)
        failed = [job for job in jobs.items if job.get("conclusion") in FAILED]
        told = [await self._failed(owner, repo, job) for job in failed[:MOST_ANNOTATED]]
        found: Json = {
            "workflow_run": run,
            "jobs": [views.chosen(job, "name", "status", "conclusion", "html_url") for job in jobs.items],
            "failed_jobs": told,
        }
        if len(failed) > len(told):
            found["note"] = f"{len(failed)} jobs failed; only the first {MOST_ANNOTATED} are told in full."
        return found

    async def _failed(self, owner: str, repo: str, job: Json) -> Json:
        steps = [step for step in job.get("steps") or () if step.get("conclusion") in FAILED]
        return views.chosen(
            job, "id", "name", "conclusion", "started_at", "completed_at", "html_url"
        ) | views.said(
            failed_steps=[views.chosen(step, "number", "name", "conclusion") for step in steps],
            annotations=await self._annotations(owner, repo, job),
        )

    async def _annotations(self, owner: str, repo: str, job: Json) -> list[Json]:
        """What a job reported: its check run has the same id. GitHub keeps logs on another host, where the token must not go."""
        place = at("repos", owner, repo, "check-runs", job.get("id"), "annotations")
        try:
            found = await self._api.page(place, per_page=MOST_ANNOTATIONS)
        except GitHubError as error:
            if error.status in (403, 404):
                return []
            raise
        kept = ("annotation_level", "path", "start_line", "title", "message")
        return [
            views.chosen(item, *kept) | views.said(message=views.cut(item.get("message"), 1000))
            for item in found.items
        ]
