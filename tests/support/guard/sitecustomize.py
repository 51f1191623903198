"""Loaded by every Python whose PYTHONPATH names this folder: puts the network guard into processes that tests
start."""

import network_guard

network_guard.install()
