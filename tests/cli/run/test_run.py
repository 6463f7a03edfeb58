"""``kubeloop run`` as a developer meets it: a process whose only inputs are changes on disk and signals."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec
import pytest
from click.testing import CliRunner

from kubeloop.cli.run.command import run as command
from kubeloop.cli.run.options import FAILED, MISUSED
from kubeloop.cli.run.program import main as program
from kubeloop.testing import LocalCluster

# Starting Python several times takes as long as it takes on a busy machine; nothing here depends on how long.
pytestmark = [pytest.mark.embedded, pytest.mark.timeout(300)]

PROGRAM = """
import msgspec
from kubeloop import Controller, Model, Resource, custom_resource
from kubeloop.api.core.v1 import ConfigMap
from kubeloop.meta import ObjectMeta


class GadgetSpec(Model):
    size: int = 1


@custom_resource("run.kubeloop.example.com/v1", plural="gadgets")
class Gadget(Resource):
    spec: GadgetSpec = msgspec.field(default_factory=GadgetSpec)


class Gadgets(Controller[Gadget], owns=[ConfigMap], name="gadgets"):
    async def reconcile(self, gadget: Gadget) -> None:
        print("WORD", gadget.metadata.name, gadget.spec.size)


class Maps(Controller[ConfigMap], name="maps"):
    async def reconcile(self, config: ConfigMap) -> None: ...


class Stuck(Controller[ConfigMap], name="stuck"):
    async def reconcile(self, config: ConfigMap) -> None: ...

    async def start(self) -> None:
        import threading

        print("stuck forever")
        threading.Event().wait()


def fails():
    return undefined_name
