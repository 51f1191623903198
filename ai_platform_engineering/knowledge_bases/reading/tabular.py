"""Comma- and tab-separated values: rows under their header."""

import csv
import io

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.section_builder import render_table

_SEPARATORS = "\t;|,"


def parse(detected: DetectedDocument) -> ParsedDocument:
    header = next((line for line in detected.text.split("\n") if line.strip()), "")
    separator = max(_SEPARATORS, key=lambda mark: (header.count(mark), mark == ","))
    rows = (
        row for row in csv.reader(io.StringIO(detected.text), delimiter=separator) if "".join(row).strip()
    )
    return ParsedDocument(detected.name, (Section(render_table(rows), (), "table"),))
