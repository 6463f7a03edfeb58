from __future__ import annotations

from pathlib import Path

import pytest

from tests.realserver import verified
from tests.realserver.verified import Group

FILES = {
    "apiserver/conftest.py": "fixtures",
    "apiserver/test_deletes.py": "deletes",
    "apiserver/crd/test_versions.py": "versions",
    "apiserver/crd/recorded.json": "{}",
    "apiserver/flow/test_levels.py": "levels",
    "apiserver/flow/control.py": "helpers of another folder",
    "attacks/test_paths.py": "paths",
    "client/test_lists.py": "pytestmark = pytest.mark.server",
    "client/test_keys.py": "no server",
    "controller/test_queues.py": "pytestmark = pytest.mark.server",
    "kubectl/runner.py": "kubectl",
    "realserver/go/go.mod": "k8s.io/kubernetes v1.36.3",
    "servers.py": "servers",
}
SUITES = {name for name in FILES if "test_" in name and not name.startswith(("client", "controller"))}


@pytest.fixture
def tests(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / "tests" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "tests" / name).write_text(text)
    return tmp_path / "tests"


@pytest.mark.parametrize(
    ("changed", "run_again"),
    [
        pytest.param("", set(), id="nothing changed"),
        pytest.param("client/test_lists.py", set(), id="a suite that always runs"),
        pytest.param("apiserver/test_deletes.py", {"apiserver/test_deletes.py"}, id="a file of the root"),
        pytest.param("apiserver/crd/test_versions.py", {"apiserver/crd/test_versions.py"}, id="a file of a folder"),
        pytest.param("apiserver/crd/recorded.json", {"apiserver/crd/test_versions.py"}, id="data of a folder"),
        pytest.param("apiserver/crd/test_new.py", {"apiserver/crd/test_versions.py", "apiserver/crd/test_new.py"}, id="a new file"),
        pytest.param("apiserver/conftest.py", SUITES, id="fixtures"),
        pytest.param("apiserver/flow/control.py", SUITES, id="helpers of any folder"),
        pytest.param("kubectl/runner.py", SUITES, id="helpers outside"),
        pytest.param("servers.py", SUITES, id="how servers start"),
        pytest.param("realserver/go/go.mod", SUITES, id="another real server"),
    ],
)
def test_a_suite_runs_on_a_real_server_again_when_it_changed(tests: Path, changed: str, run_again: set[str]) -> None:
    stored = tests.parent / "verified.json"
    verified.store(tests.parent, stored)
    if changed:
        (tests / changed).write_text("changed")
    left_out = {path.relative_to(tests).as_posix() for path in verified.unchanged(tests, stored)}
    assert left_out.isdisjoint(run_again)
    assert left_out | run_again == SUITES | run_again


@pytest.mark.parametrize(
    ("changed", "run_again"),
    [
        pytest.param("", set(), id="nothing changed"),
        pytest.param("src/kubeloop/version.py", set(Group), id="a source file"),
        pytest.param("src/kubeloop/cli/new/chart.tmpl", set(Group), id="a template"),
        pytest.param("tests/foreign/test_kwok.py", {Group.WITH_PROGRAMS}, id="a test with programs"),
        pytest.param("tests/servers.py", set(Group), id="how servers start"),
        pytest.param("requirements/dev.txt", set(Group), id="a dependency"),
        pytest.param("tests/client/test_lists.py", {Group.OTHERS}, id="a test that talks to a server"),
        pytest.param("tests/client/test_keys.py", set(), id="a test that does not"),
        pytest.param("tests/client/helpers.py", {Group.OTHERS}, id="a helper of tests"),
        pytest.param("tests/apiserver/test_deletes.py", set(), id="a suite of the server, which has a separate record"),
        pytest.param("tests/controller/test_queues.py", set(), id="a suite that always runs"),
        pytest.param("examples/webhook/app.py", {Group.OTHERS}, id="an example with tests on a real server"),
        pytest.param("examples/ingress_nginx/app.py", set(), id="an example without them"),
        pytest.param("src/kubeloop/__pycache__/version.pyc", set(), id="compiled code"),
    ],
)
def test_suites_that_test_kubeloop_itself_run_again_when_it_or_they_changed(tests: Path, changed: str, run_again: set[Group]) -> None:
    project, stored = tests.parent, tests / "realserver" / "verified.json"
    verified.store(project, stored)
    if changed:
        file = project / changed
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{file.read_text() if file.exists() else ''}# changed")
    assert {group for group in Group if not verified.is_unchanged(group, project, stored)} == run_again


def test_no_test_on_a_real_server_uses_the_example_that_does_not_count() -> None:
    on_servers = [
        file
        for folder in (verified.TESTS, verified.PROJECT / "examples")
        for file in folder.rglob("*.py")
        if b"mark.server" in file.read_bytes() and file != Path(__file__)
    ]
    assert on_servers
    package = verified.EMBEDDED_ONLY.rstrip("/").replace("/", ".").encode()
    assert not [file for file in on_servers if file.is_relative_to(verified.PROJECT / verified.EMBEDDED_ONLY)]
    assert not [file for file in on_servers if package in file.read_bytes()]


@pytest.mark.parametrize("of_the_server", [True, False])
@pytest.mark.parametrize("groups", [(), *((group,) for group in Group), tuple(Group)], ids=" and ".join)
def test_what_failed_is_not_recorded_and_what_passed_before_stays(tests: Path, of_the_server: bool, groups: tuple[Group, ...]) -> None:
    project, stored = tests.parent, tests / "realserver" / "verified.json"
    verified.store(project, stored)
    for changed in ("src/kubeloop/version.py", "tests/apiserver/test_deletes.py"):
        (project / changed).parent.mkdir(parents=True, exist_ok=True)
        (project / changed).write_text("changed")
    verified.store(project, stored, of_the_server=of_the_server, groups=groups)
    assert (tests / "apiserver/test_deletes.py" in verified.unchanged(tests, stored)) is of_the_server
    assert {group for group in Group if verified.is_unchanged(group, project, stored)} == set(groups)
    assert tests / "attacks/test_paths.py" in verified.unchanged(tests, stored)


def test_every_suite_runs_when_none_is_noted(tests: Path) -> None:
    assert verified.unchanged(tests, tests.parent / "verified.json") == []
    assert not any(verified.is_unchanged(group, tests.parent, tests.parent / "verified.json") for group in Group)
