"""Imports without garbage collections: of what they make almost nothing is garbage."""

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager

_MANY_MODULES = 50  # a framework, or the package of a model's provider


@contextmanager
def paused_collections() -> Iterator[None]:
    """Imports in the block without garbage collections, and keeps what they made out of later ones.

    A framework makes so many objects that collections of everything follow: a sixth of the time of a start,
    and in a server that is up each stops all threads for hundreds of milliseconds. What a module has made
    stays until the end anyway.
    """
    modules_before = len(sys.modules)
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if len(sys.modules) - modules_before > _MANY_MODULES:
            gc.freeze()
        if was_enabled:
            gc.enable()
