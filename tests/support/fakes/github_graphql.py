"""A stand-in of GitHub Enterprise Server: queries for issues, pull requests and discussions, and git for the
wiki."""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from graphql import GraphQLError, build_schema, graphql_sync
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.support.fakes.api_stand_in import ApiStandIn
from tests.support.fakes.git_server import GitServer

# The part of GitHub's schema that is asked for, with its names and types.
_SCHEMA = build_schema("""
scalar DateTime
scalar URI
interface Actor { login: String! }
type User implements Actor { login: String! }
enum OrderDirection { ASC DESC }
enum IssueOrderField { CREATED_AT UPDATED_AT COMMENTS }
enum DiscussionOrderField { CREATED_AT UPDATED_AT }
input IssueOrder { field: IssueOrderField! direction: OrderDirection! }
input DiscussionOrder { field: DiscussionOrderField! direction: OrderDirection! }
type PageInfo { hasNextPage: Boolean! endCursor: String }
type Label { name: String! }
type LabelConnection { nodes: [Label] }
type IssueComment { author: Actor createdAt: DateTime! body: String! }
type IssueCommentConnection { totalCount: Int! pageInfo: PageInfo! nodes: [IssueComment] }
type Issue {
  number: Int! title: String! url: URI! body: String! createdAt: DateTime! updatedAt: DateTime! author: Actor
  state: String! stateReason: String
  labels(first: Int): LabelConnection
  comments(first: Int, after: String): IssueCommentConnection!
}
type IssueConnection { totalCount: Int! pageInfo: PageInfo! nodes: [Issue] }
type PullRequestReview { author: Actor submittedAt: DateTime body: String! }
type PullRequestReviewConnection { totalCount: Int! nodes: [PullRequestReview] }
type PullRequestReviewComment { author: Actor createdAt: DateTime! body: String! }
type PullRequestReviewCommentConnection { totalCount: Int! nodes: [PullRequestReviewComment] }
type PullRequestReviewThread { path: String! comments(first: Int): PullRequestReviewCommentConnection! }
type PullRequestReviewThreadConnection { totalCount: Int! nodes: [PullRequestReviewThread] }
type PullRequest {
  number: Int! title: String! url: URI! body: String! createdAt: DateTime! updatedAt: DateTime! author: Actor
  state: String! merged: Boolean!
  labels(first: Int): LabelConnection
  comments(first: Int, after: String): IssueCommentConnection!
  reviews(first: Int): PullRequestReviewConnection
  reviewThreads(first: Int): PullRequestReviewThreadConnection!
}
type PullRequestConnection { totalCount: Int! pageInfo: PageInfo! nodes: [PullRequest] }
type DiscussionCategory { name: String! }
type DiscussionComment {
  author: Actor createdAt: DateTime! body: String! isAnswer: Boolean!
  replies(first: Int): DiscussionCommentConnection!
}
type DiscussionCommentConnection { totalCount: Int! pageInfo: PageInfo! nodes: [DiscussionComment] }
type Discussion {
  number: Int! title: String! url: URI! body: String! createdAt: DateTime! updatedAt: DateTime! author: Actor
  category: DiscussionCategory! isAnswered: Boolean
  labels(first: Int): LabelConnection
  comments(first: Int, after: String): DiscussionCommentConnection!
}
type DiscussionConnection { totalCount: Int! pageInfo: PageInfo! nodes: [Discussion] }
type Repository {
  nameWithOwner: String! hasDiscussionsEnabled: Boolean! hasWikiEnabled: Boolean!
  issues(first: Int, after: String, orderBy: IssueOrder): IssueConnection!
  issue(number: Int!): Issue
  pullRequests(first: Int, after: String, orderBy: IssueOrder): PullRequestConnection!
  pullRequest(number: Int!): PullRequest
  discussions(first: Int, after: String, orderBy: DiscussionOrder): DiscussionConnection!
  discussion(number: Int!): Discussion
}
type Query { repository(owner: String!, name: String!): Repository }
type Mutation { deleteIssue: Boolean }
""")
_FETCHED = re.compile(r"n(\d+): (\w+)\(number")


@dataclass(slots=True)
class Conversation:
    title: str
    body: str
    created: datetime
    updated: datetime
    comments: list[dict[str, Any]] = field(default_factory=list)
    more: dict[str, Any] = field(default_factory=dict)


