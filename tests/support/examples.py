"""How many examples a property test tries."""

import os

# A tenth in `make test`; all of them in `make test-full`, which sets the factor; more for a long search, as
# in EXAMPLES_FACTOR=50 pytest tests/a2a/test_codec.py
FACTOR = float(os.environ.get("EXAMPLES_FACTOR", "0.1"))


def scale_examples(count: int) -> int:
    """The number of examples of this run for a property that deserves `count`."""
    return max(1, round(count * FACTOR))
