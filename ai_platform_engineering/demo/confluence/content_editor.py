"""Changes of pages as Confluence makes them: created, updated with versions, commented, labelled."""

import re
from typing import Any

from ai_platform_engineering.demo.atlassian.api_access import AtlassianApiError, Json
from ai_platform_engineering.demo.confluence.state import (
    MAX_BODY_LENGTH,
    MAX_TITLE_LENGTH,
    ConfluenceIsFull,
    ConfluenceSpace,
    ConfluenceState,
    ContentPage,
    PageComment,
    PageVersion,
)
from ai_platform_engineering.demo.confluence.storage_format import InvalidStorageFormat, read_text
from ai_platform_engineering.demo.estate.company import Person
from ai_platform_engineering.demo.estate.estate import Estate

_LABEL = re.compile(r"[^\s,:;!#&()*.?@\[\]^]{1,255}")


class ContentEditor:
    """Makes changes in the name of one person. All methods raise AtlassianApiError."""

    def __init__(self, state: ConfluenceState, estate: Estate, actor: Person) -> None:
        self._state = state
        self._estate = estate
        self._actor = actor

    def create_page(self, body: Json) -> ContentPage:
        space = self._read_space(body.get("space"))
        title = self._read_title(body.get("title"))
        self._check_title(space, title, None)
        storage = self._read_storage(body.get("body"))
        parent_id = self._read_parent(body.get("ancestors")) or space.homepage_id
        now = self._estate.now
        version = PageVersion(1, title, storage, _read_body_text(storage), self._actor.login, now)
        page = ContentPage(
            id=self._state.next_id(),
            space=space,
            parent_id=parent_id,
            position=len(self._state.list_children(parent_id)),
            creator=self._actor.login,
            created=now,
            versions=[version],
        )
        try:
            self._state.add_page(page)
        except ConfluenceIsFull as error:
            raise AtlassianApiError(400, str(error)) from error
        return page

    def update_page(self, page: ContentPage, body: Json) -> None:
        """The version must be the next one: who updates has read the current one."""
        current = page.current
        version = body.get("version")
        number = version.get("number") if isinstance(version, dict) else None
        if number != current.number + 1:
            message = (
                f"Version must be incremented when updating a page. Current version: {current.number},"
                f" provided version: {number}"
            )
            raise AtlassianApiError(409, message)
        title = self._read_title(body.get("title", current.title))
        self._check_title(page.space, title, page)
        storage = self._read_storage(body["body"]) if body.get("body") else current.body
        parent_id = self._read_parent(body.get("ancestors"))
        if parent_id:
            self._check_parent(page, parent_id)
            page.parent_id = parent_id
        assert isinstance(version, dict)
        self._state.add_version(
            page,
            PageVersion(
                current.number + 1,
                title,
                storage,
                _read_body_text(storage),
                self._actor.login,
                self._estate.now,
                str(version.get("message") or "")[:MAX_TITLE_LENGTH],
                version.get("minorEdit") is True,
            ),
        )

    def add_comment(self, page: ContentPage, body: Json) -> PageComment:
        storage = self._read_storage(body.get("body"))
        parent_id = _read_reference(body.get("ancestors"))
        if parent_id and parent_id not in {comment.id for comment in page.comments}:
            raise AtlassianApiError(404, f"No comment with id {parent_id} on the page.")
        comment = PageComment(
            self._state.next_id(),
            self._actor.login,
            storage,
            _read_body_text(storage),
            self._estate.now,
            parent_id,
        )
        try:
            self._state.add_comment(page, comment)
        except ConfluenceIsFull as error:
            raise AtlassianApiError(400, str(error)) from error
        return comment

    def add_labels(self, page: ContentPage, body: Any) -> None:
        for entry in body if isinstance(body, list) else [body]:
            name = str(entry.get("name", "")).lower() if isinstance(entry, dict) else ""
            if not _LABEL.fullmatch(name):
                raise AtlassianApiError(
                    400, f"The label '{name}' is empty or has characters that are not allowed."
                )
            try:
                self._state.add_label(page, name)
            except ConfluenceIsFull as error:
                raise AtlassianApiError(400, str(error)) from error

    def _read_storage(self, value: Any) -> str:
        storage = value.get("storage") if isinstance(value, dict) else None
        if not isinstance(storage, dict) or not isinstance(storage.get("value"), str):
            raise AtlassianApiError(400, "The body must have a value in the representation 'storage'.")
        body: str = storage["value"]
        if len(body) > MAX_BODY_LENGTH:
            raise AtlassianApiError(413, f"The body has more than {MAX_BODY_LENGTH} characters.")
        try:
            self._state.reserve(2 * len(body))  # its text is stored beside it
        except ConfluenceIsFull as error:
            raise AtlassianApiError(400, str(error)) from error
        return body

    def _read_space(self, value: Any) -> ConfluenceSpace:
        key = str(value.get("key", "")) if isinstance(value, dict) else ""
        space = self._state.spaces.get(key.upper())
        if space is None:
            keys = ", ".join(self._state.spaces)
            raise AtlassianApiError(404, f"No space with key '{key}'. The spaces are {keys}.")
        return space

    def _read_title(self, value: Any) -> str:
        title = value.strip() if isinstance(value, str) else ""
        if not title:
            raise AtlassianApiError(400, "A page must have a title.")
        if len(title) > MAX_TITLE_LENGTH:
            raise AtlassianApiError(400, f"A title has at most {MAX_TITLE_LENGTH} characters.")
        return title

    def _check_title(self, space: ConfluenceSpace, title: str, page: ContentPage | None) -> None:
        other = self._state.find_page_by_title(space.key, title)
        if other is not None and other is not page:
            message = (
                f"A page with this title already exists: A page already exists with the title {title} in the"
                f" space with key {space.key}"
            )
            raise AtlassianApiError(400, message)

    def _read_parent(self, value: Any) -> str:
        parent_id = _read_reference(value)
        if parent_id and parent_id not in self._state.pages:
            raise AtlassianApiError(400, f"The parent page {parent_id} does not exist.")
        return parent_id

    def _check_parent(self, page: ContentPage, parent_id: str) -> None:
        parent = self._state.pages[parent_id]
        if page is parent or page in self._state.list_ancestors(parent):
            raise AtlassianApiError(400, "A page cannot be moved below itself.")


def _read_reference(value: Any) -> str:
    """The id of the last ancestor, or none."""
    if isinstance(value, list) and value and isinstance(value[-1], dict):
        return str(value[-1].get("id", ""))
    return ""


def _read_body_text(storage: str) -> str:
    try:
        return read_text(storage)
    except InvalidStorageFormat as error:
        raise AtlassianApiError(400, str(error)) from error
