"""What fuzz tests share: arbitrary JSON, and whether anything of ours or of a library broke inside."""

import contextlib
import logging
from collections.abc import Iterator
from typing import Any

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st

from tests.support.examples import scale_examples

# Each example starts a server: shrinking one would take longer than reading it.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-(2**70), 2**70)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=40)
    | st.sampled_from(["", "\x00", "\ud83d", "null", "a" * 3_000, "../..", "<script>", "{{x}}", "\u202e"])
)


def json_values(*keys: str) -> st.SearchStrategy[Any]:
    """Any JSON; objects often have these keys."""
    names = st.text(max_size=12)
    if keys:
        names = st.sampled_from(keys) | names
    return st.recursive(
        SCALARS,
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(names, inner, max_size=5),
        max_leaves=12,
    )


def server_examples(count: int) -> settings:
    """The settings of a property test whose examples each start a server."""
    return settings(
        max_examples=scale_examples(count),
        deadline=None,
        phases=PHASES,
        suppress_health_check=list(HealthCheck),
    )


class _Breakages(logging.Handler):
    """Log records of exceptions that nobody foresaw."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.texts: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.texts.append(record.getMessage()[:2_000])


@contextlib.contextmanager
def nothing_breaks(*, allowed: tuple[str, ...] = ()) -> Iterator[None]:
    """Fails when something is logged as an error in the block; `allowed` are beginnings of foreseen ones."""
    handler = _Breakages()
    root = logging.getLogger()
    root.addHandler(handler)
    try:
        yield
    finally:
        root.removeHandler(handler)
    assert [text for text in handler.texts if not text.startswith(allowed or ("\0",))] == []
