"""Markdown of documents that connectors put together from several texts."""

from collections.abc import Iterable, Iterator

_MAX_LEVEL = 6


def demote_headings(markdown: str, levels: int) -> str:
    """The text with its headings so many levels deeper, to stand below headings of ours; code stays."""
    return "\n".join(_demote_lines(markdown.replace("\r\n", "\n").split("\n"), levels))


def _demote_lines(lines: Iterable[str], levels: int) -> Iterator[str]:
    fence = ""
    for line in lines:
        stripped = line.lstrip()
        if fence:
            if stripped.startswith(fence):
                fence = ""
        elif stripped.startswith(("```", "~~~")):
            fence = stripped[:3]
        elif line.startswith("#"):
            marks = len(line) - len(line.lstrip("#"))
            if marks <= _MAX_LEVEL and line[marks : marks + 1] in (" ", "\t", ""):
                yield f"{'#' * min(marks + levels, _MAX_LEVEL)}{line[marks:]}"
                continue
        yield line


def render_facts(facts: Iterable[tuple[str, str]]) -> str:
    """`Status: Done` and so on, on one line each; what is empty is left out."""
    return "\n".join(f"- {name}: {' '.join(value.split())}" for name, value in facts if value.strip())
