"""Jira's resources around issues: people, fields, projects and what a new issue needs."""

from collections.abc import Sequence

from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.demo.atlassian.api_access import (
    AtlassianApiError,
    Json,
    find_demo_user,
    read_number,
)
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.jira.issue_fields import FIELDS, IssueField
from ai_platform_engineering.demo.jira.issue_renderer import IssueRenderer
from ai_platform_engineering.demo.jira.jira_requests import (
    MAX_RESULTS,
    JiraResponse,
    base_url,
    page_of,
)
from ai_platform_engineering.demo.jira.state import (
    ISSUE_TYPES,
    PRIORITIES,
    RESOLUTIONS,
    STATUSES,
    JiraProject,
    JiraState,
)


class SiteApi:
    def __init__(self, estate: Estate, state: JiraState) -> None:
        self._estate = estate
        self._state = state
        self._user = find_demo_user(estate.company)

    async def show_server_info(self, request: Request) -> Response:
        info = {"baseUrl": base_url(request), "version": "10.3.2", "versionNumbers": [10, 3, 2]}
        return JiraResponse(info | {"deploymentType": "Server", "serverTitle": self._estate.company.name})

    async def show_myself(self, request: Request) -> Response:
        return JiraResponse(self._renderer(request).user(self._user))

    async def show_user(self, request: Request) -> Response:
        login = request.query_params.get("username") or request.query_params.get("key") or ""
        user = self._renderer(request).person(login)
        if user is None:
            raise AtlassianApiError(404, f"The user named '{login}' does not exist")
        return JiraResponse(user)

    async def list_users(self, request: Request) -> Response:
        parameters = request.query_params
        text = (parameters.get("username") or parameters.get("query") or "").lower()
        renderer = self._renderer(request)
        users = [
            renderer.user(person)
            for person in self._estate.company.people
            if text in (".", "") or text in f"{person.login}\n{person.name}\n{person.email}".lower()
        ]
        start = read_number(request, "startAt", 0, MAX_RESULTS)
        return JiraResponse(users[start : start + read_number(request, "maxResults", 50, MAX_RESULTS)])

    async def list_fields(self, request: Request) -> Response:
        return JiraResponse([field.definition() for field in FIELDS])

    async def list_priorities(self, request: Request) -> Response:
        return JiraResponse([self._renderer(request).priority(name) for name in reversed(PRIORITIES)])

    async def list_resolutions(self, request: Request) -> Response:
        return JiraResponse([self._renderer(request).resolution(name) for name in RESOLUTIONS])

    async def list_statuses(self, request: Request) -> Response:
        return JiraResponse([self._renderer(request).status(status) for status in STATUSES])

    async def list_projects(self, request: Request) -> Response:
        renderer = self._renderer(request)
        return JiraResponse([renderer.project(project) for project in self._state.projects.values()])

    async def show_project(self, request: Request) -> Response:
        project = self._find_project(request)
        renderer = self._renderer(request)
        details = {
            "issueTypes": [renderer.issue_type(issue_type) for issue_type in ISSUE_TYPES],
            "components": [renderer.component(name) for name in project.components],
            "versions": [renderer.version(name) for name in project.versions],
        }
        return JiraResponse(renderer.project(project) | details)

    async def list_issue_types(self, request: Request) -> Response:
        self._find_project(request)
        renderer = self._renderer(request)
        return JiraResponse(page_of(request, [renderer.issue_type(issue_type) for issue_type in ISSUE_TYPES]))

    async def list_create_fields(self, request: Request) -> Response:
        project = self._find_project(request)
        if request.path_params["type"] not in {issue_type.id for issue_type in ISSUE_TYPES}:
            raise AtlassianApiError(404, "The issue type does not exist in the project.")
        fields = [
            self._create_field(request, project, field)
            for field in FIELDS
            if field.read is not None or field.id == "project"
        ]
        return JiraResponse(page_of(request, fields))

    def _find_project(self, request: Request) -> JiraProject:
        key = request.path_params["project"]
        for project in self._state.projects.values():
            if key.upper() == project.key or key == project.id:
                return project
        raise AtlassianApiError(404, f"No project could be found with key '{key}'.")

    def _create_field(self, request: Request, project: JiraProject, field: IssueField) -> Json:
        renderer = self._renderer(request)
        allowed_values: dict[str, Sequence[Json]] = {
            "issuetype": [renderer.issue_type(issue_type) for issue_type in ISSUE_TYPES],
            "project": [renderer.project(project)],
            "priority": [renderer.priority(name) for name in PRIORITIES],
            "components": [renderer.component(name) for name in project.components],
            "fixVersions": [renderer.version(name) for name in project.versions],
        }
        rendered: Json = {
            "fieldId": field.id,
            "name": field.name,
            "required": field.id in ("project", "issuetype", "summary"),
            "schema": field.schema(),
            "operations": ["add", "set", "remove"] if field.type == "array" else ["set"],
        }
        if field.id in allowed_values:
            rendered["allowedValues"] = list(allowed_values[field.id])
        return rendered

    def _renderer(self, request: Request) -> IssueRenderer:
        return IssueRenderer(self._state, self._estate.company, base_url(request))
