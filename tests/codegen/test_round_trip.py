"""Custom kinds go from CustomResourceDefinition to class and back without loss, and so do classes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kubeloop.codec.yaml import read_yaml
from kubeloop.codegen.crd import classes_at, definitions_of, to_yaml
from tests.codegen.round_trip import back, comparable, forget, to_package

CORPUS = Path(__file__).with_name("corpus")
FILES = sorted(CORPUS.glob("*.yaml"))


def definitions(file: Path) -> list[dict[str, Any]]:
    return read_yaml(file.read_text(), name=file.name)


@pytest.fixture
def package(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[str]:
    name = to_package(request.param, tmp_path)
    yield name
    forget(name, tmp_path)


@pytest.mark.parametrize("package", [definitions(file) for file in FILES], ids=[file.stem for file in FILES], indirect=True)
def test_a_definition_is_what_its_classes_say(package: str, request: pytest.FixtureRequest) -> None:
    file = CORPUS / f"{request.node.callspec.id}.yaml"
    found = back(package)
    for crd in definitions(file):
        assert comparable(found[crd["metadata"]["name"]]) == comparable(crd)


def test_the_corpus_holds_a_dozen_kinds() -> None:
    assert sum(len(definitions(file)) for file in FILES) >= 12


def test_classes_written_by_hand_come_back_the_same_and_stay_so(tmp_path: Path) -> None:
    first = definitions_of(classes_at("tests.codegen.crd.kinds"))
    name = to_package([one.document for one in first], tmp_path)
    second = definitions_of(classes_at(name))
    again = to_package([one.document for one in second], tmp_path)
    third = definitions_of(classes_at(again))
    assert [comparable(one.document) for one in second] == [comparable(one.document) for one in first]
    assert to_yaml(third) == to_yaml(second)
    forget(name, tmp_path)
    forget(again, tmp_path)
