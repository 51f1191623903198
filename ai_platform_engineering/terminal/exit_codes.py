"""Exit codes of the commands that show a run."""

OK = 0
FAILED = 1
UNREACHABLE = 3
INPUT_REQUIRED = 4
TIMED_OUT = 124  # as of timeout(1)
INTERRUPTED = 130  # 128 + SIGINT