class GitHubApi(ApiStandIn):
    """Conversations by part and number, of one repository. `now` is the server's clock."""

    def __init__(self, token: str, wiki: Path | None = None) -> None:
        super().__init__()
        self.token = token
        self.now = datetime(2026, 3, 1, 12, tzinfo=UTC)
        parts = ("issues", "pulls", "discussions")
        self.conversations: dict[str, dict[int, Conversation]] = {part: {} for part in parts}
        self.deleted_once_listed: set[int] = set()
        self.has_discussions = True
        self.wiki = wiki
        self.wiki_logins: list[str] = []

    def write(self, part: str, number: int, title: str, body: str, **more: Any) -> None:
        conversations = self.conversations[part]
        created = conversations[number].created if number in conversations else self.now
        conversations[number] = Conversation(title, body, created, self.now, more=more)

    def comment(self, part: str, number: int, body: str, **more: Any) -> None:
        conversation = self.conversations[part][number]
        conversation.comments.append(self.render_comment(body, **more))
        conversation.updated = self.now

    def render_comment(self, body: str, **more: Any) -> dict[str, Any]:
        comment = {"author": {"login": "ann"}, "createdAt": self.now.isoformat(), "body": body}
        return {**comment, "isAnswer": False, "replies": lambda _, first: connection([], first), **more}

    @property
    def read_numbers(self) -> list[str]:
        """Which conversations were read as a whole since the last call, like `issue 12`."""
        numbers: list[str] = []
        for request in self.take_requests():
            if request.method == "POST" and request.path == "/api/graphql":
                query = json.loads(request.body)["query"]
                numbers += [f"{single} {number}" for number, single in _FETCHED.findall(query)]
        return numbers

    def routes(self) -> Sequence[Route]:
        return [
            Route("/api/graphql", self._answer_query, methods=["POST"]),
            Route("/o/r.wiki.git/{path:path}", self._answer_git, methods=["GET", "POST"]),
        ]

    async def _answer_query(self, request: Request) -> Response:
        if request.headers.get("authorization") != f"Bearer {self.token}":
            return self.refuse_credentials()
        body = await request.json()
        result = graphql_sync(
            _SCHEMA,
            body["query"],
            {"repository": self._find_repository},
            variable_values=body["variables"],
            type_resolver=lambda *_: "User",
        )
        answer: dict[str, Any] = {"data": result.data}
        if result.errors:
            answer["errors"] = [render_error(error) for error in result.errors]
        headers = {"Date": self.now.strftime("%a, %d %b %Y %H:%M:%S GMT")}
        return JSONResponse(answer, headers=headers)

    async def _answer_git(self, request: Request) -> Response:
        self.wiki_logins.append(request.headers.get("authorization", ""))
        login = base64.b64encode(f"x-access-token:{self.token}".encode()).decode()
        if request.headers.get("authorization") != f"Basic {login}" or self.wiki is None:
            return Response(status_code=401, headers={"WWW-Authenticate": "Basic"})
        body = await request.body()
        if "content-encoding" in request.headers:
            body = gzip.decompress(body)
        raw = await GitServer(self.wiki)._said(str(request.url), body)
        head, _, content = raw.partition(b"\r\n\r\n")
        media_type = re.search(rb"Content-Type: (\S+)", head)
        assert media_type is not None
        return Response(content, media_type=media_type[1].decode())

    def _find_repository(self, _: Any, owner: str, name: str) -> dict[str, Any]:
        if f"{owner}/{name}" != "o/r":
            raise LookupError(f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        return {
            "nameWithOwner": "o/r",
            "hasDiscussionsEnabled": self.has_discussions,
            "hasWikiEnabled": self.wiki is not None,
            "issues": self._lister("issues"),
            "issue": self._finder("issues"),
            "pullRequests": self._lister("pulls"),
            "pullRequest": self._finder("pulls"),
            "discussions": self._lister("discussions"),
            "discussion": self._finder("discussions"),
        }

    def _lister(self, part: str) -> Callable[..., dict[str, Any]]:
        def list_part(_: Any, first: int, orderBy: dict[str, str], after: str | None = None) -> Any:
            by_change = orderBy["field"] == "UPDATED_AT"
            conversations = sorted(
                self.conversations[part].items(),
                key=lambda entry: (entry[1].updated if by_change else entry[1].created, entry[0]),
                reverse=orderBy["direction"] == "DESC",
            )
            nodes = [
                {"number": number, "updatedAt": render_time(conversation.updated)}
                for number, conversation in conversations
            ]
            return connection(nodes, first, after)

        return list_part

    def _finder(self, part: str) -> Callable[..., dict[str, Any]]:
        def find(_: Any, number: int) -> dict[str, Any]:
            conversation = self.conversations[part].get(number)
            if conversation is None or number in self.deleted_once_listed:
                raise LookupError(f"Could not resolve to a node with the number of {number}.")
            values: dict[str, Any] = {
                "number": number,
                "title": conversation.title,
                "url": f"https://git.example/o/r/{part}/{number}",
                "body": conversation.body,
                "createdAt": render_time(conversation.created),
                "updatedAt": render_time(conversation.updated),
                "author": {"login": "ann"},
                "labels": lambda _, first: connection([{"name": "bug"}], first),
                "comments": lambda _, first, after=None: connection(conversation.comments, first, after),
            }
            kinds: dict[str, dict[str, Any]] = {
                "issues": {"state": "OPEN", "stateReason": None},
                "pulls": {
                    "state": "OPEN",
                    "merged": False,
                    "reviews": lambda _, first: connection([], first),
                    "reviewThreads": lambda _, first: connection([], first),
                },
                "discussions": {"category": {"name": "Q&A"}, "isAnswered": False},
            }
            return {**values, **kinds[part], **conversation.more}

        return find


def connection(nodes: list[Any], first: int = 100, after: str | None = None) -> dict[str, Any]:
    """Nodes as a page of a connection; a cursor is the number of nodes before it."""
    start = int(after or 0)
    return {
        "totalCount": len(nodes),
        "pageInfo": {"hasNextPage": start + first < len(nodes), "endCursor": str(start + first)},
        "nodes": nodes[start : start + first],
    }


def render_error(error: GraphQLError) -> dict[str, Any]:
    """As GitHub does it: what is not there is NOT_FOUND, and what is wrong with the query has no type."""
    rendered: dict[str, Any] = {"message": error.message, "path": error.path}
    if isinstance(error.original_error, LookupError):
        rendered["type"] = "NOT_FOUND"
    return rendered


def render_time(moment: datetime) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")
