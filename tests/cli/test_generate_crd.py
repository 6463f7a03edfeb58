"""``kubeloop generate crd``: what it writes, and what it says."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from kubeloop.cli.generate import generate
from kubeloop.codec.yaml import read_yaml

KINDS = "tests.codegen.crd.kinds"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(generate, ["crd", *arguments])


def test_definitions_are_printed_ready_to_apply() -> None:
    result = run(KINDS)
    assert result.exit_code == 0, result.output
    assert [document["metadata"]["name"].partition(".")[0] for document in read_yaml(result.stdout)] == ["gadgets", "halls"]


def test_a_folder_gets_a_file_for_each_kind_and_check_compares_it(tmp_path: Path) -> None:
    assert run(KINDS, "--out", str(tmp_path / "crds"), "-v").exit_code == 0
    names = sorted(path.name for path in (tmp_path / "crds").iterdir())
    assert names == ["gadgets.kubeloop-codegen.example.com.yaml", "halls.kubeloop-codegen.example.com.yaml"]
    assert run(KINDS, "--out", str(tmp_path / "crds"), "--check").exit_code == 0
    halls = tmp_path / "crds" / names[1]
    halls.write_text(halls.read_text().replace("minimum: 1", "minimum: 2"))
    result = run(KINDS, "--out", str(tmp_path / "crds"), "--check")
    assert result.exit_code == 1
    assert "-            minimum: 2\n+            minimum: 1" in result.output
    assert "minimum: 2" in halls.read_text()


def test_what_a_server_would_refuse_is_not_written(tmp_path: Path) -> None:
    result = run("tests.codegen.crd.broken:Key", "--out", str(tmp_path / "key.yaml"))
    assert result.exit_code == 1
    assert "a server would refuse this:\n  tests.codegen.crd.broken.Item.name: Required value" in result.output
    assert not (tmp_path / "key.yaml").exists()


def test_verbose_says_what_was_found_and_checked() -> None:
    result = run(f"{KINDS}:Hall", "-v")
    assert "tests.codegen.crd.kinds.Hall is kubeloop-codegen.example.com/v1, Kind=Hall" in result.stderr
    assert "halls.kubeloop-codegen.example.com: v1: valid" in result.stderr


def test_the_error_for_a_check_without_a_file_names_the_missing_option() -> None:
    result = run(KINDS, "--check")
    assert result.exit_code == 1
    assert "name it with --out" in result.output


def test_a_field_that_another_version_lacks_is_warned_of(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = """
from kubeloop.declare import crd
from kubeloop.meta import Model, Resource, custom_resource

class OldSpec(Model):
    size: int = 1
    color: str = ""

class NewSpec(Model):
    size: int = 1

@custom_resource("cars.example.com/v1", plural="cars")
class Car(Resource):
    spec: OldSpec

@crd(storage=True)
@custom_resource("cars.example.com/v2", plural="cars", kind="Car")
class NewCar(Resource):
    spec: NewSpec
"""
    (tmp_path / "two_versions_of_cars.py").write_text(source)
    monkeypatch.syspath_prepend(tmp_path)
    result = run("two_versions_of_cars")
    assert result.exit_code == 0, result.output
    assert "warning: cars.cars.example.com: version v1 declares .spec.color and version v2 does not: " in result.stderr
    assert len(list(read_yaml(result.stdout))) == 1
