"""What the stand-in for Confluence stores: spaces with trees of pages, versions, comments and labels."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

MAX_PAGES = 1_000
MAX_VERSIONS = 50  # that a page remembers
MAX_COMMENTS = 200  # of a page
MAX_LABELS = 50
MAX_PROPERTIES = 20
MAX_BODY_LENGTH = 200_000
MAX_TITLE_LENGTH = 255
MAX_STORED_LENGTH = 2_000_000  # characters of all bodies that were ever written

_FIRST_ID = 65_000


class ConfluenceIsFull(Exception):
    """The stand-in stores no more of this kind."""


@dataclass(slots=True)
class ConfluenceSpace:
    id: int
    key: str
    name: str
    homepage_id: str = ""


@dataclass(frozen=True, slots=True)
class PageVersion:
    """`text` is what the body says without its markup."""

    number: int
    title: str
    body: str
    text: str
    author: str
    when: datetime
    message: str = ""
    is_minor: bool = False


@dataclass(frozen=True, slots=True)
class PageComment:
    """A comment below a page, or a reply to the comment `parent_id`."""

    id: str
    author: str
    body: str
    text: str
    created: datetime
    parent_id: str = ""


@dataclass(slots=True)
class ContentPage:
    """A page; `versions` are the oldest first, people are their logins."""

    id: str
    space: ConfluenceSpace
    parent_id: str
    position: int
    creator: str
    created: datetime
    versions: list[PageVersion]
    labels: list[str] = field(default_factory=list)
    comments: list[PageComment] = field(default_factory=list)
    properties: dict[str, Any] = field(default_factory=dict)

    @property
    def current(self) -> PageVersion:
        return self.versions[-1]

    def find_version(self, number: int) -> PageVersion | None:
        return next((version for version in self.versions if version.number == number), None)


@dataclass(slots=True)
class ConfluenceState:
    spaces: dict[str, ConfluenceSpace] = field(default_factory=dict)
    pages: dict[str, ContentPage] = field(default_factory=dict)
    _last_id: int = _FIRST_ID
    _stored_length: int = 0

    def reserve(self, length: int) -> None:
        """Counts a text before it is stored. Raises ConfluenceIsFull."""
        if self._stored_length + length > MAX_STORED_LENGTH:
            raise ConfluenceIsFull(f"This Confluence stores at most {MAX_STORED_LENGTH} characters.")
        self._stored_length += length

    def next_id(self, step: int = 1) -> str:
        self._last_id += step
        return str(self._last_id)

    def find_page_by_title(self, space_key: str, title: str) -> ContentPage | None:
        for page in self.pages.values():
            if page.space.key == space_key and page.current.title.lower() == title.lower():
                return page
        return None

    def list_children(self, page_id: str) -> list[ContentPage]:
        children = [page for page in self.pages.values() if page.parent_id == page_id]
        return sorted(children, key=lambda page: page.position)

    def list_ancestors(self, page: ContentPage) -> list[ContentPage]:
        """From the space's home page down to the parent."""
        ancestors: list[ContentPage] = []
        parent = self.pages.get(page.parent_id)
        while parent is not None and parent not in ancestors:
            ancestors.insert(0, parent)
            parent = self.pages.get(parent.parent_id)
        return ancestors

    def list_records(self) -> dict[str, dict[str, str]]:
        """The pages by id, as those see them who compare the estate with an earlier state of it."""
        return {
            page.id: {
                "title": page.current.title,
                "version": str(page.current.number),
                "comments": str(len(page.comments)),
            }
            for page in self.pages.values()
        }

    def add_page(self, page: ContentPage) -> None:
        """Raises ConfluenceIsFull."""
        if len(self.pages) >= MAX_PAGES:
            raise ConfluenceIsFull(f"This Confluence stores at most {MAX_PAGES} pages.")
        self.pages[page.id] = page

    def add_version(self, page: ContentPage, version: PageVersion) -> None:
        page.versions = [*page.versions, version][-MAX_VERSIONS:]

    def add_comment(self, page: ContentPage, comment: PageComment) -> None:
        """Raises ConfluenceIsFull."""
        if len(page.comments) >= MAX_COMMENTS:
            raise ConfluenceIsFull(f"This Confluence stores at most {MAX_COMMENTS} comments of a page.")
        page.comments.append(comment)

    def add_label(self, page: ContentPage, label: str) -> None:
        """Raises ConfluenceIsFull."""
        if label in page.labels:
            return
        if len(page.labels) >= MAX_LABELS:
            raise ConfluenceIsFull(f"This Confluence stores at most {MAX_LABELS} labels of a page.")
        page.labels.append(label)

    def remove_page(self, page: ContentPage) -> None:
        """Its children move up to its parent."""
        for child in self.list_children(page.id):
            child.parent_id = page.parent_id
        del self.pages[page.id]
