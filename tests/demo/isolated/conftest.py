"""For the modules of this folder, which run in a network namespace with loopback alone."""

from collections.abc import Iterator

import pytest

from tests.support.real_servers import count_refused_packets


@pytest.fixture(scope="module", autouse=True)
def loopback_alone() -> Iterator[None]:
    """Fails when anything in the network namespace, a tool server for example, wanted to leave it."""
    before = count_refused_packets()
    yield
    assert count_refused_packets() == before
