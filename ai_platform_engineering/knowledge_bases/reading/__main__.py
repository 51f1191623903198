"""The process that reads one document: it comes in as a line of JSON and bytes, and leaves as JSON."""

import json
import sys
from dataclasses import replace

from ai_platform_engineering.knowledge_bases.documents import RawDocument, UnreadableDocument
from ai_platform_engineering.knowledge_bases.reading.reader_process import encode_document
from ai_platform_engineering.knowledge_bases.reading.readers import read_in_process
from ai_platform_engineering.knowledge_bases.reading.reading_limits import CPU_SECONDS, MAX_MEMORY_BYTES


def _limit_this_process() -> None:
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def main() -> None:
    _limit_this_process()
    head = json.loads(sys.stdin.buffer.readline())
    raw = replace(RawDocument(content=sys.stdin.buffer.read(), address=""), **head)
    try:
        answer = encode_document(*read_in_process(raw))
    except UnreadableDocument as error:
        answer = {"unreadable": str(error)}
    sys.stdout.buffer.write(json.dumps(answer).encode())


if __name__ == "__main__":
    main()
