"""How much of a document is read."""

LARGEST_DOCUMENT = 20_000_000  # bytes
LONGEST_TEXT = 2_000_000  # characters
MOST_PAGES = 5_000  # of a PDF
MOST_ROWS = 20_000  # of a table
DEEPEST = 100  # levels of nested elements or values

READ_HERE = 64 * 1024  # bytes: the worst input of this size keeps a parser busy for seconds, not for minutes
READ_RST_HERE = 12 * 1024  # the same for a slower parser
CPU_SECONDS = 30  # for a document that is read apart
WALL_SECONDS = 120  # the same on a machine that has other work
MEMORY = 1_000_000_000  # bytes of address space
