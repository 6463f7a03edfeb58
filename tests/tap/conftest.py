"""Tests that run a Go program need Go, as those of tests/foreign."""

from __future__ import annotations

from tests.foreign.building import is_installed

collect_ignore = [] if is_installed("go") else ["test_go_program.py"]
