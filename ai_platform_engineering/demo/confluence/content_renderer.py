"""Pages, comments, spaces and people as Confluence Data Center's REST API shows them."""

from collections.abc import Callable, Collection
from datetime import datetime
from typing import Any
from urllib.parse import quote_plus

from ai_platform_engineering.demo.atlassian.api_access import Json
from ai_platform_engineering.demo.confluence.cql import SearchedContent
from ai_platform_engineering.demo.confluence.state import (
    ConfluenceSpace,
    ConfluenceState,
    ContentPage,
    PageComment,
    PageVersion,
)
from ai_platform_engineering.demo.estate.company import Company, Person

_EXCERPT_LENGTH = 300


def show_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.000Z")


class ContentRenderer:
    """`base_url` is the stand-in's address, without a slash at its end."""

    def __init__(self, state: ConfluenceState, company: Company, base_url: str) -> None:
        self._state = state
        self._people = {person.login: person for person in company.people}
        self._base_url = base_url

    def page(self, page: ContentPage, expand: Collection[str], version: PageVersion | None = None) -> Json:
        """A page as it is now, or as it was; what is not expanded is named in `_expandable`."""
        selected_version = version or page.current
        path = f"/rest/api/content/{page.id}"
        parts: dict[str, Callable[[], Any]] = {
            "space": lambda: self.space(page.space),
            "version": lambda: self.version(selected_version),
            "history": lambda: self.history(page),
            "ancestors": lambda: [self.page(parent, ()) for parent in self._state.list_ancestors(page)],
            "body": lambda: self._body(selected_version.body, expand),
        }
        rendered = self._content(page.id, "page", selected_version.title)
        rendered["status"] = "current" if selected_version is page.current else "historical"
        rendered["extensions"] = {"position": page.position}
        for name, render in parts.items():
            if _is_expanded(name, expand):
                rendered[name] = render()
        rendered |= self._collections(page, expand)
        rendered["_expandable"] = {name: path for name in parts if name not in rendered}
        rendered["_expandable"]["space"] = f"/rest/api/space/{page.space.key}"
        rendered["_links"] = {
            "self": f"{self._base_url}{path}",
            "webui": f"/display/{page.space.key}/{quote_plus(selected_version.title)}",
            "base": self._base_url,
        }
        return rendered

    def comment(self, page: ContentPage, comment: PageComment, expand: Collection[str]) -> Json:
        rendered = self._content(comment.id, "comment", f"Re: {page.current.title}")
        rendered["extensions"] = {"location": "footer"}
        rendered["container"] = self._content(page.id, "page", page.current.title)
        rendered["body"] = self._body(comment.body, [*expand, "body.view"])
        rendered["version"] = {
            "number": 1,
            "by": self.person(comment.author),
            "when": show_time(comment.created),
        }
        if comment.parent_id:
            rendered["ancestors"] = [{"id": comment.parent_id, "type": "comment"}]
        rendered["_links"] = {"self": f"{self._base_url}/rest/api/content/{comment.id}"}
        return rendered

    def space(self, space: ConfluenceSpace) -> Json:
        return {
            "id": space.id,
            "key": space.key,
            "name": space.name,
            "type": "global",
            "_links": {
                "webui": f"/display/{space.key}",
                "self": f"{self._base_url}/rest/api/space/{space.key}",
            },
        }

    def version(self, version: PageVersion) -> Json:
        return {
            "number": version.number,
            "by": self.person(version.author),
            "when": show_time(version.when),
            "message": version.message,
            "minorEdit": version.is_minor,
        }

    def history(self, page: ContentPage) -> Json:
        return {
            "latest": True,
            "createdBy": self.person(page.creator),
            "createdDate": show_time(page.created),
            "lastUpdated": self.version(page.current),
        }

    def label(self, name: str) -> Json:
        return {"prefix": "global", "name": name, "id": name, "label": name}

    def person(self, login: str) -> Json | None:
        person = self._people.get(login)
        return None if person is None else self.user(person)

    def user(self, person: Person) -> Json:
        return {
            "type": "known",
            "username": person.login,
            "userKey": person.login,
            "displayName": person.name,
            "email": person.email,
        }

    def search_result(self, content: SearchedContent, expand: Collection[str]) -> Json:
        rendered: Json = {
            "title": content.title,
            "excerpt": content.text[:_EXCERPT_LENGTH].replace("&", "&amp;").replace("<", "&lt;"),
            "entityType": "content",
            "lastModified": show_time(content.updated),
            "resultGlobalContainer": {
                "title": content.space.name,
                "displayUrl": f"/display/{content.space.key}",
            },
        }
        inner_expand = {name.removeprefix("content.") for name in expand} | {"space"}
        if content.comment is not None and content.page is not None:
            rendered["content"] = self.comment(content.page, content.comment, inner_expand)
        elif content.page is not None:
            rendered["content"] = self.page(content.page, inner_expand)
            rendered["url"] = rendered["content"]["_links"]["webui"]
        else:
            rendered["space"] = self.space(content.space)
            rendered["entityType"] = "space"
            rendered["url"] = f"/display/{content.space.key}"
        return rendered

    def _content(self, content_id: str, type_name: str, title: str) -> Json:
        return {"id": content_id, "type": type_name, "status": "current", "title": title}

    def _body(self, body: str, expand: Collection[str]) -> Json:
        """Macros are not rendered: the view is the storage format."""
        representations: Json = {}
        for representation in ("storage", "view", "export_view"):
            if _is_expanded(f"body.{representation}", expand):
                representations[representation] = {"value": body, "representation": representation}
        return representations

    def _collections(self, page: ContentPage, expand: Collection[str]) -> Json:
        collections: Json = {}
        if _is_expanded("metadata.labels", expand):
            labels = [self.label(name) for name in page.labels]
            collections["metadata"] = {"labels": {"results": labels, "size": len(labels)}}
        children: Json = {}
        if _is_expanded("children.page", expand):
            pages = [self.page(child, ()) for child in self._state.list_children(page.id)]
            children["page"] = {"results": pages, "size": len(pages)}
        if _is_expanded("children.attachment", expand):
            children["attachment"] = {"results": [], "size": 0}
        if _is_expanded("children.comment", expand):
            comments = [self.comment(page, comment, ()) for comment in page.comments]
            children["comment"] = {"results": comments, "size": len(comments)}
        if children:
            collections["children"] = children
        return collections


def _is_expanded(name: str, expand: Collection[str]) -> bool:
    """A part is also expanded by what is within it: `body` by `body.storage`."""
    return any(entry == name or entry.startswith(f"{name}.") for entry in expand)
