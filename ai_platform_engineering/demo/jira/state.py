"""What the stand-in for Jira stores: projects and their issues, with comments, links and changelogs."""

from dataclasses import dataclass, field
from datetime import datetime

MAX_ISSUES = 2_000
MAX_COMMENTS = 200  # of an issue
MAX_CHANGES = 200  # that an issue remembers
MAX_STORED_LENGTH = 2_000_000  # characters of all texts that were ever written

FIRST_ID = 10_000


class JiraIsFull(Exception):
    """The stand-in stores no more of this kind."""


@dataclass(frozen=True, slots=True)
class JiraStatus:
    id: str
    name: str
    category_id: int
    category_key: str
    category: str


TO_DO = JiraStatus("10000", "To Do", 2, "new", "To Do")
IN_PROGRESS = JiraStatus("3", "In Progress", 4, "indeterminate", "In Progress")
IN_REVIEW = JiraStatus("10001", "In Review", 4, "indeterminate", "In Progress")
DONE = JiraStatus("10002", "Done", 3, "done", "Done")
STATUSES = (TO_DO, IN_PROGRESS, IN_REVIEW, DONE)


@dataclass(frozen=True, slots=True)
class JiraTransition:
    id: str
    name: str
    sources: tuple[JiraStatus, ...]
    target: JiraStatus


TRANSITIONS = (
    JiraTransition("11", "Start Progress", (TO_DO,), IN_PROGRESS),
    JiraTransition("21", "Stop Progress", (IN_PROGRESS,), TO_DO),
    JiraTransition("31", "Request Review", (IN_PROGRESS,), IN_REVIEW),
    JiraTransition("41", "Reject", (IN_REVIEW,), IN_PROGRESS),
    JiraTransition("51", "Done", (TO_DO, IN_PROGRESS, IN_REVIEW), DONE),
    JiraTransition("61", "Reopen", (DONE,), TO_DO),
)


@dataclass(frozen=True, slots=True)
class IssueType:
    id: str
    name: str
    description: str
    is_subtask: bool = False


SUBTASK = IssueType("10005", "Sub-task", "A part of another issue.", is_subtask=True)
EPIC = IssueType("10003", "Epic", "A large piece of work with several issues.")
ISSUE_TYPES = (
    IssueType("10001", "Task", "A piece of work."),
    IssueType("10002", "Bug", "Something that does not work."),
    EPIC,
    IssueType("10004", "Story", "Something that a user wants."),
    SUBTASK,
)
PRIORITIES = ("Lowest", "Low", "Medium", "High", "Highest")  # the lowest first
RESOLUTIONS = ("Done", "Won't Do", "Duplicate", "Cannot Reproduce")


@dataclass(frozen=True, slots=True)
class JiraProject:
    """`components` are the names of the team's services; `versions` are those of their releases."""

    id: str
    key: str
    name: str
    lead: str
    components: tuple[str, ...]
    versions: tuple[str, ...]


@dataclass(slots=True)
class JiraComment:
    id: str
    author: str
    body: str
    created: datetime
    updated: datetime
    update_author: str


@dataclass(frozen=True, slots=True)
class FieldChange:
    """One field's change; the values as Jira shows them to people."""

    field: str
    old: str
    new: str


@dataclass(frozen=True, slots=True)
class IssueChange:
    id: str
    author: str
    created: datetime
    items: tuple[FieldChange, ...]


@dataclass(frozen=True, slots=True)
class IssueLink:
    """A link to another issue, as this one shows it: `phrase` is "blocks" or "is blocked by"."""

    id: str
    type: str
    phrase: str
    is_outward: bool
    key: str


@dataclass(slots=True)
class JiraIssue:
    """An issue; people are their logins. `description` and comments are wiki markup."""

    id: str
    key: str
    project: JiraProject
    type: IssueType
    summary: str
    reporter: str
    created: datetime
    updated: datetime
    description: str = ""
    status: JiraStatus = TO_DO
    priority: str = "Medium"
    assignee: str | None = None
    labels: tuple[str, ...] = ()
    components: tuple[str, ...] = ()
    fix_versions: tuple[str, ...] = ()
    due: str | None = None
    resolution: str | None = None
    resolved_at: datetime | None = None
    parent: str | None = None
    epic_link: str | None = None
    epic_name: str | None = None
    comments: list[JiraComment] = field(default_factory=list)
    changes: list[IssueChange] = field(default_factory=list)
    links: list[IssueLink] = field(default_factory=list)

    @property
    def number(self) -> int:
        return int(self.key.rpartition("-")[2])


@dataclass(slots=True)
class JiraState:
    projects: dict[str, JiraProject] = field(default_factory=dict)
    issues: dict[str, JiraIssue] = field(default_factory=dict)
    last_numbers: dict[str, int] = field(default_factory=dict)
    _last_id: int = FIRST_ID
    _stored_length: int = 0

    def reserve(self, length: int) -> None:
        """Counts a text before it is stored. Raises JiraIsFull."""
        if self._stored_length + length > MAX_STORED_LENGTH:
            raise JiraIsFull(f"This Jira stores at most {MAX_STORED_LENGTH} characters.")
        self._stored_length += length

    def next_id(self) -> str:
        self._last_id += 1
        return str(self._last_id)

    def next_key(self, project: JiraProject, step: int = 1) -> str:
        """Keys are not used again, also when their issues are deleted."""
        self.last_numbers[project.key] += step
        return f"{project.key}-{self.last_numbers[project.key]}"

    def find_issue(self, id_or_key: str) -> JiraIssue | None:
        issue = self.issues.get(id_or_key.upper())
        if issue is not None:
            return issue
        return next((issue for issue in self.issues.values() if issue.id == id_or_key), None)

    def list_records(self) -> dict[str, dict[str, str]]:
        """The issues by key, as those see them who compare the estate with an earlier state of it."""
        return {
            key: {
                "project": issue.project.key,
                "summary": issue.summary,
                "description": issue.description,
                "status": issue.status.name,
                "changes": str(len(issue.changes) + len(issue.comments)),
            }
            for key, issue in self.issues.items()
        }

    def add_issue(self, issue: JiraIssue) -> None:
        """Raises JiraIsFull."""
        if len(self.issues) >= MAX_ISSUES:
            raise JiraIsFull(f"This Jira stores at most {MAX_ISSUES} issues.")
        self.issues[issue.key] = issue

    def add_comment(self, issue: JiraIssue, author: str, body: str, now: datetime) -> JiraComment:
        """Raises JiraIsFull."""
        if len(issue.comments) >= MAX_COMMENTS:
            raise JiraIsFull(f"This Jira stores at most {MAX_COMMENTS} comments of an issue.")
        comment = JiraComment(self.next_id(), author, body, now, now, author)
        issue.comments.append(comment)
        issue.updated = max(issue.updated, now)
        return comment

    def record_change(self, issue: JiraIssue, author: str, now: datetime, *items: FieldChange) -> None:
        change = IssueChange(self.next_id(), author, now, items)
        issue.changes = [*issue.changes, change][-MAX_CHANGES:]
        issue.updated = max(issue.updated, now)
