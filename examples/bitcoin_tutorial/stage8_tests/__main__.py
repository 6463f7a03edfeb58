"""``python -m examples.bitcoin_tutorial.stage8_tests``: run the tests of this stage."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

if __name__ == "__main__":
    sys.exit(pytest.main(["-v", "-p", "no:cacheprovider", str(Path(__file__).parent)]))
