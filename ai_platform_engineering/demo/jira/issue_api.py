"""Jira's resources for issues: search, changes, transitions and comments."""

from starlette.requests import Request
from starlette.responses import Response

from ai_platform_engineering.demo.atlassian.api_access import (
    AtlassianApiError,
    Json,
    find_demo_user,
    read_number,
    read_object,
)
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.jira.issue_editor import IssueEditor
from ai_platform_engineering.demo.jira.issue_fields import FIELDS
from ai_platform_engineering.demo.jira.issue_renderer import IssueRenderer
from ai_platform_engineering.demo.jira.jira_requests import (
    API_PATH,
    MAX_RESULTS,
    JiraResponse,
    base_url,
    error_body,
    read_part,
    read_search,
    split_names,
)
from ai_platform_engineering.demo.jira.jql import search_issues
from ai_platform_engineering.demo.jira.state import JiraComment, JiraIssue, JiraState

_MAX_BULK_ISSUES = 50


class IssueApi:
    def __init__(self, estate: Estate, state: JiraState) -> None:
        self._estate = estate
        self._state = state
        self._user = find_demo_user(estate.company)
        self._editor = IssueEditor(state, estate, self._user)

    async def search(self, request: Request) -> Response:
        parameters = await read_search(request)
        issues = search_issues(self._state, self._estate, self._user, parameters.jql)
        renderer = self._renderer(request)
        page = issues[parameters.start : parameters.start + parameters.limit]
        body: Json = {
            "expand": "schema,names",
            "startAt": parameters.start,
            "maxResults": parameters.limit,
            "total": len(issues),
            "issues": [renderer.issue(issue, parameters.fields, parameters.expand) for issue in page],
        }
        if "names" in parameters.expand:
            body["names"] = {field.id: field.name for field in FIELDS}
        return JiraResponse(body)

    async def create_issue(self, request: Request) -> Response:
        body = await read_object(request)
        issue = self._editor.create(read_part(body, "fields"))
        return JiraResponse(self._reference(request, issue), 201)

    async def create_issues(self, request: Request) -> Response:
        """Some may be created though others are refused, as in Jira."""
        updates = (await read_object(request)).get("issueUpdates")
        if not isinstance(updates, list) or len(updates) > _MAX_BULK_ISSUES:
            raise AtlassianApiError(400, f"issueUpdates must be a list of at most {_MAX_BULK_ISSUES} issues.")
        issues: list[Json] = []
        errors: list[Json] = []
        for number, update in enumerate(updates):
            try:
                issue = self._editor.create(read_part(update if isinstance(update, dict) else {}, "fields"))
            except AtlassianApiError as error:
                details = {
                    "status": error.status,
                    "elementErrors": error_body(error),
                    "failedElementNumber": number,
                }
                errors.append(details)
            else:
                issues.append(self._reference(request, issue))
        return JiraResponse({"issues": issues, "errors": errors}, 201 if issues else 400)

    async def show_issue(self, request: Request) -> Response:
        issue = self._find_issue(request)
        names = split_names(request.query_params.get("fields", "*all"))
        expand = split_names(request.query_params.get("expand", ""))
        return JiraResponse(self._renderer(request).issue(issue, names, expand))

    async def edit_issue(self, request: Request) -> Response:
        issue = self._find_issue(request)
        body = await read_object(request)
        self._editor.edit(issue, read_part(body, "fields"), read_part(body, "update"))
        return Response(status_code=204)

    async def delete_issue(self, request: Request) -> Response:
        issue = self._find_issue(request)
        subtasks = [other for other in self._state.issues.values() if other.parent == issue.key]
        if subtasks and request.query_params.get("deleteSubtasks") != "true":
            raise AtlassianApiError(400, f"The issue '{issue.key}' has subtasks.")
        for deleted in (*subtasks, issue):
            del self._state.issues[deleted.key]
        return Response(status_code=204)

    async def assign_issue(self, request: Request) -> Response:
        issue = self._find_issue(request)
        self._editor.assign(issue, await read_object(request))
        return Response(status_code=204)

    async def list_transitions(self, request: Request) -> Response:
        transitions = self._editor.list_transitions(self._find_issue(request))
        renderer = self._renderer(request)
        rendered = [renderer.transition(transition) for transition in transitions]
        return JiraResponse({"expand": "transitions", "transitions": rendered})

    async def transition_issue(self, request: Request) -> Response:
        issue = self._find_issue(request)
        body = await read_object(request)
        transition_id = str(read_part(body, "transition").get("id", ""))
        self._editor.transition(issue, transition_id, read_part(body, "fields"), read_part(body, "update"))
        return Response(status_code=204)

    async def list_comments(self, request: Request) -> Response:
        issue = self._find_issue(request)
        renderer = self._renderer(request)
        comments = [renderer.comment(issue, comment) for comment in issue.comments]
        start = read_number(request, "startAt", 0, MAX_RESULTS)
        limit = read_number(request, "maxResults", MAX_RESULTS, MAX_RESULTS)
        page = comments[start : start + limit]
        return JiraResponse({"startAt": start, "maxResults": limit, "total": len(comments), "comments": page})

    async def add_comment(self, request: Request) -> Response:
        issue = self._find_issue(request)
        comment = self._editor.add_comment(issue, (await read_object(request)).get("body"))
        return JiraResponse(self._renderer(request).comment(issue, comment), 201)

    async def edit_comment(self, request: Request) -> Response:
        issue = self._find_issue(request)
        comment = _find_comment(issue, request.path_params["comment"])
        self._editor.edit_comment(issue, comment, (await read_object(request)).get("body"))
        return JiraResponse(self._renderer(request).comment(issue, comment))

    def _reference(self, request: Request, issue: JiraIssue) -> Json:
        return {"id": issue.id, "key": issue.key, "self": f"{base_url(request)}{API_PATH}/issue/{issue.id}"}

    def _find_issue(self, request: Request) -> JiraIssue:
        issue = self._state.find_issue(request.path_params["key"])
        if issue is None:
            raise AtlassianApiError(404, "Issue Does Not Exist")
        return issue

    def _renderer(self, request: Request) -> IssueRenderer:
        return IssueRenderer(self._state, self._estate.company, base_url(request))


def _find_comment(issue: JiraIssue, comment_id: str) -> JiraComment:
    for comment in issue.comments:
        if comment.id == comment_id:
            return comment
    raise AtlassianApiError(404, f"Can not find a comment for the id: {comment_id}.")