"""

GADGET = "apiVersion: run.kubeloop.example.com/v1\nkind: Gadget\nmetadata: {name: a}\nspec: {size: SIZE}\n"


class Running:
    """``kubeloop run`` with both of its outputs in one."""

    def __init__(self, folder: Path, *args: str) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBE")}
        self.process = subprocess.Popen(
            [sys.executable, "-m", "kubeloop", "run", *args],
            cwd=folder,
            env={**environment, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self.seen = ""

    def until(self, text: str) -> str:
        """Reads up to a line with ``text``, and returns that."""
        assert self.process.stdout is not None
        while line := self.process.stdout.readline():
            self.seen += line
            if text in line:
                return line.rstrip("\n")
            if "waiting for a change" in line:
                break
        raise AssertionError(f"ended, or waits, without {text!r}:\n{self.seen}")

    def rest(self) -> str:
        """Until the last process that holds the output has ended."""
        assert self.process.stdout is not None
        return self.process.stdout.read()

    def end(self, signal_number: int | None = None) -> int:
        if signal_number is not None:
            self.process.send_signal(signal_number)
        self.seen += self.rest()
        return self.process.wait()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "gadgets").mkdir()
    (tmp_path / "gadgets/__init__.py").write_text("")
    (tmp_path / "gadgets/app.py").write_text(PROGRAM.replace("WORD", "first"))
    return tmp_path


@pytest.fixture
def run(folder: Path) -> Iterator[Callable[..., Running]]:
    running: list[Running] = []

    def start(*args: str) -> Running:
        running.append(Running(folder, *args))
        return running[-1]

    yield start
    for one in running:
        one.process.kill()
        one.process.wait()
        assert one.process.stdout is not None
        one.process.stdout.close()


def test_with_its_own_server_each_change_of_sources_and_manifests_restarts_it_and_ctrl_c_ends_it(
    run: Callable[..., Running], folder: Path
) -> None:
    (folder / "samples").mkdir()
    (folder / "samples/a.yaml").write_text(GADGET.replace("SIZE", "2"))
    running = run("gadgets.app:Gadgets", "--embedded", "--apply", "samples")
    assert "embedded server: kubectl --kubeconfig /" in running.until("embedded server")
    said = "kubeloop: running gadgets.app:Gadgets; restarts on a change of the modules that it imports, samples"
    assert running.until("kubeloop: running") == said
    assert running.until("created") == "customresourcedefinition.apiextensions.k8s.io/gadgets.run.kubeloop.example.com created"
    assert running.until("created") == "gadget.run.kubeloop.example.com/a created"
    running.until("first a 2")
    (folder / "gadgets/app.py").write_text(PROGRAM.replace("WORD", "other"))
    assert running.until("restarting") == "kubeloop: gadgets/app.py changed, restarting"
    assert running.until("unchanged") == "2 objects unchanged"
    running.until("other a 2")
    (folder / "samples/a.yaml").write_text(GADGET.replace("SIZE", "33"))
    running.until("samples/a.yaml changed")
    assert running.until("configured") == "gadget.run.kubeloop.example.com/a configured"
    running.until("other a 33")
    assert running.end(signal.SIGINT) == 0
    assert max(len(line) for line in running.seen.splitlines() if "embedded server" not in line) <= 120
    assert "stopping; once more to end at once" in running.seen
    assert "Traceback" not in running.seen


def test_a_stored_sample_that_lacks_a_field_which_the_kind_now_requires_is_named_with_file_and_field(
    run: Callable[..., Running], folder: Path
) -> None:
    (folder / "samples").mkdir()
    (folder / "samples/a.yaml").write_text(GADGET.replace("SIZE", "2"))
    running = run("gadgets.app:Gadgets", "--embedded", "--apply", "samples")
    running.until("a 2")
    (folder / "gadgets/app.py").write_text(PROGRAM.replace("    size: int = 1\n", "    size: int = 1\n    color: str\n"))
    assert running.until("Error: ") == (
        "Error: samples/a.yaml: Gadget a: spec.color: Required value; the stored object is older than this rule: "
        "correct the file, or the class"
    )
    with pytest.raises(AssertionError, match="waiting for a change in gadgets, samples"):
        running.until("the end")
    (folder / "samples/a.yaml").write_text(GADGET.replace("SIZE", "2, color: red"))
    running.until("gadget.run.kubeloop.example.com/a configured")
    running.until("running on")


def test_a_restart_follows_a_module_that_is_imported_and_no_other(run: Callable[..., Running], folder: Path) -> None:
    (folder / "gadgets/used.py").write_text("")
    (folder / "gadgets/unused.py").write_text("")
    (folder / "common.py").write_text("")
    (folder / "gadgets/app.py").write_text("import common\nfrom gadgets import used\n" + PROGRAM.replace("WORD", "first"))
    running = run("gadgets.app:Gadgets", "--embedded")
    running.until("running on")
    (folder / "gadgets/unused.py").write_text("x = 1")
    (folder / "gadgets/test_app.py").write_text("x = 1")
    (folder / "gadgets/used.py").write_text("x = 1")
    assert running.until("restarting") == "kubeloop: gadgets/used.py changed, restarting"
    running.until("running on")
    (folder / "common.py").write_text("x = 1")
    assert running.until("restarting") == "kubeloop: common.py changed, restarting"


def test_a_fault_in_the_sources_is_shown_and_the_next_change_awaited(
    run: Callable[..., Running], folder: Path, local_cluster: LocalCluster
) -> None:
    source = folder / "gadgets/app.py"
    source.write_text(PROGRAM + "\ndef (\n")
    running = run("gadgets.app:Maps", "--kubeconfig", str(local_cluster.kubeconfig))
    assert "cannot be imported: SyntaxError: invalid syntax (app.py, line " in running.until("Error: ")
    running.until("def (")
    running.until("waiting for a change in gadgets (Ctrl-C ends)")
    source.write_text(PROGRAM + "\nundefined_name\n")
    assert "NameError: name 'undefined_name' is not defined" in running.until("Error: ")
    running.until('gadgets/app.py", line ')
    running.until("waiting for a change")
    source.write_text(PROGRAM)
    running.until("running on https://127.0.0.1:")
    source.unlink()
    running.until("waiting for a change")
    assert running.end(signal.SIGTERM) == 1


def test_a_command_line_that_cannot_be_right_ends_it_at_once(run: Callable[..., Running]) -> None:
    running = run("gadgets.app:Map")
    assert running.end() == 1
    assert "Error: gadgets.app:Map: gadgets.app has no Map; did you mean Maps?" in running.seen
    assert "waiting" not in running.seen


@pytest.mark.parametrize(
    ("args", "words"),
    [
        pytest.param(["nowhere.app:x"], "nowhere.app:x: no module nowhere in /", id="a package that is not there"),
        pytest.param(["gadgets.app:Maps", "--apply", "."], "--apply fills the server of --embedded", id="manifests for a cluster"),
        pytest.param(["gadgets.app:Maps", "--embedded", "--context", "x"], "--embedded brings its own cluster", id="two clusters"),
        pytest.param(["gadgets.app:Maps", "--grace", "soon"], "'soon' is not a valid duration", id="a time that is none"),
    ],
)
def test_an_error_that_needs_no_import_is_reported_before_anything_is_started(
    folder: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], words: str
) -> None:
    monkeypatch.chdir(folder)
    done = CliRunner().invoke(command, args, env={"COLUMNS": "200"})
    assert done.exit_code in (1, 2)
    assert f"Error: {words}" in done.output or words in done.output


@pytest.mark.parametrize(
    ("options", "status", "words"),
    [
        pytest.param({"target": "gadgets.other:x"}, MISUSED, "no module gadgets.other", id="a module that is not there"),
        pytest.param({"target": "gadgets.app:PARTS"}, MISUSED, "it has Gadgets, Maps, Stuck, fails", id="a name that is not there"),
        pytest.param({"target": "gadgets.app:Gadget"}, MISUSED, "cannot be run; expected a controller", id="something else"),
        pytest.param({"kubeconfig": "none.yaml"}, MISUSED, "none.yaml", id="a kubeconfig that is not there"),
        pytest.param({"context": "moon"}, MISUSED, "moon", id="a context that is not there"),
        pytest.param({"settings": "bad.yaml"}, MISUSED, "workerz: no such field; did you mean workers?", id="settings with a fault"),
        pytest.param(
            {"settings": "other.yaml"}, MISUSED, 'there is no controller "moon"; there are: maps', id="settings of another program"
        ),
        pytest.param({"target": "gadgets.app:fails"}, FAILED, "in fails", id="code that fails, with the place"),
    ],
)
def test_a_target_that_cannot_be_run_is_an_error_with_a_hint(
    folder: Path,
    local_cluster: LocalCluster,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: dict[str, str],
    status: int,
    words: str,
) -> None:
    (folder / "bad.yaml").write_text("workerz: {maps: 2}\n")
    (folder / "other.yaml").write_text("workers: {moon: 2}\n")
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(str(folder))
    monkeypatch.setattr(sys, "dont_write_bytecode", sys.dont_write_bytecode)
    monkeypatch.setenv("KUBECONFIG", str(local_cluster.kubeconfig))
    for name in [name for name in sys.modules if name.partition(".")[0] == "gadgets"]:
        monkeypatch.delitem(sys.modules, name)
    given = {"target": "gadgets.app:Maps", "kubeconfig": str(local_cluster.kubeconfig), **options}
    assert program(msgspec.json.encode(given).decode()) == status
    error = capsys.readouterr().err
    assert error.startswith("Error: ")
    assert words in error


def test_what_blocks_the_program_is_killed_by_a_second_signal(run: Callable[..., Running], local_cluster: LocalCluster) -> None:
    running = run("gadgets.app:Stuck", "--kubeconfig", str(local_cluster.kubeconfig), "--grace", "1h")
    running.until("stuck forever")
    running.process.send_signal(signal.SIGINT)
    running.until("stopping; once more to end at once")
    assert running.end(signal.SIGINT) == 130
    assert "killed" in running.seen


def test_the_program_ends_when_its_supervisor_is_killed(run: Callable[..., Running], local_cluster: LocalCluster) -> None:
    running = run("gadgets.app:Maps", "--kubeconfig", str(local_cluster.kubeconfig), "--no-reload", "--namespace", "default")
    assert "running on https://127.0.0.1:" in running.until("running on")
    running.process.kill()
    running.rest()  # To its end: no process holds the output any more.


def test_on_a_terminal_a_table_is_drawn_with_the_logs_above_it(folder: Path, local_cluster: LocalCluster) -> None:
    ours, theirs = pty.openpty()
    environment = {**os.environ, "TERM": "xterm", "COLUMNS": "200", "PYTHONPATH": os.pathsep.join(sys.path)}
    args = ["run", "gadgets.app:Maps", "--kubeconfig", str(local_cluster.kubeconfig)]
    process = subprocess.Popen(
        [sys.executable, "-m", "kubeloop", *args], cwd=folder, env=environment, stdin=theirs, stdout=theirs, stderr=theirs
    )
    os.close(theirs)
    try:
        seen = b""
        while b"synced" not in seen.rpartition(b"INFORMER")[2]:
            seen += os.read(ours, 65536)
        process.send_signal(signal.SIGINT)
        while process.poll() is None or b"\x1b[?25h" not in seen:
            try:
                seen += os.read(ours, 65536)
            except OSError:  # All have closed it.
                break
        assert process.wait() == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", seen.decode())
    assert re.search(r"CONTROLLER +WORKERS +WAITING", text)
    assert "gadgets.app:Maps on https://127.0.0.1:" in text
    assert "caches are synced, starting: maps" in text
    assert b"\x1b[?25h" in seen  # The cursor is there again.
