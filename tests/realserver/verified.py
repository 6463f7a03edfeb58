"""The suites that passed with a real kube-apiserver since anything that they test was changed last.

Tests under ``tests/apiserver`` and ``tests/attacks`` hold the embedded server to what a real one does. On a real server they can
find only mistakes of the tests, so a suite that passed there needs to run there again only when it changes.

The suites with kube-controller-manager, Helm and kwok test kubeloop too: they run again when a source file or one of these tests changes.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

PROJECT = Path(__file__).parents[2]
TESTS = PROJECT / "tests"
#: Suites of the server's own behaviour. All others test clients, caches and controllers too, and run against a real server each time.
ROOTS = ("apiserver", "attacks")
#: What these suites take from outside the roots, and the modules that the real server is built from.
_SHARED = ("*.py", "kubectl/*.py", "realserver/go/go.mod")
#: What the suites with kube-controller-manager, Helm and kwok test, and how.
_WITH_PROGRAMS = (
    "src/kubeloop/**/*", "requirements/dev.txt", "tests/*.py", "tests/controlplane/**/*", "tests/conformance/**/*", "tests/foreign/**/*",
    "tests/realserver/**/*",
)  # fmt: skip
_PROGRAMS = "with programs"
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


def fingerprint_with_programs(project: Path = PROJECT) -> str:
    """SHA-256 of all sources of kubeloop and of the tests with kube-controller-manager, Helm and kwok."""
    found = {file for pattern in _WITH_PROGRAMS for file in project.glob(pattern) if file.is_file()}
    return _digest(project, {file for file in found if "__pycache__" not in file.parts and file.name != _FILE.name})


def _digest(root: Path, files: set[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def unchanged(tests: Path = TESTS, stored: Path = _FILE) -> list[Path]:
    """The files with tests of all suites that passed on a real server as they are."""
    passed, now = _read(stored), fingerprints(tests)
    return [
        file for name, files in suites(tests).items() if passed.get(name) == now[name] for file in files if file.name.startswith("test_")
    ]


def unchanged_with_programs(project: Path = PROJECT, stored: Path = _FILE) -> bool:
    """Whether the suites with kube-controller-manager, Helm and kwok passed with kubeloop as it is."""
    return _read(stored).get(_PROGRAMS) == fingerprint_with_programs(project)


def store(project: Path = PROJECT, stored: Path = _FILE, *, of_the_server: bool = True, with_programs: bool = True) -> None:
    """Record that suites passed.

    Args:
        project: The root of the project.
        stored: The file of the record.
        of_the_server: Whether all suites of the server's own behaviour passed, or had passed as they are.
        with_programs: Whether all suites with kube-controller-manager, Helm and kwok passed.
    """
    passed = _read(stored)
    programs = {_PROGRAMS: passed[_PROGRAMS]} if _PROGRAMS in passed else {}
    if of_the_server:
        passed = {**fingerprints(project / "tests"), **programs}
    if with_programs:
        passed[_PROGRAMS] = fingerprint_with_programs(project)
    stored.write_text(json.dumps(passed, indent=1, sort_keys=True) + "\n")


def _read(stored: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(stored.read_text()) if stored.exists() else {}
    return found
