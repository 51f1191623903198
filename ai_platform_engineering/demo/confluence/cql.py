"""CQL: which pages, comments and spaces a query selects, and in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime

from ai_platform_engineering.demo.atlassian.api_access import AtlassianApiError
from ai_platform_engineering.demo.atlassian.query_fields import (
    FieldKind,
    QueryCompiler,
    QueryField,
    QueryFieldError,
)
from ai_platform_engineering.demo.atlassian.query_syntax import (
    Comparison,
    Condition,
    Negation,
    QuerySyntaxError,
    parse_query,
)
from ai_platform_engineering.demo.atlassian.text_match import count_matching_terms
from ai_platform_engineering.demo.confluence.state import (
    ConfluenceSpace,
    ConfluenceState,
    ContentPage,
    PageComment,
)
from ai_platform_engineering.demo.estate.company import Company, Person
from ai_platform_engineering.demo.estate.estate import Estate

_TYPES = ("page", "comment", "space", "blogpost", "attachment")
_SEARCHED_FIELDS = ("title", "text", "sitesearch")
_ALIASES = {
    "content": "id",
    "space.key": "space",
    "creator.fullname": "creator",
}


@dataclass(frozen=True, slots=True)
class SearchedContent:
    """Something that a search can find; `comment` is None for a page, both are for a space."""

    type: str
    id: str
    title: str
    text: str
    space: ConfluenceSpace
    creator: str
    contributors: Sequence[str]
    created: datetime
    updated: datetime
    labels: Sequence[str] = ()
    parent: str = ""
    ancestors: Sequence[str] = ()
    page: ContentPage | None = None
    comment: PageComment | None = None


def search_content(state: ConfluenceState, estate: Estate, user: Person, cql: str) -> list[SearchedContent]:
    """Raises AtlassianApiError with what is wrong in the query."""
    compiler = QueryCompiler(
        _build_fields(estate.company),
        estate.now,
        {"currentuser": (user.login,)},
        empty_is_unequal=True,
    )
    try:
        query = parse_query(cql)
        searched_text = " ".join(_list_searched_texts(query.condition))
        contents = sorted(
            _list_contents(state),
            key=lambda content: (_count_in_title(searched_text, content), content.updated),
            reverse=True,
        )
        return compiler.select(query, contents)
    except (QuerySyntaxError, QueryFieldError) as error:
        raise AtlassianApiError(400, f"Could not parse cql : {error}") from error


def _count_in_title(searched_text: str, content: SearchedContent) -> int:
    return sum(count_matching_terms(searched_text, title) for title in _read_titles(content))


def _list_contents(state: ConfluenceState) -> Iterator[SearchedContent]:
    for page in state.pages.values():
        yield _page_content(state, page)
        for comment in page.comments:
            yield _comment_content(page, comment)
    for space in state.spaces.values():
        home = state.pages.get(space.homepage_id)
        if home is not None:
            yield SearchedContent(
                "space",
                str(space.id),
                space.name,
                space.name,
                space,
                home.creator,
                (),
                home.created,
                home.created,
            )


def _page_content(state: ConfluenceState, page: ContentPage) -> SearchedContent:
    current = page.current
    return SearchedContent(
        type="page",
        id=page.id,
        title=current.title,
        text=f"{current.title}\n{current.text}",
        space=page.space,
        creator=page.creator,
        contributors=[version.author for version in page.versions],
        created=page.created,
        updated=current.when,
        labels=page.labels,
        parent=page.parent_id,
        ancestors=[ancestor.id for ancestor in state.list_ancestors(page)],
        page=page,
    )


def _comment_content(page: ContentPage, comment: PageComment) -> SearchedContent:
    return SearchedContent(
        type="comment",
        id=comment.id,
        title=f"Re: {page.current.title}",
        text=comment.text,
        space=page.space,
        creator=comment.author,
        contributors=(comment.author,),
        created=comment.created,
        updated=comment.created,
        parent=page.id,
        page=page,
        comment=comment,
    )


def _build_fields(company: Company) -> dict[str, QueryField[SearchedContent]]:
    names = {person.login: (person.login, person.name, person.email) for person in company.people}
    people = [name for person_names in names.values() for name in person_names]
    choice = FieldKind.CHOICE
    fields: list[QueryField[SearchedContent]] = [
        QueryField("type", choice, lambda content: (content.type,), allowed=_TYPES),
        QueryField("space", choice, lambda content: (content.space.key,)),
        QueryField("id", choice, lambda content: (content.id,)),
        QueryField("label", choice, lambda content: content.labels),
        QueryField("parent", choice, lambda content: (content.parent,)),
        QueryField("ancestor", choice, lambda content: content.ancestors),
        QueryField("title", FieldKind.TITLE, _read_titles),
        QueryField("space.title", FieldKind.TITLE, lambda content: (content.space.name,)),
        QueryField("text", FieldKind.TEXT, lambda content: (content.text,)),
        # The search box of the web page: not every word must be there.
        QueryField("siteSearch", FieldKind.TEXT, lambda content: (content.text,), text_share=0.5),
        QueryField("creator", choice, lambda content: names.get(content.creator, ()), allowed=people),
        QueryField(
            "contributor",
            choice,
            lambda content: [name for login in content.contributors for name in names.get(login, ())],
            allowed=people,
        ),
        QueryField("created", FieldKind.DATE, lambda _: (), read_date=lambda content: content.created),
        QueryField("lastModified", FieldKind.DATE, lambda _: (), read_date=lambda content: content.updated),
    ]
    by_name = {field.name.lower(): field for field in fields}
    return by_name | {alias: by_name[name] for alias, name in _ALIASES.items()}


def _read_titles(content: SearchedContent) -> Sequence[str]:
    """Comments show the title of their page, and have none of their own."""
    return () if content.comment is not None else (content.title,)


def _list_searched_texts(condition: Condition | None) -> Iterator[str]:
    """What a query searches for in texts, for the order of its results."""
    if condition is None or isinstance(condition, Negation):
        return
    if isinstance(condition, Comparison):
        if condition.operator == "~" and condition.field.lower() in _SEARCHED_FIELDS:
            yield condition.values[0].text
        return
    for part in condition.conditions:
        yield from _list_searched_texts(part)
