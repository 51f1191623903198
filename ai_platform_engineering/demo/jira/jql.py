"""JQL: which issues a query selects, and in which order."""

from collections.abc import Callable, Sequence

from ai_platform_engineering.demo.atlassian.api_access import AtlassianApiError
from ai_platform_engineering.demo.atlassian.query_fields import (
    FieldKind,
    QueryCompiler,
    QueryField,
    QueryFieldError,
    SortValue,
)
from ai_platform_engineering.demo.atlassian.query_syntax import QuerySyntaxError, parse_query
from ai_platform_engineering.demo.estate.company import Company, Person
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.jira.state import (
    ISSUE_TYPES,
    PRIORITIES,
    RESOLUTIONS,
    STATUSES,
    JiraIssue,
    JiraState,
)

_ALIASES = {
    "issuekey": "key",
    "issue": "key",
    "id": "key",
    "type": "issuetype",
    "label": "labels",
    "components": "component",
    "fixversions": "fixversion",
    "createddate": "created",
    "updateddate": "updated",
    "resolutiondate": "resolved",
    "resolveddate": "resolved",
    "duedate": "due",
}


def search_issues(state: JiraState, estate: Estate, user: Person, jql: str) -> list[JiraIssue]:
    """Raises AtlassianApiError with what is wrong in the query."""
    compiler = QueryCompiler(
        _build_fields(state, estate.company),
        estate.now,
        {"currentuser": (user.login,)},
        empty_words=("unresolved", "unassigned"),
    )
    newest_first = sorted(state.issues.values(), key=lambda issue: issue.created, reverse=True)
    try:
        return compiler.select(parse_query(jql), newest_first)
    except QuerySyntaxError as error:
        raise AtlassianApiError(400, f"Error in the JQL Query: {error}") from error
    except QueryFieldError as error:
        raise AtlassianApiError(400, str(error)) from error


def _build_fields(state: JiraState, company: Company) -> dict[str, QueryField[JiraIssue]]:
    fields = [*_choice_fields(state), *_person_fields(company), *_text_fields(), *_date_fields()]
    by_name = {field.name.lower(): field for field in fields}
    return by_name | {alias: by_name[name] for alias, name in _ALIASES.items()}


def _choice_fields(state: JiraState) -> list[QueryField[JiraIssue]]:
    projects = state.projects.values()
    project_names = [name for project in projects for name in (project.key, project.name, project.id)]
    status_names = [name for status in STATUSES for name in (status.name, status.id)]
    categories = {name for status in STATUSES for name in (status.category, status.category_key)}
    type_names = [name for issue_type in ISSUE_TYPES for name in (issue_type.name, issue_type.id)]
    components = {name for project in projects for name in project.components}
    versions = {name for project in projects for name in project.versions}
    keys = [name for issue in state.issues.values() for name in (issue.key, issue.id)]
    return [
        QueryField(
            "key",
            FieldKind.CHOICE,
            lambda issue: (issue.key, issue.id),
            allowed=keys,
            sort_key=_key_order,
        ),
        _choice(
            "project",
            lambda issue: (issue.project.key, issue.project.name, issue.project.id),
            project_names,
        ),
        _choice("status", lambda issue: (issue.status.name, issue.status.id), status_names),
        _choice(
            "statusCategory", lambda issue: (issue.status.category, issue.status.category_key), categories
        ),
        _choice("issuetype", lambda issue: (issue.type.name, issue.type.id), type_names),
        _choice("resolution", lambda issue: _optional(issue.resolution), RESOLUTIONS),
        _choice("labels", lambda issue: issue.labels, None),
        _choice("component", lambda issue: issue.components, components),
        _choice("fixVersion", lambda issue: issue.fix_versions, versions),
        _choice("parent", lambda issue: _optional(issue.parent), keys),
        _choice("Epic Link", lambda issue: _optional(issue.epic_link), keys),
        QueryField(
            "priority",
            FieldKind.RANKED,
            lambda issue: (issue.priority,),
            allowed=PRIORITIES,
            ranks=PRIORITIES,
            sort_key=lambda issue: PRIORITIES.index(issue.priority),
        ),
    ]


def _choice(
    name: str, read: Callable[[JiraIssue], Sequence[str]], allowed: Sequence[str] | set[str] | None
) -> QueryField[JiraIssue]:
    return QueryField(name, FieldKind.CHOICE, read, allowed=allowed)


def _person_fields(company: Company) -> list[QueryField[JiraIssue]]:
    names = {person.login: (person.login, person.name, person.email) for person in company.people}
    allowed = [name for person_names in names.values() for name in person_names]
    return [
        _choice("assignee", lambda issue: names.get(issue.assignee or "", ()), allowed),
        _choice("reporter", lambda issue: names.get(issue.reporter, ()), allowed),
        _choice("creator", lambda issue: names.get(issue.reporter, ()), allowed),
    ]


def _text_fields() -> list[QueryField[JiraIssue]]:
    return [
        QueryField("summary", FieldKind.TEXT, lambda issue: (issue.summary,), sort_key=_summary_order),
        QueryField("description", FieldKind.TEXT, lambda issue: (issue.description,)),
        QueryField("comment", FieldKind.TEXT, _comment_texts),
        QueryField(
            "text",
            FieldKind.TEXT,
            lambda issue: (issue.summary, issue.description, *_comment_texts(issue)),
        ),
    ]


def _date_fields() -> list[QueryField[JiraIssue]]:
    return [
        QueryField("created", FieldKind.DATE, _no_names, read_date=lambda issue: issue.created),
        QueryField("updated", FieldKind.DATE, _no_names, read_date=lambda issue: issue.updated),
        QueryField("resolved", FieldKind.DATE, _no_names, read_date=lambda issue: issue.resolved_at),
        QueryField("due", FieldKind.CHOICE, lambda issue: _optional(issue.due)),
    ]


def _no_names(_: JiraIssue) -> Sequence[str]:
    return ()


def _optional(value: str | None) -> Sequence[str]:
    return () if value is None else (value,)


def _comment_texts(issue: JiraIssue) -> Sequence[str]:
    return [comment.body for comment in issue.comments]


def _key_order(issue: JiraIssue) -> SortValue:
    return f"{issue.project.key}-{issue.number:08}"


def _summary_order(issue: JiraIssue) -> SortValue:
    return issue.summary.lower()
