"""The fields of an issue that clients can set: their definitions, and how values are read and checked."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from ai_platform_engineering.demo.atlassian.api_access import Json
from ai_platform_engineering.demo.estate.company import Company
from ai_platform_engineering.demo.jira.state import (
    ISSUE_TYPES,
    PRIORITIES,
    RESOLUTIONS,
    IssueType,
    JiraIssue,
    JiraProject,
    JiraState,
)

EPIC_LINK_FIELD = "customfield_10008"
EPIC_NAME_FIELD = "customfield_10011"
MAX_SUMMARY_LENGTH = 255
MAX_TEXT_LENGTH = 32_767  # of a description or a comment, as in Jira
MAX_LABELS = 50
MAX_LABEL_LENGTH = 255

_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")


class InvalidFieldValue(ValueError):
    """A value that a field does not take; the message is Jira's."""


@dataclass(frozen=True, slots=True)
class FieldValues:
    """Reads the values of fields that a client sends for an issue of a project."""

    state: JiraState
    company: Company
    project: JiraProject

    def read_summary(self, value: Any) -> str:
        summary = _read_text(value).strip()
        if not summary:
            raise InvalidFieldValue("You must specify a summary of the issue.")
        if len(summary) > MAX_SUMMARY_LENGTH:
            raise InvalidFieldValue(f"Summary must be less than {MAX_SUMMARY_LENGTH} characters.")
        if "\n" in summary:
            raise InvalidFieldValue("The summary is invalid because it contains newline characters.")
        return summary

    def read_description(self, value: Any) -> str:
        return read_long_text(value)

    def read_type(self, value: Any) -> IssueType:
        for issue_type in ISSUE_TYPES:
            if isinstance(value, dict) and (
                str(value.get("id")) == issue_type.id
                or str(value.get("name", "")).lower() == issue_type.name.lower()
            ):
                return issue_type
        names = ", ".join(issue_type.name for issue_type in ISSUE_TYPES)
        raise InvalidFieldValue(f"The issue type selected is invalid. Valid types: {names}.")

    def read_priority(self, value: Any) -> str:
        return _read_choice(value, PRIORITIES, "priority")

    def read_resolution(self, value: Any) -> str:
        return _read_choice(value, RESOLUTIONS, "resolution")

    def read_person(self, value: Any) -> str | None:
        if value is None:
            return None
        name = _read_name(value, ("name", "key", "accountId"))
        if not name:
            return None
        for person in self.company.people:
            if person.login == name:
                return person.login
        raise InvalidFieldValue(f"User '{name}' does not exist.")

    def read_labels(self, value: Any) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(label, str) for label in value):
            raise InvalidFieldValue("data was not an array of labels")
        for label in value:
            if re.search(r"\s", label) or not label:
                raise InvalidFieldValue(f"The label '{label}' contains spaces which is invalid.")
            if len(label) > MAX_LABEL_LENGTH:
                raise InvalidFieldValue(f"A label has more than {MAX_LABEL_LENGTH} characters.")
        if len(value) > MAX_LABELS:
            raise InvalidFieldValue(f"An issue has at most {MAX_LABELS} labels.")
        return tuple(sorted(set(value)))

    def read_components(self, value: Any) -> tuple[str, ...]:
        return _read_names(value, self.project.components, "Component")

    def read_versions(self, value: Any) -> tuple[str, ...]:
        return _read_names(value, self.project.versions, "Version")

    def read_due_date(self, value: Any) -> str | None:
        if value in (None, ""):
            return None
        if not isinstance(value, str) or not _DATE.fullmatch(value):
            raise InvalidFieldValue("Error parsing date string: expected yyyy-MM-dd")
        return value

    def read_issue_key(self, value: Any) -> str | None:
        if value in (None, ""):
            return None
        key = _read_name(value, ("key", "id"))
        issue = self.state.find_issue(key)
        if issue is None:
            raise InvalidFieldValue(f"Could not find issue '{key}'.")
        return issue.key

    def read_name(self, value: Any) -> str | None:
        if value is None:
            return None
        text = _read_text(value)
        if len(text) > MAX_SUMMARY_LENGTH:
            raise InvalidFieldValue(f"The value has more than {MAX_SUMMARY_LENGTH} characters.")
        return text


@dataclass(frozen=True, slots=True)
class IssueField:
    """A field of Jira; `attribute` is the one of JiraIssue, `read` is None when clients cannot set it."""

    id: str
    name: str
    type: str
    attribute: str = ""
    read: Callable[[FieldValues, Any], Any] | None = None
    item_type: str = ""
    clauses: tuple[str, ...] = ()
    custom: str = ""

    def definition(self) -> Json:
        """As the resource `field` lists it."""
        definition: Json = {
            "id": self.id,
            "name": self.name,
            "custom": bool(self.custom),
            "orderable": self.read is not None,
            "navigable": self.id != "comment",
            "searchable": bool(self.clauses),
            "clauseNames": list(self.clauses),
            "schema": self.schema(),
        }
        return definition

    def schema(self) -> Json:
        schema: Json = {"type": self.type}
        if self.item_type:
            schema["items"] = self.item_type
        if self.custom:
            schema["custom"] = self.custom
            schema["customId"] = int(self.id.rpartition("_")[2])
        else:
            schema["system"] = self.id
        return schema


