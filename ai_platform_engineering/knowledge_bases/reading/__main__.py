"""The process that reads one document: it comes in as a line of JSON and bytes, and leaves as JSON."""

import json
import sys
from dataclasses import replace

from ai_platform_engineering.core.process_protection import end_with_parent
from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.reader_process import encode_document
from ai_platform_engineering.knowledge_bases.reading.readers import read_in_process
from ai_platform_engineering.knowledge_bases.reading.reading_limits import limit_memory, limit_time


def main(parent: int) -> None:
    end_with_parent(parent)
    limit_memory()
    limit_time()
    head = json.loads(sys.stdin.buffer.readline())
    raw = replace(RawDocument(content=sys.stdin.buffer.read(), address=""), **head)
    try:
        answer = encode_document(*read_in_process(raw))
    except UnreadableDocument as error:
        answer = {"unreadable": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main(int(sys.argv[1]))
