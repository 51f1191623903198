"""The stand-in for Jira Data Center's REST API (version 2) over the estate: search, issues and comments."""

from collections.abc import Awaitable, Callable, Mapping

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from ai_platform_engineering.demo.atlassian.api_access import AtlassianApiError, check_token
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.estate.stand_in import RunningStandIn, StandIn
from ai_platform_engineering.demo.jira.issue_api import IssueApi
from ai_platform_engineering.demo.jira.jira_requests import API_PATH, error_response, unknown_path
from ai_platform_engineering.demo.jira.sample_tickets import build_jira_state
from ai_platform_engineering.demo.jira.site_api import SiteApi
from ai_platform_engineering.demo.jira.state import JiraState

DEMO_TOKEN = "demo-jira-token"
_ISSUE = f"{API_PATH}/issue/{{key}}"
_CREATE_META = f"{API_PATH}/issue/createmeta/{{project}}/issuetypes"

Handler = Callable[[Request], Awaitable[Response]]


def create_app(estate: Estate, state: JiraState | None = None) -> Starlette:
    """`state` is for those who look at it or share it; by default it is that of the estate's company."""
    jira_state = state or build_jira_state(estate.company)
    estate.register_records("tickets", jira_state.list_records)
    site = SiteApi(estate, jira_state)
    issues = IssueApi(estate, jira_state)
    routes = (
        ("GET", f"{API_PATH}/serverInfo", site.show_server_info),
        ("GET", f"{API_PATH}/myself", site.show_myself),
        ("GET", f"{API_PATH}/user", site.show_user),
        ("GET", f"{API_PATH}/user/search", site.list_users),
        ("GET", f"{API_PATH}/user/assignable/search", site.list_users),
        ("GET", f"{API_PATH}/user/permission/search", site.list_users),
        ("GET", f"{API_PATH}/field", site.list_fields),
        ("GET", f"{API_PATH}/priority", site.list_priorities),
        ("GET", f"{API_PATH}/resolution", site.list_resolutions),
        ("GET", f"{API_PATH}/status", site.list_statuses),
        ("GET", f"{API_PATH}/project", site.list_projects),
        ("GET", f"{API_PATH}/project/{{project}}", site.show_project),
        ("GET", f"{API_PATH}/search", issues.search),
        ("POST", f"{API_PATH}/search", issues.search),
        ("POST", f"{API_PATH}/issue", issues.create_issue),
        ("POST", f"{API_PATH}/issue/bulk", issues.create_issues),
        ("GET", _CREATE_META, site.list_issue_types),
        ("GET", f"{_CREATE_META}/{{type}}", site.list_create_fields),
        ("GET", _ISSUE, issues.show_issue),
        ("PUT", _ISSUE, issues.edit_issue),
        ("DELETE", _ISSUE, issues.delete_issue),
        ("PUT", f"{_ISSUE}/assignee", issues.assign_issue),
        ("GET", f"{_ISSUE}/transitions", issues.list_transitions),
        ("POST", f"{_ISSUE}/transitions", issues.transition_issue),
        ("GET", f"{_ISSUE}/comment", issues.list_comments),
        ("POST", f"{_ISSUE}/comment", issues.add_comment),
        ("PUT", f"{_ISSUE}/comment/{{comment}}", issues.edit_comment),
    )
    return Starlette(
        routes=[Route(path, _authenticated(handler), methods=[method]) for method, path, handler in routes],
        exception_handlers={AtlassianApiError: error_response, 404: unknown_path, 405: unknown_path},
    )


def _variables(running: RunningStandIn) -> Mapping[str, str]:
    return {
        "ATLASSIAN_API_URL": running.url.rstrip("/"),
        "JIRA_PERSONAL_TOKEN": DEMO_TOKEN,
        "JIRA_READ_ONLY": "false",
    }


STAND_IN = StandIn("jira", create_app, _variables)


def _authenticated(handler: Handler) -> Handler:
    async def endpoint(request: Request) -> Response:
        check_token(request, DEMO_TOKEN)
        return await handler(request)

    return endpoint
