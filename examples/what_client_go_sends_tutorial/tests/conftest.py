"""The commands of the page need Go; without it they are left out, as in tests/foreign."""

from __future__ import annotations

from tests.foreign.building import is_installed

collect_ignore = [] if is_installed("go") else ["test_stages.py"]
