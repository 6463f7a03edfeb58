"""The suites of the server that passed on a real kube-apiserver since they were changed last.

Tests under ``tests/apiserver`` and ``tests/attacks`` hold the embedded server to what a real one does. On a real server they can
find only mistakes of the tests, so a suite that passed there needs to run there again only when it changes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

TESTS = Path(__file__).parents[1]
#: Suites of the server's own behaviour. All others test clients, caches and controllers too, and run against a real server each time.
ROOTS = ("apiserver", "attacks")
#: What these suites take from outside the roots, and the modules that the real server is built from.
_SHARED = ("*.py", "kubectl/*.py", "realserver/go/go.mod")
_FILE = Path(__file__).with_name("verified.json")


def suites(tests: Path = TESTS) -> dict[str, list[Path]]:
    """Name of each suite -> its files. A folder below a root is one suite, the files directly in the root another."""
    found: dict[str, list[Path]] = {}
    for root in ROOTS:
        for file in sorted((tests / root).rglob("*")):
            inside = file.relative_to(tests)
            if file.is_file() and "__pycache__" not in inside.parts:
                found.setdefault("/".join(inside.parts[: min(2, len(inside.parts) - 1)]), []).append(file)
    return found


def fingerprints(tests: Path = TESTS) -> dict[str, str]:
    """Name of each suite -> SHA-256 of its files, of the helpers that suites of all folders import, and of the real server's version."""
    found = suites(tests)
    helpers = {file for files in found.values() for file in files if file.suffix == ".py" and not file.name.startswith("test_")}
    for pattern in _SHARED:
        helpers |= {file for file in tests.glob(pattern) if not file.name.startswith("test_")}
    return {name: _digest(tests, {*files, *helpers}) for name, files in found.items()}


def _digest(tests: Path, files: set[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(tests).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def unchanged(tests: Path = TESTS, stored: Path = _FILE) -> list[Path]:
    """The files with tests of all suites that passed on a real server as they are."""
    passed = json.loads(stored.read_text()) if stored.exists() else {}
    now = fingerprints(tests)
    return [
        file for name, files in suites(tests).items() if passed.get(name) == now[name] for file in files if file.name.startswith("test_")
    ]


def store(tests: Path = TESTS, stored: Path = _FILE) -> None:
    """Note that all suites passed on a real server."""
    stored.write_text(json.dumps(fingerprints(tests), indent=1, sort_keys=True) + "\n")
