"""The stored definitions generate the classes of the Gateway API."""

from __future__ import annotations

import gzip
from pathlib import Path

from click.testing import CliRunner

from examples.ingress_nginx.gateway import types
from examples.ingress_nginx.gateway.objects import BUNDLE_VERSION
from kubeloop.cli.generate import models

CRDS = Path(__file__).parent / "data" / "gateway-crds.json.gz"


def test_the_generator_writes_types_py_from_the_definitions(tmp_path: Path) -> None:
    definitions = tmp_path / "crds.json"
    definitions.write_bytes(gzip.decompress(CRDS.read_bytes()))
    result = CliRunner().invoke(models, ["--crd", str(definitions), "--out", str(types.__file__), "--check"])
    assert result.exit_code == 0, result.output


def test_the_known_version_is_that_of_the_definitions() -> None:
    assert f'"gateway.networking.k8s.io/bundle-version":"{BUNDLE_VERSION}"'.encode() in gzip.decompress(CRDS.read_bytes())
