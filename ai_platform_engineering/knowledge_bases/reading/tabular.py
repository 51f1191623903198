"""Comma- and tab-separated values: rows under their header."""

import csv
import io

from ai_platform_engineering.knowledge_bases.documents import ParsedDocument
from ai_platform_engineering.knowledge_bases.reading.document_kind import DetectedDocument
from ai_platform_engineering.knowledge_bases.reading.section_builder import SectionBuilder

_SEPARATORS = "\t;|,"


def parse(detected: DetectedDocument) -> ParsedDocument:
    header = next((line for line in detected.text.split("\n") if line.strip()), "")
    separator = max(_SEPARATORS, key=lambda mark: (header.count(mark), mark == ","))
    rows = (
        row for row in csv.reader(io.StringIO(detected.text), delimiter=separator) if "".join(row).strip()
    )
    builder = SectionBuilder()
    builder.add_table(rows)
    return builder.build_document(detected.name)
