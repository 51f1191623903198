"""Comma- and tab-separated values: rows under their header."""

import csv
import io

from ai_platform_engineering.knowledge_bases.documents import Parsed, Section
from ai_platform_engineering.knowledge_bases.reading.document_kind import Found
from ai_platform_engineering.knowledge_bases.reading.outline import table

_SEPARATORS = "\t;|,"


def parsed(found: Found) -> Parsed:
    first = next((line for line in found.text.split("\n") if line.strip()), "")
    separator = max(_SEPARATORS, key=lambda mark: (first.count(mark), mark == ","))
    rows = (row for row in csv.reader(io.StringIO(found.text), delimiter=separator) if any(cell.strip() for cell in row))
    return Parsed(found.name, (Section(table(rows), (), "table"),))
