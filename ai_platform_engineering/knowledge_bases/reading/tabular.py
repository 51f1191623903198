"""Comma- and tab-separated values: rows under their header."""

import csv
import io

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.section_builder import render_table

_SEPARATORS = "\t;|,"


def parse(found: DetectedDocument) -> ParsedDocument:
    first = next((line for line in found.text.split("\n") if line.strip()), "")
    separator = max(_SEPARATORS, key=lambda mark: (first.count(mark), mark == ","))
    rows = (
        row
        for row in csv.reader(io.StringIO(found.text), delimiter=separator)
        if any(cell.strip() for cell in row)
    )
    return ParsedDocument(found.name, (Section(render_table(rows), (), "table"),))
