"""Which files lead to a new start of ``kubeloop run``, and when."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from kubeloop.cli.run.sources import SourceFiles, sources_of
from kubeloop.meta.errors import ConfigError


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a package ``shop_operator``, a module ``shop_single`` and other things; the working directory."""
    for name in (
        "shop_operator/__init__.py",
        "shop_operator/app.py",
        "shop_operator/deep/down.py",
        "shop_operator/data.txt",
        "shop_operator/__pycache__/app.py",
        "shop_operator/.hidden/x.py",
        "shop_operator/venv/pyvenv.cfg",
        "shop_operator/venv/x.py",
        "shop_single.py",
        "beside.py",
        "elsewhere/x.py",
        "samples/a.yaml",
    ):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("1")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def rewrite(path: Path) -> None:
    """Its time moves on, whatever the file system's clock is like."""
    stat = path.stat()
    path.write_text("2")
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns + 1_000_000_000))


@pytest.mark.parametrize(
    ("target", "count", "message"),
    [
        pytest.param("shop_operator.app:controllers", 3, "shop_operator", id="of a package all modules, wherever in it the target is"),
        pytest.param("shop_single:controllers", 2, ".", id="of a single module what lies beside it"),
    ],
)
def test_sources_are_the_python_files_of_the_program(project: Path, target: str, count: int, message: str) -> None:
    found = sources_of(target)
    assert (len(found), str(found)) == (count, message)
    assert project.is_dir()


@pytest.mark.parametrize(
    ("change", "names"),
    [
        pytest.param(lambda folder: rewrite(folder / "shop_operator/app.py"), ["shop_operator/app.py"], id="a module that is written"),
        pytest.param(lambda folder: (folder / "shop_operator/new.py").write_text(""), ["shop_operator/new.py"], id="a new module"),
        pytest.param(
            lambda folder: (folder / "shop_operator/deep/down.py").unlink(), ["shop_operator/deep/down.py"], id="a file that is removed"
        ),
        pytest.param(lambda folder: rewrite(folder / "samples/a.yaml"), ["samples/a.yaml"], id="a file of any kind that is named besides"),
        pytest.param(lambda folder: rewrite(folder / "shop_operator/data.txt"), [], id="no other files of the package"),
        pytest.param(lambda folder: rewrite(folder / "elsewhere/x.py"), [], id="no other package"),
        pytest.param(lambda folder: rewrite(folder / "shop_operator/venv/x.py"), [], id="no virtual environment"),
        pytest.param(lambda folder: rewrite(folder / "shop_operator/.hidden/x.py"), [], id="nothing that is hidden"),
    ],
)
def test_a_change_is_reported_once_when_nothing_moves_any_more(project: Path, change: Callable[[Path], object], names: list[str]) -> None:
    sources = sources_of("shop_operator.app:controllers", [Path("samples")])
    assert sources.changed() == []
    change(project)
    changes = [sources.changed(), sources.changed(), sources.changed()]
    assert changes == [[], [project / name if name.startswith("shop") else Path(name) for name in names], []]


def test_once_the_program_runs_what_it_imports_is_watched_and_after_a_failure_everything(project: Path) -> None:
    sources = sources_of("shop_operator.app:controllers")
    app, down, common = project / "shop_operator/app.py", project / "shop_operator/deep/down.py", project / "elsewhere/x.py"
    sources.narrow([app, common, project / "venv/lib/site-packages/x.py", project / ".venv/x.py", Path("/usr/lib/x.py")])
    for path in (down, app, common):
        rewrite(path)
    assert [sources.changed(), sources.changed()] == [[], [common, app]]
    sources.widen()
    rewrite(down)
    assert [sources.changed(), sources.changed()] == [[], [down]]


def test_files_that_are_still_being_written_are_waited_for(project: Path) -> None:
    sources = SourceFiles([project / "shop_operator"])
    rewrite(project / "shop_operator/app.py")
    assert sources.changed() == []
    rewrite(project / "shop_operator/__init__.py")
    assert sources.changed() == []
    assert [path.name for path in sources.changed()] == ["__init__.py", "app.py"]


@pytest.mark.parametrize(
    ("target", "words"),
    [
        pytest.param("shop_missing.app:x", "no module shop_missing in .*, nor on PYTHONPATH; run this in the folder that holds", id="none"),
        pytest.param("./shop_single.py:x", "write MODULE:NAME, the module as Python imports it", id="a path"),
        pytest.param(":x", "write MODULE:NAME", id="no module at all"),
    ],
)
def test_a_module_that_is_not_there_is_refused_with_the_way_out(project: Path, target: str, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        sources_of(target)
    assert project.is_dir()
