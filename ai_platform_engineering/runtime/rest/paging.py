"""Paging of REST lists: `page_size` and `page_token` of a request."""

from dataclasses import dataclass

from starlette.requests import Request

from ai_platform_engineering.core.errors import Refused

_PAGE_SIZE = 100
_MAX_PAGE_SIZE = 500
_MAX_TOKEN_DIGITS = 18  # as many as a position of 64 bits has


@dataclass(frozen=True, slots=True)
class PageRequest:
    """The page that a request asks for: so many rows behind a position."""

    after: int
    size: int


def read_page_size(request: Request) -> int:
    """How many rows a request asks for at most. Raises Refused."""
    size = request.query_params.get("page_size", str(_PAGE_SIZE))
    if not size.isdecimal() or not 1 <= int(size[:9]) <= _MAX_PAGE_SIZE:
        raise Refused(f"page_size is a number from 1 to {_MAX_PAGE_SIZE}.")
    return int(size)


def read_page_request(request: Request) -> PageRequest:
    """The page of a list with numbered positions. Raises Refused."""
    token = request.query_params.get("page_token", "") or "0"
    if not (token.isascii() and token.isdecimal()) or len(token) > _MAX_TOKEN_DIGITS:
        raise Refused("page_token is the next_page_token of the page before.")
    return PageRequest(after=int(token), size=read_page_size(request))
