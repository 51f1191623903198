"""How much of a document is read, and the limits of a process that reads."""

import sys

MAX_DOCUMENT_BYTES = 20_000_000  # bytes
MAX_TEXT_CHARS = 2_000_000  # characters
MAX_PAGES = 5_000  # of a PDF
MAX_ROWS = 20_000  # of a table
MAX_DEPTH = 100  # levels of nested elements or values
MAX_UNPACKED_BYTES = 400_000_000  # of an office document, with its pictures, which are not unpacked
MAX_PART_BYTES = 50_000_000  # of an office document, for a part that is parsed as a whole
MAX_PARTS = 20_000  # of an office document
MAX_COLUMNS = 200  # of a sheet

MAX_IN_PROCESS_BYTES = (
    64 * 1024
)  # bytes: the worst input of this size keeps a parser busy for seconds, not for minutes
MAX_IN_PROCESS_RST_BYTES = 12 * 1024  # the same for a slower parser
CPU_SECONDS = 30  # for a document that is read apart
WALL_SECONDS = 120  # the same on a machine that has other work
MAX_MEMORY_BYTES = 1_000_000_000  # bytes of address space


def limit_memory() -> None:
    """Limits the memory of this process; it leaves no core dump, which would hold a document."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))


def limit_time() -> None:
    """Limits the processor time of this process."""
    if sys.platform != "win32":
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (CPU_SECONDS, CPU_SECONDS))