_EPIC_LINK_TYPE = "com.pyxis.greenhopper.jira:gh-epic-link"
_EPIC_NAME_TYPE = "com.pyxis.greenhopper.jira:gh-epic-label"
FIELDS = (
    IssueField("summary", "Summary", "string", "summary", FieldValues.read_summary, clauses=("summary",)),
    IssueField(
        "description",
        "Description",
        "string",
        "description",
        FieldValues.read_description,
        clauses=("description",),
    ),
    IssueField(
        "issuetype", "Issue Type", "issuetype", "type", FieldValues.read_type, clauses=("issuetype", "type")
    ),
    IssueField("project", "Project", "project", clauses=("project",)),
    IssueField("status", "Status", "status", clauses=("status",)),
    IssueField(
        "priority", "Priority", "priority", "priority", FieldValues.read_priority, clauses=("priority",)
    ),
    IssueField("resolution", "Resolution", "resolution", clauses=("resolution",)),
    IssueField("assignee", "Assignee", "user", "assignee", FieldValues.read_person, clauses=("assignee",)),
    IssueField("reporter", "Reporter", "user", "reporter", FieldValues.read_person, clauses=("reporter",)),
    IssueField("creator", "Creator", "user", clauses=("creator",)),
    IssueField(
        "labels",
        "Labels",
        "array",
        "labels",
        FieldValues.read_labels,
        item_type="string",
        clauses=("labels",),
    ),
    IssueField(
        "components",
        "Component/s",
        "array",
        "components",
        FieldValues.read_components,
        item_type="component",
        clauses=("component",),
    ),
    IssueField(
        "fixVersions",
        "Fix Version/s",
        "array",
        "fix_versions",
        FieldValues.read_versions,
        item_type="version",
        clauses=("fixVersion",),
    ),
    IssueField("created", "Created", "datetime", clauses=("created", "createdDate")),
    IssueField("updated", "Updated", "datetime", clauses=("updated", "updatedDate")),
    IssueField("resolutiondate", "Resolved", "datetime", clauses=("resolved", "resolutiondate")),
    IssueField("duedate", "Due Date", "date", "due", FieldValues.read_due_date, clauses=("due", "duedate")),
    IssueField("parent", "Parent", "issuelink", "parent", FieldValues.read_issue_key, clauses=("parent",)),
    IssueField("subtasks", "Sub-Tasks", "array", item_type="issuelinks"),
    IssueField("issuelinks", "Linked Issues", "array", item_type="issuelinks"),
    IssueField("comment", "Comment", "comments-page", clauses=("comment",)),
    IssueField(
        EPIC_LINK_FIELD,
        "Epic Link",
        "any",
        "epic_link",
        FieldValues.read_issue_key,
        clauses=("Epic Link",),
        custom=_EPIC_LINK_TYPE,
    ),
    IssueField(
        EPIC_NAME_FIELD,
        "Epic Name",
        "string",
        "epic_name",
        FieldValues.read_name,
        clauses=("Epic Name",),
        custom=_EPIC_NAME_TYPE,
    ),
)
FIELDS_BY_ID = {field.id: field for field in FIELDS}


def show_value(issue: JiraIssue, field: IssueField) -> str:
    """A field's value as changelogs show it."""
    value = getattr(issue, field.attribute)
    if isinstance(value, tuple):
        return (" " if field.id == "labels" else ", ").join(value)
    if isinstance(value, IssueType):
        return value.name
    return value or ""


def read_long_text(value: Any) -> str:
    """A description or the body of a comment. Raises InvalidFieldValue."""
    text = _read_text(value)
    if len(text) > MAX_TEXT_LENGTH:
        raise InvalidFieldValue(
            f"The entered text is too long. It exceeds the allowed limit of {MAX_TEXT_LENGTH} characters."
        )
    return text


def _read_text(value: Any) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidFieldValue("Operation value must be a string")
    return value


def _read_name(value: Any, keys: Sequence[str]) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        for key in keys:
            if value.get(key):
                return str(value[key])
    return ""


def _read_choice(value: Any, names: Sequence[str], field: str) -> str:
    name = _read_name(value, ("name", "id"))
    for number, choice in enumerate(names, start=1):
        if name.lower() == choice.lower() or name == str(number):
            return choice
    raise InvalidFieldValue(f"The {field} '{name}' is not valid. Valid values: {', '.join(names)}.")


def _read_names(value: Any, names: Sequence[str], noun: str) -> tuple[str, ...]:
    if not isinstance(value, list):
        raise InvalidFieldValue("data was not an array")
    chosen: list[str] = []
    for entry in value:
        name = _read_name(entry, ("name", "id"))
        if name not in names:
            raise InvalidFieldValue(f"{noun} name '{name}' is not valid. Valid names: {', '.join(names)}.")
        if name not in chosen:
            chosen.append(name)
    return tuple(chosen)
