"""Issues, pull requests and discussions of GitHub as Markdown, with their comments in order."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from ai_platform_engineering.knowledge_bases.sources.connectors.json_values import (
    read_list,
    read_mapping,
    read_text,
)
from ai_platform_engineering.knowledge_bases.sources.connectors.markdown_text import (
    demote_headings,
    render_facts,
)


def render_conversation(
    node: Mapping[str, Any], comments: Sequence[Mapping[str, Any]], missing_comments: bool
) -> str:
    """A conversation as a document. `missing_comments`: there are more than were read."""
    labels = read_list(read_mapping(node, "labels"), "nodes")
    facts = [
        ("State", _read_state(node)),
        ("Category", read_text(read_mapping(node, "category"), "name")),
        ("Labels", ", ".join(read_text(label, "name") for label in labels)),
        ("Author", _read_login(node)),
    ]
    parts = [
        f"# {' '.join(read_text(node, 'title').split())}",
        render_facts(facts),
        demote_headings(read_text(node, "body"), 1),
    ]
    if comments:
        parts.append("## Comments")
    for comment in comments:
        parts += _render_comment(comment, 3)
        replies = read_mapping(comment, "replies")
        for reply in read_list(replies, "nodes"):
            parts += _render_comment(reply, 4)
        parts.append(_describe_missing(replies, "replies"))
    if missing_comments:
        parts.append("[More comments are not read.]")
    parts += _render_reviews(node)
    return "\n\n".join(filter(None, parts))


def _render_reviews(node: Mapping[str, Any]) -> Iterator[str]:
    reviews = read_mapping(node, "reviews")
    threads = read_mapping(node, "reviewThreads")
    with_text = [review for review in read_list(reviews, "nodes") if read_text(review, "body")]
    if with_text or read_list(threads, "nodes"):
        yield "## Reviews"
    for review in with_text:
        yield from _render_comment(review, 3)
    yield _describe_missing(reviews, "reviews")
    for thread in read_list(threads, "nodes"):
        yield f"### On {read_text(thread, 'path')}"
        comments = read_mapping(thread, "comments")
        for comment in read_list(comments, "nodes"):
            yield from _render_comment(comment, 4)
        yield _describe_missing(comments, "comments")
    yield _describe_missing(threads, "threads")


def _render_comment(comment: Mapping[str, Any], level: int) -> list[str]:
    answer = ""
    if comment.get("isAnswer") is True:
        answer = ", the answer"
    heading = f"{'#' * level} {_read_login(comment)}, {read_text(comment, 'createdAt')[:10]}{answer}"
    return [heading, demote_headings(read_text(comment, "body"), level)]


def _describe_missing(connection: Mapping[str, Any], what: str) -> str:
    missing = int(read_text(connection, "totalCount") or 0) - len(read_list(connection, "nodes"))
    if missing <= 0:
        return ""
    return f"[{missing} more {what} are not read.]"


def _read_state(node: Mapping[str, Any]) -> str:
    if node.get("merged") is True:
        return "merged"
    if node.get("isAnswered") is True:
        return "answered"
    state = read_text(node, "state").lower()
    reason = read_text(node, "stateReason").lower().replace("_", " ")
    if reason and state == "closed":
        return f"{state} ({reason})"
    return state


def _read_login(node: Mapping[str, Any]) -> str:
    """The author; GitHub shows one whose account is gone as a ghost."""
    return read_text(read_mapping(node, "author"), "login") or "ghost"
