"""Changes of issues as Jira makes them: created, edited, moved by transitions, commented, with changelogs."""

from typing import Any

from ai_platform_engineering.demo.atlassian.api_access import AtlassianApiError, Json
from ai_platform_engineering.demo.estate.company import Person
from ai_platform_engineering.demo.estate.estate import Estate
from ai_platform_engineering.demo.jira.issue_fields import (
    FIELDS_BY_ID,
    FieldValues,
    InvalidFieldValue,
    IssueField,
    read_long_text,
    show_value,
)
from ai_platform_engineering.demo.jira.state import (
    DONE,
    TRANSITIONS,
    FieldChange,
    JiraComment,
    JiraIsFull,
    JiraIssue,
    JiraProject,
    JiraState,
    JiraTransition,
)

_REQUIRED_FIELDS = {
    "summary": "You must specify a summary of the issue.",
    "issuetype": "issue type is required",
}


class IssueEditor:
    """Makes changes in the name of one person. All methods raise AtlassianApiError."""

    def __init__(self, state: JiraState, estate: Estate, actor: Person) -> None:
        self._state = state
        self._estate = estate
        self._actor = actor

    def create(self, fields: Json) -> JiraIssue:
        project = self._read_project(fields.get("project"))
        values = self._read_values(project, {key: value for key, value in fields.items() if key != "project"})
        self._check_new(fields, values)
        self._reserve(len(values.get("description", "")))
        now = self._estate.now
        issue = JiraIssue(
            id=self._state.next_id(),
            key=self._state.next_key(project),
            project=project,
            type=values["type"],
            summary=values["summary"],
            reporter=self._actor.login,
            created=now,
            updated=now,
        )
        for attribute, value in values.items():
            if attribute != "reporter" or value:
                setattr(issue, attribute, value)
        try:
            self._state.add_issue(issue)
        except JiraIsFull as error:
            raise AtlassianApiError(400, str(error)) from error
        return issue

    def edit(self, issue: JiraIssue, fields: Json, update: Json) -> None:
        """`update` has operations for each field: `{"labels": [{"add": "urgent"}]}`."""
        new_fields = dict(fields)
        comments: list[str] = []
        for name, operations in update.items():
            if name == "comment":
                comments += self._read_comments(operations)
            else:
                new_fields[name] = self._apply_operations(issue, name, operations)
        values = self._read_values(issue.project, new_fields)
        self._reserve(2 * len(values.get("description", "")))  # the changelog has it, too
        self._set_values(issue, new_fields, values)
        for body in comments:
            self.add_comment(issue, body)

    def assign(self, issue: JiraIssue, body: Json) -> None:
        self.edit(issue, {"assignee": body}, {})

    def list_transitions(self, issue: JiraIssue) -> list[JiraTransition]:
        return [transition for transition in TRANSITIONS if issue.status in transition.sources]

    def transition(self, issue: JiraIssue, transition_id: str, fields: Json, update: Json) -> None:
        available = {transition.id: transition for transition in self.list_transitions(issue)}
        transition = available.get(transition_id)
        if transition is None:
            message = (
                f"It seems that you have tried to perform an illegal workflow operation: the transition"
                f" '{transition_id}' does not exist for '{issue.key}' in status '{issue.status.name}'."
            )
            raise AtlassianApiError(400, message)
        resolution = self._read_resolution(issue, fields)
        other_fields = {key: value for key, value in fields.items() if key != "resolution"}
        self.edit(issue, other_fields, update)
        items = [FieldChange("status", issue.status.name, transition.target.name)]
        new_resolution = resolution if transition.target == DONE else None
        if new_resolution != issue.resolution:
            items.append(FieldChange("resolution", issue.resolution or "", new_resolution or ""))
        issue.status = transition.target
        issue.resolution = new_resolution
        issue.resolved_at = self._estate.now if transition.target == DONE else None
        self._state.record_change(issue, self._actor.login, self._estate.now, *items)

    def add_comment(self, issue: JiraIssue, body: Any) -> JiraComment:
        text = self._read_comment(body)
        self._reserve(len(text))
        try:
            return self._state.add_comment(issue, self._actor.login, text, self._estate.now)
        except JiraIsFull as error:
            raise AtlassianApiError(400, str(error)) from error

    def edit_comment(self, issue: JiraIssue, comment: JiraComment, body: Any) -> None:
        text = self._read_comment(body)
        self._reserve(len(text))
        comment.body = text
        comment.updated = self._estate.now
        comment.update_author = self._actor.login
        issue.updated = self._estate.now

    def _reserve(self, length: int) -> None:
        try:
            self._state.reserve(length)
        except JiraIsFull as error:
            raise AtlassianApiError(400, str(error)) from error

    def _read_project(self, value: Any) -> JiraProject:
        reference = value if isinstance(value, dict) else {}
        for project in self._state.projects.values():
            if project.key == str(reference.get("key", "")).upper() or project.id == str(reference.get("id")):
                return project
        keys = ", ".join(self._state.projects)
        message = f"valid project is required; the projects are {keys}"
        raise AtlassianApiError(400, "", {"project": message})

    def _check_new(self, fields: Json, values: Json) -> None:
        errors = {name: message for name, message in _REQUIRED_FIELDS.items() if name not in fields}
        issue_type = values.get("type")
        if issue_type is not None and issue_type.is_subtask and not values.get("parent"):
            errors["parent"] = "Issue type is a sub-task but parent issue key or id not specified."
        if errors:
            raise AtlassianApiError(400, "", errors)

    def _read_values(self, project: JiraProject, fields: Json) -> Json:
        """Values by attribute of JiraIssue."""
        reader = FieldValues(self._state, self._estate.company, project)
        values: Json = {}
        errors: dict[str, str] = {}
        for name, value in fields.items():
            field = FIELDS_BY_ID.get(name)
            if field is None or field.read is None:
                errors[name] = (
                    f"Field '{name}' cannot be set. It is not on the appropriate screen, or unknown."
                )
                continue
            try:
                values[field.attribute] = field.read(reader, value)
            except InvalidFieldValue as error:
                errors[name] = str(error)
        if errors:
            raise AtlassianApiError(400, "", errors)
        return values

    def _set_values(self, issue: JiraIssue, fields: Json, values: Json) -> None:
        items: list[FieldChange] = []
        for name in fields:
            field = FIELDS_BY_ID[name]
            old = show_value(issue, field)
            setattr(issue, field.attribute, values[field.attribute])
            new = show_value(issue, field)
            if new != old:
                items.append(FieldChange(field.name if field.custom else field.id, old, new))
        if items:
            self._state.record_change(issue, self._actor.login, self._estate.now, *items)

    def _apply_operations(self, issue: JiraIssue, name: str, operations: Any) -> Any:
        """The field's new value, as a client would send it."""
        field = FIELDS_BY_ID.get(name)
        if field is None or field.read is None or not isinstance(operations, list):
            raise AtlassianApiError(400, "", {name: f"Field '{name}' cannot be set by operations."})
        value: Any = list(self._names(issue, field))
        for operation in operations:
            if not isinstance(operation, dict) or len(operation) != 1:
                raise AtlassianApiError(400, "", {name: "An operation has one verb: add, remove or set."})
            ((verb, argument),) = operation.items()
            if verb == "set":
                value = argument
            elif verb in ("add", "remove") and field.type == "array" and isinstance(value, list):
                entry = argument.get("name", "") if isinstance(argument, dict) else argument
                value = [*(name for name in value if name != entry), *([entry] if verb == "add" else [])]
            else:
                raise AtlassianApiError(400, "", {name: f"The verb '{verb}' is not supported by the field."})
        return value

    def _names(self, issue: JiraIssue, field: IssueField) -> tuple[str, ...]:
        value = getattr(issue, field.attribute)
        return value if isinstance(value, tuple) else ()

    def _read_resolution(self, issue: JiraIssue, fields: Json) -> str:
        if "resolution" not in fields:
            return "Done"
        reader = FieldValues(self._state, self._estate.company, issue.project)
        try:
            return reader.read_resolution(fields["resolution"])
        except InvalidFieldValue as error:
            raise AtlassianApiError(400, "", {"resolution": str(error)}) from error

    def _read_comments(self, operations: Any) -> list[str]:
        bodies: list[str] = []
        for operation in operations if isinstance(operations, list) else []:
            added = operation.get("add") if isinstance(operation, dict) else None
            if not isinstance(added, dict):
                raise AtlassianApiError(400, "", {"comment": "Comments can only be added."})
            bodies.append(self._read_comment(added.get("body")))
        return bodies

    def _read_comment(self, body: Any) -> str:
        try:
            text = read_long_text(body)
        except InvalidFieldValue as error:
            raise AtlassianApiError(400, "", {"comment": str(error)}) from error
        if not text.strip():
            raise AtlassianApiError(400, "", {"comment": "Comment body can not be empty!"})
        return text
