"""Issues, people and projects as Jira Data Center's REST API (version 2) shows them."""

from collections.abc import Collection
from datetime import datetime

from ai_platform_engineering.demo.atlassian.api_access import Json
from ai_platform_engineering.demo.estate.company import Company, Person
from ai_platform_engineering.demo.jira.issue_fields import EPIC_LINK_FIELD, EPIC_NAME_FIELD, FIELDS
from ai_platform_engineering.demo.jira.state import (
    PRIORITIES,
    RESOLUTIONS,
    IssueChange,
    IssueLink,
    IssueType,
    JiraComment,
    JiraIssue,
    JiraProject,
    JiraState,
    JiraStatus,
    JiraTransition,
)

_NOT_NAVIGABLE = {"comment"}


def show_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000+0000")


class IssueRenderer:
    """`base_url` is the stand-in's address, without a slash at its end."""

    def __init__(self, state: JiraState, company: Company, base_url: str) -> None:
        self._state = state
        self._people = {person.login: person for person in company.people}
        self._api = f"{base_url}/rest/api/2"

    def issue(self, issue: JiraIssue, names: Collection[str], expand: Collection[str] = ()) -> Json:
        """`names` are the fields, where "*all" and "*navigable" stand for many and "-name" for all others."""
        rendered: Json = {
            "expand": "renderedFields,names,schema,operations,editmeta,changelog",
            "id": issue.id,
            "self": f"{self._api}/issue/{issue.id}",
            "key": issue.key,
            "fields": self._select(self._fields(issue), names),
        }
        if "changelog" in expand:
            rendered["changelog"] = self.changelog(issue)
        if "names" in expand:
            rendered["names"] = {field.id: field.name for field in FIELDS}
        if "transitions" in expand:
            rendered["transitions"] = []
        return rendered

    def changelog(self, issue: JiraIssue) -> Json:
        histories = [self._change(change) for change in issue.changes]
        return {"startAt": 0, "maxResults": len(histories), "total": len(histories), "histories": histories}

    def comment(self, issue: JiraIssue, comment: JiraComment) -> Json:
        return {
            "self": f"{self._api}/issue/{issue.id}/comment/{comment.id}",
            "id": comment.id,
            "author": self.person(comment.author),
            "updateAuthor": self.person(comment.update_author),
            "body": comment.body,
            "created": show_time(comment.created),
            "updated": show_time(comment.updated),
        }

    def person(self, login: str | None) -> Json | None:
        person = self._people.get(login or "")
        return None if person is None else self.user(person)

    def user(self, person: Person) -> Json:
        return {
            "self": f"{self._api}/user?username={person.login}",
            "key": person.login,
            "name": person.login,
            "emailAddress": person.email,
            "displayName": person.name,
            "active": True,
            "timeZone": "UTC",
            "avatarUrls": {},
        }

    def project(self, project: JiraProject) -> Json:
        return {
            "self": f"{self._api}/project/{project.id}",
            "id": project.id,
            "key": project.key,
            "name": project.name,
            "projectTypeKey": "software",
            "lead": self.person(project.lead),
        }

    def status(self, status: JiraStatus) -> Json:
        category = {
            "id": status.category_id,
            "key": status.category_key,
            "name": status.category,
            "colorName": {"new": "default", "indeterminate": "inprogress", "done": "success"}[
                status.category_key
            ],
        }
        return {
            "self": f"{self._api}/status/{status.id}",
            "id": status.id,
            "name": status.name,
            "description": "",
            "statusCategory": category,
        }

    def transition(self, transition: JiraTransition) -> Json:
        return {
            "id": transition.id,
            "name": transition.name,
            "to": self.status(transition.target),
            "fields": {},
        }

    def issue_type(self, issue_type: IssueType) -> Json:
        return {
            "self": f"{self._api}/issuetype/{issue_type.id}",
            "id": issue_type.id,
            "name": issue_type.name,
            "description": issue_type.description,
            "subtask": issue_type.is_subtask,
        }

    def priority(self, name: str) -> Json:
        number = PRIORITIES.index(name) + 1
        return {"self": f"{self._api}/priority/{number}", "id": str(number), "name": name}

    def resolution(self, name: str) -> Json:
        number = RESOLUTIONS.index(name) + 1
        return {"self": f"{self._api}/resolution/{number}", "id": str(number), "name": name}

    def component(self, name: str) -> Json:
        return {"id": name, "name": name}

    def version(self, name: str) -> Json:
        return {"id": name, "name": name, "archived": False, "released": False}

    def _fields(self, issue: JiraIssue) -> Json:
        comments = [self.comment(issue, comment) for comment in issue.comments]
        subtasks = [other for other in self._state.issues.values() if other.parent == issue.key]
        fields: Json = {
            "summary": issue.summary,
            "description": issue.description or None,
            "issuetype": self.issue_type(issue.type),
            "project": self.project(issue.project),
            "status": self.status(issue.status),
            "priority": self.priority(issue.priority),
            "resolution": self.resolution(issue.resolution) if issue.resolution else None,
            "assignee": self.person(issue.assignee),
            "reporter": self.person(issue.reporter),
            "creator": self.person(issue.reporter),
            "labels": list(issue.labels),
            "components": [self.component(name) for name in issue.components],
            "fixVersions": [self.version(name) for name in issue.fix_versions],
            "created": show_time(issue.created),
            "updated": show_time(issue.updated),
            "resolutiondate": show_time(issue.resolved_at) if issue.resolved_at else None,
            "duedate": issue.due,
            "subtasks": [self._short_issue(subtask) for subtask in subtasks],
            "issuelinks": [self._link(link) for link in issue.links if link.key in self._state.issues],
            "comment": {
                "comments": comments,
                "maxResults": len(comments),
                "total": len(comments),
                "startAt": 0,
            },
            EPIC_LINK_FIELD: issue.epic_link,
            EPIC_NAME_FIELD: issue.epic_name,
        }
        parent = self._state.issues.get(issue.parent or "")
        if parent is not None:
            fields["parent"] = self._short_issue(parent)
        return fields

    def _select(self, fields: Json, names: Collection[str]) -> Json:
        excluded = {name[1:] for name in names if name.startswith("-")}
        included = {name for name in names if not name.startswith("-")}
        if "*all" in included or not included:
            included = set(fields)
        elif "*navigable" in included:
            included |= set(fields) - _NOT_NAVIGABLE
        return {name: value for name, value in fields.items() if name in included - excluded}

    def _short_issue(self, issue: JiraIssue) -> Json:
        return {
            "id": issue.id,
            "key": issue.key,
            "self": f"{self._api}/issue/{issue.id}",
            "fields": {
                "summary": issue.summary,
                "status": self.status(issue.status),
                "priority": self.priority(issue.priority),
                "issuetype": self.issue_type(issue.type),
            },
        }

    def _link(self, link: IssueLink) -> Json:
        side = "outwardIssue" if link.is_outward else "inwardIssue"
        return {
            "id": link.id,
            "type": {"name": link.type, "inward": link.phrase, "outward": link.phrase},
            side: self._short_issue(self._state.issues[link.key]),
        }

    def _change(self, change: IssueChange) -> Json:
        items = [
            {
                "field": item.field,
                "fieldtype": "jira",
                "from": None,
                "fromString": item.old,
                "to": None,
                "toString": item.new,
            }
            for item in change.items
        ]
        return {
            "id": change.id,
            "author": self.person(change.author),
            "created": show_time(change.created),
            "items": items,
        }
