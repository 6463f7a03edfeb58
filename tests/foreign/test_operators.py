"""The definitions of well-known operators and their own samples: answered as a real kube-apiserver answers them; and typed models of them.

``python -m tests.foreign.operators`` recorded the expected results from a real server."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from kubeloop.cli.generate import generate
from kubeloop.client import Client
from kubeloop.codec import decode, encode
from kubeloop.meta import GroupVersionKind
from tests.foreign.operators import Operator, installed, operators, tried

# The first test of an operator fetches its module.
pytestmark = pytest.mark.timeout(600)

ALL = operators()
MODELLED = [name for name, one in ALL.items() if one.samples]


@pytest.fixture
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder from which ``models_of_an_operator`` is imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path / "models_of_an_operator"
    for name in [name for name in sys.modules if name.startswith("models_of_an_operator")]:
        del sys.modules[name]


@pytest.mark.server
@pytest.mark.parametrize("name", list(ALL))
async def test_a_server_answers_definitions_and_samples_as_a_real_one(client: Client, namespace: str, name: str) -> None:
    async with installed(client, ALL[name]) as lines:
        if not any("refused" in line for line in lines):
            lines += await tried(client, ALL[name], namespace)
    assert lines == ALL[name].expected.read_text().splitlines()


@pytest.mark.parametrize("name", MODELLED)
def test_models_of_an_operators_kinds_carry_its_samples(models: Path, name: str) -> None:
    operator = ALL[name]
    files = [text for file in operator.definition_files() for text in ("--crd", str(file))]
    result = CliRunner().invoke(generate, ["models", *files, "--out", str(models)])
    assert result.exit_code == 0, result.output
    package = importlib.import_module("models_of_an_operator")
    accepted = _accepted(operator)
    carried = [sample for sample in operator.sample_documents if sample.place in accepted]
    assert len(carried) == len(accepted)
    for sample in carried:
        assert _changed(package, sample.document) == _expected(sample.document), sample.place


def _accepted(operator: Operator) -> set[str]:
    lines = operator.expected.read_text().splitlines()
    return {line.split(" ")[0] for line in lines if ": accepted " in line}


def _changed(package: Any, document: dict[str, Any]) -> Any:
    """A sample, read into its class, with a label more, and written again."""
    group, _, version = document["apiVersion"].rpartition("/")
    found = decode(package.find(GroupVersionKind(group, version, document["kind"])), json.dumps(document).encode())
    found.metadata.labels["kubeloop.test"] = "changed"
    return json.loads(encode(found))


def _expected(document: dict[str, Any]) -> dict[str, Any]:
    metadata = document.get("metadata") or {}
    return {**document, "metadata": {**metadata, "labels": {**(metadata.get("labels") or {}), "kubeloop.test": "changed"}}}
