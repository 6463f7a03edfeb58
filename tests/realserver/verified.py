"""The suites that passed with a real kube-apiserver since anything that they test was changed last.

Tests under ``tests/apiserver`` and ``tests/attacks`` hold the embedded server to what a real one does. On a real server they can
find only mistakes of the tests, so a suite that passed there needs to run there again only when it changes.

The other suites test clients, caches and controllers too. They run again when a source file or one of these tests changes; so do those with
programs that are built from source: kube-controller-manager, Helm, kwok, and the program of Rust's client library.
"""

from __future__ import annotations

import enum
import hashlib
import json
from collections.abc import Collection
from pathlib import Path

PROJECT = Path(__file__).parents[2]
TESTS = PROJECT / "tests"
#: Suites of the server's own behaviour.
ROOTS = ("apiserver", "attacks")
#: What these suites take from outside the roots, and the modules that the real server is built from.
_SHARED = ("*.py", "kubectl/*.py", "realserver/go/go.mod")


class Group(enum.StrEnum):
    """Suites that test kubeloop itself, and are recorded together."""

    OTHERS = "clients, caches and kubectl"
    WITH_PROGRAMS = "with programs"


#: What the suites of a group test, and how.
_PATTERNS = {
    Group.OTHERS: ("src/kubeloop/**/*", "requirements/dev.txt", "tests/**/*", "examples/**/*"),
    Group.WITH_PROGRAMS: (
        "src/kubeloop/**/*", "requirements/dev.txt", "examples/bitcoin_operator/**/*",
        "tests/*.py", *(f"tests/{folder}/**/*" for folder in ("controlplane", "conformance", "foreign", "realserver")),
    ),
}  # fmt: skip
#: Tests below these folders, except helpers, have a separate record (``suites``), or run on a real server each time.
_RECORDED_APART = tuple(f"tests/{name}/" for name in (*ROOTS, "controlplane", "controller"))
#: An example that no test on a real server uses.
EMBEDDED_ONLY = "examples/ingress_nginx/"
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


def group_fingerprint(group: Group, project: Path = PROJECT) -> str:
    """SHA-256 of all sources of kubeloop and of the tests of a group."""
    found = {file for pattern in _PATTERNS[group] for file in project.glob(pattern) if file.is_file() and "__pycache__" not in file.parts}
    return _digest(project, {file for file in found if file.name != _FILE.name and _belongs_to(group, file, project)})


def _belongs_to(group: Group, file: Path, project: Path) -> bool:
    if file.relative_to(project).as_posix().startswith(EMBEDDED_ONLY):
        return False
    if group is not Group.OTHERS or not file.name.startswith("test_") or file.suffix != ".py":
        return True
    return not file.relative_to(project).as_posix().startswith(_RECORDED_APART) and b"mark.server" in file.read_bytes()


def _digest(root: Path, files: set[Path]) -> str:
    digest = hashlib.sha256()
    for file in sorted(files):
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(hashlib.sha256(file.read_bytes()).digest())
    return digest.hexdigest()


def files_with_tests(tests: Path = TESTS) -> list[Path]:
    """The files with tests of the server's own behaviour."""
    return [file for files in suites(tests).values() for file in files if file.name.startswith("test_")]


def unchanged(tests: Path = TESTS, stored: Path = _FILE) -> list[Path]:
    """The files with tests of all suites that passed on a real server as they are."""
    passed, now = _read(stored), fingerprints(tests)
    return [
        file for name, files in suites(tests).items() if passed.get(name) == now[name] for file in files if file.name.startswith("test_")
    ]


def is_unchanged(group: Group, project: Path = PROJECT, stored: Path = _FILE) -> bool:
    """Whether the suites of a group passed on a real server with kubeloop as it is."""
    return _read(stored).get(group) == group_fingerprint(group, project)


def store(project: Path = PROJECT, stored: Path = _FILE, *, of_the_server: bool = True, groups: Collection[Group] = tuple(Group)) -> None:
    """Record that suites passed.

    Args:
        project: The root of the project.
        stored: The file of the record.
        of_the_server: Whether all suites of the server's own behaviour passed, or had passed as they are.
        groups: The groups of which all suites passed.
    """
    before = _read(stored)
    passed = fingerprints(project / "tests") if of_the_server else {name: value for name, value in before.items() if name not in set(Group)}
    for group in Group:
        if group in groups:
            passed[group] = group_fingerprint(group, project)
        elif group in before:
            passed[group] = before[group]
    stored.write_text(json.dumps(passed, indent=1, sort_keys=True) + "\n")


def _read(stored: Path) -> dict[str, str]:
    found: dict[str, str] = json.loads(stored.read_text()) if stored.exists() else {}
    return found
