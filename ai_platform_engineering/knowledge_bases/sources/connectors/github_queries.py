"""The GraphQL queries of the GitHub connector: what is listed, and the texts of issues, pull requests and
discussions."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

LISTED_AT_ONCE = 100
COMMENTS_AT_ONCE = 100
REPLIES = 50
THREADS = 50

_COMMENT = "author { login } createdAt body"
_COMMENTS = (
    f"comments(first: {COMMENTS_AT_ONCE}) {{ pageInfo {{ hasNextPage endCursor }} nodes {{ {_COMMENT} }} }}"
)
_REVIEW = "author { login } createdAt: submittedAt body"
_COMMON = "number title url body createdAt updatedAt author { login } labels(first: 30) { nodes { name } }"
_REPLIES = f"replies(first: {REPLIES}) {{ totalCount nodes {{ {_COMMENT} }} }}"

REPOSITORY = """query($owner: String!, $name: String!) {
  repository(owner: $owner, name: $name) { nameWithOwner hasDiscussionsEnabled hasWikiEnabled }
}"""


@dataclass(frozen=True, slots=True)
class GitHubPart:
    """A kind of conversation: the field of a repository that lists it, the one that has one of them, and what
    is read of it."""

    name: str  # in locations and addresses
    listing: str
    single: str
    fields: str
    comments: str  # what is read of a comment


ISSUES = GitHubPart("issues", "issues", "issue", f"{_COMMON} state stateReason {_COMMENTS}", _COMMENT)
PULLS = GitHubPart(
    "pulls",
    "pullRequests",
    "pullRequest",
    f"{_COMMON} state merged {_COMMENTS} "
    f"reviews(first: {THREADS}) {{ totalCount nodes {{ {_REVIEW} }} }} "
    f"reviewThreads(first: {THREADS}) {{ totalCount nodes {{ path comments(first: {REPLIES}) "
    f"{{ totalCount nodes {{ {_COMMENT} }} }} }} }}",
    _COMMENT,
)
DISCUSSIONS = GitHubPart(
    "discussions",
    "discussions",
    "discussion",
    f"{_COMMON} category {{ name }} isAnswered "
    f"comments(first: {COMMENTS_AT_ONCE}) {{ pageInfo {{ hasNextPage endCursor }} "
    f"nodes {{ {_COMMENT} isAnswer {_REPLIES} }} }}",
    f"{_COMMENT} isAnswer {_REPLIES}",
)
PARTS: Mapping[str, GitHubPart] = {part.name: part for part in (ISSUES, PULLS, DISCUSSIONS)}


def build_listing(part: GitHubPart, *, newest_first: bool) -> str:
    """Numbers and times of a part. By time of creation nothing changes its place while pages are read; by
    time of change the newest come first, so that reading can stop."""
    order = "{field: CREATED_AT, direction: ASC}"
    if newest_first:
        order = "{field: UPDATED_AT, direction: DESC}"
    return f"""query($owner: String!, $name: String!, $after: String) {{
  repository(owner: $owner, name: $name) {{
    {part.listing}(first: {LISTED_AT_ONCE}, after: $after, orderBy: {order}) {{
      pageInfo {{ hasNextPage endCursor }}
      nodes {{ number updatedAt }}
    }}
  }}
}}"""


def build_fetch(part: GitHubPart, numbers: Sequence[int]) -> str:
    """The texts of some of them; `n12` in the answer is number 12."""
    fields = "\n".join(
        f"    n{number}: {part.single}(number: {number}) {{ {part.fields} }}" for number in numbers
    )
    return f"""query($owner: String!, $name: String!) {{
  repository(owner: $owner, name: $name) {{
{fields}
  }}
}}"""


def build_comments(part: GitHubPart) -> str:
    """The comments of one of them after a cursor."""
    return f"""query($owner: String!, $name: String!, $number: Int!, $after: String) {{
  repository(owner: $owner, name: $name) {{
    {part.single}(number: $number) {{
      comments(first: {COMMENTS_AT_ONCE}, after: $after) {{
        pageInfo {{ hasNextPage endCursor }}
        nodes {{ {part.comments} }}
      }}
    }}
  }}
}}"""
