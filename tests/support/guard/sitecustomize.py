"""Loaded by every Python whose PYTHONPATH names this folder: puts the network guard into processes that tests
start."""

import gc

import network_guard

network_guard.install()
# Modules are imported and stay: looking for garbage among them is a tenth of a start.
gc.set_threshold(50_000, 20, 100)
