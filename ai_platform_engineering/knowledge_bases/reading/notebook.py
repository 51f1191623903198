"""Jupyter notebooks: the cells in order, without their outputs."""

from typing import Any

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.json_yaml import load_json
from ai_platform_engineering.knowledge_bases.reading.markdown import add_markdown
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder, fence_code


def parse(detected: DetectedDocument) -> ParsedDocument:
    notebook = load_json(detected.text)
    if not isinstance(notebook, dict):
        raise UnreadableDocument("The notebook is corrupt: it is not valid JSON.")
    builder = SectionBuilder()
    language = _find_language(notebook)
    for cell in _find_cells(notebook):
        _add_cell(builder, cell, language)
    return builder.build_document(builder.first_heading or detected.name)


def _find_cells(notebook: dict[str, Any]) -> list[Any]:
    """The cells; older notebooks have them in worksheets."""
    cells = notebook.get("cells")
    if isinstance(cells, list):
        return cells
    worksheets = notebook.get("worksheets")
    if not isinstance(worksheets, list):
        raise UnreadableDocument("The notebook is corrupt: it has no cells.")
    older_cells: list[Any] = []
    for worksheet in worksheets:
        match worksheet:
            case {"cells": list(inner_cells)}:
                older_cells += inner_cells
            case _:
                pass
    return older_cells


def _add_cell(builder: SectionBuilder, cell: Any, language: str) -> None:
    match cell:
        case {"cell_type": "markdown", "source": source}:
            add_markdown(builder, _join_lines(source))
        case {"cell_type": "heading", "level": int(level), "source": source}:
            builder.add_heading(level, _join_lines(source))
        case {"cell_type": "code", "source": source} | {"cell_type": "code", "input": source}:
            code = _join_lines(source)
            if code.strip():
                builder.add_text(fence_code(code, language), "code")
        case {"cell_type": "raw", "source": source}:
            builder.add_text(_join_lines(source))
        case _:  # of a newer format
            pass


def _join_lines(source: Any) -> str:
    """The text of a cell: one text, or a list of lines with their ends."""
    if isinstance(source, str):
        return source
    if isinstance(source, list):
        return "".join(line for line in source if isinstance(line, str))
    return ""


def _find_language(notebook: dict[str, Any]) -> str:
    match notebook:
        case {"metadata": {"language_info": {"name": str(name)}}}:
            return name[:20]
        case {"metadata": {"kernelspec": {"language": str(name)}}}:
            return name[:20]
        case _:
            return ""
